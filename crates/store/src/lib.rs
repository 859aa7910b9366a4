//! Where an export keeps its blocks.
//!
//! A [`Store`] is one exported disk: it is opened once, holds the exclusive lock, and knows the
//! geometry. Each thread that works on it takes a [`Queue`] of its own, so that nothing on the
//! data path is shared. A queue takes requests that own their buffers, and gives the buffers
//! back with the completions, in whatever order they finish.
//!
//! | store | what it is |
//! |---|---|
//! | [`memory`] | memory, gone with the process |
//! | [`null`] | swallows writes, reads zeroes: for measuring everything else |
//! | [`mod@file`] | a regular file or a block device through io_uring |
//! | [`fault`] | a wrapper that fails and delays what it is told to |
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
    /// What the disk is like now.
    fn geometry(&self) -> Geometry;

    /// A queue for one thread, with room for `depth` requests at once. It keeps what it needs of
    /// the store alive, the lock included.
    ///
    /// # Errors
    /// `InvalidInput` for a depth of zero or beyond what the kernel offers; otherwise what the
    /// kernel says when it refuses the resources.
    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>>;

    /// Makes the disk `size` bytes large; what is new reads as zeroes. `None`: as large as what it
    /// is kept in has become by other means. The disk is never smaller than it was.
    ///
    /// Returns the size; one that was asked for survives a crash of the machine from then on.
    /// Queues that are used already take requests for all of it.
    ///
    /// # Errors
    /// See [`ResizeError`]; the size has not changed then.
    fn resize(&self, size: Option<u64>) -> Result<u64, ResizeError>;

    /// Looks whether what holds the blocks is still there, and as large as the disk. Never waits
    /// for a medium.
    ///
    /// # Errors
    /// See [`BackingError`].
    fn check_backing(&self) -> Result<(), BackingError> {
        Ok(())
    }

    /// How often completed writes may have been lost since the store was opened: by a durable step
    /// (a flush, a sync, a FUA write) that failed. Such a failure is counted before its completion
    /// can be reaped. From another number on, a flush proves nothing about writes that completed
    /// before: the kernel and the disk tell of a loss once, to whoever asks first.
    fn losses(&self) -> u64 {
        0
    }
}

/// One thread's way to a store.
///
/// Requests have passed [`Geometry::check`]; a queue answers [`tyche_block::Errno::INVAL`] to
/// what it can't do, never panics on it. Dropping a queue waits until the kernel is done with
/// every buffer.
pub trait Queue: Send {
    /// Tells the queue that buffers will come from `arena`, so that it can register the memory
    /// with the kernel. Optional, for speed; several arenas may be added and later removed.
    ///
    /// # Errors
    /// None that matter: where registration is refused (locked-memory limits), plain I/O is used.
    fn register(&mut self, arena: &Arena);

    /// Undoes [`register`](Self::register). No request with memory of `arena` is in flight.
    fn unregister(&mut self, arena: &Arena);

    /// Takes a request. `token` comes back with the completion.
    ///
    /// # Panics
    /// If more than `depth` requests are in flight.
    fn submit(&mut self, token: u64, request: Request);

    /// Reads without a copy, at once, where a store has its blocks in memory: what `len` bytes from
    /// `offset` on are now. They have passed [`Geometry::check`]. `None`: to be submitted.
    fn lend(&mut self, offset: u64, len: usize) -> Option<Loan> {
        let _ = (offset, len);
        None
    }

    /// Hands everything submitted since the last call to the kernel, in one system call.
    ///
    /// # Errors
    /// What io_uring says when the ring itself is broken; single requests fail through their
    /// completions.
    fn kick(&mut self) -> io::Result<()>;

    /// Appends what has finished to `out`. Never waits.
    fn reap(&mut self, out: &mut Vec<Completion>);

    /// Requests taken and not yet reaped.
    fn in_flight(&self) -> usize;

    /// For `poll`: readable (`POLLIN`) as long as completions are waiting, and only [`reap`]
    /// clears it; there is nothing to read from it. `None` for stores that finish within
    /// [`submit`](Self::submit). Call [`kick`](Self::kick) before sleeping on it, and ask for it
    /// before every sleep: a queue may have to learn that somebody sleeps.
    ///
    /// [`reap`]: Self::reap
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;
}
