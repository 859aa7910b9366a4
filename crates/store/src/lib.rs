//! Stores: the disks behind exports.
//!
//! A [`Store`] is one exported disk: it is opened once, holds the exclusive lock, and knows the
//! geometry. Each thread that works on it has a [`Queue`] of its own, so nothing on the data path
//! is shared. A queue takes requests that own their buffers, and returns the buffers with the
//! completions, in whatever order they finish.
//!
//! | store | what it is |
//! |---|---|
//! | [`memory`] | memory, gone with the process |
//! | [`null`] | swallows writes, reads zeroes: for measuring everything else |
//! | [`mod@file`] | a regular file or a block device through io_uring |
//! | [`fault`] | a wrapper that fails and delays requests on demand |
//! | [`handover`] | a wrapper that executes requests in a thread of its own, for comparison |

mod backing;
pub mod fault;
pub mod file;
pub mod handover;
mod inline;
mod loan;
pub mod memory;
pub mod null;
mod resize;

use std::io;
use std::os::fd::BorrowedFd;

pub use backing::BackingError;
pub use loan::Loan;
pub use resize::ResizeError;
use tyche_block::{Arena, Completion, Geometry, Request};

/// One exported disk, shared by all threads that serve it.
pub trait Store: Send + Sync {
    /// The current geometry of the disk.
    fn geometry(&self) -> Geometry;

    /// A queue for one thread, with room for `depth` requests at once. It keeps the parts of the
    /// store that it needs alive, the lock included.
    ///
    /// # Errors
    /// `InvalidInput` for a depth of zero or beyond the kernel's limit; otherwise the kernel's
    /// error when it refuses the resources.
    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>>;

    /// Enlarges the disk to `size` bytes; the new ones read as zeroes. `None`: to the size that its
    /// file or device has by now. The disk never shrinks.
    ///
    /// Returns the size; one that was asked for survives a crash of the machine from then on.
    /// Existing queues take requests for all of it.
    ///
    /// # Errors
    /// See [`ResizeError`]; the size has not changed then.
    fn resize(&self, size: Option<u64>) -> Result<u64, ResizeError>;

    /// Checks that the backing file or device is still there, and as large as the disk. Never waits
    /// for a medium.
    ///
    /// # Errors
    /// See [`BackingError`].
    fn check_backing(&self) -> Result<(), BackingError> {
        Ok(())
    }

    /// How often completed writes may have been lost since the store was opened, by a durable step
    /// (a flush, a sync, a FUA write) that failed. A failure is counted before its completion can
    /// be reaped. Once the count changes, a flush proves nothing about writes that completed
    /// before: the kernel and the disk report a loss once, to the first that asks.
    fn losses(&self) -> u64 {
        0
    }
}

/// One thread's access to a store.
///
/// Requests have passed [`Request::check`]; a queue completes one that it can't execute with
/// [`tyche_block::Errno::INVAL`] and never panics on it. Dropping a queue waits until the kernel is
/// done with every buffer.
pub trait Queue: Send {
    /// Announces `arena` as memory of future buffers, so that the queue can register it with the
    /// kernel. Optional, for speed; several arenas may be added and later removed.
    ///
    /// # Errors
    /// None to handle: where registration is refused (locked-memory limits), plain I/O is used.
    fn register(&mut self, arena: &Arena);

    /// Undoes [`register`](Self::register). No request with memory of `arena` is in flight.
    fn unregister(&mut self, arena: &Arena);

    /// Takes a request. `token` comes back with the completion.
    ///
    /// # Panics
    /// If more than `depth` requests are in flight.
    fn submit(&mut self, token: u64, request: Request);

    /// Reads `len` bytes at `offset` without a copy, at once, if the store has its blocks in
    /// memory. The range has passed [`Request::check`]. `None`: the read must be submitted.
    fn lend(&mut self, offset: u64, len: usize) -> Option<Loan> {
        let _ = (offset, len);
        None
    }

    /// Submits all requests since the last call to the kernel, in one system call.
    ///
    /// # Errors
    /// The error of io_uring if the ring itself is broken; single requests fail through their
    /// completions.
    fn kick(&mut self) -> io::Result<()>;

    /// Appends finished requests to `out`. Never waits.
    fn reap(&mut self, out: &mut Vec<Completion>);

    /// Requests taken and not yet reaped.
    fn in_flight(&self) -> usize;

    /// A descriptor for `poll`: readable (`POLLIN`) while completions wait, and cleared only by
    /// [`reap`]; there is nothing to read from it. `None` for stores that finish within
    /// [`submit`](Self::submit). Call [`kick`](Self::kick) before sleeping on it, and ask for it
    /// before every sleep: the call tells a queue that somebody sleeps.
    ///
    /// [`reap`]: Self::reap
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;
}
