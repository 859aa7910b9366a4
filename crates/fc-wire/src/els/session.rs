//! LOGO, ADISC and LS_RJT.
//!
//! ```text
//! LOGO                  ADISC, its answer       LS_RJT
//! off len field         off len field           off len field
//!   0   4 code, 0         0   4 code, 0           0   4 code, 0
//!   4   1 0               4   1 0                 4   1 0
//!   5   3 N_Port_ID       5   3 hard address: 0   5   1 reason
//!   8   8 WWPN            8   8 WWPN              6   1 explanation
//!                        16   8 WWNN              7   1 vendor: 0
//!                        24   1 0
//!                        25   3 N_Port_ID
//! ```

use zerocopy::byteorder::big_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Code, word};
use crate::bytes::{Append, front};
use crate::{PortId, Reject, Wwn};

/// The login of a port ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logo {
    /// The port's address.
    pub id: PortId,
    /// The port's name.
    pub wwpn: Wwn,
}

/// Addresses and names of a port that is logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adisc {
    /// The port's name.
    pub wwpn: Wwn,
    /// The node's name.
    pub wwnn: Wwn,
    /// The port's address.
    pub id: PortId,
}

/// The refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason, one of the constants or another of FC-LS-2.
    pub reason: u8,
    /// The explanation, the same.
    pub explanation: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LogoLayout {
    code: [u8; 4],
    _zero: u8,
    id: PortId,
    wwpn: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AdiscLayout {
    code: [u8; 4],
    _hard_address: [u8; 4],
    wwpn: U64,
    wwnn: U64,
    _zero: u8,
    id: PortId,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RejectionLayout {
    code: [u8; 4],
    _zero: u8,
    reason: u8,
    explanation: u8,
    _vendor: u8,
}

impl Logo {
    pub(super) fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let (layout, _) = front::<LogoLayout>(payload)?;
        Ok(Self { id: layout.id, wwpn: Wwn(layout.wwpn.get()) })
    }

    pub(super) fn emit(&self, payload: &mut Append<'_>) {
        let (code, id, wwpn) = (word(Code::Logo), self.id, self.wwpn.0.into());
        payload.put(&LogoLayout { code, _zero: 0, id, wwpn });
    }
}

impl Adisc {
    pub(super) fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let (layout, _) = front::<AdiscLayout>(payload)?;
        let (wwpn, wwnn) = (Wwn(layout.wwpn.get()), Wwn(layout.wwnn.get()));
        Ok(Self { wwpn, wwnn, id: layout.id })
    }

    pub(super) fn emit(&self, code: Code, payload: &mut Append<'_>) {
        payload.put(&AdiscLayout {
            code: word(code),
            _hard_address: [0; 4],
            wwpn: self.wwpn.0.into(),
            wwnn: self.wwnn.0.into(),
            _zero: 0,
            id: self.id,
        });
    }
}

impl Rejection {
    /// Reason: a logical error.
    pub const LOGICAL: u8 = 0x03;
    /// Reason: busy; the request may be repeated.
    pub const BUSY: u8 = 0x05;
    /// Reason: unable to do it.
    pub const UNABLE: u8 = 0x09;
    /// Reason: the request is not supported.
    pub const UNSUPPORTED: u8 = 0x0b;
    /// Reason: another such request is in progress.
    pub const IN_PROGRESS: u8 = 0x0e;
    /// Reason: FIP, no such neighbour.
    pub const FIP: u8 = 0x20;
    /// Explanation: no exchange with that OX_ID and RX_ID.
    pub const INVALID_XID: u8 = 0x17;
    /// Explanation: a login is required.
    pub const NOT_LOGGED_IN: u8 = 0x1e;
    /// Explanation: FIP, the neighbour is unknown.
    pub const UNKNOWN_NEIGHBOUR: u8 = 0x62;

    pub(super) fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let (layout, _) = front::<RejectionLayout>(payload)?;
        Ok(Self { reason: layout.reason, explanation: layout.explanation })
    }

    pub(super) fn emit(&self, payload: &mut Append<'_>) {
        let Self { reason, explanation } = *self;
        let code = word(Code::LsRjt);
        payload.put(&RejectionLayout { code, _zero: 0, reason, explanation, _vendor: 0 });
    }
}
