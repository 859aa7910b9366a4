//! Replies to requests: the headers of simple replies and of structured ones, and the map of an
//! extent's status.

use tyche_block::{Errno, status_runs};

use super::contexts::ALLOCATION_ID;

/// Starts every simple reply.
const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// Starts every chunk of a structured reply.
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
/// The chunk is the last of its reply. All replies here have one.
const DONE: u16 = 1;

/// Kinds of chunks.
mod chunk {
    pub(super) const OFFSET_DATA: u16 = 1;
    pub(super) const BLOCK_STATUS: u16 = 5;
    pub(super) const ERROR: u16 = 1 << 15 | 1;
}

/// Flags of a range in the context `base:allocation`.
mod state {
    pub(super) const HOLE: u32 = 1;
    pub(super) const ZERO: u32 = 2;
}

/// Bytes of a descriptor: the length of a range, and its flags.
pub(super) const DESCRIPTOR_LEN: usize = 8;

/// The header of a reply, which its data follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyHeader {
    bytes: [u8; Self::LEN_MAX],
    len: usize,
}

impl ReplyHeader {
    /// Bytes of the longest: a chunk's, the number of a context, and one descriptor.
    const LEN_MAX: usize = 32;

    const fn new() -> Self {
        Self { bytes: [0; Self::LEN_MAX], len: 0 }
    }

    fn put(mut self, field: &[u8]) -> Self {
        self.bytes[self.len..][..field.len()].copy_from_slice(field);
        self.len += field.len();
        self
    }

    /// A simple reply; the data of a successful read follow.
    pub(super) fn simple(cookie: u64, result: Result<(), Errno>) -> Self {
        let error = result.map_or_else(error_number, |()| 0);
        let this = Self::new().put(&SIMPLE_MAGIC.to_be_bytes()).put(&error.to_be_bytes());
        this.put(&cookie.to_be_bytes())
    }

    /// The only chunk of a reply; `len`: bytes behind its header.
    fn chunk(cookie: u64, kind: u16, len: usize) -> Self {
        let len = u32::try_from(len).expect("a reply has at most some MiB");
        let this = Self::new().put(&STRUCTURED_MAGIC.to_be_bytes()).put(&DONE.to_be_bytes());
        this.put(&kind.to_be_bytes()).put(&cookie.to_be_bytes()).put(&len.to_be_bytes())
    }

    /// A structured reply to a read, which `len` bytes of data follow.
    pub(super) fn data(cookie: u64, offset: u64, len: usize) -> Self {
        Self::chunk(cookie, chunk::OFFSET_DATA, 8 + len).put(&offset.to_be_bytes())
    }

    /// A structured reply to a request for the status of a range, which `count` descriptors follow.
    pub(super) fn status(cookie: u64, count: usize) -> Self {
        let this = Self::chunk(cookie, chunk::BLOCK_STATUS, 4 + count * DESCRIPTOR_LEN);
        this.put(&ALLOCATION_ID.to_be_bytes())
    }

    /// The same for a range that is all data.
    pub(super) fn all_data(cookie: u64, len: u32) -> Self {
        Self::status(cookie, 1).put(&len.to_be_bytes()).put(&0_u32.to_be_bytes())
    }

    /// A structured reply that is an error, without a text.
    pub(super) fn error(cookie: u64, errno: Errno) -> Self {
        let this = Self::chunk(cookie, chunk::ERROR, 6).put(&error_number(errno).to_be_bytes());
        this.put(&0_u16.to_be_bytes())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The question of a client for the status of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatusQuestion {
    /// The range in bytes.
    pub(super) offset: u64,
    pub(super) len: u32,
    /// The first part of it only is wanted.
    pub(super) is_one: bool,
    /// Bytes in a block of the disk.
    pub(super) block_size: u32,
}

/// Turns a disk's answer into descriptors of the range that was asked for, in place. Returns their
/// number; `None` if the answer is none.
pub(super) fn describe(answer: &mut [u8], question: StatusQuestion) -> Option<usize> {
    let StatusQuestion { offset, len, is_one, block_size } = question;
    // Of what it checked, each run is a word of eight bytes, which its descriptor replaces.
    let count = status_runs(answer, offset, block_size)?.count();
    let (words, _) = answer.as_chunks_mut::<DESCRIPTOR_LEN>();
    let most = if is_one { 1 } else { count };
    let mut left = len;
    let mut used = 0;
    while used < most && left > 0 {
        let run = status_runs(&words[used][..], offset, block_size)?.next()?;
        let covered = u32::try_from(run.len).unwrap_or(u32::MAX).min(left);
        let mut flags = 0;
        flags |= if run.is_hole { state::HOLE } else { 0 };
        flags |= if run.is_zero { state::ZERO } else { 0 };
        words[used][..4].copy_from_slice(&covered.to_be_bytes());
        words[used][4..].copy_from_slice(&flags.to_be_bytes());
        left -= covered;
        used += 1;
    }
    Some(used)
}

/// Converts an errno to the nearest of NBD's nine errors.
fn error_number(errno: Errno) -> u32 {
    const EPERM: u32 = 1;
    const EIO: u32 = 5;
    const EINVAL: u32 = 22;
    const ENOSPC: u32 = 28;
    match errno.0 {
        libc::EROFS | libc::EACCES | libc::EPERM => EPERM,
        libc::EFBIG | libc::EDQUOT | libc::ENOSPC => ENOSPC,
        libc::EINVAL => EINVAL,
        known @ (libc::ENOMEM | libc::EOVERFLOW | libc::EOPNOTSUPP | libc::ESHUTDOWN) => {
            known.unsigned_abs()
        }
        _ => EIO,
    }
}

#[cfg(test)]
mod tests {
    use tyche_block::{StatusRun, StatusWriter};

    use super::*;

    #[test]
    fn errors_are_mapped_to_the_nine_that_exist() {
        let number = |errno| ReplyHeader::simple(7, Err(Errno(errno))).bytes()[4..8].to_vec();
        let simple = ReplyHeader::simple(7, Ok(()));
        assert_eq!(simple.bytes(), *b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x07");
        for (errno, expected) in [
            (libc::EROFS, 1),
            (libc::EIO, 5),
            (libc::ETIMEDOUT, 5),
            (libc::ENOMEM, 12),
            (libc::EINVAL, 22),
            (libc::ENOSPC, 28),
            (libc::EOVERFLOW, 75),
            (libc::EOPNOTSUPP, 95),
            (libc::ESHUTDOWN, 108),
        ] {
            assert_eq!(number(errno), [0, 0, 0, expected], "errno {errno}");
        }
    }

    #[test]
    fn chunks_are_what_the_specification_says() {
        let head = |kind: [u8; 2], len: u8| {
            [&[0x66, 0x8e, 0x33, 0xef, 0, 1][..], &kind, &[0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, len]]
                .concat()
        };
        let data = ReplyHeader::data(7, 0x1000, 100);
        assert_eq!(data.bytes(), [head([0, 1], 108), vec![0, 0, 0, 0, 0, 0, 0x10, 0]].concat());
        let error = ReplyHeader::error(7, Errno::INVAL);
        assert_eq!(error.bytes(), [head([0x80, 1], 6), vec![0, 0, 0, 22, 0, 0]].concat());
        let all = ReplyHeader::all_data(7, 512);
        let expected = [head([0, 5], 12), vec![0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 0]].concat();
        assert_eq!(all.bytes(), expected);
    }

    #[test]
    fn a_range_is_described_up_to_its_end() {
        let runs = [StatusRun::data(1024), StatusRun::hole(8 << 30), StatusRun::data(512)];
        let answer = || {
            let mut bytes = [0; 512];
            let mut writer = StatusWriter::new(&mut bytes);
            assert!(runs.iter().all(|run| writer.push(*run)));
            bytes
        };
        let described = |len: u32, is_one: bool| {
            let mut bytes = answer();
            let question = StatusQuestion { offset: 4096, len, is_one, block_size: 512 };
            let count = describe(&mut bytes, question).unwrap();
            let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
            let words = bytes[..count * 8].chunks(8);
            words.map(|word| (number(&word[..4]), number(&word[4..]))).collect::<Vec<_>>()
        };
        assert_eq!(described(512, false), [(512, 0)]);
        assert_eq!(described(1024, false), [(1024, 0)]);
        assert_eq!(described(4096, false), [(1024, 0), (3072, 3)]);
        assert_eq!(described(4096, true), [(1024, 0)]);
        let most = u32::MAX - 511;
        assert_eq!(described(most, false), [(1024, 0), (most - 1024, 3)]);
        let question = StatusQuestion { offset: 0, len: 4096, is_one: false, block_size: 4096 };
        assert_eq!(describe(&mut [0; 512], question), None);
        assert_eq!(describe(&mut [0xEE; 512], question), None);
        assert_eq!(describe(&mut answer(), question), None, "parts of blocks");
    }
}
