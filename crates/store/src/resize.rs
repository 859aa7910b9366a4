//! Why a disk does not get another size.

use std::io;

use tyche_block::Geometry;

use crate::BackingError;

/// What [`Store::resize`](crate::Store::resize) says when it cannot.
#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    /// It would lose blocks.
    #[error("it has {now} bytes, and {wanted} are fewer; disks only grow")]
    Shrinks {
        /// Bytes that it has.
        now: u64,
        /// Bytes that were asked for.
        wanted: u64,
    },
    /// The last block would not be whole.
    #[error("{wanted} bytes are no whole number of blocks; use a multiple of {block_size}")]
    Indivisible {
        /// Bytes that were asked for.
        wanted: u64,
        /// Bytes in a block.
        block_size: u32,
    },
    /// Memory stays what it was.
    #[error("a disk in memory keeps its size; to grow, export a file, which may be on a tmpfs")]
    Memory,
    /// The file may not be written.
    #[error("it is exported read-only; enlarge its file by other means, then leave the size out")]
    ReadOnly,
    /// A block device is as large as it is.
    #[error("its device has {now} bytes; enlarge that first (lvextend), then leave the size out")]
    Device {
        /// Bytes of the device.
        now: u64,
    },
    /// What holds the blocks is not what it was.
    #[error(transparent)]
    Backing(#[from] BackingError),
    /// The kernel refuses.
    #[error("{call}: {source}")]
    System {
        /// The system call.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
}

/// Whether a disk like this could have `size` bytes.
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
