//! Error messages, and the exit codes that scripts see.

use std::fmt;
use std::process::ExitCode;

use serde_json::json;

use crate::output::Format;

/// The result of what a program does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error; the exit code. Documented in `tyche --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
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
    pub fn name(self) -> &'static str {
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
    pub fn from_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|code| code.name() == name).unwrap_or(Self::Other)
    }
}

/// An error: one clear line that says what to do, and its code.
#[derive(Debug)]
pub struct Error {
    /// The exit code.
    pub code: Code,
    /// The fault and its remedy, in one line.
    pub message: String,
}

impl Error {
    /// An error of that code.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The error object of JSON output.
    pub fn json(&self) -> serde_json::Value {
        json!({ "schema": "tyche.error/1", "error": self.message, "code": self.code.name() })
    }
}

/// Adds the operation that failed to a system error.
pub trait Context<T> {
    /// An error of that code, which begins with the operation that failed.
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

/// Prints a program's error, if it ends with one; returns its exit code.
pub fn finish(program: &str, result: &Result<()>, format: Format) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    // Without a message: the process that waits for it has it already.
    if !error.message.is_empty() {
        if format == Format::Json {
            println!("{}", error.json());
        }
        eprintln!("{program}: {error}");
    }
    ExitCode::from(error.code as u8)
}
