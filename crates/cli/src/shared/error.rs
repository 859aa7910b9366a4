//! Errors, and the exit codes of those of other crates.

use std::fmt;

pub(crate) use tyche_console::error::{Code, Context, Error, ErrorReport, Result};
use tyche_fcoe::Obstacle;
use tyche_fcoe::fc::port::Failure;
use tyche_link::{ip, packet};
use tyche_session::fcoe::{FcoeError, Unreached};
use tyche_session::{InvalidOption, KeyFileError, KnownTargetsError, LinkError};
use tyche_store::file;

/// An error of another crate, with an exit code.
pub(crate) trait Coded: fmt::Display {
    fn code(&self) -> Code;
}

/// Turns such an error into one of this program.
pub(crate) trait CodedResult<T> {
    fn coded(self) -> Result<T>;
}

impl<T, E: Coded> CodedResult<T> for Result<T, E> {
    fn coded(self) -> Result<T> {
        self.map_err(|error| Error::new(error.code(), error.to_string()))
    }
}

impl Coded for packet::OpenError {
    fn code(&self) -> Code {
        match self {
            packet::OpenError::NoSuchInterface { .. } => Code::NotFound,
            packet::OpenError::NotPermitted => Code::Permission,
            packet::OpenError::EtherType(_) => Code::Usage,
            _ => Code::Link,
        }
    }
}

impl Coded for ip::OpenError {
    fn code(&self) -> Code {
        match self {
            ip::OpenError::Listen { source, .. } => match source.kind() {
                std::io::ErrorKind::PermissionDenied => Code::Permission,
                _ => Code::Link,
            },
            // What the link needs is not on this machine.
            ip::OpenError::Connect { source, .. }
                if source.kind() == std::io::ErrorKind::Unsupported =>
            {
                Code::Link
            }
            ip::OpenError::Connect { .. } | ip::OpenError::NoAddress => Code::Unreachable,
            ip::OpenError::System { .. } => Code::Other,
        }
    }
}

impl Coded for LinkError {
    fn code(&self) -> Code {
        match self {
            Self::Packet(error) => error.code(),
            Self::Ip(error) => error.code(),
            Self::Name(_) | Self::Twice(_) => Code::Usage,
            Self::Address(..) => Code::Unreachable,
            Self::Placement(error) => error.code(),
            Self::NoInterface => Code::Link,
            Self::System(error) => match error.kind() {
                std::io::ErrorKind::PermissionDenied => Code::Permission,
                _ => Code::Other,
            },
        }
    }
}

impl Coded for KeyFileError {
    fn code(&self) -> Code {
        match self {
            Self::Io { error, .. } => match error.kind() {
                std::io::ErrorKind::PermissionDenied => Code::Permission,
                _ => Code::Other,
            },
            Self::Missing(_) => Code::NotFound,
            Self::Open(_) | Self::Bad { .. } => Code::Config,
        }
    }
}

impl Coded for KnownTargetsError {
    fn code(&self) -> Code {
        match self {
            Self::Io { error, .. } => match error.kind() {
                std::io::ErrorKind::PermissionDenied => Code::Permission,
                _ => Code::Config,
            },
            Self::Open(_) | Self::Line { .. } | Self::Twins { .. } => Code::Config,
            Self::Unnamed(_) => Code::Usage,
            Self::Unknown { .. } => Code::NotFound,
        }
    }
}

impl Coded for InvalidOption {
    fn code(&self) -> Code {
        Code::Usage
    }
}

impl Coded for FcoeError {
    fn code(&self) -> Code {
        match self {
            Self::Interface(error) => error.code(),
            Self::Lock(..) => Code::Permission,
            Self::Name(_) | Self::NoInterface(_) | Self::InUse(_) => Code::Usage,
        }
    }
}

impl Coded for Unreached {
    fn code(&self) -> Code {
        match &self.obstacle {
            Obstacle::Interface(_) => Code::Link,
            Obstacle::NoAddress | Obstacle::NoForwarder | Obstacle::NoFabricLogin => {
                Code::Unreachable
            }
            Obstacle::NotHeard | Obstacle::Asking => Code::Unreachable,
            Obstacle::NoLogin(None | Some((_, Failure::Silence))) => Code::Unreachable,
            Obstacle::NoLogin(Some(_)) => Code::Refused,
            Obstacle::NoTarget | Obstacle::NoLun(_) => Code::NotFound,
            Obstacle::Unusable(_) => Code::Device,
        }
    }
}

impl Coded for tyche_numa::Error {
    fn code(&self) -> Code {
        match self {
            tyche_numa::Error::Refused { .. } => Code::Permission,
            tyche_numa::Error::NoCpus { .. } | tyche_numa::Error::NoMemory { .. } => Code::Usage,
            _ => Code::Other,
        }
    }
}

impl Coded for file::OpenError {
    fn code(&self) -> Code {
        Code::Device
    }
}

impl Coded for tyche_attach::Error {
    fn code(&self) -> Code {
        match self.kind() {
            std::io::ErrorKind::PermissionDenied => Code::Permission,
            _ => Code::Device,
        }
    }
}
