//! Work of others that a loop does beside its own.

use std::io;
use std::os::fd::BorrowedFd;

/// Something that a loop polls in its turns, so that what it brings needs no thread of its own, and
/// no hand-over to the loop's.
///
/// ```text
/// loop:   poll .. poll, announce, sleep on wait_fd and the loop's own, awake, poll ..
/// ```
pub trait Poller {
    /// Does what there is to do, without waiting for anything.
    ///
    /// # Errors
    /// It is broken. The loop drops it.
    fn poll(&mut self) -> io::Result<Polled>;

    /// The loop is about to sleep, and polls once more before.
    fn announce(&self);

    /// Readable when there is something to do, after [`announce`](Self::announce).
    fn wait_fd(&self) -> BorrowedFd<'_>;

    /// The loop is awake. Cheap if it was.
    fn awake(&self);
}

/// What came of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// There was nothing to do.
    Idle,
    /// There was.
    Worked,
    /// There will never be anything to do again: the loop drops it.
    Over,
}

/// Makes a poller, in the thread of the loop that will poll it. `None`: it could not be made, and
/// who wanted it knows.
pub type MakePoller = Box<dyn FnOnce() -> Option<Box<dyn Poller>> + Send>;
