//! An encapsulated Fibre Channel frame (FC-BB-6): head, payload, tail.
//!
//! ```text
//!  off len field
//!    0  14 Ethernet
//!   14   1 version    0 in the upper 4 bits; the others are reserved
//!   15  12 reserved
//!   27   1 SOF
//!   28  24 FC header
//!   52   n payload, and 0 to 3 bytes of fill that make it a multiple of 4
//! 52+n   4 CRC        of bytes 28 to 51+n, little-endian
//! 56+n   1 EOF
//! 57+n   3 reserved
//! ```
//!
//! SOF and EOF are not covered by the CRC. The receiver takes class 3 and whole frames, and finds
//! the ends of a sequence in the header, not in them.

use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::{Append, exactly, front};
use crate::delimiter::{Eof, Sof};
use crate::header::{at, fill_len};
use crate::{
    ETHERNET_LEN, ETHERTYPE_FCOE, Ethernet, FC_HEADER_LEN, FCtl, FRAME_LEN_MAX, Header, Reject, crc,
};

/// Bytes in front of the payload.
pub const HEAD_LEN: usize = ETHERNET_LEN + size_of::<Encapsulation>() + FC_HEADER_LEN;
/// Bytes behind payload and fill.
pub const TAIL_LEN: usize = size_of::<Trailer>();
/// The most bytes of payload and fill.
pub const PAYLOAD_LEN_MAX: usize = FRAME_LEN_MAX - HEAD_LEN - TAIL_LEN;

/// The offset of the FC header in a frame, and of the first byte that the CRC covers.
pub(crate) const HEADER_AT: usize = HEAD_LEN - FC_HEADER_LEN;

/// A parsed frame, or one to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Destination and source.
    pub ethernet: Ethernet,
    /// The FC header.
    pub header: Header,
    /// The payload without its fill.
    pub payload: &'a [u8],
}

/// The bytes behind the payload: fill, CRC and EOF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    bytes: [u8; 3 + TAIL_LEN],
    /// The first byte that is sent.
    start: usize,
}

/// The FCoE header: version and SOF.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Encapsulation {
    version: u8,
    _reserved: [u8; 12],
    sof: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Trailer {
    crc: U32,
    eof: u8,
    _reserved: [u8; 3],
}

impl<'a> Frame<'a> {
    /// Parses a frame: its first 52 bytes and all the rest, which stays where it is.
    ///
    /// # Errors
    /// The first fault found. A frame with any fault has no effect at all.
    pub fn parse(head: &[u8; HEAD_LEN], rest: &'a [u8]) -> Result<Self, Reject> {
        let (body, trailer) = rest.split_last_chunk::<TAIL_LEN>().ok_or(Reject::Length)?;
        if !body.len().is_multiple_of(4) || body.len() > PAYLOAD_LEN_MAX {
            return Err(Reject::Length);
        }
        let (ethernet, behind) = Ethernet::parse(head, ETHERTYPE_FCOE)?;
        let (encapsulation, header) = front::<Encapsulation>(behind)?;
        if encapsulation.version >> 4 != 0 {
            return Err(Reject::Version);
        }
        let trailer: &Trailer = exactly(trailer)?;
        Sof::check(encapsulation.sof)?;
        Eof::check(trailer.eof)?;
        if crc([header, body]) != trailer.crc.get() {
            return Err(Reject::Crc);
        }
        let (header, fill) = Header::parse(exactly(header)?)?;
        let payload_len = body.len().checked_sub(fill).ok_or(Reject::Fill)?;
        Ok(Self { ethernet, header, payload: &body[..payload_len] })
    }

    /// Checks that the frame is for the port that its destination address says. This holds for
    /// frames between ports, and not for those to a forwarder.
    ///
    /// # Errors
    /// `Destination`.
    pub fn check_destination(&self) -> Result<(), Reject> {
        let destination = self.ethernet.destination;
        if destination.is_group() || destination.port_id() != self.header.d_id {
            return Err(Reject::Destination);
        }
        Ok(())
    }

    /// Writes the frame in one run of bytes; returns its length.
    ///
    /// # Panics
    /// If the payload is longer than [`PAYLOAD_LEN_MAX`].
    pub fn emit(&self, buffer: &mut [u8; FRAME_LEN_MAX]) -> usize {
        assert!(self.payload.len() <= PAYLOAD_LEN_MAX, "a frame's worth of payload");
        let head = head(self.ethernet, &self.header, self.payload.len());
        let tail = Tail::seal(&head, [self.payload]);
        let mut frame = Append::new(buffer);
        frame.put(&head).put(self.payload).put(tail.as_bytes());
        frame.len()
    }
}

/// The head of a frame with a payload of `payload_len` bytes.
pub fn head(ethernet: Ethernet, header: &Header, payload_len: usize) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    let sof = Sof::of(header.seq_cnt).to_wire();
    let encapsulation = Encapsulation { version: 0, _reserved: [0; 12], sof };
    let mut fields = Append::new(&mut head);
    ethernet.emit(ETHERTYPE_FCOE, &mut fields);
    fields.put(&encapsulation).put(&header.to_bytes(payload_len));
    head
}

impl Tail {
    /// The tail of a frame with this head and this payload, which may lie in several pieces.
    pub fn seal<'d>(
        head: &'d [u8; HEAD_LEN],
        payload: impl IntoIterator<Item = &'d [u8], IntoIter: Clone>,
    ) -> Self {
        let payload = payload.into_iter();
        let fill = fill_len(payload.clone().map(<[u8]>::len).sum());
        debug_assert_eq!(
            usize::from(head[HEADER_AT + at::F_CTL + 2] & 3),
            fill,
            "the head says the fill"
        );
        let covered = [&head[HEADER_AT..]].into_iter().chain(payload);
        let crc = crc(covered.chain([&[0; 3][..fill]]));
        let f_ctl = FCtl::from_wire(u32::from(head[HEADER_AT + at::F_CTL]) << 16);
        let eof = if f_ctl.has(FCtl::END_SEQ) { Eof::T } else { Eof::N };
        let trailer = Trailer { crc: crc.into(), eof: eof.to_wire(), _reserved: [0; 3] };
        let mut bytes = [0; 3 + TAIL_LEN];
        bytes[3..].copy_from_slice(trailer.as_bytes());
        Self { bytes, start: 3 - fill }
    }

    /// The bytes to be sent behind the payload: 8, and up to 3 of fill in front.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}
