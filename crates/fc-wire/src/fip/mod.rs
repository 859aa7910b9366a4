//! The FCoE Initialization Protocol (FC-BB-6): who is there, and who logs in.
//!
//! A frame is an Ethernet header (14 bytes), a header (10 bytes, [`Operation`] and [`Flags`]) and a
//! list of [`Descriptor`]s. The operation determines which descriptors there are. They come in any
//! order, each once, except for those that may be repeated.
//!
//! ```text
//! 0          14               24
//! +----------+----------------+-------------+-------------+----+---------+
//! | dst src  | version, opera-| descriptor  | descriptor  | .. | padding |
//! | type     | tion, flags    |             |             |    |         |
//! +----------+----------------+-------------+-------------+----+---------+
//! ```
//!
//! | file | operations |
//! |---|---|
//! | `discovery` | Discovery Solicitation and Advertisement: nodes and forwarders of a fabric |
//! | `link_service` | FLOGI, FDISC, LOGO and ELP in a descriptor |
//! | `keep_alive` | Keep Alive and Clear Virtual Link |
//! | `vlan` | VLAN Request and Notification |
//! | `vn2vn` | Probe, Claim and Beacon: ports without a fabric |

mod descriptor;
mod discovery;
mod found;
mod frame;
mod header;
mod keep_alive;
mod link_service;
mod vlan;
mod vn2vn;

pub use descriptor::{Descriptor, DescriptorKind, Fabric, KeepAlivePeriod, Service, VnPort};
pub use discovery::{Advertisement, Solicitation};
pub use found::{VLANS_MAX, VN_PORTS_MAX};
pub use frame::{Frame, Message};
pub use header::{Flags, HEADER_LEN, Operation};
pub use keep_alive::{ClearVirtualLink, KeepAlive};
pub use link_service::{LinkService, PAYLOAD_LEN_MAX};
pub use vlan::{VlanNotification, VlanRequest};
pub use vn2vn::{Claim, Port};

use crate::{ETHERNET_LEN, FRAME_LEN_MAX, HEAD_LEN, Mac, TAIL_LEN};

/// All nodes and forwarders that speak FCoE.
pub const ALL_FCOE_MACS: Mac = group(0);
/// All nodes of a fabric.
pub const ALL_ENODE_MACS: Mac = group(1);
/// All forwarders of a fabric (FCFs).
pub const ALL_FCF_MACS: Mac = group(2);
/// All nodes without a fabric, in the mode for many.
pub const ALL_VN2VN_ENODE_MACS: Mac = group(4);
/// All nodes without a fabric, in the mode for two.
pub const ALL_PT2PT_ENODE_MACS: Mac = group(5);

const fn group(last: u8) -> Mac {
    Mac([0x01, 0x10, 0x18, 0x01, 0x00, last])
}

/// Bytes of the longest FCoE frame without its Ethernet header: the longest payload needs them.
pub const FCOE_LEN_MAX: u16 = (FRAME_LEN_MAX - ETHERNET_LEN) as u16;

/// The length of a frame that proves that FCoE frames of `size` bytes pass, as [`Descriptor::Size`]
/// gives them: without the Ethernet header.
pub fn padded_len(size: u16) -> usize {
    ETHERNET_LEN + usize::from(size)
}

/// The longest payload of an FCoE frame of at most `size` bytes without its Ethernet header, as
/// [`Descriptor::Size`] gives them. It needs no fill. Sizes above [`FCOE_LEN_MAX`] are the caller's
/// to cut.
pub fn payload_within(size: u16) -> u16 {
    const AROUND: u16 = (HEAD_LEN + TAIL_LEN - ETHERNET_LEN) as u16;
    size.saturating_sub(AROUND) & !3
}
