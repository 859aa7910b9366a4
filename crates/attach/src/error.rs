//! Why an attachment could not be made, and what to do about it.

use std::{error, fmt, io};

/// What was tried, what the system said, and the remedy where there is a known one.
#[derive(Debug)]
pub struct Error {
    action: String,
    remedy: &'static str,
    source: io::Error,
}

impl Error {
    pub(crate) fn new(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { action: action.into(), remedy: "", source: source.into() }
    }

    /// Adds the sentence that says what to do.
    pub(crate) fn remedy(mut self, remedy: &'static str) -> Self {
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
