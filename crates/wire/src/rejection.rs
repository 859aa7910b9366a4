//! Reject: the channel is refused.
//!
//! ```text
//! off len field
//!   0   8 attempt       of the connect
//!   8   2 reason
//!  10   6 0
//!  16 128 detail        for people, e.g. who holds the export
//! ```

use core::fmt;

use crate::body::{Reader, Writer};
use crate::{Reject, Text};

/// Why a target refuses a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Reason {
    /// No export of that name, or none that the host may see.
    UnknownExport = 1,
    /// Another host holds the export; the detail says who.
    Held = 2,
    /// The host wants to write and the export is read-only.
    ReadOnly = 3,
    /// The target has no room for another channel.
    NoResources = 4,
    /// Another host has written since this session was last connected: to go on with it could
    /// overwrite newer data.
    SessionLost = 5,
    /// The host may not use the export.
    Denied = 6,
}

impl Reason {
    /// All reasons.
    pub const ALL: &[Self] = &[
        Self::UnknownExport,
        Self::Held,
        Self::ReadOnly,
        Self::NoResources,
        Self::SessionLost,
        Self::Denied,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownExport => "no such export",
            Self::Held => "held by another host",
            Self::ReadOnly => "the export is read-only",
            Self::NoResources => "the target has no room for another connection",
            Self::SessionLost => "another host has written to the export since",
            Self::Denied => "access denied",
        })
    }
}

/// The target refused the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The connect's.
    pub attempt: u64,
    /// Why.
    pub reason: Reason,
    /// More for people; may be empty.
    pub detail: Text<128>,
}

impl Rejection {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let (attempt, code) = (fields.u64()?, fields.u16()?);
        fields.zeroes::<6>()?;
        let detail = fields.text()?;
        fields.end()?;
        let reason = Reason::ALL
            .iter()
            .copied()
            .find(|&reason| reason as u16 == code)
            .ok_or(Reject::Code)?;
        Ok(Self { attempt, reason, detail })
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        fields.u64(self.attempt).u16(self.reason as u16).zeroes::<6>().text(&self.detail);
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reject: {}", self.reason)?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}
