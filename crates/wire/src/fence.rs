//! Fence and Fenced: close a channel of the session through another one, and learn what the
//! closed channel executed, before anything of it is sent again.
//!
//! ```text
//! Fence                               Fenced
//! off len field                       off len field
//!   0  16 session                       0  16 session
//!  16   8 cookie   of the frames to    16   8 cookie
//!  24   2 channel  the target          24   2 channel
//!  26   2 count                        26   2 count
//!  28   4 0                            28   4 0
//!  32   4 tag      `count` times       32   8 outcome  `count` times:
//!                                             tag 4, code 1, 0 3
//! ```

use core::fmt;

use arrayvec::ArrayVec;
use uuid::Uuid;

use crate::body::{Reader, Writer};
use crate::{ChannelId, Cookie, Reject, Status, Tag};

/// The most tags in one fence.
pub const TAGS_MAX: usize = 128;
/// The most outcomes in one answer: as many as tags.
pub const OUTCOMES_MAX: usize = TAGS_MAX;

/// Closes the channel at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The session that both channels belong to.
    pub session: Uuid,
    /// Cookie of the channel to close.
    pub cookie: Cookie,
    /// Target's index of the channel to close.
    pub channel: ChannelId,
    /// The requests that the host has no completion for.
    pub tags: ArrayVec<Tag, TAGS_MAX>,
}

/// What became of one request of a fenced channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Which request.
    pub tag: Tag,
    /// How it ended; `None`: it was not executed and never will be.
    pub status: Option<Status>,
}

/// The channel is closed: no frame of it has any effect from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The fence's.
    pub session: Uuid,
    /// The fence's.
    pub cookie: Cookie,
    /// The fence's.
    pub channel: ChannelId,
    /// One for each tag of the fence.
    pub outcomes: ArrayVec<Outcome, OUTCOMES_MAX>,
}

const NOT_EXECUTED: u8 = 0xff;

fn parse_count(fields: &mut Reader<'_>) -> Result<u16, Reject> {
    let count = fields.u16()?;
    fields.zeroes::<4>()?;
    if usize::from(count) > TAGS_MAX { Err(Reject::Range) } else { Ok(count) }
}

impl Fence {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let (session, cookie) = (fields.uuid()?, Cookie(fields.u64()?));
        let channel = ChannelId(fields.u16()?);
        let mut tags = ArrayVec::new();
        for _ in 0..parse_count(&mut fields)? {
            tags.push(Tag::from_bits(fields.u32()?));
        }
        fields.end()?;
        Ok(Self { session, cookie, channel, tags })
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        fields.uuid(&self.session).u64(self.cookie.0).u16(self.channel.0);
        fields.u16(self.tags.len() as u16).zeroes::<4>();
        for tag in &self.tags {
            fields.u32(tag.to_bits());
        }
    }
}

impl Fenced {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let (session, cookie) = (fields.uuid()?, Cookie(fields.u64()?));
        let channel = ChannelId(fields.u16()?);
        let mut outcomes = ArrayVec::new();
        for _ in 0..parse_count(&mut fields)? {
            let (tag, [code]) = (Tag::from_bits(fields.u32()?), fields.bytes()?);
            fields.zeroes::<3>()?;
            let status = Status::ALL.iter().copied().find(|&status| status as u8 == code);
            if status.is_none() && code != NOT_EXECUTED {
                return Err(Reject::Code);
            }
            outcomes.push(Outcome { tag, status });
        }
        fields.end()?;
        Ok(Self { session, cookie, channel, outcomes })
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        fields.uuid(&self.session).u64(self.cookie.0).u16(self.channel.0);
        fields.u16(self.outcomes.len() as u16).zeroes::<4>();
        for outcome in &self.outcomes {
            let code = outcome.status.map_or(NOT_EXECUTED, |status| status as u8);
            fields.u32(outcome.tag.to_bits()).bytes(&[code]).zeroes::<3>();
        }
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence ch={} of {} {:?}", self.channel.0, self.session, self.tags)
    }
}

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fenced ch={} of {}:", self.channel.0, self.session)?;
        for Outcome { tag, status } in &self.outcomes {
            match status {
                Some(status) => write!(f, " {tag:?}={status:?}")?,
                None => write!(f, " {tag:?}=NotExecuted")?,
            }
        }
        Ok(())
    }
}
