//! Stores: the disks behind exports.
//!
//! A [`Store`] is one exported disk: it is opened once, holds the exclusive lock, and knows the
//! geometry. Each thread that works on it has a [`Queue`] of its own, so nothing on the data path
//! is shared. A queue takes requests that own their buffers, and returns the buffers with the
//! completions, in the order in which they finish.
//!
//! | store | what it is |
//! |---|---|
//! | [`memory`] | memory, lost when the process ends |
//! | [`null`] | discards writes and reads zeroes, to measure everything else |
//! | [`mod@file`] | a regular file or a block device through io_uring |
//! | [`late`] | a place for a disk that is missing at first |
//! | [`fault`] | a wrapper that fails and delays requests on demand |

mod backing;
pub mod fault;
pub mod file;
mod inline;
pub mod late;
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
///
/// # Example
///
/// A disk that can't be written, whose sectors hold their numbers. Requests end as they are
/// submitted.
///
/// ```
/// use std::io;
/// use std::os::fd::BorrowedFd;
///
/// use tyche_block::{Arena, Completion, Errno, Geometry, Operation, Request};
/// use tyche_store::{Queue, ResizeError, Store};
///
/// struct Numbers {
///     size: u64,
/// }
///
/// impl Store for Numbers {
///     fn geometry(&self) -> Geometry {
///         Geometry { read_only: true, ..Geometry::new(self.size, 512) }
///     }
///     fn queue(&self, _depth: usize) -> io::Result<Box<dyn Queue>> {
///         Ok(Box::new(NumbersQueue { done: Vec::new() }))
///     }
///     fn resize(&self, _size: Option<u64>) -> Result<u64, ResizeError> {
///         Err(ResizeError::ReadOnly)
///     }
/// }
///
/// struct NumbersQueue {
///     done: Vec<Completion>,
/// }
///
/// impl Queue for NumbersQueue {
///     // There is no kernel that could use the memory.
///     fn register(&mut self, _arena: &Arena) {}
///     fn unregister(&mut self, _arena: &Arena) {}
///     fn submit(&mut self, token: u64, mut request: Request) {
///         // Whoever asks takes all for data.
///         let is_status = request.operation == Operation::BlockStatus;
///         let result = if is_status { Err(Errno::OPNOTSUPP) } else { Ok(()) };
///         if let (Operation::Read, Some(buffer)) = (request.operation, &mut request.buffer) {
///             let data = &mut buffer[..request.len as usize];
///             for (sector, data) in (request.offset / 512..).zip(data.chunks_mut(8).step_by(64)) {
///                 data.copy_from_slice(&sector.to_be_bytes());
///             }
///         }
///         self.done.push(Completion { token, result, buffer: request.buffer });
///     }
///     fn kick(&mut self) -> io::Result<()> {
///         Ok(())
///     }
///     fn reap(&mut self, out: &mut Vec<Completion>) {
///         out.append(&mut self.done);
///     }
///     fn in_flight(&self) -> usize {
///         self.done.len()
///     }
///     fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
///         None
///     }
/// }
///
/// let store = Numbers { size: 1 << 20 };
/// let (arena, mut queue) = (Arena::new(1), store.queue(1)?);
/// let buffer = arena.alloc(512);
/// let request = Request { operation: Operation::Read, offset: 3 * 512, len: 512, buffer };
/// assert_eq!(request.check(&store.geometry()), Ok(()));
/// queue.submit(7, request);
/// let mut done = Vec::new();
/// queue.reap(&mut done);
/// assert_eq!(done[0].token, 7);
/// assert_eq!(done[0].buffer.as_ref().map(|data| data[7]), Some(3));
/// # Ok::<(), io::Error>(())
/// ```
pub trait Store: Send + Sync {
    /// The current geometry of the disk.
    fn geometry(&self) -> Geometry;

    /// Makes a queue for one thread, with room for `depth` requests in flight. The queue keeps the
    /// parts of the store that it needs alive, the lock included.
    ///
    /// # Errors
    /// `InvalidInput` for a depth of zero or beyond the kernel's limit; otherwise the kernel's
    /// error when it refuses the resources.
    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>>;

    /// Enlarges the disk to `size` bytes; the new bytes read as zeroes. With `None`, the disk takes
    /// the present size of its file or device. The disk never shrinks.
    ///
    /// Returns the new size, to which existing queues take requests from then on. A size that was
    /// asked for is durable: it survives a crash of the machine.
    ///
    /// # Errors
    /// See [`ResizeError`]; the size has not changed then.
    fn resize(&self, size: Option<u64>) -> Result<u64, ResizeError>;

    /// Checks that the backing file or device still exists and is as large as the disk. Never waits
    /// for a medium.
    ///
    /// # Errors
    /// See [`BackingError`].
    fn check_backing(&self) -> Result<(), BackingError> {
        Ok(())
    }

    /// The regular file that has the blocks, at their offsets. `None` for all other disks, and for
    /// one that is missing.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// How often completed writes may have been lost since the store was opened, because a durable
    /// step (a flush, a sync) failed where there is a cache. Each loss is counted once, before the
    /// completion that tells of it can be reaped. A flush that is reaped with success before the
    /// count changes proves what it covers; after that it proves only what was written since: the
    /// kernel and the disk report a loss only to the first request that asks.
    fn losses(&self) -> u64 {
        0
    }
}

/// One thread's access to a store.
///
/// Requests have passed [`Request::check`]; a queue completes one that it can't execute with
/// [`tyche_block::Errno::INVAL`], or `OPNOTSUPP` where it knows no status of its blocks, and never
/// panics on it. Dropping a queue waits until the kernel is
/// done with every buffer.
pub trait Queue: Send {
    /// Announces `arena` as memory of future buffers, so that the queue can register it with the
    /// kernel. Optional, for speed; several arenas may be added and later removed. If the kernel
    /// refuses the registration (locked-memory limits), the queue uses plain I/O.
    fn register(&mut self, arena: &Arena);

    /// Undoes [`register`](Self::register). No request in flight may use memory of `arena`.
    fn unregister(&mut self, arena: &Arena);

    /// Unregisters what it can of the pages of `arena` from `first` on, which no request in flight
    /// uses. Returns from which page on none is registered: by default the end, as if it could not.
    fn cut(&mut self, arena: &Arena, first: usize) -> usize {
        let _ = first;
        arena.pages()
    }

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

    /// Passes all requests submitted since the last call to the kernel, in one system call.
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
    /// before every sleep: the call tells the queue that its thread is about to sleep.
    ///
    /// [`reap`]: Self::reap
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;
}
