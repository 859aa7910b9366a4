//! Accept: the channel is open, with these sizes.
//!
//! ```text
//! off len field
//!   0   8 attempt       of the connect
//!   8  16 target        UUID of the target
//!  24  16 generation          changes whenever completed writes may have been lost
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
use crate::{ChannelId, Cookie, DAMQ_PAGES_MAX, Geometry, Reject};

flags! {
    /// The flags on the wire: of the disk, and the options that the target grants.
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
    /// The target answers requests for the block status of ranges.
    BLOCK_STATUS = 64,
}

impl AcceptFlags {
    /// The flags of a disk.
    fn of(disk: &Geometry) -> Self {
        // Each field is named, so that none is forgotten.
        let &Geometry { size: _, block_size: _, read_only, write_cache, discard, rotational } =
            disk;
        let mut flags = Self::NONE;
        flags.set(Self::READ_ONLY, read_only);
        flags.set(Self::WRITE_CACHE, write_cache);
        flags.set(Self::DISCARD, discard);
        flags.set(Self::ROTATIONAL, rotational);
        flags
    }

    /// The disk of that size and block size with these flags.
    pub fn geometry(self, size: u64, block_size: u32) -> Geometry {
        Geometry {
            size,
            block_size,
            read_only: self.contains(Self::READ_ONLY),
            write_cache: self.contains(Self::WRITE_CACHE),
            discard: self.contains(Self::DISCARD),
            rotational: self.contains(Self::ROTATIONAL),
        }
    }
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
    pub generation: Uuid,
    /// Identity of the export.
    pub export: Uuid,
    /// The disk, as the session has it: read-only if the session may not write.
    pub geometry: Geometry,
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
    /// Whether data sections are covered by the payload checksum.
    pub checksum: bool,
    /// Whether completions carry the times of their requests in the target's stages.
    pub stages: bool,
    /// Whether the target answers requests for the block status of ranges.
    pub block_status: bool,
    /// Milliseconds of silence after which the target drops the channel.
    pub keep_alive_ms: u32,
}

impl Accept {
    /// Bytes of the body.
    pub(crate) const LEN: usize = 104;

    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let (attempt, target) = (fields.u64()?, fields.uuid()?);
        let (generation, export, size) = (fields.uuid()?, fields.uuid()?, fields.u64()?);
        let (cookie, channel) = (Cookie(fields.u64()?), ChannelId(fields.u16()?));
        let queue_size = fields.u16()?;
        let rings = [check_ring(fields.u16()?)?, check_ring(fields.u16()?)?];
        let (frame_len, damq_pages) = (fields.u32()?, fields.u32()?);
        let (block_size, flags) = (fields.u32()?, AcceptFlags(fields.u32()?));
        let keep_alive_ms = fields.u32()?;
        fields.zeroes::<4>()?;
        fields.end()?;
        check_sizes(queue_size, frame_len, keep_alive_ms)?;
        let geometry = flags.geometry(size, block_size);
        let is_named = cookie.0 != 0 && channel != ChannelId::NONE;
        if !(256..=DAMQ_PAGES_MAX).contains(&damq_pages) || !is_named || !geometry.is_valid() {
            return Err(Reject::Range);
        }
        if !AcceptFlags::ALL.contains(flags) {
            return Err(Reject::Flags);
        }
        Ok(Self {
            attempt,
            target,
            generation,
            export,
            geometry,
            cookie,
            channel,
            queue_size,
            rings,
            frame_len,
            damq_pages,
            checksum: flags.contains(AcceptFlags::CHECKSUM),
            stages: flags.contains(AcceptFlags::STAGES),
            block_status: flags.contains(AcceptFlags::BLOCK_STATUS),
            keep_alive_ms,
        })
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        let mut flags = AcceptFlags::of(&self.geometry);
        flags.set(AcceptFlags::CHECKSUM, self.checksum);
        flags.set(AcceptFlags::STAGES, self.stages);
        flags.set(AcceptFlags::BLOCK_STATUS, self.block_status);
        fields.u64(self.attempt).uuid(&self.target).uuid(&self.generation).uuid(&self.export);
        fields.u64(self.geometry.size).u64(self.cookie.0).u16(self.channel.0).u16(self.queue_size);
        fields.u16(self.rings[0]).u16(self.rings[1]).u32(self.frame_len).u32(self.damq_pages);
        fields.u32(self.geometry.block_size).u32(flags.0).u32(self.keep_alive_ms).zeroes::<4>();
    }
}

impl fmt::Display for Accept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Accept {} of {} ({} B in blocks of {}), {} slots, {} pages, frames of {} B",
            self.export,
            self.target,
            self.geometry.size,
            self.geometry.block_size,
            self.queue_size,
            self.damq_pages,
            self.frame_len
        )
    }
}
