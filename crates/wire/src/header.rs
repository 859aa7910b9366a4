//! The header of every frame: 50 bytes behind the Ethernet header.
//!
//! ```text
//! off len field
//!   0   1 version       2
//!   1   1 kind          what the frame is
//!   2   2 flags         reserved bits are zero
//!   4   2 channel       index at the receiver, 0xffff for none
//!   6   8 cookie        the receiver's, zero for none
//!  14   8 packet        number of this frame on its channel, never repeated
//!  22   4 position      in the frame's ring; zero for frames outside of the rings
//!  26   4 ack_command   next position awaited in the command ring
//!  30   4 ack_data      next position awaited in the data ring
//!  34   2 window        positions from the acks on that the sender has room for, in each ring
//!  36   2 entries       how many follow the data section
//!  38   4 data_len      bytes of the data section, or of the body
//!  42   4 payload_crc   CRC32C of the data section (if CHECKSUMMED) and the entries; sealed: 0
//!  46   4 header_crc    CRC32C of the 46 bytes before
//! ```

use core::fmt;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_ref, try_transmute,
};

use crate::codes::codes;
use crate::flags::flags;
use crate::{
    ChannelId, Checksum, Cookie, ETHERNET_LEN, HEAD_LEN, PacketNumber, Position, Reject, VERSION,
};

codes! {
    /// The kind of a frame.
    Kind(u8) {
        /// Asks for targets. Broadcast.
        Discover = 0x01,
        /// A target and its exports.
        Offer = 0x02,
        /// A probe of the frame size, padded; answered with a hello.
        Hello = 0x03,
        /// Asks for a channel.
        Connect = 0x04,
        /// The channel is open.
        Accept = 0x05,
        /// The channel is refused.
        Reject = 0x06,
        /// A frame came for a channel that does not exist.
        Reset = 0x07,
        /// Asks for a channel, with a proof of who asks.
        SealedConnect = 0x08,
        /// The answer, with a proof of who answers.
        SealedAnswer = 0x09,
        /// Entries without data; the command ring.
        Command = 0x10,
        /// Entries with data; the data ring. A retransmission may lack the data section, if the
        /// data are no longer needed but other entries are.
        Data = 0x11,
        /// Fills a position whose content is no longer needed.
        Void = 0x12,
        /// Acknowledgements only; with bitmaps: a nack.
        Ack = 0x13,
        /// No content; shows that the sender lives.
        Keepalive = 0x14,
        /// The end of the channel; answered with a disconnect.
        Disconnect = 0x15,
        /// Asks for frames, to measure the link; answered with echoes.
        Echo = 0x16,
        /// Closes another channel of the session and asks for the fate of its requests.
        Fence = 0x17,
        /// The confirmation that the channel is closed.
        Fenced = 0x18,
    }
}

impl Kind {
    /// Whether the frame belongs to an open channel.
    pub fn on_channel(self) -> bool {
        self as u8 >= Self::Command as u8
    }

    fn flags(self) -> Flags {
        match self {
            Self::Command | Self::Keepalive => Flags::ACK_REQUEST | Flags::CONGESTED,
            Self::Data => Flags::CHECKSUMMED | Flags::ACK_REQUEST | Flags::CONGESTED,
            Self::Void => Flags::DATA_RING | Flags::ACK_REQUEST | Flags::CONGESTED,
            Self::Ack => Flags::CONGESTED,
            Self::Hello | Self::Disconnect | Self::Echo => Flags::REPLY,
            _ => Flags::NONE,
        }
    }
}

flags! {
    /// Flags of a frame.
    Flags(u16):
    /// On [`Kind::Data`]: the payload checksum covers the data section too, not just the entries.
    CHECKSUMMED = 1,
    /// On [`Kind::Hello`], [`Kind::Disconnect`] and [`Kind::Echo`]: the answer to one.
    REPLY = 2,
    /// On [`Kind::Void`]: the position is in the data ring, not in the command ring.
    DATA_RING = 4,
    /// On the kinds of the two rings: the sender's window is almost full; acknowledge at once.
    ACK_REQUEST = 8,
    /// On the kinds that carry acks: since the sender's last frame with acks, a frame of the
    /// channel has arrived that the network has marked as congested.
    CONGESTED = 16,
}

impl Flags {
    /// The names of the set flags, for texts.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(Flags, &str); 5] = [
            (Flags::CHECKSUMMED, "checksummed"),
            (Flags::REPLY, "reply"),
            (Flags::DATA_RING, "data-ring"),
            (Flags::ACK_REQUEST, "ack-request"),
            (Flags::CONGESTED, "congested"),
        ];
        NAMES.iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| *name)
    }
}

/// The two sequence spaces of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ring {
    /// Small frames: commands, completions, events.
    Command = 0,
    /// Frames that carry data.
    Data = 1,
}

impl Ring {
    /// Both, by number.
    pub const BOTH: [Self; 2] = [Self::Command, Self::Data];
}

/// The parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the frame.
    pub kind: Kind,
    /// Its flags.
    pub flags: Flags,
    /// The receiver's channel.
    pub channel: ChannelId,
    /// The receiver's cookie.
    pub cookie: Cookie,
    /// The packet number of the frame.
    pub packet: PacketNumber,
    /// Position in the ring of [`Header::ring`].
    pub position: Position,
    /// The next position that the sender awaits in each ring, indexed by [`Ring`].
    pub acks: [Position; 2],
    /// The number of positions from `acks` on for which the sender has room, in each ring.
    pub window: u16,
    /// The number of entries behind the data section.
    pub entries: u16,
    /// Bytes of the data section or of the body.
    pub data_len: u32,
    /// CRC32C of the payload.
    pub payload_crc: u32,
}

/// The offset of the cookie in a frame.
pub const COOKIE_AT: usize = ETHERNET_LEN + core::mem::offset_of!(Layout, cookie);

/// The offset of the channel in a frame.
const CHANNEL_AT: usize = ETHERNET_LEN + core::mem::offset_of!(Layout, channel);

/// The bytes of a frame that a tag binds: the header up to its checksums.
pub const BOUND: core::ops::Range<usize> =
    ETHERNET_LEN..ETHERNET_LEN + core::mem::offset_of!(Layout, payload_crc);

/// The offset of the kind in a frame.
pub const KIND_AT: usize = ETHERNET_LEN + core::mem::offset_of!(Layout, kind);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Layout {
    version: u8,
    kind: u8,
    flags: U16,
    channel: U16,
    cookie: U64,
    packet: U64,
    position: U32,
    ack_command: U32,
    ack_data: U32,
    window: U16,
    entries: U16,
    data_len: U32,
    payload_crc: U32,
    header_crc: U32,
}

const LEN: usize = HEAD_LEN - ETHERNET_LEN;
const _: () = assert!(size_of::<Layout>() == LEN);

impl Header {
    /// A header of `kind` with all other fields zero, outside of any channel.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            flags: Flags::NONE,
            channel: ChannelId::NONE,
            cookie: Cookie(0),
            packet: PacketNumber(0),
            position: Position(0),
            acks: [Position(0); 2],
            window: 0,
            entries: 0,
            data_len: 0,
            payload_crc: 0,
        }
    }

    /// Parses the header of a frame from its first 64 bytes, and checks all that does not need the
    /// payload.
    ///
    /// # Errors
    /// `Version`, `HeaderChecksum`, `Kind` or `Flags`.
    pub fn parse(head: &[u8; HEAD_LEN]) -> Result<Self, Reject> {
        if head[ETHERNET_LEN] != VERSION {
            return Err(Reject::Version);
        }
        Self::check_crc(head)?;
        let header = Self::read(head)?;
        if header.kind.flags().contains(header.flags) { Ok(header) } else { Err(Reject::Flags) }
    }

    /// The receiver's channel, of a frame that nobody has checked.
    pub fn channel_of(head: &[u8; HEAD_LEN]) -> ChannelId {
        let (_, rest) = head.split_at(CHANNEL_AT);
        ChannelId(u16::from_le_bytes(*rest.first_chunk().expect("a head is longer")))
    }

    /// Checks the header's checksum, which is the same in every version.
    pub(crate) fn check_crc(head: &[u8; HEAD_LEN]) -> Result<(), Reject> {
        let (covered, crc) = head.split_last_chunk().expect("64 bytes");
        let right = Checksum::of(&covered[ETHERNET_LEN..]) == u32::from_le_bytes(*crc);
        if right { Ok(()) } else { Err(Reject::HeaderChecksum) }
    }

    /// Reads the fields; checks only the kind.
    pub(crate) fn read(head: &[u8; HEAD_LEN]) -> Result<Self, Reject> {
        let (_, bytes) = head.split_at(ETHERNET_LEN);
        let bytes: &[u8; LEN] = bytes.try_into().expect("64 - 14 bytes");
        let layout: &Layout = transmute_ref!(bytes);
        let kind: Kind = try_transmute!(layout.kind).map_err(|_| Reject::Kind)?;
        let flags = Flags(layout.flags.get());
        Ok(Self {
            kind,
            flags,
            channel: ChannelId(layout.channel.get()),
            cookie: Cookie(layout.cookie.get()),
            packet: PacketNumber(layout.packet.get()),
            position: Position(layout.position.get()),
            acks: [Position(layout.ack_command.get()), Position(layout.ack_data.get())],
            window: layout.window.get(),
            entries: layout.entries.get(),
            data_len: layout.data_len.get(),
            payload_crc: layout.payload_crc.get(),
        })
    }

    /// Writes the header with its checksum behind the Ethernet header.
    pub fn emit(&self, head: &mut [u8; HEAD_LEN]) {
        let mut layout = Layout {
            version: VERSION,
            kind: self.kind as u8,
            flags: self.flags.0.into(),
            channel: self.channel.0.into(),
            cookie: self.cookie.0.into(),
            packet: self.packet.0.into(),
            position: self.position.0.into(),
            ack_command: self.acks[Ring::Command as usize].0.into(),
            ack_data: self.acks[Ring::Data as usize].0.into(),
            window: self.window.into(),
            entries: self.entries.into(),
            data_len: self.data_len.into(),
            payload_crc: self.payload_crc.into(),
            header_crc: 0.into(),
        };
        layout.header_crc = Checksum::of(&layout.as_bytes()[..LEN - 4]).into();
        head[ETHERNET_LEN..].copy_from_slice(layout.as_bytes());
    }

    /// Whether the payload's checksum covers the data section too, not just the entries.
    pub fn covers_data(&self) -> bool {
        match self.kind {
            Kind::Data => self.flags.contains(Flags::CHECKSUMMED),
            Kind::Echo => false,
            _ => true,
        }
    }

    /// The ring that the frame has a position in, if any.
    pub fn ring(&self) -> Option<Ring> {
        match self.kind {
            Kind::Command => Some(Ring::Command),
            Kind::Data => Some(Ring::Data),
            Kind::Void if self.flags.contains(Flags::DATA_RING) => Some(Ring::Data),
            Kind::Void => Some(Ring::Command),
            _ => None,
        }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)?;
        self.flags.names().try_for_each(|name| write!(f, " {name}"))?;
        if self.kind.on_channel() {
            write!(f, " ch={} pn={}", self.channel.0, self.packet.0)?;
            if self.ring().is_some() {
                write!(f, " pos={}", self.position.0)?;
            }
            write!(f, " ack={}/{} win={}", self.acks[0].0, self.acks[1].0, self.window)?;
        }
        if self.data_len > 0 {
            write!(f, " data={}", self.data_len)?;
        }
        Ok(())
    }
}
