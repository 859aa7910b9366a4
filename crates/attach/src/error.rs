//! Errors of attachments, with their remedies.

use std::{error, fmt, io};

/// The failed action, the system's error, and the remedy if one is known.
#[derive(Debug)]
pub struct Error {
    action: String,
    remedy: &'static str,
    source: io::Error,
}

impl Error {
    /// The action in words, such as `open /dev/x`, and the error of the system.
    pub fn new(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { action: action.into(), remedy: "", source: source.into() }
    }

    /// Adds the remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = remedy;
        self
    }

    /// The kind of the underlying error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.action, self.source)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.source)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
