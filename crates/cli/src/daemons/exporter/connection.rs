//! Connections of clients, and the bound on their number.
//!
//! A client that is slow takes a place and time of its own thread, nothing else: if all places are
//! taken, the oldest connection without a request goes. So somebody who opens many and says nothing
//! keeps nobody out.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most connections at a time.
pub(super) const CONNECTIONS_MAX: usize = 16;

/// The connection of a client.
#[derive(Debug)]
pub(super) enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Connection {
    /// Limits the next call to the time that is left.
    ///
    /// # Errors
    /// `TimedOut` if there is none.
    pub(super) fn limit(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left < Duration::from_micros(1) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(Some(left))?;
                stream.set_write_timeout(Some(left))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(left))?;
                stream.set_write_timeout(Some(left))
            }
        }
    }

    /// Tells the client that no more follows.
    pub(super) fn end_sending(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        }
    }
}

impl Read for &Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Tcp(stream) => { stream }.read(into),
            Connection::Unix(stream) => { stream }.read(into),
        }
    }
}

impl Write for &Connection {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Tcp(stream) => { stream }.write(from),
            Connection::Unix(stream) => { stream }.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The connections, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    connection: Arc<Connection>,
    /// Whether its request is still to come.
    is_asking: bool,
}

impl Connections {
    /// Gives a connection a place; `None` if there is none.
    pub(super) fn admit(self: &Arc<Self>, connection: Connection) -> Option<Place> {
        let connection = Arc::new(connection);
        let mut entries = self.entries();
        if entries.len() >= CONNECTIONS_MAX {
            let oldest = entries.iter().position(|entry| entry.is_asking)?;
            let ended = entries.remove(oldest);
            // Its thread ends by that. It fails only if the client has gone.
            let _ = ended.connection.shutdown(Shutdown::Both);
        }
        entries.push(Entry { connection: Arc::clone(&connection), is_asking: true });
        Some(Place { connection, among: Arc::clone(self) })
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) connection: Arc<Connection>,
    among: Arc<Connections>,
}

impl Place {
    /// Notes that the request has come: from now on the connection does not make room for others.
    pub(super) fn answer(&self) {
        let mut entries = self.among.entries();
        let own = entries.iter_mut().find(|it| Arc::ptr_eq(&it.connection, &self.connection));
        if let Some(entry) = own {
            entry.is_asking = false;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.among.entries().retain(|it| !Arc::ptr_eq(&it.connection, &self.connection));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_connection_without_a_request_makes_room() {
        let connections = Arc::new(Connections::default());
        let come = || {
            let (ours, theirs) = UnixStream::pair().unwrap();
            theirs.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            (connections.admit(Connection::Unix(ours)), theirs)
        };
        let mut first: Vec<_> = (0..CONNECTIONS_MAX).map(|_| come()).collect();
        first[0].0.as_ref().unwrap().answer();
        let next = come();
        assert!(next.0.is_some());
        assert_eq!(first[1].1.read(&mut [0]).unwrap(), 0, "the second has ended");
        for (place, _) in first.iter().chain([&next]) {
            place.as_ref().unwrap().answer();
        }
        assert!(come().0.is_none(), "all are being answered");
        drop(first.remove(0));
        assert!(come().0.is_some());
    }
}
