//! Places for connections of clients that are answered by threads, and who makes room for another.
//!
//! A client that is slow takes a place and time of its own thread, nothing else. If all places are
//! taken, the oldest connection that waits for its client goes: one whose request has not come, or
//! whose answer is not taken. So somebody who opens many and says nothing, or asks and does not
//! read, keeps nobody out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most connections at a time.
pub(crate) const PLACES: usize = 16;
/// The time that a client has to take its answer before it may have to make room. Lower: one that
/// reads is cut off if many come at once.
const TAKING: Duration = Duration::from_millis(100);

/// A connection that can be ended from another thread.
pub(crate) trait Connection: Send + Sync {
    /// Ends every wait for its client.
    fn hang_up(&self);
}

/// The connections, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Places<C>(Arc<Mutex<Vec<Entry<C>>>>);

#[derive(Debug)]
struct Entry<C> {
    connection: Arc<C>,
    turn: Turn,
}

/// The side that has to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The client's, to ask.
    Asking,
    /// Ours, to answer.
    Answering,
    /// The client's, to take the answer, since then.
    Taking(Instant),
}

impl Turn {
    fn makes_room(self, now: Instant) -> bool {
        match self {
            Self::Asking => true,
            Self::Answering => false,
            Self::Taking(since) => now.saturating_duration_since(since) >= TAKING,
        }
    }
}

impl<C> Default for Places<C> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<C: Connection> Places<C> {
    /// Gives a connection a place; gives it back if there is none.
    pub(crate) fn admit(&self, connection: C) -> Result<Place<C>, C> {
        self.admit_at(Instant::now(), connection)
    }

    fn admit_at(&self, now: Instant, connection: C) -> Result<Place<C>, C> {
        let mut entries = entries(&self.0);
        if entries.len() >= PLACES {
            let Some(oldest) = entries.iter().position(|entry| entry.turn.makes_room(now)) else {
                return Err(connection);
            };
            // Its thread ends by that.
            entries.remove(oldest).connection.hang_up();
        }
        let connection = Arc::new(connection);
        entries.push(Entry { connection: Arc::clone(&connection), turn: Turn::Asking });
        Ok(Place { connection, among: Arc::clone(&self.0) })
    }
}

fn entries<C>(list: &Mutex<Vec<Entry<C>>>) -> MutexGuard<'_, Vec<Entry<C>>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<C> {
    pub(crate) connection: Arc<C>,
    among: Arc<Mutex<Vec<Entry<C>>>>,
}

impl<C> Place<C> {
    /// Notes that the request has come: from now on the connection does not make room for others.
    pub(crate) fn answer(&self) {
        self.is_turn(Turn::Answering);
    }

    /// Notes that the answer is there for the client to take.
    pub(crate) fn tell(&self) {
        self.is_turn(Turn::Taking(Instant::now()));
    }

    fn is_turn(&self, turn: Turn) {
        let mut entries = entries(&self.among);
        let own = entries.iter_mut().find(|it| Arc::ptr_eq(&it.connection, &self.connection));
        // It may have had to go.
        own.into_iter().for_each(|entry| entry.turn = turn);
    }
}

impl<C> Drop for Place<C> {
    fn drop(&mut self) {
        entries(&self.among).retain(|it| !Arc::ptr_eq(&it.connection, &self.connection));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct Client(Arc<AtomicBool>);

    impl Connection for Client {
        fn hang_up(&self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    impl Place<Client> {
        fn is_over(&self) -> bool {
            self.connection.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn the_oldest_that_waits_for_its_client_makes_room() {
        let places = Places::default();
        let now = Instant::now();
        let come = |after| places.admit_at(now + after, Client::default());
        let at_once = Duration::ZERO;
        let mut all: Vec<_> = (0..PLACES).map(|_| come(at_once).unwrap()).collect();
        all[0].answer();
        let next = come(at_once).unwrap();
        let over: Vec<_> = all.iter().map(Place::is_over).collect();
        assert!(over[1] && over.iter().filter(|it| **it).count() == 1, "the second has to go");
        all.push(next);
        all.remove(1);
        all.iter().for_each(Place::answer);
        assert!(come(at_once).is_err(), "all are being answered");
        all[5].tell();
        all[3].tell();
        assert!(come(at_once).is_err(), "those have time to read");
        let next = come(TAKING * 10).unwrap();
        assert!(all[3].is_over() && !all[5].is_over(), "the older one does not read");
        drop(next);
        assert!(come(at_once).is_ok(), "one has gone");
    }
}
