//! Sealed messages in numbered records.
//!
//! ```text
//! off len
//!   0   4 length   of what is sealed, little-endian; bit 31: the last record of its message
//!   4   n sealed   ChaCha20-Poly1305; the length is bound, the nonce is the number of the record
//! ```
//!
//! Each direction has a secret of its own and counts its records from 0, so that a record that is
//! sent again, left out or moved is a forged one. All but the last of a message are full.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use thiserror::Error;
use tyche_crypto::{Opener, Sealer, Secrets, Suite, TAG_LEN};

use crate::wire::Wire;

/// Bytes of the longest request: as at the local socket.
pub const REQUEST_MAX: usize = 64 << 10;
/// Bytes of the longest answer: the report on a target with many thousands of channels.
pub const ANSWER_MAX: usize = 16 << 20;
/// Bytes of the text in a full record.
const TEXT_MAX: usize = 64 << 10;
/// The last record of its message.
const LAST: u32 = 1 << 31;
const HEADER_LEN: usize = 4;

/// The reason why no message comes any more.
#[derive(Debug, Error)]
pub(crate) enum Broken {
    /// The peer has closed the connection between two messages.
    #[error("the connection was closed")]
    Closed,
    /// A message did not come in time.
    #[error("no message in time")]
    Late,
    /// A record was changed, sent again or left out.
    #[error("forged: not the next record of this connection")]
    Forged,
    /// A message is longer than it may be.
    #[error("a message is too long")]
    TooLong,
    /// The connection has failed.
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        if error.kind() == ErrorKind::TimedOut { Self::Late } else { Self::Io(error) }
    }
}

/// Both directions of a connection, as one end has them.
#[derive(Debug)]
pub struct Records {
    sealer: Sealer,
    sent: u64,
    opener: Opener,
    received: u64,
}

impl Records {
    /// The end of the admin.
    pub fn of_admin(secrets: &Secrets) -> Self {
        Self::new(&secrets.initiator, &secrets.responder)
    }

    /// The end of the target.
    pub fn of_target(secrets: &Secrets) -> Self {
        Self::new(&secrets.responder, &secrets.initiator)
    }

    fn new(send: &[u8; 32], receive: &[u8; 32]) -> Self {
        let suite = Suite::ChaCha20Poly1305;
        let (sealer, opener) = (Sealer::new(suite, send), Opener::new(suite, receive));
        Self { sealer, sent: 0, opener, received: 0 }
    }

    /// Seals a message: its records, one after the other.
    pub fn seal(&mut self, message: &[u8]) -> Vec<u8> {
        let mut records = Vec::with_capacity(message.len() + HEADER_LEN + TAG_LEN);
        let mut rest = message;
        loop {
            let (text, behind) = rest.split_at(rest.len().min(TEXT_MAX));
            let last = if behind.is_empty() { LAST } else { 0 };
            let header = ((text.len() + TAG_LEN) as u32 | last).to_le_bytes();
            let mut sealed = vec![0; text.len() + TAG_LEN];
            let key = self.sealer.key(self.sent);
            key.seal(self.sent, &header, &[text], &[], &mut sealed);
            self.sent += 1;
            records.extend_from_slice(&header);
            records.append(&mut sealed);
            rest = behind;
            if rest.is_empty() {
                return records;
            }
        }
    }

    pub(crate) fn send(
        &mut self,
        wire: &mut impl Wire,
        message: &[u8],
        until: Instant,
    ) -> Result<(), Broken> {
        Ok(wire.write(&self.seal(message), until)?)
    }

    /// Receives a message of up to `len_max` bytes, which begins by `until`, and is here within
    /// `rest` from its first byte on.
    pub(crate) fn receive(
        &mut self,
        wire: &mut impl Wire,
        len_max: usize,
        until: Instant,
        rest: Duration,
    ) -> Result<Vec<u8>, Broken> {
        let mut header = [0; HEADER_LEN];
        wire.read(&mut header[..1], until).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Broken::Closed,
            _ => error.into(),
        })?;
        let until = Instant::now() + rest;
        wire.read(&mut header[1..], until)?;
        let mut message = Vec::new();
        loop {
            let is_last = self.receive_record(wire, header, len_max, &mut message, until)?;
            if is_last {
                return Ok(message);
            }
            wire.read(&mut header, until)?;
        }
    }

    /// Appends the text of a record; returns whether it is the last one.
    fn receive_record(
        &mut self,
        wire: &mut impl Wire,
        header: [u8; HEADER_LEN],
        len_max: usize,
        message: &mut Vec<u8>,
        until: Instant,
    ) -> Result<bool, Broken> {
        let word = u32::from_le_bytes(header);
        let (len, is_last) = ((word & !LAST) as usize, word & LAST != 0);
        let text = len.checked_sub(TAG_LEN).ok_or(Broken::Forged)?;
        // Before memory is taken for it.
        if text > TEXT_MAX || message.len() + text > len_max {
            return Err(Broken::TooLong);
        }
        if !is_last && text != TEXT_MAX {
            return Err(Broken::Forged);
        }
        let mut sealed = vec![0; len];
        wire.read(&mut sealed, until)?;
        let begin = message.len();
        message.resize(begin + text, 0);
        let opened = self.opener.open(self.received, &header, &sealed, &mut message[begin..]);
        opened.map_err(|_| Broken::Forged)?;
        self.received += 1;
        Ok(is_last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that have come already.
    struct Come<'a>(&'a [u8]);

    impl Wire for Come<'_> {
        fn read(&mut self, buffer: &mut [u8], _until: Instant) -> io::Result<()> {
            let (front, rest) = self
                .0
                .split_at_checked(buffer.len())
                .ok_or_else(|| io::Error::from(ErrorKind::UnexpectedEof))?;
            buffer.copy_from_slice(front);
            self.0 = rest;
            Ok(())
        }

        fn write(&mut self, _bytes: &[u8], _until: Instant) -> io::Result<()> {
            Ok(())
        }
    }

    fn pair() -> (Records, Records) {
        let [one, other] = [[1; 32], [2; 32]];
        (Records::new(&one, &other), Records::new(&other, &one))
    }

    fn receive(end: &mut Records, bytes: &[u8], len_max: usize) -> Result<Vec<u8>, Broken> {
        let limit = Duration::from_secs(1);
        end.receive(&mut Come(bytes), len_max, Instant::now() + limit, limit)
    }

    #[test]
    fn messages_of_any_length_arrive_in_records() {
        let (mut one, mut other) = pair();
        for len in [0, 1, TEXT_MAX - 1, TEXT_MAX, TEXT_MAX + 1, 3 * TEXT_MAX, 200_000] {
            let message: Vec<_> = (0..len).map(|it| it as u8).collect();
            let sealed = one.seal(&message);
            assert_eq!(receive(&mut other, &sealed, len).unwrap(), message);
            let back = other.seal(b"yes");
            assert_eq!(receive(&mut one, &back, 3).unwrap(), b"yes");
        }
    }

    #[test]
    fn a_record_counts_once_in_its_place_and_in_its_direction() {
        let (mut one, mut other) = pair();
        let [first, second, third] = ["first", "second", "third"].map(|it| one.seal(it.as_bytes()));
        assert!(matches!(receive(&mut other, &second, 9), Err(Broken::Forged)), "before the first");
        assert_eq!(receive(&mut other, &first, 9).unwrap(), b"first");
        assert!(matches!(receive(&mut other, &first, 9), Err(Broken::Forged)), "again");
        assert!(matches!(receive(&mut other, &third, 9), Err(Broken::Forged)), "one is left out");
        assert!(matches!(receive(&mut one, &first, 9), Err(Broken::Forged)), "reflected");
        assert_eq!(receive(&mut other, &second, 9).unwrap(), b"second");
        for bit in 0..third.len() * 8 {
            let mut changed = third.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(receive(&mut other, &changed, 99).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_is_too_long_is_refused_by_its_header() {
        let (mut one, mut other) = pair();
        let sealed = one.seal(b"four");
        let refused = receive(&mut other, &sealed[..HEADER_LEN], 3);
        assert!(matches!(refused, Err(Broken::TooLong)));
        let long = (TEXT_MAX + 1 + TAG_LEN) as u32 | LAST;
        let refused = receive(&mut other, &long.to_le_bytes(), usize::MAX >> 1);
        assert!(matches!(refused, Err(Broken::TooLong)));
        let full = one.seal(&vec![7; 2 * TEXT_MAX]);
        assert!(matches!(receive(&mut other, &full, TEXT_MAX), Err(Broken::Forged)));
        // One that is neither full nor the last would come without end.
        let short = ((TAG_LEN + 1) as u32).to_le_bytes();
        assert!(matches!(receive(&mut other, &short, 99), Err(Broken::Forged)));
    }
}
