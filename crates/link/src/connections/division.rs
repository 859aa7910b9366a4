//! The division of a target's connections among its threads.
//!
//! One thread's link accepts them, and hands each to the thread that has the fewest of its
//! peer: so the connections of a host's queues come to threads of their own.
//!
//! ```text
//!  listener --accept--> [ link of thread 0 ] --> itself
//!                                   |
//!                                   +--inbox--> [ link of thread 1 ]
//!                                   +--inbox--> [ link of thread 2 ]
//! ```

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// The most connections that wait for a thread.
const WAITING_MAX: usize = 256;

/// A connection that was accepted, and carries no frames yet.
pub(super) struct Accepted<T> {
    pub(super) opened: T,
    /// The number of its peer.
    pub(super) origin: u16,
    /// Its own number, which no other of the link has.
    pub(super) serial: u32,
}

/// See the [module](self).
struct Division<T> {
    serial: AtomicU32,
    /// The places of each thread.
    places: usize,
    threads: Box<[Inbox<T>]>,
}

/// The connections of a thread.
struct Inbox<T> {
    state: Mutex<State<T>>,
    /// Readable while connections wait.
    bell: OwnedFd,
}

struct State<T> {
    waiting: Vec<Accepted<T>>,
    /// The peers of its connections, those that wait included.
    origins: Vec<u16>,
}

impl<T> Inbox<T> {
    fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = Mutex::new(State { waiting: Vec::new(), origins: Vec::new() });
        Ok(Self { state, bell })
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of one thread in the division of connections.
pub(super) struct Portion<T> {
    division: Arc<Division<T>>,
    index: usize,
}

impl<T> Portion<T> {
    /// The parts of so many threads, of which there is one at least, with so many places each. The
    /// first one accepts.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub(super) fn all(threads: u8, places: usize) -> io::Result<impl Iterator<Item = Self>> {
        let count = usize::from(threads.max(1));
        let threads = (0..count).map(|_| Inbox::new()).collect::<io::Result<_>>()?;
        let division = Arc::new(Division { serial: AtomicU32::new(0), places, threads });
        Ok((0..count).map(move |index| Self { division: Arc::clone(&division), index }))
    }

    /// The descriptor that is readable while connections wait for this thread.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.own().bell.as_fd()
    }

    /// Gives a connection of that peer to the thread that should have it: that is this one if it is
    /// returned. `None`: another has it now. An error: too many wait there, and it is gone.
    pub(super) fn assign(&self, opened: T, origin: u16) -> Result<Option<Accepted<T>>, Full> {
        let serial = self.division.serial.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let accepted = Accepted { opened, origin, serial };
        let load = |inbox: &Inbox<T>| {
            let origins = &inbox.lock().origins;
            let is_full = origins.len() >= self.division.places;
            (is_full, origins.iter().filter(|it| **it == origin).count(), origins.len())
        };
        // Only this thread adds connections.
        let threads = self.division.threads.iter().enumerate();
        let (index, inbox) = threads.min_by_key(|(_, inbox)| load(inbox)).expect("a thread");
        let mut state = inbox.lock();
        if index == self.index {
            state.origins.push(origin);
            return Ok(Some(accepted));
        }
        if state.waiting.len() == WAITING_MAX {
            return Err(Full);
        }
        state.origins.push(origin);
        state.waiting.push(accepted);
        // It fails only if the counter is full: then the bell rings anyhow.
        let _ = rustix::io::write(&inbox.bell, &1u64.to_ne_bytes());
        Ok(None)
    }

    /// The connections that have come from the thread that accepts.
    pub(super) fn take(&self) -> Vec<Accepted<T>> {
        let inbox = self.own();
        let mut state = inbox.lock();
        // It fails only if nobody has rung.
        let _ = rustix::io::read(&inbox.bell, &mut [0; 8]);
        mem::take(&mut state.waiting)
    }

    /// Takes note that a connection of that peer has ended, or was refused.
    pub(super) fn note_end(&self, origin: u16) {
        let origins = &mut self.own().lock().origins;
        if let Some(at) = origins.iter().position(|it| *it == origin) {
            origins.swap_remove(at);
        }
    }

    fn own(&self) -> &Inbox<T> {
        &self.division.threads[self.index]
    }
}

/// Too many connections wait for a thread.
#[derive(Debug)]
pub(super) struct Full;

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread that a connection of that peer comes to.
    fn assigned(parts: &[Portion<()>], origin: u16) -> usize {
        if parts[0].assign((), origin).unwrap().is_some() {
            return 0;
        }
        let came = |part: &Portion<()>| part.take().first().is_some_and(|it| it.origin == origin);
        1 + parts[1..].iter().position(came).unwrap()
    }

    #[test]
    fn connections_of_one_peer_come_to_all_threads_in_turn() {
        let parts: Vec<_> = Portion::all(3, 4).unwrap().collect();
        let of = |origin| (0..3).map(|_| assigned(&parts, origin)).collect::<Vec<_>>();
        assert_eq!(of(7), [0, 1, 2]);
        parts[1].note_end(7);
        assert_eq!(assigned(&parts, 9), 1, "the thread that has fewest");
        assert_eq!(assigned(&parts, 7), 1, "the one without a connection of that peer");
        assert_eq!((assigned(&parts, 9), assigned(&parts, 9)), (0, 2));
        assert_eq!([3; 3].map(|peer| assigned(&parts, peer)), [0, 1, 2]);
        assert_eq!([5; 3].map(|peer| assigned(&parts, peer)), [0, 1, 2]);
        parts[1].note_end(3);
        assert_eq!([5; 2].map(|peer| assigned(&parts, peer)), [1, 0], "the one with a place first");
    }

    #[test]
    fn a_thread_that_takes_none_bounds_what_waits() {
        let parts: Vec<_> = Portion::all(2, 1024).unwrap().collect();
        let results: Vec<_> = (0..4 * WAITING_MAX).map(|_| parts[0].assign((), 1)).collect();
        assert_eq!(results.iter().filter(|it| matches!(it, Ok(None))).count(), WAITING_MAX);
        assert!(results.last().unwrap().is_err());
        assert_eq!(parts[1].take().len(), WAITING_MAX);
        let serials = results.iter().flatten().flatten().map(|it| it.serial);
        assert!(serials.is_sorted_by(|a, b| a < b), "each has a number of its own");
    }
}
