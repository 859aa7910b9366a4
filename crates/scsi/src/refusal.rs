//! Reasons to refuse a command, each with its sense data.

use crate::sense::{Code, Field, Sense, SenseKey};

/// A reason to refuse a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 05/20/00: no such command, or none of this logical unit.
    Opcode,
    /// 05/24/00: the CDB is shorter than its operation code says.
    CdbLength,
    /// 05/24/00: a field of the CDB, at this byte, has a value that is not supported.
    CdbField(u8),
    /// 05/25/00: no such logical unit.
    LogicalUnit,
    /// 05/1A/00: the parameter list is too short, or longer than the logical unit takes.
    ListLength,
    /// 05/26/00: a field of the parameter list, at this byte, has a value that is not supported.
    ListField(u16),
    /// 05/21/00: blocks past the end of the disk.
    OutOfRange,
    /// 05/39/00: mode pages can't be saved.
    Saving,
    /// 07/27/00: the disk is read-only.
    WriteProtected,
    /// 02/3A/00: the disk has no blocks.
    NoMedium,
}

impl Refusal {
    /// The sense data of the refused command.
    pub fn sense(self) -> Sense {
        let illegal = |code| Sense::new(SenseKey::IllegalRequest, code);
        let pointing =
            |code, in_cdb, byte| Sense { field: Some(Field { in_cdb, byte }), ..illegal(code) };
        match self {
            Self::Opcode => illegal(Code::INVALID_OPCODE),
            Self::CdbLength => illegal(Code::INVALID_FIELD_IN_CDB),
            Self::CdbField(byte) => pointing(Code::INVALID_FIELD_IN_CDB, true, byte.into()),
            Self::LogicalUnit => illegal(Code::LOGICAL_UNIT_NOT_SUPPORTED),
            Self::ListLength => illegal(Code::PARAMETER_LIST_LENGTH_ERROR),
            Self::ListField(byte) => pointing(Code::INVALID_FIELD_IN_PARAMETER_LIST, false, byte),
            Self::OutOfRange => illegal(Code::LBA_OUT_OF_RANGE),
            Self::Saving => illegal(Code::SAVING_NOT_SUPPORTED),
            Self::WriteProtected => Sense::new(SenseKey::DataProtect, Code::WRITE_PROTECTED),
            Self::NoMedium => Sense::new(SenseKey::NotReady, Code::MEDIUM_NOT_PRESENT),
        }
    }
}
