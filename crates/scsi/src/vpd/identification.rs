//! Device identification (83): names of the logical unit, its port and its target, as designators.
//!
//! ```text
//! off len field                        a designator, after the head of the page
//!   0   1 protocol, code set (low 4 bits)
//!   1   1 PIV 0x80, association 0x30, kind 0x0f
//!   3   1 length
//!   4   . the name
//! ```
//!
//! A disk of ours has four: its UUID as text, behind our vendor name; the lower 60 bits of its UUID
//! as a locally assigned NAA name, which makes `/dev/disk/by-id/wwn-0x3..` on Linux (other forms of
//! NAA begin with the number of a registered organisation, which we are none of); and the name
//! (WWPN) and the number of the target port that was asked, by which an initiator tells its paths
//! to the disk apart.

use uuid::Uuid;

use super::{IDENTIFICATION, content, head};
use crate::bytes::array_at;
use crate::label::Label;
use crate::malformed::Malformed;

/// The vendor of our disks, in INQUIRY data and in front of the UUID.
pub const T10_VENDOR: &str = "TYCHE";

/// Bytes of a UUID as text.
const UUID_TEXT_LEN: usize = 36;
/// PIV: the protocol is valid, which is 0 for FCP; the association with a target port.
const PORT: u8 = 0x80 | 0x10;
/// The first four bits of a locally assigned NAA name.
const NAA_LOCAL: u64 = 3;

/// The code of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum CodeSet {
    Binary,
    Ascii,
    Utf8,
    Other(u8),
}

/// The thing that is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum Association {
    LogicalUnit,
    TargetPort,
    TargetDevice,
    Reserved,
}

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum DesignatorKind {
    T10Vendor,
    Eui64,
    Naa,
    Other(u8),
}

/// A name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Designator<'a> {
    /// Its code.
    pub code_set: CodeSet,
    /// The thing that it names.
    pub association: Association,
    /// Its kind.
    pub kind: DesignatorKind,
    /// The name.
    pub name: &'a [u8],
}

/// The names of a page, from first to last. A name that is cut off ends them.
#[derive(Clone, Debug)]
pub struct Designators<'a>(&'a [u8]);

impl<'a> Designators<'a> {
    /// Reads the page.
    ///
    /// # Errors
    /// If it is not the page.
    pub fn parse(answer: &'a [u8]) -> Result<Self, Malformed> {
        content(IDENTIFICATION, answer).map(Self)
    }
}

impl<'a> Iterator for Designators<'a> {
    type Item = Designator<'a>;

    fn next(&mut self) -> Option<Designator<'a>> {
        let [code_set, kind, _, len] = array_at(self.0, 0)?;
        let (name, rest) = self.0[4..].split_at_checked(len.into())?;
        self.0 = rest;
        let code_set = match code_set & 0xf {
            1 => CodeSet::Binary,
            2 => CodeSet::Ascii,
            3 => CodeSet::Utf8,
            other => CodeSet::Other(other),
        };
        let association = match kind >> 4 & 3 {
            0 => Association::LogicalUnit,
            1 => Association::TargetPort,
            2 => Association::TargetDevice,
            _ => Association::Reserved,
        };
        let kind = match kind & 0xf {
            1 => DesignatorKind::T10Vendor,
            2 => DesignatorKind::Eui64,
            3 => DesignatorKind::Naa,
            other => DesignatorKind::Other(other),
        };
        Some(Designator { code_set, association, kind, name })
    }
}

/// A port of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetPort {
    /// Its name, a WWPN: an NAA name of 8 bytes.
    pub name: u64,
    /// Its number among the ports of the target (relative target port identifier), from 1 on.
    pub number: u16,
}

/// The name by which both ends know a disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The UUID of a disk of ours.
    Uuid(Uuid),
    /// The first bytes of another disk's best name, and how many of them there are.
    Name {
        /// NAA and EUI-64 names are unique; others as far as their vendor sees to it.
        kind: DesignatorKind,
        /// The name, padded with zeroes.
        bytes: [u8; Identity::NAME_LEN_MAX],
        /// Bytes of the name.
        len: u8,
    },
}

impl Identity {
    /// The most bytes of a name; longer ones are passed over.
    pub const NAME_LEN_MAX: usize = 64;

    /// Writes the page of a disk of ours at a port, as much of it as fits; returns how much.
    pub fn emit(uuid: Uuid, port: TargetPort, out: &mut [u8]) -> usize {
        let vendor = Label::<8>::from_field(T10_VENDOR.as_bytes());
        let mut text = [0; UUID_TEXT_LEN];
        let text = uuid.hyphenated().encode_lower(&mut text);
        let naa = uuid.as_u64_pair().1 & (u64::MAX >> 4) | NAA_LOCAL << 60;
        let len = 8 + UUID_TEXT_LEN;
        let mut writer = head(out, IDENTIFICATION, (4 + len + 3 * 4 + 8 + 8 + 4) as u16);
        // ASCII, T10 vendor.
        writer.u8(0x02).u8(0x01).u8(0).u8(len as u8).bytes(vendor.field()).bytes(text.as_bytes());
        // Binary, NAA.
        writer.u8(0x01).u8(0x03).u8(0).u8(8).u64(naa);
        // Of the target port, with its protocol (FCP): binary, NAA; binary, number.
        writer.u8(0x01).u8(PORT | 0x03).u8(0).u8(8).u64(port.name);
        writer.u8(0x01).u8(PORT | 0x04).u8(0).u8(4).u16(0).u16(port.number);
        writer.kept()
    }

    /// The best name of the logical unit: our UUID, else an NAA name, an EUI-64, a vendor's.
    pub fn best(names: Designators<'_>) -> Option<Self> {
        let names = names.filter(|it| it.association == Association::LogicalUnit);
        let names = names.filter_map(|it| Self::of(&it));
        names.min_by_key(|identity| match identity {
            Self::Uuid(_) => 0,
            Self::Name { kind: DesignatorKind::Naa, .. } => 1,
            Self::Name { kind: DesignatorKind::Eui64, .. } => 2,
            Self::Name { kind: DesignatorKind::T10Vendor, .. } => 3,
            Self::Name { .. } => 4,
        })
    }

    fn of(designator: &Designator<'_>) -> Option<Self> {
        let Designator { kind, name, .. } = *designator;
        if kind == DesignatorKind::T10Vendor
            && let Some((vendor, text)) = name.split_at_checked(8)
        {
            let is_ours = Label::<8>::from_field(vendor).as_str() == T10_VENDOR;
            if let (true, Ok(uuid)) = (is_ours, Uuid::try_parse_ascii(text)) {
                return Some(Self::Uuid(uuid));
            }
        }
        let mut bytes = [0; Self::NAME_LEN_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        (!name.is_empty()).then_some(Self::Name { kind, bytes, len: name.len() as u8 })
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Uuid(uuid) => uuid.as_bytes(),
            Self::Name { bytes, len, .. } => &bytes[..usize::from(*len)],
        }
    }
}

impl core::fmt::Debug for Identity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Uuid(uuid) => write!(f, "{uuid}"),
            Self::Name { kind, .. } => {
                write!(f, "{kind:?} ")?;
                self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}
