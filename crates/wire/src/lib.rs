//! Frames and PDUs of the Tyche protocol: parse, check, emit. PROTOCOL.md is the normative text.
//!
//! A frame is an Ethernet header (14 bytes), a Tyche header (50 bytes) and a payload that starts
//! at byte 64:
//!
//! ```text
//! 0        14                64                  64+data_len
//! +--------+-----------------+-------------------+---------------------+
//! | dst src| version kind .. | data section      | entries, 24 B each  |
//! | type   | .. header crc   | (pages)           |                     |
//! +--------+-----------------+-------------------+---------------------+
//!  Ethernet  Header            payload, covered by the payload checksum
//! ```
//!
//! Frames on a channel ([`Kind::Command`], [`Kind::Data`]) carry [`Entry`]s: commands, completions,
//! events, and descriptions of the data section's parts. Data come first so that pages stay aligned
//! in the receiver's memory. [`Kind::Echo`] has an entry of its own, [`Echo`]. All other kinds
//! carry one *body*, a PDU of its own (one file each), in place of the data section. Integers are
//! little-endian.
//!
//! Parsing never panics and never allocates. Every possible fault of a frame has a name in
//! [`Reject`].

#![no_std]
#![forbid(unsafe_code)]

mod accept;
mod ack;
mod body;
mod checksum;
mod codes;
mod connect;
mod discover;
mod echo;
mod encoder;
mod entry;
mod ethernet;
mod fence;
mod flags;
mod frame;
mod greeting;
mod header;
mod hello;
mod offer;
mod protection;
mod reject;
mod rejection;
mod reset;
mod sealed;
mod ticket;
mod types;

pub use accept::{Accept, AcceptFlags};
pub use ack::{Ack, BITMAP_WORDS_MAX, Bitmap};
pub use checksum::Checksum;
pub use connect::{CONNECT_COOKIE_AT, Connect, ConnectFlags, KEEP_ALIVE_MS_MAX};
pub use discover::Discover;
pub use echo::{ECHO_REPLIES_MAX, Echo};
pub use encoder::{Content, Encoded, Encoder, EntryList};
pub use entry::{
    Command, CommandFlags, Completion, Data, Entry, Event, Opcode, Status, Times, ToHost, ToTarget,
};
pub use ethernet::{ETHERTYPE, Mac};
pub use fence::{Fate, Fence, Fenced, OUTCOMES_MAX, Outcome, TAGS_MAX};
pub use frame::{Body, Control, Entries, Frame, Pdu};
pub use greeting::{Greeting, Versions};
pub use header::{BOUND, COOKIE_AT, Flags, Header, KIND_AT, Kind, Ring};
pub use hello::Hello;
pub use offer::{ExportFlags, ExportInfo, Offer, RECORDS_MAX};
pub use protection::{Checksums, Open, Seal, Sealed, TAG_LEN};
pub use reject::Reject;
pub use rejection::{Reason, Rejection};
pub use reset::{Reset, ResetToken};
pub use sealed::{CipherSuite, Introduction, SealedAnswer, SealedConnect, Verdict};
pub use ticket::Ticket;
pub use tyche_geometry::{Geometry, STATUS_LEN_MAX};
pub use types::{ChannelId, Cookie, Name, PacketNumber, Position, Tag, Text};
pub use uuid::Uuid;

/// Protocol version of every frame.
pub const VERSION: u8 = 2;
/// Bytes of the Ethernet header.
pub const ETHERNET_LEN: usize = 14;
/// Bytes of the Ethernet and the Tyche header, and the offset of the payload.
pub const HEAD_LEN: usize = 64;
/// Bytes of one entry.
pub const ENTRY_LEN: usize = 24;
/// The most entries in one frame.
pub const ENTRIES_MAX: usize = 32;
/// Bytes of a page of the `damq`, and the alignment of data in frames that hold whole pages.
pub const PAGE_LEN: usize = 4096;
/// The most pages of a `damq`.
pub const DAMQ_PAGES_MAX: u32 = 1 << 20;
/// Pages of its `damq` that a host may use before the target tells it another number, and at least:
/// 128 KiB. Lower: hosts that have no more do less at once. Higher: a target has room for fewer.
pub const CREDIT_MIN: u32 = 32;
/// The most bytes that one read or write request moves.
pub const REQUEST_LEN_MAX: u32 = 1 << 20;
/// The unit of offsets and lengths of the parts of a request's data in bytes.
pub const PART_UNIT: u32 = 64;
/// The unit of disk offsets and lengths in bytes.
pub const SECTOR_LEN: u64 = 512;
/// The longest frame that the protocol can describe, in bytes.
pub const FRAME_LEN_MAX: usize = ETHERNET_LEN + 65535;
/// The shortest usable frame length limit of a link: a datagram on a path with the least MTU of
/// IPv6, 1280, without the headers of IPv6 and UDP.
pub const FRAME_LEN_MIN: usize = 1280 - 40 - 8;
