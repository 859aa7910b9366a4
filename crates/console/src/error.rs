//! Error messages, and the exit codes that scripts see.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The result of a program, or of a step of it.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error; the exit code. Documented in `tyche --help`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The reader of the output has closed it: the command ends, and has not failed.
    #[serde(skip)]
    Unread = 0,
    /// The command line makes no sense.
    Usage = 2,
    /// No such export, interface or session.
    NotFound = 3,
    /// A privilege is missing.
    Permission = 4,
    /// The interface or address cannot be used.
    Link = 5,
    /// The target does not answer, or a daemon of this machine.
    Unreachable = 6,
    /// The target refused.
    Refused = 7,
    /// The configuration file is wrong.
    Config = 8,
    /// The disk, or what presents it, cannot be used.
    Device = 9,
    /// It is so already: the export is connected, the key is there.
    Exists = 10,
    /// None of the others, or one of another version of the program.
    #[default]
    #[serde(other)]
    Other = 1,
}

/// Errors of the system that mean that the process is at a limit, and what to do.
const LIMITS: [(&str, &str); 2] = [
    ("(os error 24)", "raise the limit of open files (`ulimit -Hn`, or LimitNOFILE= of the unit)"),
    ("(os error 27)", "raise the limit of file sizes (`ulimit -f`, or LimitFSIZE= of the unit)"),
];

/// An error: one clear line that says what to do, and its code.
#[derive(Debug)]
pub struct Error {
    /// The exit code.
    pub code: Code,
    /// The fault and its remedy, in one line.
    pub message: String,
}

impl Error {
    /// An error of that code. If a limit of this process was reached, its message names the limit.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let mut message = message.into();
        let reached = LIMITS.iter().find(|(error, _)| message.contains(error));
        if let Some((_, remedy)) = reached.filter(|(_, remedy)| !message.contains(remedy)) {
            message = format!("{message}; {remedy}");
        }
        Self { code, message }
    }

    /// The error as the object of JSON output.
    pub fn report(&self) -> ErrorReport {
        let Self { code, message } = self;
        ErrorReport { schema: ErrorSchema::default(), error: message.clone(), code: *code }
    }
}

/// An error, as an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorReport {
    #[serde(default)]
    schema: ErrorSchema,
    /// The fault and its remedy, in one line.
    pub error: String,
    /// The kind of the error.
    #[serde(default)]
    pub code: Code,
}

/// Name and version of an [`ErrorReport`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
enum ErrorSchema {
    #[default]
    #[serde(rename = "tyche.error/1")]
    V1,
}

impl From<ErrorReport> for Error {
    fn from(ErrorReport { error, code, .. }: ErrorReport) -> Self {
        Self::new(code, error)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_was_reached_is_named_once() {
        for (errno, limit) in [(24, "LimitNOFILE"), (27, "LimitFSIZE")] {
            let system = std::io::Error::from_raw_os_error(errno);
            let error = Err::<(), _>(system).context(Code::Other, "control socket").unwrap_err();
            let again = Error::from(error.report());
            assert_eq!(again.message.matches(limit).count(), 1, "{again}");
        }
        assert_eq!(Error::new(Code::Other, "no").message, "no");
    }
}
