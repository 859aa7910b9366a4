//! The list of logical units: REPORT LUNS (SPC-4, 6.33).
//!
//! ```text
//! off len field
//!   0   4 length of the list, 8 for each LUN
//!   4   4 0
//!   8   8 LUN, as many times
//! ```

use crate::bytes::{Writer, array_at, u32_at};
use crate::lun::{Lun, UNITS_MAX};
use crate::malformed::Malformed;

/// Bytes before the list.
const LUNS_HEAD_LEN: usize = 8;
/// Bytes of a LUN.
const LUN_LEN: usize = 8;
/// Bytes of the longest list of ours.
pub(crate) const LUNS_LEN_MAX: usize = LUNS_HEAD_LEN + UNITS_MAX * LUN_LEN;

/// Writes a list, as much of it as fits; returns how much. Its length is that of the whole list.
pub fn emit_luns(luns: impl Iterator<Item = Lun> + Clone, out: &mut [u8]) -> usize {
    let len = luns.clone().count() * LUN_LEN;
    let mut writer = Writer::new(out);
    writer.u32(u32::try_from(len).unwrap_or(u32::MAX)).zeroes(4);
    luns.for_each(|lun| {
        writer.bytes(&lun.0);
    });
    writer.kept()
}

/// A list of logical units.
#[derive(Clone, Copy, Debug)]
pub struct LunList<'a> {
    luns: &'a [u8],
    len: u32,
}

impl<'a> LunList<'a> {
    /// Reads a list. It may end early, at the allocation length.
    ///
    /// # Errors
    /// If it has no length, or the length is no multiple of that of a LUN.
    pub fn parse(answer: &'a [u8]) -> Result<Self, Malformed> {
        let len = u32_at(answer, 0).ok_or(Malformed::Short)?;
        if !(len as usize).is_multiple_of(LUN_LEN) {
            return Err(Malformed::Length);
        }
        let luns = answer.get(LUNS_HEAD_LEN..).unwrap_or_default();
        Ok(Self { luns: &luns[..luns.len().min(len as usize)], len })
    }

    /// The LUNs that have arrived.
    pub fn iter(&self) -> impl Iterator<Item = Lun> + use<'a> {
        self.luns.chunks_exact(LUN_LEN).filter_map(|lun| array_at(lun, 0).map(Lun))
    }

    /// The number of LUNs of the target, including those that did not fit.
    pub fn total(&self) -> usize {
        self.len as usize / LUN_LEN
    }
}
