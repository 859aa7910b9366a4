//! Offer: a target and its exports.
//!
//! ```text
//! off len field                      each record, 104 bytes:
//!   0   8 nonce   of the discover    off len field
//!   8   1 version_min  spoken by       0  64 name
//!   9   1 version_max  the target     64  16 uuid
//!  10   6 0                           80   8 size        bytes
//!  16  16 target  UUID                88   4 block_size  512 or 4096
//!  32  64 name    of the target       92   4 flags
//!  96   2 first   index of record 0   96   8 0
//!  98   2 count   records here
//! 100   2 total   matching exports
//! 102   2 0
//! 104 104 records, `count` times
//!   -  32 key     public key of the target; absent if it has none
//! ```

use core::fmt;

use arrayvec::ArrayVec;
use uuid::Uuid;

use crate::body::{BODY_LEN_MAX, Reader, Writer};
use crate::flags::flags;
use crate::greeting::{self, Versions};
use crate::{Geometry, HEAD_LEN, Name, Reject};

/// The most records in one offer: as many as fit the smallest frame without a key. Beside a key
/// there are one less.
pub const RECORDS_MAX: usize = 10;

flags! {
    /// The flags on the wire: of the disk, and of its use.
    ExportFlags(u32):
    /// Writes are refused.
    READ_ONLY = 1,
    /// Completed writes may be volatile until the next flush.
    WRITE_CACHE = 2,
    /// A host holds it for writing.
    HELD = 4,
    /// Several hosts may write at once.
    SHARED = 8,
}

impl ExportFlags {
    /// The flags of a disk.
    fn of(disk: &Geometry) -> Self {
        let mut flags = Self::NONE;
        flags.set(Self::READ_ONLY, disk.read_only);
        flags.set(Self::WRITE_CACHE, disk.write_cache);
        flags
    }

    /// The disk of that size and block size with these flags.
    pub fn geometry(self, size: u64, block_size: u32) -> Geometry {
        Geometry {
            read_only: self.contains(Self::READ_ONLY),
            write_cache: self.contains(Self::WRITE_CACHE),
            ..Geometry::new(size, block_size)
        }
    }
}

/// One export of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Its name, unique at the target.
    pub name: Name,
    /// Its identity, stable over restarts of the target.
    pub uuid: Uuid,
    /// The disk, as far as an offer describes it: after parsing, `discard` and `rotational` are
    /// false, and the size may be no whole number of blocks. An Accept has all of it, checked.
    pub geometry: Geometry,
    /// Whether a host holds it for writing.
    pub held: bool,
    /// Whether several hosts may write at once.
    pub shared: bool,
}

/// A target and up to [`RECORDS_MAX`] of its exports; for the rest the host asks again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The nonce of the discover.
    pub nonce: u64,
    /// Versions that the target speaks.
    pub versions: Versions,
    /// Identity of the target.
    pub target: Uuid,
    /// Its name, for people.
    pub name: Name,
    /// Index of the first record among the exports that match the discover.
    pub first: u16,
    /// The number of matching exports.
    pub total: u16,
    /// The exports: one less than [`RECORDS_MAX`] beside a key.
    pub exports: ArrayVec<ExportInfo, RECORDS_MAX>,
    /// The public key of the target, if it has one and there was room for it. Nothing proves it:
    /// anybody may send an offer.
    pub key: Option<[u8; Self::KEY_LEN]>,
}

impl Offer {
    /// Bytes of the body without records, of a record, and of a key.
    const FIELDS_LEN: usize = 104;
    const RECORD_LEN: usize = 104;
    /// Bytes of a public key.
    pub const KEY_LEN: usize = 32;

    /// Bytes of the frame with so many records, and without a key.
    pub fn frame_len(records: usize) -> usize {
        HEAD_LEN + Self::FIELDS_LEN + records * Self::RECORD_LEN
    }

    /// The most records in a frame of `len` bytes, which may have a key.
    pub fn records_within(len: usize, has_key: bool) -> usize {
        let others = Self::frame_len(0) + if has_key { Self::KEY_LEN } else { 0 };
        let len = len.min(HEAD_LEN + BODY_LEN_MAX);
        len.saturating_sub(others) / Self::RECORD_LEN
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let (nonce, versions) = greeting::prefix(&mut fields)?;
        fields.zeroes::<6>()?;
        let (target, name) = (fields.uuid()?, fields.text()?);
        let (first, count, total) = (fields.u16()?, fields.u16()?, fields.u16()?);
        fields.zeroes::<2>()?;
        if usize::from(count) > RECORDS_MAX || u32::from(first) + u32::from(count) > total.into() {
            return Err(Reject::Range);
        }
        let mut exports = ArrayVec::new();
        for _ in 0..count {
            exports.push(ExportInfo::parse(&mut fields)?);
        }
        let key = match fields.rest() {
            [] => None,
            rest => Some(rest.try_into().map_err(|_| Reject::Length)?),
        };
        if key.is_some() && exports.is_full() {
            return Err(Reject::Range);
        }
        Ok(Self { nonce, versions, target, name, first, total, exports, key })
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        greeting::emit_prefix(self.nonce, self.versions, fields);
        fields.zeroes::<6>().uuid(&self.target).text(&self.name);
        fields.u16(self.first).u16(self.exports.len() as u16).u16(self.total).zeroes::<2>();
        for export in &self.exports {
            export.emit(fields);
        }
        if let Some(key) = &self.key {
            fields.bytes(key);
        }
    }
}

const _: () = {
    let fields = Offer::FIELDS_LEN + RECORDS_MAX * Offer::RECORD_LEN;
    assert!(fields <= BODY_LEN_MAX && fields + Offer::RECORD_LEN > BODY_LEN_MAX);
    assert!(fields - Offer::RECORD_LEN + Offer::KEY_LEN <= BODY_LEN_MAX);
};

impl ExportInfo {
    fn parse(fields: &mut Reader<'_>) -> Result<Self, Reject> {
        let (name, uuid) = (fields.text()?, fields.uuid()?);
        let (size, block_size, flags) = (fields.u64()?, fields.u32()?, ExportFlags(fields.u32()?));
        fields.zeroes::<8>()?;
        if !Geometry::is_block_size(block_size) {
            return Err(Reject::Range);
        }
        if !ExportFlags::ALL.contains(flags) {
            return Err(Reject::Flags);
        }
        Ok(Self {
            name,
            uuid,
            geometry: flags.geometry(size, block_size),
            held: flags.contains(ExportFlags::HELD),
            shared: flags.contains(ExportFlags::SHARED),
        })
    }

    fn emit(&self, fields: &mut Writer<'_>) {
        let Geometry { size, block_size, .. } = self.geometry;
        let mut flags = ExportFlags::of(&self.geometry);
        flags.set(ExportFlags::HELD, self.held);
        flags.set(ExportFlags::SHARED, self.shared);
        fields.text(&self.name).uuid(&self.uuid).u64(size).u32(block_size).u32(flags.0);
        fields.zeroes::<8>();
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offer by {} ({}):", self.name, self.target)?;
        for export in &self.exports {
            write!(f, " {} {} B", export.name, export.geometry.size)?;
        }
        write!(f, " [{}+{}/{}]", self.first, self.exports.len(), self.total)?;
        if self.key.is_some() { f.write_str(" with a key") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses an offer with so many records and a key of so many bytes.
    fn parse(records: usize, key_len: usize) -> Result<Option<[u8; Offer::KEY_LEN]>, Reject> {
        let export = ExportInfo {
            name: Name::EMPTY,
            uuid: Uuid::nil(),
            geometry: Geometry::new(1 << 20, 512),
            held: false,
            shared: false,
        };
        let offer = Offer {
            nonce: 1,
            versions: Versions::OURS,
            target: Uuid::nil(),
            name: Name::EMPTY,
            first: 0,
            total: records as u16,
            exports: core::iter::repeat_n(export, records).collect(),
            key: None,
        };
        let mut body = [7; 2 * BODY_LEN_MAX];
        let mut fields = Writer::new(&mut body);
        offer.emit(&mut fields);
        let len = fields.len();
        Offer::parse(&body[..len + key_len]).map(|offer| offer.key)
    }

    #[test]
    fn a_key_takes_the_place_of_a_record() {
        assert_eq!(parse(RECORDS_MAX, 0), Ok(None));
        assert_eq!(parse(RECORDS_MAX - 1, Offer::KEY_LEN), Ok(Some([7; Offer::KEY_LEN])));
        assert_eq!(parse(RECORDS_MAX, Offer::KEY_LEN), Err(Reject::Range));
        assert_eq!(parse(0, Offer::KEY_LEN - 1), Err(Reject::Length));
        assert_eq!(parse(0, Offer::KEY_LEN + 1), Err(Reject::Length));
        let longest = HEAD_LEN + BODY_LEN_MAX;
        for len in 0..=2 * longest {
            for has_key in [false, true] {
                let records = Offer::records_within(len, has_key);
                let frame = Offer::frame_len(records) + if has_key { Offer::KEY_LEN } else { 0 };
                assert!(records == 0 || frame <= len.min(longest), "{records} in {len}");
            }
        }
        let most = [false, true].map(|has_key| Offer::records_within(longest, has_key));
        assert_eq!(most, [RECORDS_MAX, RECORDS_MAX - 1]);
    }
}
