//! RTV, RLS, SCR and RSCN: time-outs and errors of a port, and changes of the fabric.
//!
//! ```text
//! answer to RTV         RLS                 SCR                 RSCN
//! off len field         off len field       off len field       off len field
//!   0   4 code, 0         0   4 code, 0       0   4 code, 0       0   1 code
//!   4   4 R_A_TOV, ms     4   1 0             4   3 0             1   1 length of a page: 4
//!   8   4 E_D_TOV         5   3 N_Port_ID     7   1 function      2   2 length of all
//!  12   4 qualifier                                               4   1 flags  for each page
//!                       answer to RLS                             5   3 N_Port_ID
//!                         0   4 code, 0
//!                         4  24 six counters
//! ```

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Code, pages, put_pages, word};
use crate::bytes::{Append, front};
use crate::{PortId, Reject};

/// The time-outs of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// R_A_TOV in milliseconds.
    pub r_a_tov_ms: u32,
    /// E_D_TOV in milliseconds, or in nanoseconds.
    pub e_d_tov: u32,
    /// The unit of E_D_TOV is nanoseconds.
    pub e_d_tov_ns: bool,
}

/// Asks for the errors of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rls {
    /// The port.
    pub id: PortId,
}

/// The errors of a port's link, in the order of FC-LS-2: link failures, losses of synchronization,
/// losses of signal, protocol errors, invalid words, wrong CRCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkErrors(pub [u32; 6]);

/// Asks for RSCNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scr {
    /// The changes that are wanted: [`Scr::FULL`], or another function of FC-LS-2.
    pub function: u8,
}

/// Ports of the fabric have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rscn<'a> {
    /// The ports, one or more.
    pub ports: &'a [ChangedPort],
}

/// A port, or a range of ports, that has changed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ChangedPort {
    /// The event in bits 5 to 2; in the lowest two how much of the address counts: all of it, its
    /// upper 16 bits, its upper 8, none.
    pub flags: u8,
    /// The address.
    pub id: PortId,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TimeoutsLayout {
    code: [u8; 4],
    r_a_tov_ms: U32,
    e_d_tov: U32,
    qualifier: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RlsLayout {
    code: [u8; 4],
    _zero: u8,
    id: PortId,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ScrLayout {
    code: [u8; 4],
    _zero: [u8; 3],
    function: u8,
}

/// Qualifier of RTV: E_D_TOV is in nanoseconds.
const E_D_TOV_NS: u32 = 1 << 26;

impl Timeouts {
    pub(super) fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let (layout, _) = front::<TimeoutsLayout>(payload)?;
        Ok(Self {
            r_a_tov_ms: layout.r_a_tov_ms.get(),
            e_d_tov: layout.e_d_tov.get(),
            e_d_tov_ns: layout.qualifier.get() & E_D_TOV_NS != 0,
        })
    }

    pub(super) fn emit(&self, payload: &mut Append<'_>) {
        payload.put(&TimeoutsLayout {
            code: word(Code::LsAcc),
            r_a_tov_ms: self.r_a_tov_ms.into(),
            e_d_tov: self.e_d_tov.into(),
            qualifier: if self.e_d_tov_ns { E_D_TOV_NS.into() } else { U32::ZERO },
        });
    }
}

impl Rls {
    pub(super) fn parse(payload: &[u8]) -> Result<Self, Reject> {
        front::<RlsLayout>(payload).map(|(layout, _)| Self { id: layout.id })
    }

    pub(super) fn emit(&self, payload: &mut Append<'_>) {
        payload.put(&RlsLayout { code: word(Code::Rls), _zero: 0, id: self.id });
    }
}

impl LinkErrors {
    pub(super) fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let (words, _) = front::<[U32; 7]>(payload)?;
        let [_, counters @ ..] = words.map(U32::get);
        Ok(Self(counters))
    }

    pub(super) fn emit(&self, payload: &mut Append<'_>) {
        payload.put(&word(Code::LsAcc)).put(&self.0.map(U32::new));
    }
}

impl Scr {
    /// All changes.
    pub const FULL: u8 = 3;

    pub(super) fn parse(payload: &[u8]) -> Result<Self, Reject> {
        front::<ScrLayout>(payload).map(|(layout, _)| Self { function: layout.function })
    }

    pub(super) fn emit(&self, payload: &mut Append<'_>) {
        payload.put(&ScrLayout { code: word(Code::Scr), _zero: [0; 3], function: self.function });
    }
}

impl<'a> Rscn<'a> {
    pub(super) fn parse(payload: &'a [u8]) -> Result<Self, Reject> {
        let ports = pages(payload)?;
        if ports.is_empty() { Err(Reject::Range) } else { Ok(Self { ports }) }
    }

    pub(super) fn emit(&self, payload: &mut Append<'_>) {
        put_pages(Code::Rscn, self.ports, payload);
    }
}
