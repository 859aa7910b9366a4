//! The size of a disk: READ CAPACITY(10) and (16) (SBC-3, 5.15 and 5.16).
//!
//! ```text
//! (10)                 (16)
//! off len field        off len field
//!   0   4 last block     0   8 last block
//!   4   4 block length   8   4 block length
//!                       14   1 LBPME 0x80, LBPRZ 0x40
//! ```

use crate::bytes::{Writer, bit_if, u32_at, u64_at};
use crate::malformed::Malformed;

/// Bytes of the long answer.
pub(crate) const CAPACITY_16_LEN: usize = 32;
/// Bytes of the short answer.
pub(crate) const CAPACITY_10_LEN: usize = 8;

/// Blocks can be deallocated.
const LBPME: u8 = 0x80;
/// Deallocated blocks read as zeroes.
const LBPRZ: u8 = 0x40;

/// The size of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The last block. In the short form `u32::MAX` says that it has no room for it.
    pub last: u64,
    /// Bytes of a block.
    pub block_len: u32,
    /// Blocks can be deallocated. Not in the short form.
    pub provisioned: bool,
    /// Deallocated blocks read as zeroes. Not in the short form.
    pub reads_zeroes: bool,
}

impl Capacity {
    /// Writes the short answer, as much of it as fits; returns how much.
    pub fn emit_10(&self, out: &mut [u8]) -> usize {
        let last = u32::try_from(self.last).unwrap_or(u32::MAX);
        Writer::new(out).u32(last).u32(self.block_len).kept()
    }

    /// Writes the long answer, as much of it as fits; returns how much.
    pub fn emit_16(&self, out: &mut [u8]) -> usize {
        let flags = bit_if(self.provisioned, LBPME) | bit_if(self.reads_zeroes, LBPRZ);
        let mut writer = Writer::new(out);
        writer.u64(self.last).u32(self.block_len).zeroes(2).u8(flags);
        writer.zeroes(CAPACITY_16_LEN - 15).kept()
    }

    /// Reads the short answer.
    ///
    /// # Errors
    /// If it is too short.
    pub fn parse_10(answer: &[u8]) -> Result<Self, Malformed> {
        let last = u32_at(answer, 0).ok_or(Malformed::Short)?.into();
        let block_len = u32_at(answer, 4).ok_or(Malformed::Short)?;
        Ok(Self { last, block_len, provisioned: false, reads_zeroes: false })
    }

    /// Reads the long answer, which is 12 bytes long in SBC-2.
    ///
    /// # Errors
    /// If it is too short.
    pub fn parse_16(answer: &[u8]) -> Result<Self, Malformed> {
        let last = u64_at(answer, 0).ok_or(Malformed::Short)?;
        let block_len = u32_at(answer, 8).ok_or(Malformed::Short)?;
        let flags = answer.get(14).copied().unwrap_or(0);
        let (provisioned, reads_zeroes) = (flags & LBPME != 0, flags & LBPRZ != 0);
        Ok(Self { last, block_len, provisioned, reads_zeroes })
    }

    /// The size of the disk in bytes; `None` if that is more than 64 bits can say.
    pub fn bytes(&self) -> Option<u64> {
        self.last.checked_add(1)?.checked_mul(self.block_len.into())
    }
}
