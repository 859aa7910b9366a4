//! Unit serial number (80): text.

use super::{SERIAL, content, head};
use crate::label::Label;
use crate::malformed::Malformed;

/// The serial number of a logical unit, or its first 64 characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serial(pub Label<64>);

impl Serial {
    /// Writes the page, as much of it as fits; returns how much.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let text = self.0.as_str().as_bytes();
        head(out, SERIAL, text.len() as u16).bytes(text).kept()
    }

    /// Reads the page.
    ///
    /// # Errors
    /// If it is not the page.
    pub fn parse(answer: &[u8]) -> Result<Self, Malformed> {
        content(SERIAL, answer).map(|text| Self(Label::from_field(text)))
    }
}
