//! Connections of clients.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::shared::places;

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

impl places::Connection for Connection {
    fn hang_up(&self) {
        // It fails only if the client has gone.
        let _ = self.shutdown(Shutdown::Both);
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
