//! The status of ranges of a disk, as a target answers it: which ranges are holes, and which read
//! as zeroes. docs/protocol-annexes.md, "Block status".
//!
//! An answer is a list of [`StatusRun`]s that follow each other from the offset of the request on,
//! one word of eight bytes for each, little-endian: the length in bytes, a multiple of 512, with
//! the two flags in its lowest bits. Words of zero fill the rest. Neighbours differ in a flag, so
//! that a map has one encoding.

/// The longest answer in bytes: 512 runs.
pub const STATUS_LEN_MAX: u32 = 4096;

/// Bytes of a word.
const WORD: usize = 8;
/// The unit of lengths in bytes.
const UNIT: u64 = 512;
/// The range takes no room at the disk.
const HOLE: u64 = 1;
/// The range reads as zeroes.
const ZERO: u64 = 2;

/// A part of a disk of one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRun {
    /// Bytes: a multiple of 512, and not zero.
    pub len: u64,
    /// The range takes no room at the disk.
    pub is_hole: bool,
    /// The range reads as zeroes.
    pub is_zero: bool,
}

impl StatusRun {
    /// A part that has to be read to know what it holds.
    pub const fn data(len: u64) -> Self {
        Self { len, is_hole: false, is_zero: false }
    }

    /// A hole, which reads as zeroes.
    pub const fn hole(len: u64) -> Self {
        Self { len, is_hole: true, is_zero: true }
    }

    fn flags(self) -> u64 {
        (u64::from(self.is_hole) * HOLE) | (u64::from(self.is_zero) * ZERO)
    }

    fn of_word(word: u64) -> Option<Self> {
        let (len, flags) = (word & !(UNIT - 1), word & (UNIT - 1));
        let is_known = flags & !(HOLE | ZERO) == 0;
        (len > 0 && is_known).then_some(Self {
            len,
            is_hole: flags & HOLE != 0,
            is_zero: flags & ZERO != 0,
        })
    }
}

/// Writes an answer.
#[derive(Debug)]
pub struct StatusWriter<'a> {
    bytes: &'a mut [u8],
    /// Words that are complete.
    used: usize,
    /// The run that may still grow.
    last: Option<StatusRun>,
}

impl<'a> StatusWriter<'a> {
    /// A list without runs in `bytes`.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        bytes.fill(0);
        Self { bytes, used: 0, last: None }
    }

    /// Adds a run behind the others; false if there is no room for it.
    pub fn push(&mut self, run: StatusRun) -> bool {
        assert!(run.len.is_multiple_of(UNIT), "a run is whole sectors");
        if run.len == 0 {
            return true;
        }
        let joined = match self.last {
            Some(last) if last.flags() == run.flags() => {
                StatusRun { len: last.len.saturating_add(run.len), ..last }
            }
            Some(_) => {
                self.used += 1;
                run
            }
            None => run,
        };
        let at = self.used * WORD;
        let Some(word) = self.bytes.get_mut(at..at + WORD) else {
            self.used -= 1;
            return false;
        };
        word.copy_from_slice(&(joined.len | joined.flags()).to_le_bytes());
        self.last = Some(joined);
        true
    }
}

/// The runs of an answer to a request at `offset` of a disk with blocks of `block_size` bytes, in
/// order; `None` if it is none that a target may give: no run, one of a part of a block or with
/// unknown flags, two neighbours that are one, bytes behind the last, or an end beyond 2⁶⁴. The
/// last run may end behind the disk as the caller knows it, because the disk may have grown.
pub fn status_runs(
    bytes: &[u8],
    offset: u64,
    block_size: u32,
) -> Option<impl Iterator<Item = StatusRun> + '_> {
    let words = || bytes.chunks_exact(WORD).map(word);
    let count = words().take_while(|&word| word != 0).count();
    let mut end = offset;
    let mut flags = None;
    for word in words().take(count) {
        let run = StatusRun::of_word(word)?;
        if !run.len.is_multiple_of(block_size.into()) {
            return None;
        }
        end = end.checked_add(run.len)?;
        if flags.replace(run.flags()) == Some(run.flags()) {
            return None;
        }
    }
    let is_filled = bytes[count * WORD..].iter().all(|&byte| byte == 0);
    (count > 0 && is_filled).then(|| words().take(count).filter_map(StatusRun::of_word))
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    fn read(bytes: &[u8], offset: u64) -> Option<Vec<StatusRun>> {
        Some(status_runs(bytes, offset, 512)?.collect())
    }

    #[test]
    fn what_is_written_is_read_and_neighbours_are_joined() {
        let mut bytes = [0xEE; 512];
        let mut writer = StatusWriter::new(&mut bytes);
        let zero = StatusRun { len: 512, is_hole: false, is_zero: true };
        let runs = [StatusRun::data(1024), StatusRun::hole(1 << 40), zero];
        for run in [StatusRun::data(512), StatusRun::data(512), runs[1], StatusRun::data(0), zero] {
            assert!(writer.push(run));
        }
        assert_eq!(bytes[..8], [0, 4, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[8..16], [3, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(bytes[16..24], [2, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read(&bytes, 0), Some(Vec::from(runs)));
    }

    #[test]
    fn a_full_list_takes_no_other_run_and_stays_valid() {
        let mut bytes = [0; 512];
        let mut writer = StatusWriter::new(&mut bytes);
        let runs = (0..64).map(|index| match index % 2 {
            0 => StatusRun::data(512),
            _ => StatusRun::hole(512),
        });
        assert!(runs.clone().all(|run| writer.push(run)));
        assert!(!writer.push(StatusRun::data(512)));
        assert!(writer.push(StatusRun::hole(512)), "it belongs to the last");
        let read = read(&bytes, 0).unwrap();
        assert_eq!((read.len(), read[63]), (64, StatusRun::hole(1024)));
        assert_eq!(read[..63], runs.take(63).collect::<Vec<_>>());
    }

    #[test]
    fn a_hostile_list_is_none() {
        let list = |words: &[u64]| {
            let mut bytes: Vec<_> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.resize(512, 0);
            bytes
        };
        let is_list = |words: &[u64], offset| read(&list(words), offset).is_some();
        assert!(is_list(&[512, 513, 512], 0));
        for (words, why) in [
            (&[][..], "no run"),
            (&[0, 512], "nothing, then a run"),
            (&[512, 0, 513], "a gap"),
            (&[3], "no length"),
            (&[512 | 4], "an unknown flag"),
            (&[512 | 256], "half a unit"),
            (&[512, 1024], "neighbours that are one"),
            (&[512, (u64::MAX - 511) | 1], "an end beyond 2^64"),
        ] {
            assert!(!is_list(words, 0), "{why}");
        }
        assert!(is_list(&[1024], u64::MAX - 1024));
        assert!(!is_list(&[1024], u64::MAX - 1023));
        let of_blocks = |words: &[u64], block| status_runs(&list(words), 0, block).is_some();
        assert!(of_blocks(&[4096, 8193], 4096));
        for words in [&[512][..], &[4096, 4096 + 513], &[4096, 513, 4096]] {
            assert!(of_blocks(words, 512) && !of_blocks(words, 4096), "a part of a block");
        }
        let mut bytes = list(&[512]);
        bytes[511] = 1;
        assert!(read(&bytes, 0).is_none(), "a byte behind the last");
    }
}
