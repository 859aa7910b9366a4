//! The doorbell: an eventcount by which other threads wake a loop.
//!
//! ```text
//!          announce          ring              the eventfd is read
//! awake ------------> asleep ----> rung -----------------------------> awake
//!   ^                   |
//!   +------- awake -----+
//! ```
//!
//! The ringer that changes the state to *rung* writes to the eventfd, and may be slow to do so.
//! Until then the loop can't read it, and the state stays *rung*: another sleep ends as soon as the
//! write arrives. That holds if the sleep tests whether the eventfd is readable, as `poll` does. A
//! loop that is only notified of changes must call *awake* each time, before the next sleep.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sync::{AtomicU8, Event, Ordering, fence};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const RUNG: u8 = 2;

/// Wakes one loop, with at most one system call per sleep of the loop.
///
/// The loop announces its sleep, checks once more for work, and only then sleeps. A ringer adds
/// work first and checks for the announcement second. So one of the two always sees the other.
pub struct Doorbell {
    event: Event,
    state: AtomicU8,
}

impl Doorbell {
    /// A bell whose loop is awake.
    ///
    /// # Errors
    /// The error of `eventfd(2)`, e.g. too many open files.
    pub fn new() -> io::Result<Self> {
        Ok(Self { event: Event::new()?, state: AtomicU8::new(AWAKE) })
    }

    /// Wakes the loop if it sleeps. Must be called after work was added.
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.change(ASLEEP, RUNG) {
            self.event.signal();
        }
    }

    /// Announces a sleep; the loop must check for work once more after this.
    pub fn announce(&self) {
        self.change(AWAKE, ASLEEP);
        fence(Ordering::SeqCst);
    }

    /// Ends the announcement: the loop is awake. Cheap if it was awake.
    pub fn awake(&self) {
        if self.state.load(Ordering::SeqCst) == AWAKE || self.change(ASLEEP, AWAKE) {
            return;
        }
        if self.event.clear() {
            self.state.store(AWAKE, Ordering::SeqCst);
        }
    }

    /// The descriptor to sleep on: readable after a ring that followed the announcement.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.event.fd()
    }

    /// Sleeps as on [`wait_fd`](Self::wait_fd), in a model.
    #[cfg(all(test, loom))]
    pub(crate) fn wait(&self) {
        self.event.wait();
    }

    fn change(&self, from: u8, to: u8) -> bool {
        // A load first is cheap: usually the loop is awake, and its cache line stays shared.
        self.state.load(Ordering::SeqCst) == from
            && self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::Timespec;

    use super::*;

    fn is_readable(bell: &Doorbell, seconds: i64) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(bell.wait_fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })).unwrap() == 1
    }

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
                assert!(is_readable(&bell, 10), "slept on work");
            }
            bell.awake();
            seen = work.load(Ordering::Relaxed);
        }
        ringer.join().unwrap();
    }

    #[test]
    fn only_a_sleeper_is_rung_for_and_once() {
        let bell = Doorbell::new().unwrap();
        bell.ring();
        assert!(!is_readable(&bell, 0), "nobody sleeps");
        bell.announce();
        bell.ring();
        bell.ring();
        assert!(is_readable(&bell, 0));
        bell.awake();
        assert!(!is_readable(&bell, 0));
        bell.announce();
        bell.awake();
        bell.ring();
        assert!(!is_readable(&bell, 0), "awake of its own accord");
    }

    #[test]
    fn a_ringer_that_is_slow_to_write_leaves_no_wake_up_behind() {
        let bell = Doorbell::new().unwrap();
        bell.announce();
        // The first half of a ring; the loop wakes for another reason before the second.
        assert!(bell.change(ASLEEP, RUNG));
        bell.awake();
        bell.announce();
        assert!(!is_readable(&bell, 0));
        bell.event.signal();
        assert!(is_readable(&bell, 0), "the late write ends the next sleep");
        bell.awake();
        bell.announce();
        assert!(!is_readable(&bell, 0), "and that one only");
        bell.ring();
        assert!(is_readable(&bell, 0));
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    use super::*;

    /// Ringers add work and ring, so often each; the loop sleeps when it sees no work, as often as
    /// it likes. A lost wake-up is a deadlock.
    fn no_wake_up_is_lost(ringers: usize, rings: usize) {
        loom::model(move || {
            let (bell, work) = (Doorbell::new().unwrap(), AtomicUsize::new(0));
            let shared = Arc::new((bell, work));
            for _ in 0..ringers {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    for _ in 0..rings {
                        shared.1.fetch_add(1, Ordering::Relaxed);
                        shared.0.ring();
                    }
                });
            }
            let (bell, work) = &*shared;
            let mut seen = 0;
            while seen < ringers * rings {
                bell.announce();
                if work.load(Ordering::Relaxed) == seen {
                    bell.wait();
                }
                bell.awake();
                seen = work.load(Ordering::Relaxed);
            }
        });
    }

    #[test]
    fn no_wake_up_of_one_ringer_is_lost() {
        no_wake_up_is_lost(1, 3);
    }

    #[test]
    fn no_wake_up_of_two_ringers_is_lost() {
        no_wake_up_is_lost(2, 1);
    }

    #[test]
    fn what_was_done_before_a_ring_is_seen_after_it() {
        loom::model(|| {
            let shared = Arc::new((Doorbell::new().unwrap(), AtomicUsize::new(0)));
            let (bell, work) = &*shared;
            bell.announce();
            let ringer = thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    shared.1.store(1, Ordering::Relaxed);
                    shared.0.ring();
                }
            });
            bell.wait();
            assert_eq!(work.load(Ordering::Relaxed), 1);
            bell.awake();
            ringer.join().unwrap();
        });
    }
}
