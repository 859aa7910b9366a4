//! Generation (C0), a page of ours: as long as it stays, the disk has all writes that were done.

use uuid::Uuid;

use super::{GENERATION, content, head};
use crate::bytes::array_at;
use crate::malformed::Malformed;

/// The generation of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(pub Uuid);

impl Generation {
    /// Writes the page, as much of it as fits; returns how much.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        head(out, GENERATION, 16).bytes(self.0.as_bytes()).kept()
    }

    /// Reads the page.
    ///
    /// # Errors
    /// If it is not the page, or too short.
    pub fn parse(answer: &[u8]) -> Result<Self, Malformed> {
        let bytes = array_at(content(GENERATION, answer)?, 0).ok_or(Malformed::Short)?;
        Ok(Self(Uuid::from_bytes(bytes)))
    }
}
