//! RRQ, REC and SRR: the state of an exchange, and what is to become of it.
//!
//! ```text
//! RRQ, REC              answer to REC               SRR
//! off len field         off len field               off len field
//!   0   4 code, 0         0   4 code, 0               0   4 code, 0
//!   4   1 0               4   2 OX_ID                 4   2 OX_ID
//!   5   3 S_ID            6   2 RX_ID                 6   2 RX_ID
//!   8   2 OX_ID           8   1 0                     8   4 relative offset
//!  10   2 RX_ID           9   3 originator           12   1 R_CTL
//!                        12   1 0                    13   3 0
//!                        13   3 responder
//!                        16   4 bytes transferred
//!                        20   4 ESTAT
//! ```

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Code, word};
use crate::bytes::{Append, front};
use crate::{PortId, Reject, Xid};

/// ESTAT: the port that answers is the exchange's responder.
pub const ESTAT_RESPONDER: u32 = 1 << 31;
/// ESTAT: the port that answers holds the initiative to send the next sequence.
pub const ESTAT_INITIATIVE: u32 = 1 << 30;
/// ESTAT: the exchange is complete.
pub const ESTAT_COMPLETE: u32 = 1 << 29;

/// The exchange that an RRQ or REC is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The port that originated it.
    pub originator: PortId,
    /// Its number there.
    pub ox_id: Xid,
    /// Its number at the responder.
    pub rx_id: Xid,
}

/// The answer to REC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeStatus {
    /// The exchange at its originator.
    pub ox_id: Xid,
    /// The exchange at its responder.
    pub rx_id: Xid,
    /// The originator's address.
    pub originator: PortId,
    /// The responder's address.
    pub responder: PortId,
    /// Bytes of data that have been transferred.
    pub transferred: u32,
    /// The state: [`ESTAT_RESPONDER`] and others.
    pub estat: u32,
}

/// Asks for a sequence again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Srr {
    /// The exchange at its originator.
    pub ox_id: Xid,
    /// The exchange at its responder.
    pub rx_id: Xid,
    /// The first byte of data that is wanted.
    pub offset: u32,
    /// The information unit that is wanted: the upper byte of its [`Kind`](crate::Kind).
    pub r_ctl: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ExchangeLayout {
    code: [u8; 4],
    _zero: u8,
    originator: PortId,
    ox_id: U16,
    rx_id: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StatusLayout {
    code: [u8; 4],
    ox_id: U16,
    rx_id: U16,
    _zero: u8,
    originator: PortId,
    _zero_too: u8,
    responder: PortId,
    transferred: U32,
    estat: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SrrLayout {
    code: [u8; 4],
    ox_id: U16,
    rx_id: U16,
    offset: U32,
    r_ctl: u8,
    _zero: [u8; 3],
}

impl Exchange {
    pub(super) fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let (layout, _) = front::<ExchangeLayout>(payload)?;
        let (ox_id, rx_id) = (Xid(layout.ox_id.get()), Xid(layout.rx_id.get()));
        Ok(Self { originator: layout.originator, ox_id, rx_id })
    }

    pub(super) fn emit(&self, code: Code, payload: &mut Append<'_>) {
        payload.put(&ExchangeLayout {
            code: word(code),
            _zero: 0,
            originator: self.originator,
            ox_id: self.ox_id.0.into(),
            rx_id: self.rx_id.0.into(),
        });
    }
}

impl ExchangeStatus {
    pub(super) fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let (layout, _) = front::<StatusLayout>(payload)?;
        Ok(Self {
            ox_id: Xid(layout.ox_id.get()),
            rx_id: Xid(layout.rx_id.get()),
            originator: layout.originator,
            responder: layout.responder,
            transferred: layout.transferred.get(),
            estat: layout.estat.get(),
        })
    }

    pub(super) fn emit(&self, payload: &mut Append<'_>) {
        payload.put(&StatusLayout {
            code: word(Code::LsAcc),
            ox_id: self.ox_id.0.into(),
            rx_id: self.rx_id.0.into(),
            _zero: 0,
            originator: self.originator,
            _zero_too: 0,
            responder: self.responder,
            transferred: self.transferred.into(),
            estat: self.estat.into(),
        });
    }
}

impl Srr {
    pub(super) fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let (layout, _) = front::<SrrLayout>(payload)?;
        Ok(Self {
            ox_id: Xid(layout.ox_id.get()),
            rx_id: Xid(layout.rx_id.get()),
            offset: layout.offset.get(),
            r_ctl: layout.r_ctl,
        })
    }

    pub(super) fn emit(&self, payload: &mut Append<'_>) {
        payload.put(&SrrLayout {
            code: word(Code::Srr),
            ox_id: self.ox_id.0.into(),
            rx_id: self.rx_id.0.into(),
            offset: self.offset.into(),
            r_ctl: self.r_ctl,
            _zero: [0; 3],
        });
    }
}
