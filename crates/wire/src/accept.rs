//! Accept: the channel is open, with these sizes.
//!
//! ```text
//! off len field
//!   0   8 attempt       of the connect
//!   8  16 target        UUID of the target
//!  24  16 boot          changes whenever completed writes may have been lost
//!  40  16 export        UUID of the export
//!  56   8 size          bytes
//!  64   8 cookie        of the frames to the target
//!  72   2 channel       of the frames to the target
//!  74   2 queue_size    slots of the remq
//!  76   2 ring_command  positions of the target's receive rings
//!  78   2 ring_data
//!  80   4 frame_len     longest frame in bytes
//!  84   4 damq_pages    pages of the data queue
//!  88   4 block_size    512 or 4096
//!  92   4 flags
//!  96   4 keep_alive    milliseconds
//! 100   4 0
//! ```

use core::fmt;

use uuid::Uuid;

use crate::body::{Reader, Writer};
use crate::connect::{check_ring, check_sizes};
use crate::flags::flags;
use crate::{ChannelId, Cookie, Reject};

flags! {
    /// The options that the target grants.
    AcceptFlags(u32):
    /// Writes are refused.
    READ_ONLY = 1,
    /// Data sections are covered by the payload checksum.
    CHECKSUM = 2,
    /// Completed writes may be volatile until the next flush.
    WRITE_CACHE = 4,
    /// Discard has an effect.
    DISCARD = 8,
    /// Completions carry the times of their requests in the target's stages.
    STAGES = 16,
    /// Seeks take time: the disks are rotational.
    ROTATIONAL = 32,
}

/// The target opened the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The attempt of the connect.
    pub attempt: u64,
    /// Identity of the target.
    pub target: Uuid,
    /// Identity of the period in which completed writes survive: a new one means that they may be
    /// lost.
    pub boot: Uuid,
    /// Identity of the export.
    pub export: Uuid,
    /// Size in bytes.
    pub size: u64,
    /// The cookie for frames to the target's channel.
    pub cookie: Cookie,
    /// The target's index of the channel.
    pub channel: ChannelId,
    /// Slots of the `remq`: at most as many as wanted.
    pub queue_size: u16,
    /// Positions of the target's receive rings, by [`Ring`](crate::Ring).
    pub rings: [u16; 2],
    /// Longest frame in bytes: at most the probed length.
    pub frame_len: u32,
    /// Pages of the `damq`: at least one request of the largest size.
    pub damq_pages: u32,
    /// Block size in bytes: 512 or 4096.
    pub block_size: u32,
    /// Properties of the export.
    pub flags: AcceptFlags,
    /// Milliseconds of silence after which the target drops the channel.
    pub keep_alive_ms: u32,
}

impl Accept {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let this = Self {
            attempt: fields.u64()?,
            target: fields.uuid()?,
            boot: fields.uuid()?,
            export: fields.uuid()?,
            size: fields.u64()?,
            cookie: Cookie(fields.u64()?),
            channel: ChannelId(fields.u16()?),
            queue_size: fields.u16()?,
            rings: [check_ring(fields.u16()?)?, check_ring(fields.u16()?)?],
            frame_len: fields.u32()?,
            damq_pages: fields.u32()?,
            block_size: fields.u32()?,
            flags: AcceptFlags(fields.u32()?),
            keep_alive_ms: fields.u32()?,
        };
        fields.zeroes::<4>()?;
        fields.end()?;
        check_sizes(this.queue_size, this.frame_len, this.keep_alive_ms)?;
        if !(256..=1 << 20).contains(&this.damq_pages)
            || this.cookie.0 == 0
            || !matches!(this.block_size, 512 | 4096)
            || !this.size.is_multiple_of(u64::from(this.block_size))
        {
            return Err(Reject::Range);
        }
        if !AcceptFlags::ALL.contains(this.flags) {
            return Err(Reject::Flags);
        }
        Ok(this)
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        fields.u64(self.attempt).uuid(&self.target).uuid(&self.boot).uuid(&self.export);
        fields.u64(self.size).u64(self.cookie.0).u16(self.channel.0).u16(self.queue_size);
        fields.u16(self.rings[0]).u16(self.rings[1]).u32(self.frame_len).u32(self.damq_pages);
        fields.u32(self.block_size).u32(self.flags.0).u32(self.keep_alive_ms).zeroes::<4>();
    }
}

impl fmt::Display for Accept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Accept {} of {} ({} B in blocks of {}), {} slots, {} pages, frames of {} B",
            self.export,
            self.target,
            self.size,
            self.block_size,
            self.queue_size,
            self.damq_pages,
            self.frame_len
        )
    }
}
