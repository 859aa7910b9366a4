//! Content of sectors. It identifies the sector and the modifying operation, by its stamp, and
//! reveals a single wrong bit. The data of a write have it; for WriteZeroes and Discard, the disk
//! fills it in.
//!
//! A written sector consists of the operation's stamp, the sector's number, and 62 words computed
//! from both.

use tyche_wire::SECTOR_LEN;

use crate::random::mix;

/// Bytes of a sector.
pub(crate) const SECTOR: usize = SECTOR_LEN as usize;
/// Words that hold the stamp and the sector's number.
const HEAD_WORDS: u64 = 2;

/// The content found in a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Zeroes: never written.
    Zero,
    /// Content of the operation with this stamp.
    Stamp(u64),
    /// Content that no operation has written to this sector.
    Garbage,
}

/// Difference of two consecutive words, modulo 2⁶⁴.
const STEP: u64 = 0x2545_f491_4f6c_dd1d;

/// The word of a sector at `index`. The words of the head are replaced by stamp and number.
fn word(stamp: u64, sector: u64, index: u64) -> u64 {
    mix(stamp ^ sector << 40).wrapping_add(index.wrapping_mul(STEP))
}

/// Fills whole sectors, from number `first` on, with the content of one operation.
pub(crate) fn fill(bytes: &mut [u8], stamp: u64, first: u64) {
    for (sector, bytes) in (first..).zip(bytes.chunks_exact_mut(SECTOR)) {
        let (words, _) = bytes.as_chunks_mut::<8>();
        let mut next = word(stamp, sector, 0);
        for word in words.iter_mut() {
            *word = next.to_le_bytes();
            next = next.wrapping_add(STEP);
        }
        (words[0], words[1]) = (stamp.to_le_bytes(), sector.to_le_bytes());
    }
}

/// Returns the content of the sector with the number `sector`. It compares all words without a
/// branch: most sectors are valid, and the simulator examines many.
pub(crate) fn examine(bytes: &[u8], sector: u64) -> Content {
    let (words, _) = bytes.as_chunks::<8>();
    let (head, rest) = words.split_at(HEAD_WORDS as usize);
    let read = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let stamp = read(&head[0]);
    if stamp == 0 {
        let zero = words.iter().fold(0, |sum, word| sum | read(word)) == 0;
        return if zero { Content::Zero } else { Content::Garbage };
    }
    let mut next = word(stamp, sector, HEAD_WORDS);
    let mut differs = read(&head[1]) ^ sector;
    for word in rest {
        differs |= read(word) ^ next;
        next = next.wrapping_add(STEP);
    }
    if differs == 0 { Content::Stamp(stamp) } else { Content::Garbage }
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
