//! Errors of opening a file or block device: the cause and the remedy, in one line.

use std::io;
use std::path::PathBuf;

use super::lock::Holder;

/// Errors of [`FileStore::open`](super::FileStore::open).
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing has this name.
    #[error("{path}: no such file or device; create it (truncate -s SIZE) or correct the path",
        path = path.display())]
    NotFound {
        /// The path to open.
        path: PathBuf,
    },
    /// The permissions of the file, or of a directory on its path, forbid it.
    #[error("{path}: no permission to {}; run as a user who has it{}", access(*.read_only),
        if *.read_only { "" } else { ", or export it read-only" }, path = path.display())]
    Permission {
        /// The path to open.
        path: PathBuf,
        /// Whether it was opened for reading only.
        read_only: bool,
    },
    /// The medium or its filesystem is read-only, the export is not.
    #[error("{path}: is on a read-only medium; export it read-only", path = path.display())]
    WriteProtected {
        /// The path to open.
        path: PathBuf,
    },
    /// The path is a directory.
    #[error("{path}: is a directory; name a regular file in it, or a block device",
        path = path.display())]
    Directory {
        /// The path to open.
        path: PathBuf,
    },
    /// The path is a socket, a pipe or a character device.
    #[error("{path}: is neither a regular file nor a block device; name one that is",
        path = path.display())]
    NotADisk {
        /// The path to open.
        path: PathBuf,
    },
    /// The file or device is smaller than one block.
    #[error("{path}: {size} bytes hold no block of {block_size}; enlarge it (truncate -s SIZE)",
        path = path.display())]
    TooSmall {
        /// The path to open.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// Bytes in a block.
        block_size: u32,
    },
    /// The block size is not supported.
    #[error("{path}: block size {block_size} is not supported; use 512 or 4096",
        path = path.display())]
    BlockSize {
        /// The path to open.
        path: PathBuf,
        /// The block size asked for, or the device's own.
        block_size: u32,
    },
    /// The block size is below the device's sector size.
    #[error("{path}: the device has sectors of {sector} bytes; use a block size of {sector}, \
        not {block_size}", path = path.display())]
    BelowSector {
        /// The path to open.
        path: PathBuf,
        /// The block size asked for.
        block_size: u32,
        /// Bytes in one of the device's logical sectors.
        sector: u32,
    },
    /// The block size would cut off the end of the device, which partition tables do not survive.
    #[error("{path}: block size {block_size} does not divide the device's {size} bytes; \
        use a block size of 512", path = path.display())]
    Indivisible {
        /// The path to open.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The block size asked for.
        block_size: u32,
    },
    /// Another process holds the lock.
    #[error("{path}: in use by {holder}; stop that first{}",
        if *.read_only { "" } else { " (only read-only exports can share it)" },
        path = path.display())]
    InUse {
        /// The path to open.
        path: PathBuf,
        /// The holder of the lock, as far as the kernel tells.
        holder: Holder,
        /// Whether it was opened for reading only.
        read_only: bool,
    },
    /// QEMU, or one of its tools, has the image open.
    #[error("{path}: QEMU, or a tool of it, has it open; stop that first{}",
        if *.read_only { "" } else { " (only read-only exports can share it)" },
        path = path.display())]
    OpenInQemu {
        /// The path to open.
        path: PathBuf,
        /// Whether it was opened for reading only.
        read_only: bool,
    },
    /// The kernel itself uses the file or device.
    #[error("{path}: the kernel uses it ({occupant}); release it first, or export it read-only",
        path = path.display())]
    Busy {
        /// The path to open.
        path: PathBuf,
        /// The kernel's use of it.
        occupant: String,
    },
    /// [`Direct::On`](super::Direct::On) where direct I/O is not possible.
    #[error("{path}: direct I/O is not possible: {why}", path = path.display())]
    NoDirect {
        /// The path to open.
        path: PathBuf,
        /// The reason, and a remedy if there is one.
        why: String,
    },
    /// Any other failure of a system call.
    #[error("{path}: {call}: {source}", path = path.display())]
    System {
        /// The path to open.
        path: PathBuf,
        /// The system call that failed.
        call: &'static str,
        /// The error of the call.
        source: io::Error,
    },
}

fn access(read_only: bool) -> &'static str {
    if read_only { "read it" } else { "read and write it" }
}
