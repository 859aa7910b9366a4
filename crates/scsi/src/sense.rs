//! Sense data: why a command failed, or what has happened to the logical unit (SPC-4, 4.5).
//!
//! We write the fixed format, and read both:
//!
//! ```text
//! fixed (0x70, deferred 0x71)        descriptor (0x72, deferred 0x73)
//! off len field                      off len field
//!   0   1 response code                0   1 response code
//!   2   1 sense key (low 4 bits)       1   1 sense key (low 4 bits)
//!   7   1 additional length            2   2 additional code, qualifier
//!  12   2 additional code, qualifier   7   1 additional length
//!  15   3 sense key specific           8   . descriptors: type, length, ..
//!  18  16 generation, of ours
//! ```
//!
//! Behind the fixed format a target may have bytes of its own. Ours names the generation of a disk
//! that has lost writes there, where a flush fails for that or an initiator is told of another.

use core::fmt;
use core::ops::Deref;

use uuid::Uuid;

use crate::bytes::{Writer, array_at};
use crate::listed::listed;

/// Bytes of the fixed format.
const FIXED_LEN: usize = 18;
/// Bytes of ours with a generation.
const SENSE_LEN: usize = FIXED_LEN + 16;

listed! {
    /// The kind of a failure (SPC-4, table 49).
    #[repr(u8)]
    #[allow(missing_docs, reason = "the names are the standard's")]
    pub enum SenseKey {
        NoSense = 0x0,
        RecoveredError = 0x1,
        NotReady = 0x2,
        MediumError = 0x3,
        HardwareError = 0x4,
        IllegalRequest = 0x5,
        UnitAttention = 0x6,
        DataProtect = 0x7,
        BlankCheck = 0x8,
        VendorSpecific = 0x9,
        CopyAborted = 0xa,
        AbortedCommand = 0xb,
        /// Reserved since SPC-3.
        Equal = 0xc,
        VolumeOverflow = 0xd,
        Miscompare = 0xe,
        Completed = 0xf,
    }
}

impl SenseKey {
    /// The key in the low four bits.
    pub fn from_bits(bits: u8) -> Self {
        Self::ALL[usize::from(bits & 0xf)]
    }
}

/// Additional sense code and its qualifier.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub struct Code(pub u8, pub u8);

#[allow(missing_docs, reason = "the names are the standard's")]
impl Code {
    pub const NONE: Self = Self(0x00, 0x00);
    pub const BECOMING_READY: Self = Self(0x04, 0x01);
    pub const WRITE_ERROR: Self = Self(0x0c, 0x00);
    pub const UNRECOVERED_READ_ERROR: Self = Self(0x11, 0x00);
    pub const PARAMETER_LIST_LENGTH_ERROR: Self = Self(0x1a, 0x00);
    pub const INVALID_OPCODE: Self = Self(0x20, 0x00);
    pub const LBA_OUT_OF_RANGE: Self = Self(0x21, 0x00);
    pub const INVALID_FIELD_IN_CDB: Self = Self(0x24, 0x00);
    pub const LOGICAL_UNIT_NOT_SUPPORTED: Self = Self(0x25, 0x00);
    pub const INVALID_FIELD_IN_PARAMETER_LIST: Self = Self(0x26, 0x00);
    pub const WRITE_PROTECTED: Self = Self(0x27, 0x00);
    pub const SPACE_ALLOCATION_FAILED: Self = Self(0x27, 0x07);
    pub const POWER_ON_OR_RESET: Self = Self(0x29, 0x00);
    pub const BUS_DEVICE_RESET: Self = Self(0x29, 0x03);
    pub const NEXUS_LOSS: Self = Self(0x29, 0x07);
    pub const CAPACITY_CHANGED: Self = Self(0x2a, 0x09);
    pub const SAVING_NOT_SUPPORTED: Self = Self(0x39, 0x00);
    pub const MEDIUM_NOT_PRESENT: Self = Self(0x3a, 0x00);
    pub const INQUIRY_CHANGED: Self = Self(0x3f, 0x03);
    pub const LUNS_CHANGED: Self = Self(0x3f, 0x0e);
    pub const INTERNAL_TARGET_FAILURE: Self = Self(0x44, 0x00);
    pub const DATA_PHASE_ERROR: Self = Self(0x4b, 0x00);
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}/{:02x}", self.0, self.1)
    }
}

/// The byte that an illegal request is illegal for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Whether the byte is in the CDB; otherwise in the parameter list.
    pub in_cdb: bool,
    /// Its offset.
    pub byte: u16,
}

/// Sense data, as much of them as we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// The kind of failure.
    pub key: SenseKey,
    /// The failure.
    pub code: Code,
    /// The field that is wrong, of an illegal request.
    pub field: Option<Field>,
    /// The failure is that of an earlier command, which had ended well: data of a cache are lost.
    /// The command that is answered with it was not executed.
    pub deferred: bool,
    /// The generation of a disk that has lost writes, since then. Other makes than ours have
    /// something else in its place.
    pub generation: Option<Uuid>,
}

/// Sense data as bytes.
#[derive(Clone, Copy, Debug)]
pub struct SenseBytes {
    bytes: [u8; SENSE_LEN],
    len: usize,
}

impl Deref for SenseBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Fault of sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenseFault {
    /// No sense data, or no sense key.
    Short,
    /// An unknown response code: this one.
    Format(u8),
}

impl Sense {
    /// Sense data of the present command.
    pub const fn new(key: SenseKey, code: Code) -> Self {
        Self { key, code, field: None, deferred: false, generation: None }
    }

    /// The fixed format.
    pub fn emit(&self) -> SenseBytes {
        let len = if self.generation.is_some() { SENSE_LEN } else { FIXED_LEN };
        let mut bytes = [0; SENSE_LEN];
        let mut writer = Writer::new(&mut bytes);
        writer.u8(0x70 | u8::from(self.deferred)).zeroes(1).u8(self.key as u8).zeroes(4);
        writer.u8(len as u8 - 8).zeroes(4).u8(self.code.0).u8(self.code.1).zeroes(1);
        if let Some(field) = self.field {
            // SKSV: the pointer is valid; C/D: it points into the CDB.
            writer.u8(0x80 | u8::from(field.in_cdb) << 6).u16(field.byte);
        } else {
            writer.zeroes(3);
        }
        if let Some(generation) = &self.generation {
            writer.bytes(generation.as_bytes());
        }
        SenseBytes { bytes, len }
    }

    /// Reads either format. Sense data may end anywhere after the sense key: targets cut them, and
    /// initiators have less room than they have bytes.
    ///
    /// # Errors
    /// Without a sense key, or in an unknown format.
    pub fn parse(bytes: &[u8]) -> Result<Self, SenseFault> {
        let response = *bytes.first().ok_or(SenseFault::Short)? & 0x7f;
        match response {
            0x70 | 0x71 => Self::parse_fixed(bytes),
            0x72 | 0x73 => Self::parse_descriptors(bytes),
            other => return Err(SenseFault::Format(other)),
        }
        .map(|sense| Self { deferred: response & 1 != 0, ..sense })
    }

    fn parse_fixed(bytes: &[u8]) -> Result<Self, SenseFault> {
        let key = SenseKey::from_bits(*bytes.get(2).ok_or(SenseFault::Short)?);
        let len = 8 + bytes.get(7).map_or(0, |additional| usize::from(*additional));
        let bytes = &bytes[..len.min(bytes.len())];
        let code =
            array_at(bytes, 12).map_or(Code::NONE, |[code, qualifier]| Code(code, qualifier));
        Ok(Self {
            field: array_at(bytes, 15).and_then(|it| field(key, it)),
            generation: array_at(bytes, FIXED_LEN).map(Uuid::from_bytes),
            ..Self::new(key, code)
        })
    }

    fn parse_descriptors(bytes: &[u8]) -> Result<Self, SenseFault> {
        /// The descriptor with sense key specific bytes.
        const SENSE_KEY_SPECIFIC: u8 = 0x02;
        let key = SenseKey::from_bits(*bytes.get(1).ok_or(SenseFault::Short)?);
        let code = array_at(bytes, 2).map_or(Code::NONE, |[code, qualifier]| Code(code, qualifier));
        let mut sense = Self::new(key, code);
        let len = bytes.get(7).map_or(0, |additional| usize::from(*additional));
        let mut rest = bytes.get(8..).unwrap_or_default();
        rest = &rest[..len.min(rest.len())];
        while let Some([kind, len]) = array_at(rest, 0) {
            let end = (2 + usize::from(len)).min(rest.len());
            if kind == SENSE_KEY_SPECIFIC {
                sense.field = array_at(&rest[..end], 4).and_then(|it| field(key, it));
            }
            rest = &rest[end..];
        }
        Ok(sense)
    }
}

/// The field that sense key specific bytes point to.
fn field(key: SenseKey, [flags, high, low]: [u8; 3]) -> Option<Field> {
    let is_valid = key == SenseKey::IllegalRequest && flags & 0x80 != 0;
    let byte = u16::from_be_bytes([high, low]);
    is_valid.then_some(Field { in_cdb: flags & 0x40 != 0, byte })
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deferred = if self.deferred { ", deferred" } else { "" };
        write!(f, "{:?} {:?}{deferred}", self.key, self.code)
    }
}
