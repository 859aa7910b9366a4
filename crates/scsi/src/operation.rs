//! Operations of a disk as commands: the direction of their data, and how they fail.

use tyche_geometry::{Misfit, Operation};

use crate::listed::listed;
use crate::sense::{Code, Sense, SenseKey};

/// The direction of a command's data, as seen from the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It has no data.
    None,
    /// From the target.
    In,
    /// To the target.
    Out,
}

listed! {
    /// The failure of an operation.
    pub enum Failure {
        /// `EIO`: the disk could not do it, or a failure without a name of its own.
        Io,
        /// `EINVAL`: misaligned, or past the end of the disk.
        Invalid,
        /// `EROFS`: the disk is read-only.
        ReadOnly,
        /// `ENOSPC`: the store has no space left.
        NoSpace,
        /// `EOPNOTSUPP`: the disk has no such operation.
        NotSupported,
        /// `EBADE`: another initiator has the disk, as Linux reports a reservation conflict.
        Reserved,
        /// `ENXIO`: the disk is gone.
        Gone,
    }
}

impl Failure {
    /// Linux' error number.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Io => 5,
            Self::Gone => 6,
            Self::Invalid => 22,
            Self::NoSpace => 28,
            Self::ReadOnly => 30,
            Self::Reserved => 52,
            Self::NotSupported => 95,
        }
    }

    /// The failure of that error number, [`Failure::Io`] if it has no name here. A disk that is
    /// gone has several: ENODEV, ESHUTDOWN and ENOMEDIUM, besides ENXIO.
    pub fn from_errno(errno: i32) -> Self {
        if matches!(errno, 19 | 108 | 123) {
            return Self::Gone;
        }
        Self::ALL.into_iter().find(|failure| failure.errno() == errno).unwrap_or(Self::Io)
    }

    /// The sense data with which a target answers the failure of an operation of its store.
    pub fn sense(self, operation: Operation) -> Sense {
        let (key, code) = match self {
            Self::Io | Self::Reserved if operation == Operation::Read => {
                (SenseKey::MediumError, Code::UNRECOVERED_READ_ERROR)
            }
            Self::Io | Self::Reserved => (SenseKey::MediumError, Code::WRITE_ERROR),
            Self::Invalid => (SenseKey::IllegalRequest, Code::INVALID_FIELD_IN_CDB),
            Self::ReadOnly => (SenseKey::DataProtect, Code::WRITE_PROTECTED),
            Self::NoSpace => (SenseKey::DataProtect, Code::SPACE_ALLOCATION_FAILED),
            Self::NotSupported => (SenseKey::IllegalRequest, Code::INVALID_OPCODE),
            Self::Gone => (SenseKey::HardwareError, Code::INTERNAL_TARGET_FAILURE),
        };
        Sense::new(key, code)
    }
}

impl From<Misfit> for Failure {
    fn from(misfit: Misfit) -> Self {
        match misfit {
            Misfit::ReadOnly => Self::ReadOnly,
            Misfit::NoSpace => Self::NoSpace,
            Misfit::Invalid => Self::Invalid,
        }
    }
}
