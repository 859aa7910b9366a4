//! Faults of the data that a target answers with.

use core::fmt;

/// A fault of a page or list that a target has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It ends before a field that it must have.
    Short,
    /// It is another page than the one that was asked for: this one.
    Page(u8),
    /// A length in it contradicts another one, or the whole.
    Length,
    /// A field has a value that the standard does not have.
    Value,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "the answer is too short"),
            Self::Page(page) => {
                write!(f, "the answer is page {page:#04x}, which was not asked for")
            }
            Self::Length => write!(f, "a length in the answer is wrong"),
            Self::Value => write!(f, "a field of the answer has a reserved value"),
        }
    }
}

impl core::error::Error for Malformed {}
