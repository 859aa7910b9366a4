//! Error messages, and the exit codes that scripts see.

use std::fmt;

use serde_json::json;
use tyche_link::{packet, tcp};
use tyche_store::file;

/// The result type of this program.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error; the exit code. Documented in `tyche --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// None of the others.
    Other = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// No such export, interface or session.
    NotFound = 3,
    /// A privilege is missing.
    Permission = 4,
    /// The interface or address cannot be used.
    Link = 5,
    /// The target does not answer.
    Unreachable = 6,
    /// The target refused.
    Refused = 7,
    /// The configuration file is wrong.
    Config = 8,
    /// The disk, or what presents it, cannot be used.
    Device = 9,
}

impl Code {
    const ALL: [Self; 9] = [
        Self::Other,
        Self::Usage,
        Self::NotFound,
        Self::Permission,
        Self::Link,
        Self::Unreachable,
        Self::Refused,
        Self::Config,
        Self::Device,
    ];

    /// The code's name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Usage => "usage",
            Self::NotFound => "not_found",
            Self::Permission => "permission",
            Self::Link => "link",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Config => "config",
            Self::Device => "device",
        }
    }

    /// The code with that name; `Other` if there is none.
    pub(crate) fn from_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|code| code.name() == name).unwrap_or(Self::Other)
    }
}

/// An error: one clear line that says what to do, and its code.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Error {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The error object of JSON output.
    pub(crate) fn json(&self) -> serde_json::Value {
        json!({ "schema": "tyche.error/1", "error": self.message, "code": self.code.name() })
    }
}

/// Adds the operation that failed to a system error.
pub(crate) trait Context<T> {
    fn context(self, code: Code, doing: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, code: Code, doing: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Error::new(code, format!("{doing}: {error}")))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        let code = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Code::Permission,
            _ => Code::Other,
        };
        Self::new(code, error.to_string())
    }
}

impl From<packet::OpenError> for Error {
    fn from(error: packet::OpenError) -> Self {
        let code = match error {
            packet::OpenError::NoSuchInterface { .. } => Code::NotFound,
            packet::OpenError::NotPermitted => Code::Permission,
            packet::OpenError::EtherType(_) => Code::Usage,
            _ => Code::Link,
        };
        Self::new(code, error.to_string())
    }
}

impl From<tcp::OpenError> for Error {
    fn from(error: tcp::OpenError) -> Self {
        let code = match &error {
            tcp::OpenError::Listen { source, .. } => match source.kind() {
                std::io::ErrorKind::PermissionDenied => Code::Permission,
                _ => Code::Link,
            },
            tcp::OpenError::Connect { .. } | tcp::OpenError::NoAddress => Code::Unreachable,
            tcp::OpenError::System { .. } => Code::Other,
        };
        Self::new(code, error.to_string())
    }
}

impl From<tyche_numa::Error> for Error {
    fn from(error: tyche_numa::Error) -> Self {
        let code = match error {
            tyche_numa::Error::Refused { .. } => Code::Permission,
            tyche_numa::Error::NoCpus { .. } | tyche_numa::Error::NoMemory { .. } => Code::Usage,
            _ => Code::Other,
        };
        Self::new(code, error.to_string())
    }
}

impl From<file::OpenError> for Error {
    fn from(error: file::OpenError) -> Self {
        Self::new(Code::Device, error.to_string())
    }
}

impl From<tyche_attach::Error> for Error {
    fn from(error: tyche_attach::Error) -> Self {
        let code = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Code::Permission,
            _ => Code::Device,
        };
        Self::new(code, error.to_string())
    }
}
