//! A stream of bytes with a deadline for each step as a whole: a peer that sends byte by byte gets
//! no more time than one that is silent.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// A stream of bytes whose steps end in time.
pub trait Wire {
    /// Reads all of `buffer`.
    ///
    /// # Errors
    /// `TimedOut` if that is not done by `until`; `UnexpectedEof` if the stream ends before.
    fn read(&mut self, buffer: &mut [u8], until: Instant) -> io::Result<()>;

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// `TimedOut` if that is not done by `until`.
    fn write(&mut self, bytes: &[u8], until: Instant) -> io::Result<()>;
}

impl Wire for &TcpStream {
    fn read(&mut self, mut buffer: &mut [u8], until: Instant) -> io::Result<()> {
        while !buffer.is_empty() {
            self.set_read_timeout(Some(left(until)?))?;
            match Read::read(self, buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => buffer = &mut buffer[len..],
                Err(error) => retry(error)?,
            }
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.set_write_timeout(Some(left(until)?))?;
            match Write::write(self, bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => bytes = &bytes[len..],
                Err(error) => retry(error)?,
            }
        }
        Ok(())
    }
}

/// The time left, which is not zero: that would be no limit.
fn left(until: Instant) -> io::Result<std::time::Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The deadline is looked at again after a time-out or a signal.
fn retry(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}
