//! Connect: open a channel of a session.
//!
//! ```text
//! off len field
//!   0   8 attempt       random; repeats of the same attempt are answered alike
//!   8  24 ticket        of the target's answer to a hello
//!  32  16 target        UUID of the target
//!  48  16 host          UUID of the host, the same after a restart
//!  64  16 session       UUID of the session
//!  80  16 device        UUID of the device that the session serves
//!  96  16 export        UUID of the export
//! 112  64 host_name     for people
//! 176   8 cookie        of the frames to the host
//! 184   2 channel       of the frames to the host
//! 186   2 queue_size    requests in flight, wanted
//! 188   2 ring_command  positions of the host's receive rings
//! 190   2 ring_data
//! 192   4 frame_len     longest frame in bytes, as probed
//! 196   4 damq_pages    pages of the target's data queue, wanted
//! 200   4 flags
//! 204   4 keep_alive    silence in milliseconds after which the channel is dead
//! ```

use core::fmt;

use uuid::Uuid;

use crate::body::{Reader, Writer};
use crate::flags::flags;
use crate::{ChannelId, Cookie, FRAME_LEN_MAX, FRAME_LEN_MIN, HEAD_LEN, Name, Reject, Ticket};

flags! {
    /// The options that a host wants.
    ConnectFlags(u32):
    /// The host will not write.
    READ_ONLY = 1,
    /// Data sections shall be covered by the payload checksum.
    CHECKSUM = 2,
    /// The session had a channel before; refused if another host has written since.
    RESUME = 4,
    /// Completions shall carry the times of their requests in the target's stages.
    STAGES = 8,
    /// The host would ask for the block status of ranges.
    BLOCK_STATUS = 16,
}

/// A host asks for a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Random; a repeat of the same attempt gets the same answer.
    pub attempt: u64,
    /// The ticket of the target's answer to a hello from the same address.
    pub ticket: Ticket,
    /// The target addressed; no other answers.
    pub target: Uuid,
    /// Identity of the host; survives restarts.
    pub host: Uuid,
    /// Identity of the session; survives channels, not restarts of the host.
    pub session: Uuid,
    /// Identity of the device that the session serves at its host: chosen by the first session, and
    /// kept by each successor after the host's program has died.
    pub device: Uuid,
    /// Identity of the export wanted.
    pub export: Uuid,
    /// The host's name, for messages to others that want the export.
    pub host_name: Name,
    /// The cookie for frames to the host's channel; not zero.
    pub cookie: Cookie,
    /// The host's index of the channel.
    pub channel: ChannelId,
    /// Requests in flight at once, wanted: 1 to 1024.
    pub queue_size: u16,
    /// Positions of the host's receive rings, by [`Ring`](crate::Ring): powers of two, 16 to 4096.
    pub rings: [u16; 2],
    /// Longest frame in bytes, as probed in both directions.
    pub frame_len: u32,
    /// Pages wanted for the target's data queue.
    pub damq_pages: u32,
    /// The options that the host wants.
    pub flags: ConnectFlags,
    /// Milliseconds of silence after which either side drops the channel: 100 to 60,000.
    pub keep_alive_ms: u32,
}

/// The offset of the host's cookie in a frame with a connect: after attempt, ticket, five UUIDs and
/// the host's name.
pub const CONNECT_COOKIE_AT: usize = HEAD_LEN + 8 + Ticket::LEN + 5 * 16 + Name::LEN;

/// The longest silence in milliseconds after which a channel is dead.
pub const KEEP_ALIVE_MS_MAX: u32 = 60_000;

/// Checks the length of a receive ring.
pub(crate) fn check_ring(len: u16) -> Result<u16, Reject> {
    if len.is_power_of_two() && (16..=4096).contains(&len) { Ok(len) } else { Err(Reject::Range) }
}

/// Checks sizes that both sides of a handshake state.
pub(crate) fn check_sizes(queue_size: u16, frame_len: u32, keep_alive: u32) -> Result<(), Reject> {
    let good = (1..=1024).contains(&queue_size)
        && (FRAME_LEN_MIN..=FRAME_LEN_MAX).contains(&(frame_len as usize))
        && (100..=KEEP_ALIVE_MS_MAX).contains(&keep_alive);
    if good { Ok(()) } else { Err(Reject::Range) }
}

impl Connect {
    /// Bytes of the body.
    pub(crate) const LEN: usize = 208;

    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let this = Self {
            attempt: fields.u64()?,
            ticket: Ticket(fields.bytes()?),
            target: fields.uuid()?,
            host: fields.uuid()?,
            session: fields.uuid()?,
            device: fields.uuid()?,
            export: fields.uuid()?,
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
        if this.cookie.0 == 0 || this.channel == ChannelId::NONE {
            return Err(Reject::Range);
        }
        if !ConnectFlags::ALL.contains(this.flags) {
            return Err(Reject::Flags);
        }
        Ok(this)
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        fields.u64(self.attempt).bytes(&self.ticket.0).uuid(&self.target);
        fields.uuid(&self.host).uuid(&self.session).uuid(&self.device);
        fields.uuid(&self.export).text(&self.host_name);
        fields.u64(self.cookie.0).u16(self.channel.0).u16(self.queue_size);
        fields.u16(self.rings[0]).u16(self.rings[1]).u32(self.frame_len).u32(self.damq_pages);
        fields.u32(self.flags.0).u32(self.keep_alive_ms);
    }
}

impl fmt::Display for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Connect {} by {} ({}) session {} device {} frames of {} B",
            self.export, self.host_name, self.host, self.session, self.device, self.frame_len
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_where_links_look_for_it() {
        let cookie = Cookie(0x0123_4567_89ab_cdef);
        let connect = Connect {
            attempt: 1,
            ticket: Ticket([2; Ticket::LEN]),
            target: Uuid::nil(),
            host: Uuid::nil(),
            session: Uuid::nil(),
            device: Uuid::nil(),
            export: Uuid::nil(),
            host_name: Name::EMPTY,
            cookie,
            channel: ChannelId(3),
            queue_size: 4,
            rings: [16; 2],
            frame_len: 1514,
            damq_pages: 256,
            flags: ConnectFlags::NONE,
            keep_alive_ms: 1000,
        };
        let mut body = [0; 512];
        let mut fields = Writer::new(&mut body);
        connect.emit(&mut fields);
        assert_eq!(fields.len(), Connect::LEN);
        assert_eq!(body[CONNECT_COOKIE_AT - HEAD_LEN..][..4], cookie.first_bytes());
    }
}
