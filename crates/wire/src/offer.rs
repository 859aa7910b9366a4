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
//! ```

use core::fmt;

use arrayvec::ArrayVec;
use uuid::Uuid;

use crate::body::{Reader, Writer};
use crate::flags::flags;
use crate::greeting::{self, Versions};
use crate::{Geometry, HEAD_LEN, Name, Reject};

/// The most records in one offer: as many as fit the smallest frame.
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
    /// The exports.
    pub exports: ArrayVec<ExportInfo, RECORDS_MAX>,
}

impl Offer {
    /// Bytes of the body without records, and of a record.
    const FIELDS_LEN: usize = 104;
    const RECORD_LEN: usize = 104;

    /// Bytes of the frame with so many records.
    pub fn frame_len(records: usize) -> usize {
        HEAD_LEN + Self::FIELDS_LEN + records * Self::RECORD_LEN
    }

    /// The most records in a frame of `len` bytes.
    pub fn records_within(len: usize) -> usize {
        (len.saturating_sub(Self::frame_len(0)) / Self::RECORD_LEN).min(RECORDS_MAX)
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
        fields.end()?;
        Ok(Self { nonce, versions, target, name, first, total, exports })
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        greeting::emit_prefix(self.nonce, self.versions, fields);
        fields.zeroes::<6>().uuid(&self.target).text(&self.name);
        fields.u16(self.first).u16(self.exports.len() as u16).u16(self.total).zeroes::<2>();
        for export in &self.exports {
            export.emit(fields);
        }
    }
}

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
        write!(f, " [{}+{}/{}]", self.first, self.exports.len(), self.total)
    }
}
