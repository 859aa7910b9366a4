//! How another thread wakes a loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes one loop, at no more than one system call per sleep of the loop.
///
/// The loop announces that it is about to sleep, looks once more whether there is work, and only
/// then sleeps. A ringer adds work first and looks at the announcement second. So one of the two
/// always sees the other.
pub(crate) struct Doorbell {
    fd: OwnedFd,
    asleep: AtomicBool,
}

impl Doorbell {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, asleep: AtomicBool::new(false) })
    }

    /// There is work. To be called after the work was added.
    pub(crate) fn ring(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            // An eventfd refuses only if 2⁶⁴-2 wake-ups are pending: then the loop is awake.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// The loop is about to sleep; it must look for work once more after this.
    pub(crate) fn announce(&self) {
        self.asleep.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The loop is awake again.
    pub(crate) fn awake(&self) {
        if !self.asleep.swap(false, Ordering::SeqCst) {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.fd, &mut count);
        }
    }

    /// Readable after a ring.
    pub(crate) fn wait_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn no_wake_up_is_lost() {
        let (bell, work) = (Arc::new(Doorbell::new().unwrap()), Arc::new(AtomicU32::new(0)));
        let rounds = 20_000;
        let ringer = std::thread::spawn({
            let (bell, work) = (Arc::clone(&bell), Arc::clone(&work));
            move || {
                for _ in 0..rounds {
                    work.fetch_add(1, Ordering::Relaxed);
                    bell.ring();
                }
            }
        });
        let mut seen = 0;
        while seen < rounds {
            bell.announce();
            if work.load(Ordering::Relaxed) == seen {
                let mut fds = [PollFd::from_borrowed_fd(bell.wait_fd(), PollFlags::IN)];
                let timeout = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
                assert_eq!(poll(&mut fds, Some(&timeout)).unwrap(), 1, "slept on work");
            }
            bell.awake();
            seen = work.load(Ordering::Relaxed);
        }
        ringer.join().unwrap();
    }
}
