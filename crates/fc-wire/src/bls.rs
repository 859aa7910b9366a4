//! Basic link services (FC-FS-3): the end of an exchange before its time.
//!
//! ABTS has no payload; bit 0 of its PARAMETER is 0, so that it ends the whole exchange.
//!
//! ```text
//! BA_ACC                           BA_RJT
//! off len field                    off len field
//!   0   1 SEQ_ID is valid: 0x80      0   1 0
//!   1   1 SEQ_ID                     1   1 reason
//!   2   2 0                          2   1 explanation
//!   4   2 OX_ID                      3   1 vendor
//!   6   2 RX_ID
//!   8   2 low SEQ_CNT
//!  10   2 high SEQ_CNT
//! ```

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::front;
use crate::{Reject, Xid};

/// The exchange has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaAcc {
    /// The last sequence that was received whole, if the answer says so.
    pub seq_id: Option<u8>,
    /// The exchange at its originator.
    pub ox_id: Xid,
    /// The exchange at its responder.
    pub rx_id: Xid,
    /// The lowest SEQ_CNT that is no longer valid.
    pub low_seq_cnt: u16,
    /// The highest SEQ_CNT that is no longer valid.
    pub high_seq_cnt: u16,
}

/// The exchange cannot be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaRjt {
    /// The reason: [`BaRjt::LOGICAL`] or [`BaRjt::UNABLE`], or another of FC-FS-3.
    pub reason: u8,
    /// The explanation.
    pub explanation: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AccLayout {
    validity: u8,
    seq_id: u8,
    _zero: U16,
    ox_id: U16,
    rx_id: U16,
    low_seq_cnt: U16,
    high_seq_cnt: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RjtLayout {
    _zero: u8,
    reason: u8,
    explanation: u8,
    _vendor: u8,
}

const SEQ_ID_VALID: u8 = 0x80;

impl BaAcc {
    /// Bytes of the payload.
    pub const LEN: usize = size_of::<AccLayout>();

    /// The answer that ends the whole exchange, whatever of it has come.
    pub fn whole(ox_id: Xid, rx_id: Xid) -> Self {
        Self { seq_id: None, ox_id, rx_id, low_seq_cnt: 0, high_seq_cnt: u16::MAX }
    }

    /// Parses a payload.
    ///
    /// # Errors
    /// `Length`.
    pub fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let (layout, _) = front::<AccLayout>(payload)?;
        Ok(Self {
            seq_id: (layout.validity & SEQ_ID_VALID != 0).then_some(layout.seq_id),
            ox_id: Xid(layout.ox_id.get()),
            rx_id: Xid(layout.rx_id.get()),
            low_seq_cnt: layout.low_seq_cnt.get(),
            high_seq_cnt: layout.high_seq_cnt.get(),
        })
    }

    /// The payload.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(AccLayout {
            validity: if self.seq_id.is_some() { SEQ_ID_VALID } else { 0 },
            seq_id: self.seq_id.unwrap_or(0),
            _zero: U16::ZERO,
            ox_id: self.ox_id.0.into(),
            rx_id: self.rx_id.0.into(),
            low_seq_cnt: self.low_seq_cnt.into(),
            high_seq_cnt: self.high_seq_cnt.into(),
        })
    }
}

impl BaRjt {
    /// Bytes of the payload.
    pub const LEN: usize = size_of::<RjtLayout>();
    /// Reason: a logical error.
    pub const LOGICAL: u8 = 0x03;
    /// Reason: unable to do it.
    pub const UNABLE: u8 = 0x09;
    /// Explanation: no exchange with that OX_ID and RX_ID.
    pub const INVALID_XID: u8 = 0x03;

    /// There is no such exchange.
    pub const UNKNOWN: Self = Self { reason: Self::LOGICAL, explanation: Self::INVALID_XID };
    /// It can't be ended now.
    pub const BUSY: Self = Self { reason: Self::UNABLE, explanation: 0 };

    /// Parses a payload.
    ///
    /// # Errors
    /// `Length`.
    pub fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let (layout, _) = front::<RjtLayout>(payload)?;
        Ok(Self { reason: layout.reason, explanation: layout.explanation })
    }

    /// The payload.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        [0, self.reason, self.explanation, 0]
    }
}
