//! Reasons why connections end, and their counters.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The reason of a connection's end. The first three are a client's orderly ways to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client sent a disconnect request.
    Disconnected,
    /// The client closed the socket between two messages, perhaps without waiting for replies.
    HungUp,
    /// The client gave up the handshake with `NBD_OPT_ABORT`.
    Aborted,
    /// The server was stopped.
    Stopped,
    /// The limit of connections was reached.
    TooMany,
    /// A magic number was wrong: not an NBD client, or out of step.
    BadMagic,
    /// The client's handshake flags are not ones that this server offered.
    BadFlags,
    /// An option was longer than a well-meaning client would send.
    OptionTooLong,
    /// A handshake had more options than a well-meaning client would send.
    TooManyOptions,
    /// The export asked for by `NBD_OPT_EXPORT_NAME` does not exist; the protocol has no error
    /// reply to that option.
    UnknownExport,
    /// A write was too long to be skipped.
    WriteTooLong,
    /// The socket ended, or nothing came for too long, in the middle of a message.
    Truncated,
    /// The client did not take its replies for too long.
    NotReading,
}

impl Ending {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Disconnected,
        Self::HungUp,
        Self::Aborted,
        Self::Stopped,
        Self::TooMany,
        Self::BadMagic,
        Self::BadFlags,
        Self::OptionTooLong,
        Self::TooManyOptions,
        Self::UnknownExport,
        Self::WriteTooLong,
        Self::Truncated,
        Self::NotReading,
    ];

    /// Whether the end is no fault.
    pub fn is_orderly(self) -> bool {
        matches!(self, Self::Disconnected | Self::HungUp | Self::Aborted | Self::Stopped)
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disconnected => "disconnected",
            Self::HungUp => "hung up",
            Self::Aborted => "handshake aborted by the client",
            Self::Stopped => "server stopped",
            Self::TooMany => "too many connections",
            Self::BadMagic => "bad magic number",
            Self::BadFlags => "unknown handshake flags",
            Self::OptionTooLong => "option too long",
            Self::TooManyOptions => "too many options",
            Self::UnknownExport => "unknown export",
            Self::WriteTooLong => "write too long",
            Self::Truncated => "message cut short",
            Self::NotReading => "client does not take its replies",
        })
    }
}

/// Counters of a server's connections and of the reasons of their ends.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) accepted: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) errors: AtomicU64,
    ended: [AtomicU64; Ending::ALL.len()],
}

impl Counters {
    pub(super) fn count_ending(&self, ending: Ending) {
        self.ended[ending as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, ending: Ending) -> u64 {
        self.ended[ending as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_counter() {
        for (index, ending) in Ending::ALL.into_iter().enumerate() {
            assert_eq!(ending as usize, index);
        }
    }
}
