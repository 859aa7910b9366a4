//! Discover: asks targets to make themselves known.
//!
//! ```text
//! off len field
//!   0   8 nonce         echoed in the offers
//!   8   1 version_min   versions that the host speaks: the same in every version
//!   9   1 version_max
//!  10   2 first         index of the first record wanted
//!  12   4 0
//!  16  16 host          UUID of the asking host
//!  32  16 target        UUID of the target asked; zero: any
//!  48  16 uuid          UUID of the export asked for; zero: any
//!  64  64 name          name of the export asked for; empty: any
//! 128   - padding       zeroes
//! ```
//!
//! The padding has room for the answer: where anybody may write a false source address, a target
//! answers with no more bytes than it was asked with.

use core::fmt;

use uuid::Uuid;

use crate::body::{Reader, Writer, check_padding};
use crate::greeting::{self, Versions};
use crate::{HEAD_LEN, Name, Offer, Reject};

/// Asks targets to make themselves known, by broadcast or to one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discover {
    /// Echoed in the offers.
    pub nonce: u64,
    /// Versions that the host speaks.
    pub versions: Versions,
    /// Index of the first record wanted, among the exports that match: one offer holds a limited
    /// number.
    pub first: u16,
    /// The asking host; exports may be hidden from some hosts.
    pub host: Uuid,
    /// Only this target answers; nil: all.
    pub target: Uuid,
    /// Only targets with this export answer; nil: any.
    pub uuid: Uuid,
    /// Only targets with an export of this name answer; empty: any.
    pub name: Name,
    /// Bytes of zeroes behind the fields, up to [`PADDING_MAX`](Self::PADDING_MAX).
    pub padding: u16,
}

impl Discover {
    /// Bytes of the body before the padding.
    pub const FIELDS_LEN: usize = 128;
    /// The most bytes of padding: as many as a body may have.
    pub const PADDING_MAX: usize = 1024;

    /// The question of a host for all exports of all targets, without padding.
    pub fn any(nonce: u64, host: Uuid) -> Self {
        Self {
            nonce,
            versions: Versions::OURS,
            first: 0,
            host,
            target: Uuid::nil(),
            uuid: Uuid::nil(),
            name: Name::EMPTY,
            padding: 0,
        }
    }

    /// The question, padded to the length of an offer with so many records and a key.
    #[must_use]
    pub fn with_room_for(self, records: usize) -> Self {
        let answer = Offer::frame_len(records) + Offer::KEY_LEN;
        let padding = answer.saturating_sub(HEAD_LEN + Self::FIELDS_LEN);
        Self { padding: padding.min(Self::PADDING_MAX) as u16, ..self }
    }

    /// Bytes of the frame.
    pub fn frame_len(&self) -> usize {
        HEAD_LEN + Self::FIELDS_LEN + usize::from(self.padding)
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let (nonce, versions) = greeting::prefix(&mut fields)?;
        let first = fields.u16()?;
        fields.zeroes::<4>()?;
        let (host, target, uuid) = (fields.uuid()?, fields.uuid()?, fields.uuid()?);
        let name = fields.text()?;
        let padding = fields.rest();
        if padding.len() > Self::PADDING_MAX {
            return Err(Reject::Length);
        }
        check_padding(padding)?;
        let padding = padding.len() as u16;
        Ok(Self { nonce, versions, first, host, target, uuid, name, padding })
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        greeting::emit_prefix(self.nonce, self.versions, fields);
        fields.u16(self.first).zeroes::<4>();
        fields.uuid(&self.host).uuid(&self.target).uuid(&self.uuid).text(&self.name);
    }
}

impl fmt::Display for Discover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Discover {:?} from {}", self.name, self.host)?;
        if !self.uuid.is_nil() {
            write!(f, " export {}", self.uuid)?;
        }
        if self.target.is_nil() { Ok(()) } else { write!(f, " at {}", self.target) }
    }
}
