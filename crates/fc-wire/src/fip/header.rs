//! The header of every frame of FIP, 10 bytes behind the Ethernet header.
//!
//! ```text
//! off len field
//!   0   2 version    1 in the upper 4 bits; the others are reserved
//!   2   2 operation
//!   4   1 0
//!   5   1 subcode
//!   6   2 length     of the descriptors, in words of 4 bytes
//!   8   2 flags
//! ```

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bits::{bits, codes};
use crate::bytes::{Append, front};
use crate::{ETHERNET_LEN, Reject};

/// Bytes of the Ethernet header and that of FIP, and the offset of the descriptors.
pub const HEADER_LEN: usize = ETHERNET_LEN + size_of::<Layout>();

codes! {
    /// The operation of a frame: operation and, in the lowest byte, subcode.
    Operation(u32) {
        /// Asks for forwarders, or for nodes.
        Solicitation = 0x101;
        /// A forwarder is there.
        Advertisement = 0x102;
        /// A link service that would otherwise need an address.
        LinkRequest = 0x201;
        /// The answer to one.
        LinkReply = 0x202;
        /// A node, or a port of it, is still there.
        KeepAlive = 0x301;
        /// A forwarder ends the login of ports.
        ClearVirtualLink = 0x302;
        /// Asks for VLANs with FCoE.
        VlanRequest = 0x401;
        /// VLANs with a fabric.
        VlanNotification = 0x402;
        /// VLANs with ports without a fabric.
        Vn2vnVlanNotification = 0x403;
        /// Asks whether an address is free.
        ProbeRequest = 0x501;
        /// The address is taken: the answer to a probe.
        ProbeReply = 0x502;
        /// The sender has taken an address.
        ClaimNotification = 0x503;
        /// A neighbour has heard of it, and says who it is itself.
        ClaimResponse = 0x504;
        /// The sender is still there.
        Beacon = 0x505;
    }
}

bits! {
    /// Flags of a frame.
    Flags(u16) {
        /// Addresses that the fabric provides (FPMA) are supported, or granted.
        FP = 0x8000;
        /// Addresses that the node provides (SPMA) are supported, or granted.
        SP = 0x4000;
        /// The sender is a controlling forwarder (FCF).
        FCF = 0x0020;
        /// The sender is a data forwarder (FDF).
        FDF = 0x0010;
        /// In a probe: the address is recorded from an earlier time.
        REC = 0x0008;
        /// The forwarder accepts logins.
        A = 0x0004;
        /// The frame was asked for.
        S = 0x0002;
        /// The sender is a forwarder, and no node.
        F = 0x0001;
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Layout {
    version: u8,
    _reserved: u8,
    operation: U16,
    _zero: u8,
    subcode: u8,
    words: U16,
    flags: U16,
}

const VERSION: u8 = 1;

/// Takes the header off the front; returns it, and the list of descriptors. Padding behind the list
/// is ignored.
pub(super) fn parse(bytes: &[u8]) -> Result<(Operation, Flags, &[u8]), Reject> {
    let (layout, rest) = front::<Layout>(bytes)?;
    if layout.version >> 4 != VERSION {
        return Err(Reject::Version);
    }
    let operation = u32::from(layout.operation.get()) << 8 | u32::from(layout.subcode);
    let operation = Operation::from_wire(operation).ok_or(Reject::Operation)?;
    let list = rest.get(..usize::from(layout.words.get()) * 4).ok_or(Reject::Length)?;
    Ok((operation, Flags::from_wire(layout.flags.get()), list))
}

/// Appends the header in front of a list of `list_len` bytes.
pub(super) fn emit(operation: Operation, flags: Flags, list_len: usize, frame: &mut Append<'_>) {
    let [_, high, low, subcode] = operation.to_wire().to_be_bytes();
    frame.put(&Layout {
        version: VERSION << 4,
        _reserved: 0,
        operation: u16::from_be_bytes([high, low]).into(),
        _zero: 0,
        subcode,
        words: u16::try_from(list_len / 4).expect("a frame's worth of descriptors").into(),
        flags: flags.to_wire().into(),
    });
}
