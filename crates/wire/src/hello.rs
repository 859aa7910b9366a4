//! Hello: a probe of the frame size, padded to the size that it probes and answered with a frame of
//! the same size. The largest answered size fits the path in both directions.
//!
//! ```text
//! off len field
//!   0   8 nonce         echoed in the answer
//!   8  16 target        UUID of the target that is asked
//!  24  24 ticket        for the connect; zero in the question
//!  48   4 frame_len     bytes of this frame in all
//!  52   - padding       up to frame_len
//! ```

use core::fmt;

use uuid::Uuid;

use crate::body::{Reader, Writer, check_padding};
use crate::{FRAME_LEN_MAX, Flags, HEAD_LEN, Reject, Ticket};

/// A probe or, with [`Flags::REPLY`](crate::Flags::REPLY), its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Identifies the attempt to connect.
    pub nonce: u64,
    /// The target addressed; no other answers.
    pub target: Uuid,
    /// In the answer: the ticket for the connect.
    pub ticket: Ticket,
    /// Length of the frame in bytes, padding included.
    pub frame_len: u32,
}

impl Hello {
    /// Bytes of the body before the padding.
    pub const FIELDS_LEN: usize = 52;

    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let this = Self {
            nonce: fields.u64()?,
            target: fields.uuid()?,
            ticket: Ticket(fields.bytes()?),
            frame_len: fields.u32()?,
        };
        if this.frame_len as usize > FRAME_LEN_MAX {
            return Err(Reject::Range);
        }
        if HEAD_LEN + body.len() != this.frame_len as usize {
            return Err(Reject::Length);
        }
        check_padding(fields.rest())?;
        Ok(this)
    }

    /// Only an answer has a ticket.
    pub(crate) fn check_ticket(&self, flags: Flags) -> Result<(), Reject> {
        let may_have_one = flags.contains(Flags::REPLY);
        if may_have_one || self.ticket == Ticket::NONE { Ok(()) } else { Err(Reject::Reserved) }
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        fields.u64(self.nonce).uuid(&self.target).bytes(&self.ticket.0).u32(self.frame_len);
    }

    /// The number of zero bytes that follow the fields.
    pub fn padding_len(&self) -> usize {
        (self.frame_len as usize).saturating_sub(HEAD_LEN + Self::FIELDS_LEN)
    }
}

impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hello {} B nonce={:#x}", self.frame_len, self.nonce)
    }
}
