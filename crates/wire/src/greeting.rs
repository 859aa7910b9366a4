//! Version negotiation: the part of Discover, Offer and Reject that is the same in every version.
//!
//! The header keeps its length, and `version`, `kind`, `entries`, `data_len` and both checksums
//! keep their places, in frames of these three kinds. Their bodies begin with
//!
//! ```text
//! off len field
//!   0   8 nonce         of the discover, or the attempt of the connect
//!   8   1 version_min   versions that the sender speaks
//!   9   1 version_max
//! ```
//!
//! so that a peer of another version gets an answer, and can be shown to users.

use crate::body::{Reader, Writer};
use crate::{Checksum, ENTRY_LEN, ETHERNET_LEN, HEAD_LEN, Header, Kind, Reject, VERSION};

/// The versions of the protocol that a peer speaks, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Versions {
    /// The lowest version.
    pub min: u8,
    /// The highest version; at least `min`.
    pub max: u8,
}

impl Versions {
    /// The versions of this crate.
    pub const OURS: Self = Self { min: VERSION, max: VERSION };
}

impl core::fmt::Display for Versions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.min == self.max {
            write!(f, "version {}", self.max)
        } else {
            write!(f, "versions {} to {}", self.min, self.max)
        }
    }
}

/// Reads the common prefix of the three bodies in a frame of this version, which must be one of
/// those that the sender speaks.
pub(crate) fn prefix(fields: &mut Reader<'_>) -> Result<(u64, Versions), Reject> {
    let (nonce, versions) = any_prefix(fields)?;
    if (versions.min..=versions.max).contains(&VERSION) {
        Ok((nonce, versions))
    } else {
        Err(Reject::Range)
    }
}

/// The same in a frame of any version.
fn any_prefix(fields: &mut Reader<'_>) -> Result<(u64, Versions), Reject> {
    let nonce = fields.u64()?;
    let [min, max] = fields.bytes()?;
    if min > max { Err(Reject::Range) } else { Ok((nonce, Versions { min, max })) }
}

pub(crate) fn emit_prefix(nonce: u64, versions: Versions, fields: &mut Writer<'_>) {
    fields.u64(nonce).bytes(&[versions.min, versions.max]);
}

/// The fields of a Discover, Offer or Reject of another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The kind: one of the three.
    pub kind: Kind,
    /// The nonce of the discover, or the attempt of the connect.
    pub nonce: u64,
    /// The versions that the sender speaks.
    pub versions: Versions,
}

impl Greeting {
    /// Parses a frame of another version than ours; `None` if it is of ours, of another kind, or
    /// damaged.
    pub fn parse(head: &[u8; HEAD_LEN], payload: &[u8]) -> Option<Self> {
        Header::check_crc(head).ok()?;
        let (version, header) = (head[ETHERNET_LEN], Header::read(head).ok()?);
        let greets = matches!(header.kind, Kind::Discover | Kind::Offer | Kind::Reject);
        let len = header.data_len as usize + usize::from(header.entries) * ENTRY_LEN;
        let whole = len == payload.len() && Checksum::of(payload) == header.payload_crc;
        if version == VERSION || !greets || !whole {
            return None;
        }
        let (nonce, versions) = any_prefix(&mut Reader::new(payload)).ok()?;
        Some(Self { kind: header.kind, nonce, versions })
    }
}
