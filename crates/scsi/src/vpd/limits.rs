//! Block limits (B0): how long commands may be.

use super::{LIMITS, content, head};
use crate::bytes::{array_at, u32_at, u64_at};
use crate::malformed::Malformed;

/// Bytes of the content.
const LEN: u16 = 0x3c;

/// The limits of a disk, in blocks. Zero means that it states none, but for UNMAP that there is
/// none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// WRITE SAME of zero blocks, up to the end of the disk, is refused.
    pub no_zero_write_same: bool,
    /// The granularity of lengths that the disk is fast with.
    pub granularity: u16,
    /// The most blocks of a read, a write or a verification.
    pub transfer_max: u32,
    /// The length of a read or write from which on the disk gets slower.
    pub transfer_optimal: u32,
    /// The most blocks of an UNMAP.
    pub unmap_blocks_max: u32,
    /// The most descriptors of an UNMAP.
    pub unmap_descriptors_max: u32,
    /// The granularity of deallocation.
    pub unmap_granularity: u32,
    /// The first block at which that granularity begins.
    pub unmap_alignment: Option<u32>,
    /// The most blocks of a WRITE SAME.
    pub write_same_max: u64,
}

/// The alignment of UNMAP is valid.
const UGAVALID: u32 = 1 << 31;

impl Limits {
    /// Writes the page, as much of it as fits; returns how much.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut writer = head(out, LIMITS, LEN);
        writer.u8(self.no_zero_write_same.into()).u8(0).u16(self.granularity);
        writer.u32(self.transfer_max).u32(self.transfer_optimal);
        // No PRE-FETCH.
        writer.u32(0);
        writer.u32(self.unmap_blocks_max).u32(self.unmap_descriptors_max);
        let alignment = self.unmap_alignment.map_or(0, |block| block & !UGAVALID | UGAVALID);
        writer.u32(self.unmap_granularity).u32(alignment).u64(self.write_same_max);
        writer.zeroes(usize::from(LEN) - 40).kept()
    }

    /// Reads the page. Fields that it does not have, as those for UNMAP in SBC-2, are zero.
    ///
    /// # Errors
    /// If it is not the page, or ends before the lengths of transfers.
    pub fn parse(answer: &[u8]) -> Result<Self, Malformed> {
        let content = content(LIMITS, answer)?;
        let [flags, _, high, low] = array_at(content, 0).ok_or(Malformed::Short)?;
        let u32_or_0 = |at| u32_at(content, at).unwrap_or(0);
        let alignment = u32_or_0(28);
        Ok(Self {
            no_zero_write_same: flags & 1 != 0,
            granularity: u16::from_be_bytes([high, low]),
            transfer_max: u32_at(content, 4).ok_or(Malformed::Short)?,
            transfer_optimal: u32_at(content, 8).ok_or(Malformed::Short)?,
            unmap_blocks_max: u32_or_0(16),
            unmap_descriptors_max: u32_or_0(20),
            unmap_granularity: u32_or_0(24),
            unmap_alignment: (alignment & UGAVALID != 0).then_some(alignment & !UGAVALID),
            write_same_max: u64_at(content, 32).unwrap_or(0),
        })
    }
}
