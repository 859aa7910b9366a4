//! Errors and checks of a resize.

use std::io;

use tyche_block::Geometry;

use crate::BackingError;

/// Errors of [`Store::resize`](crate::Store::resize).
#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    /// The new size is smaller.
    #[error("it has {now} bytes, and {wanted} are fewer; disks only grow")]
    Shrinks {
        /// The current size in bytes.
        now: u64,
        /// The size asked for, in bytes.
        wanted: u64,
    },
    /// The size is not a multiple of the block size.
    #[error("{wanted} bytes are no whole number of blocks; use a multiple of {block_size}")]
    Indivisible {
        /// The size asked for, in bytes.
        wanted: u64,
        /// Bytes in a block.
        block_size: u32,
    },
    /// A disk in memory has a fixed size.
    #[error("a disk in memory keeps its size; to grow, export a file, which may be on a tmpfs")]
    Memory,
    /// The disk is exported read-only.
    #[error("it is exported read-only; enlarge its file by other means, then leave the size out")]
    ReadOnly,
    /// The block device does not have the size asked for.
    #[error("its device has {now} bytes; enlarge that first (lvextend), then leave the size out")]
    Device {
        /// The size of the device in bytes.
        now: u64,
    },
    /// The backing file or device has changed.
    #[error(transparent)]
    Backing(#[from] BackingError),
    /// A system call failed.
    #[error("{call}: {source}")]
    System {
        /// The system call.
        call: &'static str,
        /// The error of the call.
        source: io::Error,
    },
}

/// Checks that a disk with this geometry may grow to `size` bytes.
pub(crate) fn check(size: u64, disk: &Geometry) -> Result<(), ResizeError> {
    let Geometry { size: now, block_size, .. } = *disk;
    if size < now {
        return Err(ResizeError::Shrinks { now, wanted: size });
    }
    if !size.is_multiple_of(u64::from(block_size)) {
        return Err(ResizeError::Indivisible { wanted: size, block_size });
    }
    Ok(())
}
