//! Echo: a frame that asks for frames, to measure the capacity of a link. It is outside of the
//! rings, never retransmitted, and leaves no state.
//!
//! The data section, the *filling*, has any length and no meaning; the checksum does not cover it,
//! as with unchecked data. One entry follows it:
//!
//! ```text
//! off len field
//!   0   1 kind          5
//!   1   1 0
//!   2   2 replies       frames that are asked for, 0 to 8
//!   4   4 reply_len     bytes of each, headers included
//!   8   8 sequence      echoed in the answers
//!  16   8 0
//! ```
//!
//! An answer ([`Flags::REPLY`](crate::Flags::REPLY)) repeats the entry.

use core::fmt;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_ref};

use crate::{ENTRY_LEN, FRAME_LEN_MAX, HEAD_LEN, Reject};

/// The most frames that one echo asks for: the work that a frame can cause is bounded.
pub const ECHO_REPLIES_MAX: u16 = 8;

/// The entry of an echo, or of an answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Identifies the echo.
    pub sequence: u64,
    /// Frames asked for, at most [`ECHO_REPLIES_MAX`].
    pub replies: u16,
    /// Bytes of each, at least [`LEN_MIN`](Self::LEN_MIN).
    pub reply_len: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Layout {
    kind: u8,
    zero: u8,
    replies: U16,
    reply_len: U32,
    sequence: U64,
    zeroes: U64,
}

const KIND: u8 = 5;
const _: () = assert!(size_of::<Layout>() == ENTRY_LEN);

impl Echo {
    /// Bytes of a frame without filling.
    pub const LEN_MIN: usize = HEAD_LEN + ENTRY_LEN;

    /// Reads the entry of a frame with `filling` bytes of filling.
    pub(crate) fn parse(
        bytes: &[u8; ENTRY_LEN],
        is_reply: bool,
        filling: usize,
    ) -> Result<Self, Reject> {
        let layout: &Layout = transmute_ref!(bytes);
        if layout.kind != KIND {
            return Err(Reject::EntryKind);
        }
        if layout.zero != 0 || layout.zeroes.get() != 0 {
            return Err(Reject::Reserved);
        }
        let (replies, reply_len) = (layout.replies.get(), layout.reply_len.get());
        let len = reply_len as usize;
        let is_asked_for = u16::from(is_reply)..=ECHO_REPLIES_MAX;
        if !is_asked_for.contains(&replies) || !(Self::LEN_MIN..=FRAME_LEN_MAX).contains(&len) {
            return Err(Reject::Range);
        }
        if is_reply && Self::LEN_MIN + filling != len {
            return Err(Reject::Length);
        }
        Ok(Self { sequence: layout.sequence.get(), replies, reply_len })
    }

    /// Writes the entry.
    pub fn emit(&self, bytes: &mut [u8; ENTRY_LEN]) {
        let layout = Layout {
            kind: KIND,
            zero: 0,
            replies: self.replies.into(),
            reply_len: self.reply_len.into(),
            sequence: self.sequence.into(),
            zeroes: 0.into(),
        };
        bytes.copy_from_slice(layout.as_bytes());
    }
}

impl fmt::Display for Echo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Echo #{} for {} x {} B", self.sequence, self.replies, self.reply_len)
    }
}
