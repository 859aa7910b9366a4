//! Pollers: work that a loop does beside its own.

use std::io;
use std::os::fd::BorrowedFd;

/// A source of work that a loop polls in its rounds, so that it needs no thread of its own, and no
/// hand-over to the loop's.
///
/// ```text
/// loop:   poll .. poll, announce, sleep on wait_fd and the loop's own, awake, poll ..
/// ```
pub trait Poller {
    /// Does all pending work, without waiting.
    ///
    /// # Errors
    /// If it is broken. The loop drops it.
    fn poll(&mut self) -> io::Result<Polled>;

    /// Announces the loop's sleep; the loop polls once more before it.
    fn announce(&self);

    /// The descriptor to sleep on: readable when there is work, after [`announce`](Self::announce).
    fn wait_fd(&self) -> BorrowedFd<'_>;

    /// Ends the announcement: the loop is awake. Cheap if it was awake.
    fn awake(&self);
}

/// The outcome of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// There was no work.
    Idle,
    /// There was work.
    Worked,
    /// There will never be work again: the loop drops it.
    Over,
}

/// Makes a poller, in the thread of the loop that will poll it. `None`: it could not be made, which
/// its owner has been told.
pub type MakePoller = Box<dyn FnOnce() -> Option<Box<dyn Poller>> + Send>;
