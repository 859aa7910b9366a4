//! The steps of a command: its answer, or the operations of the disk that it stands for.

use core::iter;

use tyche_geometry::Operation;

use super::Reply;
use crate::operation::Direction;
use crate::unmap::UnmapRanges;

/// An operation of a disk, for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The number of the logical unit.
    pub unit: u8,
    /// The operation.
    pub operation: Operation,
    /// The first byte of the range; a multiple of the block size.
    pub offset: u64,
    /// Bytes of the range; a multiple of the block size. The length of a read's or write's data.
    pub len: u32,
}

/// The next step of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is over: the answer is in the buffer.
    Answer(Reply),
    /// It is this operation of the disk. The data of a write must be there first, all of them.
    Perform(Task),
    /// It is this read, of what is on stable storage: the disk is flushed first. (READ with FUA,
    /// VERIFY)
    PerformStable {
        /// The read.
        task: Task,
        /// Whether the initiator gets the data.
        is_sent: bool,
    },
    /// Its parameter list, of so many bytes, is to be given to `Server::parameters`.
    Collect {
        #[allow(missing_docs, reason = "above")]
        len: u32,
    },
}

impl Step {
    /// The direction and the length in bytes of the command's data: of its answer, of what is read
    /// or written, or of its parameter list.
    pub fn data(&self) -> (Direction, u32) {
        match *self {
            Self::Answer(Reply { len: 0, .. }) => (Direction::None, 0),
            // At most `ANSWER_LEN_MAX`.
            Self::Answer(Reply { len, .. }) => (Direction::In, len as u32),
            Self::Collect { len } => (Direction::Out, len),
            Self::PerformStable { is_sent: false, .. } => (Direction::None, 0),
            Self::PerformStable { task, is_sent: true } => (Direction::In, task.len),
            Self::Perform(Task { operation, len, .. }) => match operation {
                Operation::Read => (Direction::In, len),
                Operation::Write { .. } => (Direction::Out, len),
                _ => (Direction::None, 0),
            },
        }
    }

    /// Bytes of memory that it takes: those of its data, or of what is read without being sent.
    pub fn memory_len(&self) -> u32 {
        match self {
            Self::PerformStable { task, .. } => task.len,
            _ => self.data().1,
        }
    }
}

/// The operations that a command with a parameter list stands for. Without any the command is done.
#[derive(Clone, Debug)]
pub enum Tasks<'a> {
    /// One.
    One(iter::Once<Task>),
    /// One for each range of an UNMAP.
    Unmap {
        #[allow(missing_docs, reason = "above")]
        ranges: UnmapRanges<'a>,
        /// The number of the logical unit.
        unit: u8,
        /// Bytes of a block.
        block_size: u32,
    },
}

impl Iterator for Tasks<'_> {
    type Item = Task;

    fn next(&mut self) -> Option<Task> {
        match self {
            Self::One(task) => task.next(),
            Self::Unmap { ranges, unit, block_size } => {
                let (lba, blocks) = ranges.find(|(_, blocks)| *blocks > 0)?;
                let offset = lba * u64::from(*block_size);
                let len = blocks * *block_size;
                Some(Task { unit: *unit, operation: Operation::Discard, offset, len })
            }
        }
    }
}
