//! PRLI and PRLO, and their answers: the agreement about FCP.
//!
//! ```text
//! off len field
//!   0   1 code
//!   1   1 length of a page    16
//!   2   2 length of all       4 + 16 for each page
//!   4   1 TYPE                8, FCP
//!   5   1 0
//!   6   1 0x20 establish an image pair, or it is established; lower 4 bits: response
//!   7   1 0
//!   8   8 process associators 0
//!  16   4 parameters
//! ```
//!
//! One page is sent. Of several that are received the first of FCP counts.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Code, pages, put_pages};
use crate::bits::bits;
use crate::bytes::Append;
use crate::{FC4_FCP, Reject};

bits! {
    /// Parameters of FCP in a PRLI.
    FcpParameters(u32) {
        /// The task is named in retries.
        TASK_RETRY_ID = 0x0200;
        /// Sequences are sent again on request (REC and SRR).
        RETRY = 0x0100;
        /// Responses may be confirmed.
        CONFIRMED_COMPLETION = 0x0080;
        /// The sender is an initiator.
        INITIATOR = 0x0020;
        /// The sender is a target.
        TARGET = 0x0010;
        /// Reads go without FCP_XFER_RDY. Always set.
        READ_XFER_RDY_DISABLED = 0x0002;
        /// The first burst of a write goes without FCP_XFER_RDY. Never set.
        WRITE_XFER_RDY_DISABLED = 0x0001;
    }
}

/// Login or logout of a process, or the answer to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Initiator and target are to be a pair, or are.
    pub image_pair: bool,
    /// In answers: [`Process::EXECUTED`], or why not, 4 bits.
    pub response: u8,
    /// Functions and options.
    pub parameters: FcpParameters,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Page {
    kind: u8,
    _extension: u8,
    flags: u8,
    _zero: u8,
    _associators: U64,
    parameters: U32,
}

const IMAGE_PAIR: u8 = 0x20;
const RESPONSE: u8 = 0x0f;

impl Process {
    /// Response: done.
    pub const EXECUTED: u8 = 1;
    /// Response: the target has nothing for this initiator.
    pub const NO_SUCH_IMAGE: u8 = 5;

    pub(super) fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let mut pages = pages::<Page>(payload)?.iter();
        let page = pages.find(|page| page.kind == FC4_FCP).ok_or(Reject::Range)?;
        Ok(Self {
            image_pair: page.flags & IMAGE_PAIR != 0,
            response: page.flags & RESPONSE,
            parameters: FcpParameters::from_wire(page.parameters.get()),
        })
    }

    pub(super) fn emit(&self, code: Code, payload: &mut Append<'_>) {
        let image_pair = if self.image_pair { IMAGE_PAIR } else { 0 };
        let page = Page {
            kind: FC4_FCP,
            _extension: 0,
            flags: image_pair | self.response & RESPONSE,
            _zero: 0,
            _associators: U64::ZERO,
            parameters: self.parameters.to_wire().into(),
        };
        put_pages(code, &[page], payload);
    }
}
