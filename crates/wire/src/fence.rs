//! Fence and Fenced: close another channel of the session, and report the fate of its requests
//! before any of them is reissued. Both are sent on a living channel of the session.
//!
//! ```text
//! Fence                               Fenced
//! off len field                       off len field
//!   0   8 cookie   of the frames to     0   8 cookie
//!   8   2 channel  the target           8   2 channel
//!  10   2 count                        10   2 count
//!  12   4 0                            12   4 0
//!  16   4 tag      `count` times       16   8 outcome  `count` times:
//!                                             tag 4, code 1, 0 3
//! ```

use core::fmt;

use arrayvec::ArrayVec;

use crate::body::{Reader, Writer};
use crate::{ChannelId, Cookie, Reject, Status, Tag};

/// The most tags in one fence.
pub const TAGS_MAX: usize = 128;
/// The most outcomes in one answer: as many as tags.
pub const OUTCOMES_MAX: usize = TAGS_MAX;

/// Closes a channel at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Cookie of the channel to close.
    pub cookie: Cookie,
    /// Target's index of the channel to close.
    pub channel: ChannelId,
    /// Requests for which the host has no completion.
    pub tags: ArrayVec<Tag, TAGS_MAX>,
}

/// The fate of a request of a fenced channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has ended with this status.
    Executed(Status),
    /// It was not executed and never will be.
    NotExecuted,
    /// Unknown to the target, e.g. because it was restarted since: it may have been executed, and
    /// never will be again.
    Unknown,
}

/// The outcome of one request of a fenced channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The request.
    pub tag: Tag,
    /// Its fate.
    pub fate: Fate,
}

/// The channel is closed: no frame of it has any effect from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The cookie of the fence.
    pub cookie: Cookie,
    /// The channel of the fence.
    pub channel: ChannelId,
    /// One outcome for each tag of the fence.
    pub outcomes: ArrayVec<Outcome, OUTCOMES_MAX>,
}

const NOT_EXECUTED: u8 = 0xff;
const UNKNOWN: u8 = 0xfe;

fn parse_count(fields: &mut Reader<'_>) -> Result<u16, Reject> {
    let count = fields.u16()?;
    fields.zeroes::<4>()?;
    if usize::from(count) > TAGS_MAX { Err(Reject::Range) } else { Ok(count) }
}

impl Fence {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let (cookie, channel) = (Cookie(fields.u64()?), ChannelId(fields.u16()?));
        let mut tags = ArrayVec::new();
        for _ in 0..parse_count(&mut fields)? {
            tags.push(Tag::from_bits(fields.u32()?));
        }
        fields.end()?;
        Ok(Self { cookie, channel, tags })
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        fields.u64(self.cookie.0).u16(self.channel.0);
        fields.u16(self.tags.len() as u16).zeroes::<4>();
        for tag in &self.tags {
            fields.u32(tag.to_bits());
        }
    }
}

impl Fate {
    fn parse(code: u8) -> Result<Self, Reject> {
        match code {
            NOT_EXECUTED => Ok(Self::NotExecuted),
            UNKNOWN => Ok(Self::Unknown),
            _ => {
                let status = Status::ALL.iter().copied().find(|&status| status as u8 == code);
                status.map(Self::Executed).ok_or(Reject::Code)
            }
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Executed(status) => status as u8,
            Self::NotExecuted => NOT_EXECUTED,
            Self::Unknown => UNKNOWN,
        }
    }
}

impl Fenced {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let (cookie, channel) = (Cookie(fields.u64()?), ChannelId(fields.u16()?));
        let mut outcomes = ArrayVec::new();
        for _ in 0..parse_count(&mut fields)? {
            let (tag, [code]) = (Tag::from_bits(fields.u32()?), fields.bytes()?);
            fields.zeroes::<3>()?;
            outcomes.push(Outcome { tag, fate: Fate::parse(code)? });
        }
        fields.end()?;
        Ok(Self { cookie, channel, outcomes })
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        fields.u64(self.cookie.0).u16(self.channel.0);
        fields.u16(self.outcomes.len() as u16).zeroes::<4>();
        for outcome in &self.outcomes {
            fields.u32(outcome.tag.to_bits()).bytes(&[outcome.fate.code()]).zeroes::<3>();
        }
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence of={} {:?}", self.channel.0, self.tags)
    }
}

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fenced of={}:", self.channel.0)?;
        self.outcomes.iter().try_for_each(|Outcome { tag, fate }| match fate {
            Fate::Executed(status) => write!(f, " {tag:?}={status:?}"),
            fate => write!(f, " {tag:?}={fate:?}"),
        })
    }
}
