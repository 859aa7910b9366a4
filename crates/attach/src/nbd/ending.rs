//! Why connections end, counted.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a connection ended. The first three are how a client leaves politely.
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
    /// There were too many connections already.
    TooMany,
    /// A magic number was wrong: not an NBD client, or out of step.
    BadMagic,
    /// The client's handshake flags are not ones that this server offered.
    BadFlags,
    /// An option longer than any that a well-meaning client sends.
    OptionTooLong,
    /// A handshake of more options than any that a well-meaning client needs.
    TooManyOptions,
    /// The export asked for by `NBD_OPT_EXPORT_NAME` does not exist, which has no other answer.
    UnknownExport,
    /// A write of more bytes than can be skipped reasonably.
    WriteTooLong,
    /// The socket ended, or nothing came for too long, in the middle of a message.
    Truncated,
    /// The client did not take its replies for too long.
    NotReading,
}

impl Ending {
    /// Every reason, in the order of their numbers.
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

    /// Whether nobody is to blame.
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

/// How many connections a server has seen, and how they ended.
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
