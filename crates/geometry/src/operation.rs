//! The operations of a disk, and which of them it can do.

use crate::{Geometry, STATUS_LEN_MAX};

/// An operation of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Fill the buffer from the disk.
    Read,
    /// Write the buffer to the disk.
    Write {
        /// Force unit access: done only when on stable storage.
        fua: bool,
    },
    /// Make every write that was done before this operation durable.
    Flush,
    /// The range's content is no longer needed; reads may return anything until rewritten.
    Discard,
    /// The range reads as zeroes from now on.
    WriteZeroes {
        /// Force unit access: done only when on stable storage.
        fua: bool,
        /// Blocks may be deallocated (a hole may be punched).
        may_unmap: bool,
    },
    /// Fill the buffer with the status of the disk from the offset on, as
    /// [`StatusWriter`](crate::StatusWriter) writes it: at least one run. The length is that of the
    /// answer, [`STATUS_LEN_MAX`] at most.
    BlockStatus,
}

impl Operation {
    /// Whether it carries data, in either direction.
    #[inline]
    pub fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write { .. } | Self::BlockStatus)
    }

    /// Whether it changes the content of the disk: on a read-only disk it fails.
    #[inline]
    pub fn modifies(self) -> bool {
        matches!(self, Self::Write { .. } | Self::Discard | Self::WriteZeroes { .. })
    }
}

/// The reason why a disk cannot do an operation on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// It would change a read-only disk.
    ReadOnly,
    /// It would change what is past the end of the disk.
    NoSpace,
    /// The range is empty, misaligned, or past the end of the disk.
    Invalid,
}

impl Geometry {
    /// Checks an operation on a range in bytes: read-only, alignment, bounds. A flush has no range.
    ///
    /// # Errors
    /// The first reason against it.
    #[inline]
    pub fn check(&self, operation: Operation, offset: u64, len: u32) -> Result<(), Misfit> {
        if operation.modifies() && self.read_only {
            return Err(Misfit::ReadOnly);
        }
        if operation == Operation::Flush {
            return Ok(());
        }
        let block = u64::from(self.block_size);
        if operation == Operation::BlockStatus && len > STATUS_LEN_MAX {
            return Err(Misfit::Invalid);
        }
        if len == 0 || !offset.is_multiple_of(block) || !u64::from(len).is_multiple_of(block) {
            return Err(Misfit::Invalid);
        }
        if offset.checked_add(u64::from(len)).is_none_or(|end| end > self.size) {
            return Err(if operation.modifies() { Misfit::NoSpace } else { Misfit::Invalid });
        }
        Ok(())
    }
}
