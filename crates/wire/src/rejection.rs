//! Reject: the channel is refused.
//!
//! ```text
//! off len field
//!   0   8 attempt       of the connect, or the nonce of the discover
//!   8   1 version_min   versions that the target speaks: the same in every version
//!   9   1 version_max
//!  10   2 reason
//!  12   4 0
//!  16  16 target        UUID of the target
//!  32 128 detail        for people, e.g. who holds the export
//! ```

use core::fmt;

use tyche_counters::Label;
use uuid::Uuid;

use crate::body::{Reader, Writer};
use crate::codes::codes;
use crate::greeting::{self, Greeting, Versions};
use crate::{HEAD_LEN, Reject, Text};

codes! {
    /// The reason why a target refuses a channel.
    Reason(u16) {
        /// No such export, or none that the host may see.
        UnknownExport = 1,
        /// Another host holds the export; the detail names it.
        Held = 2,
        /// The host wants to write and the export is read-only.
        ReadOnly = 3,
        /// The target has no room for another channel.
        NoResources = 4,
        /// Another host has written since this session was last connected: to resume it could
        /// overwrite newer data.
        SessionLost = 5,
        /// The target does not speak the version of the discover.
        Version = 6,
        /// A living session of a host with the same identity holds the export: one of the two is a
        /// clone of the other.
        Cloned = 7,
        /// The target cannot store the last writer on its disk; the detail says why.
        NoState = 8,
        /// The target takes only hosts that prove who they are by a key.
        KeyRequired = 9,
        /// The target has no key of its own.
        NoKey = 10,
        /// The host is not among those that may connect; the detail says to what.
        Denied = 11,
        /// The host has named another target; the detail has the name of this one.
        OtherTarget = 12,
        /// The disk of the export is missing at the target; the detail says what is wrong.
        Offline = 13,
    }
}

impl Label for Reason {
    const ALL: &'static [Self] = Self::ALL;

    fn index(self) -> usize {
        // They are numbered from 1 on.
        self as usize - 1
    }

    fn name(self) -> &'static str {
        match self {
            Self::UnknownExport => "unknown_export",
            Self::Held => "held",
            Self::ReadOnly => "read_only",
            Self::NoResources => "no_resources",
            Self::SessionLost => "session_lost",
            Self::Version => "version",
            Self::Cloned => "cloned",
            Self::NoState => "no_state",
            Self::KeyRequired => "key_required",
            Self::NoKey => "no_key",
            Self::Denied => "denied",
            Self::OtherTarget => "other_target",
            Self::Offline => "offline",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownExport => "no such export",
            Self::Held => "held by another host",
            Self::ReadOnly => "the export is read-only",
            Self::NoResources => "the target has no room for another connection",
            Self::SessionLost => "another host has written to the export since",
            Self::Version => "the target speaks another version of the protocol",
            Self::Cloned => "held by a living session of a host with the same identity",
            Self::NoState => "the target cannot keep on its disk who writes",
            Self::KeyRequired => "the target takes only hosts with a key",
            Self::NoKey => "the target has no key",
            Self::Denied => "the target does not let this host in",
            Self::OtherTarget => "it is another target than the one that was named",
            Self::Offline => "the disk of the export is missing at the target",
        })
    }
}

/// The target refuses the channel, or a host of another version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The attempt of the connect, or the nonce of the discover.
    pub attempt: u64,
    /// Versions that the target speaks.
    pub versions: Versions,
    /// The target that refuses.
    pub target: Uuid,
    /// The reason.
    pub reason: Reason,
    /// Details for people; may be empty.
    pub detail: Text<128>,
}

impl Rejection {
    /// Bytes of the body.
    pub(crate) const LEN: usize = 160;
    /// Bytes of the frame.
    pub const FRAME_LEN: usize = HEAD_LEN + Self::LEN;

    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let (attempt, versions) = greeting::prefix(&mut fields)?;
        let code = fields.u16()?;
        fields.zeroes::<4>()?;
        let target = fields.uuid()?;
        let detail = fields.text()?;
        fields.end()?;
        let reason = Reason::ALL
            .iter()
            .copied()
            .find(|&reason| reason as u16 == code)
            .ok_or(Reject::Code)?;
        Ok(Self { attempt, versions, target, reason, detail })
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        greeting::emit_prefix(self.attempt, self.versions, fields);
        fields.u16(self.reason as u16).zeroes::<4>().uuid(&self.target).text(&self.detail);
    }
}

impl Greeting {
    /// The answer to a discover of a version that the target does not speak.
    pub fn refusal(&self, target: Uuid) -> Rejection {
        Rejection {
            attempt: self.nonce,
            versions: Versions::OURS,
            reason: Reason::Version,
            target,
            detail: Text::EMPTY,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reject: {}", self.reason)?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}
