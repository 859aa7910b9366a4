//! The operations of a disk.

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
}

impl Operation {
    /// Whether it carries data, in either direction.
    #[inline]
    pub fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write { .. })
    }

    /// Whether it changes the content of the disk: on a read-only disk it fails.
    #[inline]
    pub fn modifies(self) -> bool {
        matches!(self, Self::Write { .. } | Self::Discard | Self::WriteZeroes { .. })
    }
}
