//! Requests to a disk, and their completions.

use tyche_geometry::{Geometry, Operation};

use crate::{Errno, Extent};

/// An [`Operation`] without its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in Operation")]
pub enum OperationKind {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
    BlockStatus,
}

impl OperationKind {
    /// All of them, in order.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Write, Self::Flush, Self::Discard, Self::WriteZeroes, Self::BlockStatus];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write_zeroes",
            Self::BlockStatus => "block_status",
        }
    }
}

impl From<Operation> for OperationKind {
    #[inline]
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Read => Self::Read,
            Operation::Write { .. } => Self::Write,
            Operation::Flush => Self::Flush,
            Operation::Discard => Self::Discard,
            Operation::WriteZeroes { .. } => Self::WriteZeroes,
            Operation::BlockStatus => Self::BlockStatus,
        }
    }
}

/// One request. `offset` and `len` are bytes and multiples of the disk's block size; a flush has
/// zero for both.
#[derive(Debug)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// First byte on the disk.
    pub offset: u64,
    /// Length of the range. For reads and writes at most the buffer's length. Of a block status it
    /// is the length of the answer; the range that the answer is about is the disk's to choose.
    pub len: u32,
    /// The data of a write, or the memory for data or status to be read; `None` for all other
    /// operations.
    pub buffer: Option<Extent>,
}

impl Request {
    /// Checks the request against a disk: alignment, bounds, read-only, buffer.
    ///
    /// # Errors
    /// [`Errno::ROFS`] for a modification of a read-only disk, [`Errno::NOSPC`] for a write past
    /// the end (as Linux block devices do), [`Errno::INVAL`] for everything else.
    pub fn check(&self, disk: &Geometry) -> Result<(), Errno> {
        let Self { operation, offset, len, ref buffer } = *self;
        disk.check(operation, offset, len)?;
        let room = buffer.as_ref().map_or(0, |buffer| buffer.len());
        if operation.has_data() && room < len as usize {
            return Err(Errno::INVAL);
        }
        Ok(())
    }
}

/// The completion of a request: its result, and its buffer.
#[derive(Debug)]
pub struct Completion {
    /// The token that the request was submitted with.
    pub token: u64,
    /// Success, or the error. After an error the content of a read's buffer is undefined.
    pub result: Result<(), Errno>,
    /// The request's buffer.
    pub buffer: Option<Extent>,
}
