//! Logical block provisioning (B2): whether and how blocks can be deallocated.

use super::{PROVISIONING, content, head};
use crate::bytes::{array_at, bit_if};
use crate::malformed::Malformed;

/// UNMAP.
const LBPU: u8 = 0x80;
/// WRITE SAME(16) with UNMAP.
const LBPWS: u8 = 0x40;
/// Deallocated blocks read as zeroes. SBC-4 has three bits; this is the lowest of them.
const LBPRZ: u8 = 0x04;

/// The provisioning of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Provisioning {
    /// UNMAP deallocates.
    pub unmap: bool,
    /// WRITE SAME(16) deallocates if it is asked to.
    pub write_same: bool,
    /// Deallocated blocks read as zeroes.
    pub reads_zeroes: bool,
    /// The disk is thinly provisioned: not each block has its place.
    pub thin: bool,
}

impl Provisioning {
    /// Writes the page, as much of it as fits; returns how much.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let flags = bit_if(self.unmap, LBPU)
            | bit_if(self.write_same, LBPWS)
            | bit_if(self.reads_zeroes, LBPRZ);
        let kind = bit_if(self.thin, 2);
        head(out, PROVISIONING, 4).u8(0).u8(flags).u8(kind).u8(0).kept()
    }

    /// Reads the page.
    ///
    /// # Errors
    /// If it is not the page, or ends before the type.
    pub fn parse(answer: &[u8]) -> Result<Self, Malformed> {
        let content = content(PROVISIONING, answer)?;
        let [_, flags, kind] = array_at(content, 0).ok_or(Malformed::Short)?;
        Ok(Self {
            unmap: flags & LBPU != 0,
            write_same: flags & LBPWS != 0,
            reads_zeroes: flags & LBPRZ != 0,
            thin: kind & 7 == 2,
        })
    }
}
