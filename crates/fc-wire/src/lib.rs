//! Frames of Fibre Channel over Ethernet: parse, check, emit. FC.md is the normative text.
//!
//! Two kinds of Ethernet frames travel between two machines:
//!
//! - [`fip`]: the FCoE Initialization Protocol (EtherType 0x8914) finds peers and logs in to the
//!   fabric, or to the other end (FC-BB-6).
//! - [`Frame`]: an encapsulated Fibre Channel frame (EtherType 0x8906). Its [`Header`] says which
//!   exchange and sequence it belongs to, and what it is ([`Kind`], FC-FS-3): a link service
//!   ([`els`], FC-LS-2; [`bls`]), a request to the name server ([`ct`], FC-GS-6), or an information
//!   unit of SCSI ([`fcp`], FCP-4).
//!
//! ```text
//! 0          14              28          52            52+n
//! +----------+---------------+-----------+-------------+------------+
//! | dst src  | version, zero | FC header | payload     | CRC EOF 0  |
//! | type     | SOF           |           | (n bytes)   | (8 bytes)  |
//! +----------+---------------+-----------+-------------+------------+
//!  Ethernet    FCoE            covered by the CRC
//! ```
//!
//! Integers are big-endian, but for the CRC. Reserved bits are ignored in frames that are received,
//! and zero in those that are sent. Payloads are not copied: the head and the tail of a frame are
//! written around data that lie elsewhere.
//!
//! Parsing never panics and never allocates. Every possible fault of a frame has a name in
//! [`Reject`].

#![no_std]
#![forbid(unsafe_code)]

mod bits;
pub mod bls;
mod bytes;
mod crc;
pub mod ct;
mod delimiter;
pub mod els;
mod ethernet;
mod fc4;
pub mod fcp;
pub mod fip;
mod frame;
mod header;
mod ids;
mod reject;

pub use crc::crc;
pub use delimiter::{Eof, Sof};
pub use ethernet::{ETHERNET_LEN, ETHERTYPE_FCOE, ETHERTYPE_FIP, Ethernet, FRAME_LEN_MIN};
pub use fc4::{FC4_FCP, Fc4, Fc4Functions, Fc4Types};
pub use frame::{Frame, HEAD_LEN, PAYLOAD_LEN_MAX, TAIL_LEN, Tail, head};
pub use header::{FC_HEADER_LEN, FCtl, Header, Kind};
pub use ids::{FcMap, Mac, PortId, Wwn, Xid};
pub use reject::Reject;

/// Bytes of the longest frame, encapsulated or of FIP: a payload of 2112 bytes.
pub const FRAME_LEN_MAX: usize = 2172;
