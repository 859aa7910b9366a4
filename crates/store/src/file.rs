//! A disk kept in a regular file or a block device, through io_uring.
//!
//! **Opening** takes the lock, measures the disk and decides about direct I/O; every error is
//! reported then, in one line with a remedy ([`OpenError`]). One open file description holds the
//! lock and does the I/O, and a request in flight keeps it alive. So the lock is not released
//! before the last write is out, even by `kill -9`.
//!
//! **Direct I/O** (`O_DIRECT`) is used if every request is aligned as the file demands: its blocks
//! must be large enough, and its memory is always whole pages. Otherwise all requests use the page
//! cache.
//!
//! **Durability.** Write-through, the default: a completed write is on stable storage. Write-back:
//! only FUA requests are, and a flush makes everything durable that completed before it. Without a
//! cache direct writes carry `RWF_DSYNC`; all other durable requests end with `fdatasync`.
//!
//! **Loss.** The kernel reports once that it could not write data back, to whoever asks first. So
//! all queues share their syncs, one at a time (`syncs`), and no request asks in another way.
//! After a sync that has failed where there is a cache, any completed write may be lost:
//! [`losses`](crate::Store::losses) counts that. Without a cache a failed write concerns only
//! itself, because all writes that completed before it were durable.
//!
//! **Shrinking.** A file that has become shorter than the disk has lost what was cut off. Requests
//! beyond the present end fail, also writes, which would lengthen it, and go on to fail if another
//! program lengthens it. A file that is cut between the measurement and a write of the same batch
//! is not noticed by that batch.
//!
//! **Holes.** A thread of the file asks the file system for them (`status`). A device tells none.
//!
//! **Sleeping.** [`wait_fd`](crate::Queue::wait_fd) is the ring's own descriptor: readable exactly
//! while completions wait, level-triggered, and without the counter of an `eventfd`. Requests that
//! fail at once go through the ring as well, so that it alone signals completions.

mod backing;
mod buffers;
mod error;
mod identity;
mod job;
mod lock;
mod opened;
mod others;
mod queue;
mod status;
mod syncs;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tyche_block::Geometry;

use crate::{BackingError, Queue, ResizeError, Store};
use opened::Opened;
use queue::RingQueue;

pub use error::OpenError;
pub use lock::Holder;

/// The choice between direct I/O and the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where the file allows it for blocks of the export's size.
    #[default]
    Auto,
    /// Always; opening fails where it is not possible.
    On,
    /// Never.
    Off,
}

/// Options to open a [`FileStore`] with.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Refuse modifications, and share the file with other read-only exports.
    pub read_only: bool,
    /// Completed writes may be volatile until flushed.
    pub write_back: bool,
    /// Whether to use direct I/O.
    pub direct: Direct,
    /// Bytes in a block, 512 or 4096. The default is that of the device, and 512 for a file: the
    /// sectors of an image must not change with the disk that stores it.
    pub block_size: Option<u32>,
    /// The longest wait for the lock: a killed process holds it until its last write is out, and
    /// udev takes it briefly when a device appears.
    pub lock_wait: Duration,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            write_back: false,
            direct: Direct::Auto,
            block_size: None,
            lock_wait: Duration::from_secs(3),
        }
    }
}

/// See the [module](self).
pub struct FileStore {
    opened: Arc<Opened>,
}

impl FileStore {
    /// Opens and locks `path`, a regular file or a block device.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self, OpenError> {
        Ok(Self { opened: Arc::new(Opened::new(path.as_ref(), options)?) })
    }

    /// The disk's own identity: a serial number, or a file's inode and time of birth. It is unique,
    /// and stable over restarts, reboots and other paths to the disk. `None` for a device without
    /// one.
    pub fn identity(&self) -> Option<&str> {
        self.opened.identity.as_deref()
    }

    /// Bytes at the end of the file that are no whole block, and not part of the disk.
    pub fn odd_end(&self) -> u64 {
        self.opened.odd
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.opened.direct
    }
}

impl Store for FileStore {
    fn geometry(&self) -> Geometry {
        self.opened.geometry()
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(RingQueue::new(&self.opened, depth)?))
    }

    /// Enlarges a file. A device is only measured again, because its size cannot be set here. If
    /// the file or device has shrunk, the exported size stays, requests beyond the present end fail
    /// with `EIO`, and a resize is refused.
    fn resize(&self, size: Option<u64>) -> Result<u64, ResizeError> {
        self.opened.resize(size)
    }

    fn check_backing(&self) -> Result<(), BackingError> {
        self.opened.check_backing()
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.opened.regular_file()
    }

    fn losses(&self) -> u64 {
        self.opened.losses()
    }
}

impl std::fmt::Debug for FileStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileStore")
            .field("geometry", &self.geometry())
            .field("direct", &self.opened.direct)
            .field("losses", &self.losses())
            .finish_non_exhaustive()
    }
}
