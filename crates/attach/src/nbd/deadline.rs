//! A socket during a handshake, which the client has to bring to an end: each step of it, and the
//! whole, however slowly its bytes come.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Time limits of a handshake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// For the client to go on.
    pub(super) step: Duration,
    /// For all of it.
    pub(super) whole: Duration,
}

/// See the [module](self).
pub(super) struct Handshaking<'a> {
    stream: &'a UnixStream,
    step: Duration,
    deadline: Instant,
}

impl<'a> Handshaking<'a> {
    /// The limits count from now on.
    pub(super) fn new(stream: &'a UnixStream, Limits { step, whole }: Limits) -> Self {
        Self { stream, step, deadline: Instant::now() + whole }
    }

    /// The time for the next call.
    ///
    /// # Errors
    /// `TimedOut` if there is none left.
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left.min(self.step)) }
    }
}

impl Read for Handshaking<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(into)
    }
}

impl Write for Handshaking<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_goes_on_byte_by_byte_comes_to_an_end() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let (step, whole) = (Duration::from_secs(10), Duration::from_millis(50));
        let mut stream = Handshaking::new(&ours, Limits { step, whole });
        let mut byte = [7];
        let begun = Instant::now();
        let error = loop {
            theirs.write_all(&byte).expect("there is room");
            if let Err(error) = stream.read_exact(&mut byte) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(begun.elapsed() >= whole);
        assert_eq!(stream.write(&byte).unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn a_silent_client_has_the_time_of_a_step() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let (step, whole) = (Duration::from_millis(50), Duration::from_secs(3600));
        let mut stream = Handshaking::new(&ours, Limits { step, whole });
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
