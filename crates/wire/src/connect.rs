//! Connect: open a channel of a session.
//!
//! ```text
//! off len field
//!   0   8 attempt       random; repeats of the same attempt are answered alike
//!   8  16 host          UUID of the host, the same after a restart
//!  24  16 session       UUID of the session
//!  40  16 device        UUID of the device that the session serves
//!  56  64 export        name
//! 120  64 host_name     for people
//! 184   8 cookie        of the frames to the host
//! 192   2 channel       of the frames to the host
//! 194   2 queue_size    requests in flight, wanted
//! 196   2 ring_command  positions of the host's receive rings
//! 198   2 ring_data
//! 200   4 frame_len     longest frame in bytes, as probed
//! 204   4 damq_pages    pages of the target's data queue, wanted
//! 208   4 flags
//! 212   4 keep_alive    silence in milliseconds after which the channel is dead
//! ```

use core::fmt;

use uuid::Uuid;

use crate::body::{Reader, Writer};
use crate::flags::flags;
use crate::{ChannelId, Cookie, FRAME_LEN_MAX, FRAME_LEN_MIN, Name, Reject};

flags! {
    /// What a host wants, flag by flag.
    ConnectFlags(u32):
    /// The host will not write.
    READ_ONLY = 1,
    /// Data sections are to be covered by the payload checksum.
    CHECKSUM = 2,
    /// The session had a channel before; refused if another host has written since.
    RESUME = 4,
    /// Completions are to say how long their requests were in each stage of the target.
    STAGES = 8,
}

/// A host asks for a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Random; a repeat of the same attempt gets the same answer.
    pub attempt: u64,
    /// Identity of the host; survives restarts.
    pub host: Uuid,
    /// Identity of the session; survives channels, not restarts of the host.
    pub session: Uuid,
    /// Identity of the device that the session serves at its host: the first session's own, and
    /// the same for each that takes the place of another because the host's program has died.
    pub device: Uuid,
    /// The export wanted.
    pub export: Name,
    /// The host's name, shown to others who want the export.
    pub host_name: Name,
    /// What frames to the host's channel must carry.
    pub cookie: Cookie,
    /// The host's index of the channel.
    pub channel: ChannelId,
    /// Requests in flight at once, wanted: 1 to 1024.
    pub queue_size: u16,
    /// Positions of the host's receive rings, by [`Ring`](crate::Ring): powers of two, 16 to 4096.
    pub rings: [u16; 2],
    /// Longest frame in bytes that was probed in both directions.
    pub frame_len: u32,
    /// Pages wanted for the target's data queue.
    pub damq_pages: u32,
    /// What the host wants.
    pub flags: ConnectFlags,
    /// Milliseconds of silence after which either side gives the channel up: 100 to 3,600,000.
    pub keep_alive_ms: u32,
}

/// Checks the length of a receive ring.
pub(crate) fn check_ring(len: u16) -> Result<u16, Reject> {
    if len.is_power_of_two() && (16..=4096).contains(&len) { Ok(len) } else { Err(Reject::Range) }
}

/// Checks sizes that both sides of a handshake state.
pub(crate) fn check_sizes(queue_size: u16, frame_len: u32, keep_alive: u32) -> Result<(), Reject> {
    let good = (1..=1024).contains(&queue_size)
        && (FRAME_LEN_MIN..=FRAME_LEN_MAX).contains(&(frame_len as usize))
        && (100..=3_600_000).contains(&keep_alive);
    if good { Ok(()) } else { Err(Reject::Range) }
}

impl Connect {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let this = Self {
            attempt: fields.u64()?,
            host: fields.uuid()?,
            session: fields.uuid()?,
            device: fields.uuid()?,
            export: fields.text()?,
            host_name: fields.text()?,
            cookie: Cookie(fields.u64()?),
            channel: ChannelId(fields.u16()?),
            queue_size: fields.u16()?,
            rings: [check_ring(fields.u16()?)?, check_ring(fields.u16()?)?],
            frame_len: fields.u32()?,
            damq_pages: fields.u32()?,
            flags: ConnectFlags(fields.u32()?),
            keep_alive_ms: fields.u32()?,
        };
        fields.end()?;
        check_sizes(this.queue_size, this.frame_len, this.keep_alive_ms)?;
        if !ConnectFlags::ALL.contains(this.flags) {
            return Err(Reject::Flags);
        }
        Ok(this)
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        fields.u64(self.attempt).uuid(&self.host).uuid(&self.session).uuid(&self.device);
        fields.text(&self.export).text(&self.host_name);
        fields.u64(self.cookie.0).u16(self.channel.0).u16(self.queue_size);
        fields.u16(self.rings[0]).u16(self.rings[1]).u32(self.frame_len).u32(self.damq_pages);
        fields.u32(self.flags.0).u32(self.keep_alive_ms);
    }
}

impl fmt::Display for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Connect {:?} by {} ({}) session {} device {} frames of {} B",
            self.export, self.host_name, self.host, self.session, self.device, self.frame_len
        )
    }
}
