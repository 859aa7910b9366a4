//! Pages of vital product data, the answers to INQUIRY with a page (SPC-4, 7.8; SBC-3, 6.5).
//!
//! Each page begins with its number in the second byte and its length, without these four bytes, in
//! the third and fourth. An answer may be shorter than its page, cut at the allocation length.

mod characteristics;
mod generation;
mod identification;
mod limits;
mod provisioning;
mod serial;
mod supported;

pub use characteristics::Characteristics;
pub use generation::Generation;
pub use identification::{Association, CodeSet, Designator, DesignatorKind, Identity};
pub use identification::{Designators, T10_VENDOR, TargetPort};
pub use limits::Limits;
pub use provisioning::Provisioning;
pub use serial::Serial;
pub use supported::Pages;

use crate::bytes::{Writer, array_at};
use crate::malformed::Malformed;

/// Supported pages.
pub const SUPPORTED: u8 = 0x00;
/// The serial number of the logical unit.
pub const SERIAL: u8 = 0x80;
/// Names of the logical unit.
pub const IDENTIFICATION: u8 = 0x83;
/// Block limits.
pub const LIMITS: u8 = 0xb0;
/// Block device characteristics.
pub const CHARACTERISTICS: u8 = 0xb1;
/// Logical block provisioning.
pub const PROVISIONING: u8 = 0xb2;
/// The generation of our disks. Other makes have other pages of this number.
pub const GENERATION: u8 = 0xc0;

/// Bytes before the content of a page.
const HEAD_LEN: usize = 4;

/// Begins the page of a disk, whose content has `len` bytes.
fn head(out: &mut [u8], page: u8, len: u16) -> Writer<'_> {
    let mut writer = Writer::new(out);
    writer.zeroes(1).u8(page).u16(len);
    writer
}

/// The content of a page, as much of it as has arrived.
fn content(page: u8, answer: &[u8]) -> Result<&[u8], Malformed> {
    let [_, number, high, low] = array_at(answer, 0).ok_or(Malformed::Short)?;
    if number != page {
        return Err(Malformed::Page(number));
    }
    let content = &answer[HEAD_LEN..];
    let len = usize::from(u16::from_be_bytes([high, low]));
    Ok(&content[..len.min(content.len())])
}
