//! Frames of Fibre Channel over Ethernet: parse, check, emit. FC.md is the normative text.
//!
//! [`fip`]: the FCoE Initialization Protocol (EtherType 0x8914) finds peers and logs in to the
//! fabric, or to the other end (FC-BB-6).
//!
//! Integers are big-endian, but for the CRC. Reserved bits are ignored in frames that are received,
//! and zero in those that are sent.
//!
//! Parsing never panics and never allocates. Every possible fault of a frame has a name in
//! [`Reject`].

#![no_std]
#![forbid(unsafe_code)]

mod bits;
mod bytes;
mod ethernet;
pub mod fip;
mod header;
mod ids;
mod reject;

pub use ethernet::{ETHERNET_LEN, ETHERTYPE_FCOE, ETHERTYPE_FIP, Ethernet, FRAME_LEN_MIN};
pub use header::{FC_HEADER_LEN, FCtl, Header, Kind};
pub use ids::{FcMap, Mac, PortId, Wwn, Xid};
pub use reject::Reject;

/// Bytes of the longest frame, encapsulated or of FIP: a payload of 2112 bytes.
pub const FRAME_LEN_MAX: usize = 2172;
