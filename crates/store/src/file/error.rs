//! Why a file or block device cannot be exported: what is wrong and what to do, in one line.

use std::io;
use std::path::PathBuf;

use super::lock::Holder;

/// What [`FileStore::open`](super::FileStore::open) says when it cannot.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing has this name.
    #[error("{path}: no such file or device; create it (truncate -s SIZE) or correct the path",
        path = path.display())]
    NotFound {
        /// What was to be opened.
        path: PathBuf,
    },
    /// The permissions of the file, or of a directory on the way to it.
    #[error("{path}: no permission to {}; run as a user who has it{}", access(*.read_only),
        if *.read_only { "" } else { ", or export it read-only" }, path = path.display())]
    Permission {
        /// What was to be opened.
        path: PathBuf,
        /// Whether only reading was asked for.
        read_only: bool,
    },
    /// The medium or its filesystem is read-only, the export is not.
    #[error("{path}: is on a read-only medium; export it read-only", path = path.display())]
    WriteProtected {
        /// What was to be opened.
        path: PathBuf,
    },
    /// A directory.
    #[error("{path}: is a directory; name a regular file in it, or a block device",
        path = path.display())]
    Directory {
        /// What was to be opened.
        path: PathBuf,
    },
    /// A socket, a pipe, a character device.
    #[error("{path}: is neither a regular file nor a block device; name one that is",
        path = path.display())]
    NotADisk {
        /// What was to be opened.
        path: PathBuf,
    },
    /// Not one whole block in it.
    #[error("{path}: {size} bytes hold no block of {block_size}; enlarge it (truncate -s SIZE)",
        path = path.display())]
    TooSmall {
        /// What was to be opened.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// Bytes in a block.
        block_size: u32,
    },
    /// A block size that no export has.
    #[error("{path}: block size {block_size} is not supported; use 512 or 4096",
        path = path.display())]
    BlockSize {
        /// What was to be opened.
        path: PathBuf,
        /// The block size asked for, or the device's own.
        block_size: u32,
    },
    /// The device cannot write blocks as small as asked for.
    #[error("{path}: the device has sectors of {sector} bytes; use a block size of {sector}, \
        not {block_size}", path = path.display())]
    BelowSector {
        /// What was to be opened.
        path: PathBuf,
        /// The block size asked for.
        block_size: u32,
        /// Bytes in one of the device's logical sectors.
        sector: u32,
    },
    /// The end of the device would be cut off, which partition tables do not survive.
    #[error("{path}: block size {block_size} does not divide the device's {size} bytes; \
        use a block size of 512", path = path.display())]
    Indivisible {
        /// What was to be opened.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The block size asked for.
        block_size: u32,
    },
    /// Somebody else holds the lock.
    #[error("{path}: in use by {holder}; stop that first{}",
        if *.read_only { "" } else { " (only read-only exports can share it)" },
        path = path.display())]
    InUse {
        /// What was to be opened.
        path: PathBuf,
        /// Who has it, as far as the kernel tells.
        holder: Holder,
        /// Whether only reading was asked for.
        read_only: bool,
    },
    /// The kernel itself uses the block device.
    #[error("{path}: the kernel uses it ({occupant}); release it first, or export it read-only",
        path = path.display())]
    Busy {
        /// What was to be opened.
        path: PathBuf,
        /// What it is used for.
        occupant: String,
    },
    /// [`Direct::On`](super::Direct::On) where it cannot be.
    #[error("{path}: direct I/O is not possible: {why}", path = path.display())]
    NoDirect {
        /// What was to be opened.
        path: PathBuf,
        /// The reason, and a remedy if there is one.
        why: String,
    },
    /// Everything else.
    #[error("{path}: {call}: {source}", path = path.display())]
    System {
        /// What was to be opened.
        path: PathBuf,
        /// The system call that failed.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
}

fn access(read_only: bool) -> &'static str {
    if read_only { "read it" } else { "read and write it" }
}
