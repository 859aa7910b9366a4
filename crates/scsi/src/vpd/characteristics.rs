//! Block device characteristics (B1): whether seeks take time.

use super::{CHARACTERISTICS, content, head};
use crate::bytes::u16_at;
use crate::malformed::Malformed;

/// Bytes of the content.
const LEN: u16 = 0x3c;
/// A disk that does not turn.
const NOT_ROTATING: u16 = 0x0001;
/// The lowest number of rotations a minute; less is reserved.
const ROTATIONS_MIN: u16 = 0x0401;
/// Rotations a minute that a turning disk of ours claims: it must name some.
const ROTATIONS: u16 = 7200;

/// The characteristics of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Characteristics {
    /// The disk turns; `None` if it does not say.
    pub rotational: Option<bool>,
}

impl Characteristics {
    /// Writes the page, as much of it as fits; returns how much.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let rate = match self.rotational {
            None => 0,
            Some(false) => NOT_ROTATING,
            Some(true) => ROTATIONS,
        };
        head(out, CHARACTERISTICS, LEN).u16(rate).zeroes(usize::from(LEN) - 2).kept()
    }

    /// Reads the page.
    ///
    /// # Errors
    /// If it is not the page, or ends before the rate.
    pub fn parse(answer: &[u8]) -> Result<Self, Malformed> {
        let rate = u16_at(content(CHARACTERISTICS, answer)?, 0).ok_or(Malformed::Short)?;
        let rotational = match rate {
            NOT_ROTATING => Some(false),
            ROTATIONS_MIN..=0xfffe => Some(true),
            _ => None,
        };
        Ok(Self { rotational })
    }
}
