//! FCP_XFER_RDY and FCP_DATA: the data of a command.
//!
//! ```text
//! FCP_XFER_RDY
//! off len field
//!   0   4 relative offset
//!   4   4 burst length
//!   8   4 0
//! ```
//!
//! An FCP_DATA is data alone; its header has the relative offset in PARAMETER.

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::front;
use crate::{FCtl, Header, Reject};

/// A target asks for a burst of a write's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferReady {
    /// The first byte.
    pub offset: u32,
    /// The number of bytes.
    pub len: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Layout {
    offset: U32,
    len: U32,
    _zero: U32,
}

impl TransferReady {
    /// Bytes of the unit.
    pub const LEN: usize = size_of::<Layout>();

    /// Parses a payload.
    ///
    /// # Errors
    /// `Length`; `Range` if the burst is empty, or ends behind all data that there can be.
    pub fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let (layout, _) = front::<Layout>(payload)?;
        let (offset, len) = (layout.offset.get(), layout.len.get());
        if len == 0 || offset.checked_add(len).is_none() {
            return Err(Reject::Range);
        }
        Ok(Self { offset, len })
    }

    /// The payload.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let (offset, len) = (self.offset.into(), self.len.into());
        zerocopy::transmute!(Layout { offset, len, _zero: U32::ZERO })
    }
}

/// The relative offset of the data of an FCP_DATA with `len` bytes.
///
/// # Errors
/// `Offset` if the header has none; `Range` if the data end behind all that there can be.
pub fn data_offset(header: &Header, len: usize) -> Result<u32, Reject> {
    if !header.f_ctl.has(FCtl::REL_OFF) {
        return Err(Reject::Offset);
    }
    let len = u32::try_from(len).map_err(|_| Reject::Range)?;
    header.parameter.checked_add(len).ok_or(Reject::Range)?;
    Ok(header.parameter)
}
