//! Streams of bytes with time limits.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A stream that is read and written until a deadline, however slowly the bytes come and go, and
/// with a limit for each call. All calls fail with `TimedOut` after the deadline, and with
/// `WouldBlock` when the limit of a call is over.
pub struct Timed<'a> {
    stream: &'a UnixStream,
    step: Duration,
    deadline: Instant,
}

impl<'a> Timed<'a> {
    /// The time `whole` for all that is read and written, from now on.
    pub fn new(stream: &'a UnixStream, whole: Duration) -> Self {
        Self::with_steps(stream, whole, whole)
    }

    /// As [`new`](Self::new), with the time `step` for the peer to go on at each call.
    pub fn with_steps(stream: &'a UnixStream, step: Duration, whole: Duration) -> Self {
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

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(into)
    }
}

impl Write for Timed<'_> {
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
    fn a_peer_that_goes_on_byte_by_byte_comes_to_an_end() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let (step, whole) = (Duration::from_secs(10), Duration::from_millis(50));
        let mut stream = Timed::with_steps(&ours, step, whole);
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
    fn a_silent_peer_has_the_time_of_a_step() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let (step, whole) = (Duration::from_millis(50), Duration::from_secs(3600));
        let mut stream = Timed::with_steps(&ours, step, whole);
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
