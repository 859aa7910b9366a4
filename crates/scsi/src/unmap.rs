//! The parameter list of UNMAP (SBC-3, 5.28).
//!
//! ```text
//! off len field
//!   0   2 length of all that follows
//!   2   2 length of the descriptors, 16 for each
//!   4   4 0
//!   8   8 first block      a descriptor
//!  16   4 number of blocks
//!  20   4 0
//! ```

use crate::bytes::{Writer, array_at, u16_at, u32_at, u64_at};
use crate::refusal::Refusal;

/// Bytes before the descriptors.
pub(crate) const UNMAP_HEAD_LEN: usize = 8;
/// Bytes of a descriptor.
pub(crate) const UNMAP_DESCRIPTOR_LEN: usize = 16;
/// Bytes of a list with one descriptor.
pub const UNMAP_ONE_LEN: usize = UNMAP_HEAD_LEN + UNMAP_DESCRIPTOR_LEN;

/// The list of one range.
pub fn emit_unmap(lba: u64, blocks: u32) -> [u8; UNMAP_ONE_LEN] {
    let mut out = [0; UNMAP_ONE_LEN];
    let mut writer = Writer::new(&mut out);
    writer.u16(UNMAP_ONE_LEN as u16 - 2).u16(UNMAP_DESCRIPTOR_LEN as u16).zeroes(4);
    writer.u64(lba).u32(blocks);
    out
}

/// The limits for a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmapLimits {
    /// Blocks of the disk.
    pub disk_blocks: u64,
    /// The most descriptors.
    pub descriptors_max: usize,
    /// The most blocks of all descriptors together.
    pub blocks_max: u64,
}

/// The ranges of a list, which are within its limits.
#[derive(Clone, Debug)]
pub struct UnmapRanges<'a>(&'a [u8]);

impl<'a> UnmapRanges<'a> {
    /// Reads a list, and checks it whole: a list with a wrong range unmaps nothing.
    ///
    /// An empty list is none, and right. Of a last descriptor that is not whole no notice is taken.
    ///
    /// # Errors
    /// [`Refusal::ListLength`] for a list that is shorter than it says, [`Refusal::ListField`] for
    /// too many descriptors or blocks, [`Refusal::OutOfRange`] for blocks past the end of the disk.
    pub fn parse(list: &'a [u8], limits: UnmapLimits) -> Result<Self, Refusal> {
        if list.is_empty() {
            return Ok(Self(&[]));
        }
        let len = usize::from(u16_at(list, 2).ok_or(Refusal::ListLength)?);
        let descriptors = list.get(UNMAP_HEAD_LEN..).and_then(|rest| rest.get(..len));
        let descriptors = descriptors.ok_or(Refusal::ListLength)?;
        if descriptors.len() / UNMAP_DESCRIPTOR_LEN > limits.descriptors_max {
            return Err(Refusal::ListField(2));
        }
        let ranges = Self(descriptors);
        let mut total: u64 = 0;
        for (index, (lba, blocks)) in ranges.clone().enumerate() {
            let blocks = u64::from(blocks);
            if lba.checked_add(blocks).is_none_or(|end| end > limits.disk_blocks) {
                return Err(Refusal::OutOfRange);
            }
            // At most `descriptors_max` times 32 bits.
            total = total.saturating_add(blocks);
            if total > limits.blocks_max {
                let at = UNMAP_HEAD_LEN + index * UNMAP_DESCRIPTOR_LEN + 8;
                return Err(Refusal::ListField(u16::try_from(at).unwrap_or(u16::MAX)));
            }
        }
        Ok(ranges)
    }
}

impl Iterator for UnmapRanges<'_> {
    /// First block and number of blocks, which may be zero.
    type Item = (u64, u32);

    fn next(&mut self) -> Option<(u64, u32)> {
        let descriptor: [u8; UNMAP_DESCRIPTOR_LEN] = array_at(self.0, 0)?;
        self.0 = &self.0[UNMAP_DESCRIPTOR_LEN..];
        Some((u64_at(&descriptor, 0)?, u32_at(&descriptor, 8)?))
    }
}
