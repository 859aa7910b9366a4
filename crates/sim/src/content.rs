//! What sectors hold: every sector of every operation that modifies is told apart from all others
//! by its content, and a single wrong bit in it shows. That of a write comes with it; what
//! write-zeroes and discard leave is made up by the disk, with the stamp of the operation.
//!
//! A written sector is its operation's stamp, its own number, and 62 words that follow from these.

use tyche_wire::SECTOR_LEN;

use crate::random::mix;

/// Bytes of a sector.
pub(crate) const SECTOR: usize = SECTOR_LEN as usize;
/// Words that hold the stamp and the sector's number.
const HEAD_WORDS: u64 = 2;

/// What a sector was found to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing but zeroes: never written.
    Zero,
    /// What the operation of this stamp put here.
    Stamp(u64),
    /// Nothing that anybody ever wrote here.
    Garbage,
}

fn word(stamp: u64, sector: u64, index: u64) -> u64 {
    mix(stamp ^ sector << 40).wrapping_add(index.wrapping_mul(0x2545_f491_4f6c_dd1d))
}

/// Fills whole sectors, the first of which is `first`, with the content of one write.
pub(crate) fn fill(bytes: &mut [u8], stamp: u64, first: u64) {
    for (sector, bytes) in (first..).zip(bytes.chunks_exact_mut(SECTOR)) {
        let (words, _) = bytes.as_chunks_mut::<8>();
        let base = mix(stamp ^ sector << 40);
        for (index, bytes) in (0..).zip(words) {
            let step = u64::wrapping_mul(index, 0x2545_f491_4f6c_dd1d);
            *bytes = match index {
                0 => stamp,
                1 => sector,
                _ => base.wrapping_add(step),
            }
            .to_le_bytes();
        }
    }
}

/// Says what the sector numbered `sector` holds.
pub(crate) fn examine(bytes: &[u8], sector: u64) -> Content {
    let (words, _) = bytes.as_chunks::<8>();
    let read = |index: u64| u64::from_le_bytes(words[index as usize]);
    let stamp = read(0);
    if stamp == 0 {
        let zero = bytes.iter().all(|&byte| byte == 0);
        return if zero { Content::Zero } else { Content::Garbage };
    }
    let rest = HEAD_WORDS..words.len() as u64;
    if read(1) == sector && rest.into_iter().all(|i| read(i) == word(stamp, sector, i)) {
        Content::Stamp(stamp)
    } else {
        Content::Garbage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_misplaced_sector_shows() {
        let mut bytes = [0; 2 * SECTOR];
        assert_eq!(examine(&bytes[..SECTOR], 7), Content::Zero);
        fill(&mut bytes, 99, 7);
        assert_eq!(examine(&bytes[..SECTOR], 7), Content::Stamp(99));
        assert_eq!(examine(&bytes[SECTOR..], 8), Content::Stamp(99));
        assert_eq!(examine(&bytes[SECTOR..], 7), Content::Garbage);
        for bit in 0..SECTOR * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(examine(&bytes[..SECTOR], 7), Content::Garbage, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
