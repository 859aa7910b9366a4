//! Mode pages: whether the disk has a cache, is read-only, and knows FUA (SPC-4, 7.5; SBC-3, 6.4).
//!
//! ```text
//! MODE SENSE(6)                        MODE SENSE(10)
//! off len field                        off len field
//!   0   1 length of all that follows     0   2 length of all that follows
//!   1   1 medium type                    2   1 medium type
//!   2   1 WP 0x80, DPOFUA 0x10           3   1 WP 0x80, DPOFUA 0x10
//!   3   1 length of block descriptors    6   2 length of block descriptors
//!   4   . block descriptors, pages       8   . block descriptors, pages
//! ```
//!
//! We send no block descriptors, which is allowed, and pass over those of others. Two pages are
//! served, caching and control. None of their fields can be changed.

use crate::bytes::{Writer, array_at, bit_if, u16_at};
use crate::cdb::{Form, ModeSense, PageControl};
use crate::malformed::Malformed;
use crate::refusal::Refusal;

/// The caching page.
pub const CACHING: u8 = 0x08;
/// The control page.
pub const CONTROL: u8 = 0x0a;
/// All pages.
pub const ALL_PAGES: u8 = 0x3f;
/// All subpages.
const ALL_SUBPAGES: u8 = 0xff;

/// The disk is read-only.
const WP: u8 = 0x80;
/// FUA is supported.
const DPOFUA: u8 = 0x10;
/// The volatile cache is enabled.
const WCE: u8 = 0x04;
/// A page with the head of a subpage (SPF).
const SUBPAGE: u8 = 0x40;
/// The bytes of the caching page after its head.
const CACHING_LEN: u8 = 0x12;
/// The bytes of the control page after its head.
const CONTROL_LEN: u8 = 0x0a;
/// Errors are not logged (GLTSD), commands are executed in any order, and those that another
/// initiator ends are answered (TAS).
const CONTROL_FLAGS: [u8; 4] = [0x02, 0x10, 0x00, 0x40];

/// The mode of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// The disk is read-only.
    pub read_only: bool,
    /// Writes can ask for stable storage.
    pub fua: bool,
    /// Completed writes may be volatile until the next flush; `None` without a caching page.
    pub write_cache: Option<bool>,
}

impl Mode {
    /// Writes the answer to a MODE SENSE, as much of it as fits; returns how much.
    ///
    /// # Errors
    /// [`Refusal::Saving`] for saved values, [`Refusal::CdbField`] for other pages.
    pub fn emit(&self, query: &ModeSense, out: &mut [u8]) -> Result<usize, Refusal> {
        if query.control == PageControl::Saved {
            return Err(Refusal::Saving);
        }
        let (caching, control) = match query.page {
            CACHING => (true, false),
            CONTROL => (false, true),
            ALL_PAGES => (true, true),
            _ => return Err(Refusal::CdbField(2)),
        };
        if !matches!(query.subpage, 0 | ALL_SUBPAGES) {
            return Err(Refusal::CdbField(3));
        }
        let len = |wanted, len| if wanted { 2 + u16::from(len) } else { 0 };
        let pages = len(caching, CACHING_LEN) + len(control, CONTROL_LEN);
        let flags = bit_if(self.read_only, WP) | bit_if(self.fua, DPOFUA);
        let mut writer = Writer::new(out);
        if query.form == Form::Six {
            writer.u8(3 + pages as u8).u8(0).u8(flags).u8(0);
        } else {
            writer.u16(6 + pages).u8(0).u8(flags).zeroes(4);
        }
        // A mask of the bits that can be changed is asked for, and there are none.
        let is_mask = query.control == PageControl::Changeable;
        if caching {
            let cache = bit_if(self.write_cache == Some(true) && !is_mask, WCE);
            writer.u8(CACHING).u8(CACHING_LEN).u8(cache).zeroes(usize::from(CACHING_LEN) - 1);
        }
        if control {
            let flags = if is_mask { [0; 4] } else { CONTROL_FLAGS };
            writer.u8(CONTROL).u8(CONTROL_LEN).bytes(&flags).zeroes(usize::from(CONTROL_LEN) - 4);
        }
        Ok(writer.kept())
    }

    /// Reads the answer to a MODE SENSE of that form.
    ///
    /// # Errors
    /// If it ends before the pages, or a length leads past its end.
    pub fn parse(form: Form, answer: &[u8]) -> Result<Self, Malformed> {
        let (len, flags, descriptors, head) = if form == Form::Six {
            let [len, _, flags, descriptors] = array_at(answer, 0).ok_or(Malformed::Short)?;
            (1 + usize::from(len), flags, usize::from(descriptors), 4)
        } else {
            let [high, low, _, flags] = array_at(answer, 0).ok_or(Malformed::Short)?;
            let descriptors = u16_at(answer, 6).ok_or(Malformed::Short)?;
            let len = 2 + usize::from(u16::from_be_bytes([high, low]));
            (len, flags, usize::from(descriptors), 8)
        };
        let answer = &answer[..len.min(answer.len())];
        let mut pages = answer.get(head + descriptors..).ok_or(Malformed::Length)?;
        let mut write_cache = None;
        while let Some([page, len]) = array_at(pages, 0) {
            let (head, len) = match array_at(pages, 2) {
                Some([high, low]) if page & SUBPAGE != 0 => {
                    (4, usize::from(u16::from_be_bytes([high, low])))
                }
                _ => (2, usize::from(len)),
            };
            if let (CACHING, Some(flags)) = (page & 0x7f, pages.get(2)) {
                write_cache = Some(flags & WCE != 0);
            }
            // The last page may be cut at the allocation length.
            pages = pages.get(head + len..).unwrap_or_default();
        }
        Ok(Self { read_only: flags & WP != 0, fua: flags & DPOFUA != 0, write_cache })
    }
}
