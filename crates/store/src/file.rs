//! A disk kept in a regular file or a block device, through io_uring.
//!
//! **Opening** takes the lock, measures the disk and decides about direct I/O; everything that
//! can be wrong is said then, in one line with a remedy ([`OpenError`]). There is a single open
//! file description: it holds the lock, does all I/O, and is what a request in flight keeps
//! alive. So the lock cannot be let go of before the last write is out, even by `kill -9`, and
//! there is no second view of the data to keep coherent.
//!
//! **Direct I/O** (`O_DIRECT`) is used where every request is aligned enough for it: blocks are
//! no smaller than what the file demands, memory is always whole pages. Otherwise the page cache
//! is used for all requests.
//!
//! **Durability.** Write-through, the default: each write carries `RWF_DSYNC`, zeroing ends with
//! `fdatasync`, so a completion means stable storage. Write-back: only FUA requests do so, and a
//! flush is an `fdatasync`. A sync that fails may have lost any write before it, and the kernel
//! says so only once; so from then on every flush fails until the store is opened anew.
//!
//! **Sleeping.** [`wait_fd`](crate::Queue::wait_fd) is the ring's own descriptor: readable exactly
//! while completions wait, level-triggered, and with no counter to read back as an `eventfd`
//! would have. Requests that fail at once go through the ring as well, so that it alone tells
//! what is ready.

mod backing;
mod buffers;
mod error;
mod identity;
mod job;
mod lock;
mod opened;
mod queue;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tyche_block::Geometry;

use crate::{BackingError, Queue, ResizeError, Store};
use opened::Opened;
use queue::RingQueue;

pub use error::OpenError;
pub use lock::Holder;

/// Whether to go around the page cache.
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

/// How to open a [`FileStore`].
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Refuse modifications, and share the file with other read-only exports.
    pub read_only: bool,
    /// Completed writes may be volatile until flushed.
    pub write_back: bool,
    /// Whether to go around the page cache.
    pub direct: Direct,
    /// Bytes in a block, 512 or 4096. By default that of the device, and 512 for a file: an
    /// image must not change its sectors with the disk that it is stored on.
    pub block_size: Option<u32>,
    /// How long to wait for the lock: a process that was killed holds it until its last write is
    /// out, and udev takes it briefly when a device appears.
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

    /// 128 bits that name the file or device for good, over restarts and reboots: what a UUID of
    /// the export can be made of. Another file has others, also when it takes the same name.
    pub fn uuid_seed(&self) -> u128 {
        self.opened.identity
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

    /// A file is made larger. A device is as large as it is: it may only be looked at again. What
    /// has shrunk keeps its size here, fails beyond its end with `EIO`, and is not resized.
    fn resize(&self, size: Option<u64>) -> Result<u64, ResizeError> {
        self.opened.resize(size)
    }

    fn check_backing(&self) -> Result<(), BackingError> {
        self.opened.check_backing()
    }

    /// Of this boot of the machine: what was written lives on in the kernel when the process
    /// ends. Zero where writes are durable at once.
    fn generation(&self) -> u64 {
        if self.opened.can.write_back { self.opened.boot } else { 0 }
    }
}

impl std::fmt::Debug for FileStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileStore")
            .field("geometry", &self.geometry())
            .field("direct", &self.opened.direct)
            .field("sync_failed", &self.opened.sync_failed.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
