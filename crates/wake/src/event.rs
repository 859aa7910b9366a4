//! The eventfd that a thread sleeps on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd, readable from a signal until it is cleared.
pub(crate) struct Event(OwnedFd);

impl Event {
    /// Creates one that is not readable.
    ///
    /// # Errors
    /// The error of `eventfd(2)`, e.g. too many open files.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub(crate) fn signal(&self) {
        // An eventfd refuses only if 2⁶⁴-2 signals are pending: then it is readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable; returns whether it was readable.
    pub(crate) fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }

    /// The descriptor to sleep on.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
