//! The Ethernet header: 14 bytes.

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::{Append, front};
use crate::{Mac, Reject};

/// EtherType of encapsulated Fibre Channel frames.
pub const ETHERTYPE_FCOE: u16 = 0x8906;
/// EtherType of the FCoE Initialization Protocol.
pub const ETHERTYPE_FIP: u16 = 0x8914;
/// Bytes of the Ethernet header.
pub const ETHERNET_LEN: usize = size_of::<Layout>();
/// Bytes of the shortest frame on Ethernet, without its checksum. Shorter ones are padded.
pub const FRAME_LEN_MIN: usize = 60;

/// Source and destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ethernet {
    /// The receiver: a station or a group.
    pub destination: Mac,
    /// The sender.
    pub source: Mac,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Layout {
    destination: Mac,
    source: Mac,
    ethertype: U16,
}

impl Ethernet {
    /// Takes the header off the front of a frame.
    ///
    /// # Errors
    /// `Length`, or `EtherType` if it is not the one expected.
    pub(crate) fn parse(frame: &[u8], ethertype: u16) -> Result<(Self, &[u8]), Reject> {
        let (layout, rest) = front::<Layout>(frame)?;
        if layout.ethertype.get() != ethertype {
            return Err(Reject::EtherType);
        }
        Ok((Self { destination: layout.destination, source: layout.source }, rest))
    }

    pub(crate) fn emit(self, ethertype: u16, frame: &mut Append<'_>) {
        let Self { destination, source } = self;
        frame.put(&Layout { destination, source, ethertype: ethertype.into() });
    }
}
