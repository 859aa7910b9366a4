//! FLOGI, FDISC, PLOGI, PDISC and their answers: names and service parameters, 116 bytes.
//!
//! ```text
//! off len field
//!   0   4 code, 0
//!   4   2 version            0x2020
//!   6   2 credit             10, without meaning on Ethernet
//!   8   2 features
//!  10   2 receive size       4 bits reserved, 12 bits
//!  12   4 PLOGI: total sequences 2, relative offset 2; answer to FLOGI: R_A_TOV in ms
//!  16   4 E_D_TOV            in ms, or in ns if the features say so
//!  20   8 WWPN
//!  28   8 WWNN
//!  36  64 classes 1 to 4, 16 each; class 3 at 68:
//!           0   2 service options     0x8000 valid, 0x0800 sequential delivery
//!           2   4 control
//!           6   2 receive size
//!           8   2 concurrent sequences
//!          10   2 credit
//!          12   1 0
//!          13   1 open sequences per exchange
//!          14   2 0
//! 100  16 vendor version     0
//! ```
//!
//! Version, credit and the other classes are sent as above and ignored.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Code, word};
use crate::bits::bits;
use crate::bytes::{Append, front};
use crate::{Reject, Wwn};

/// Bytes of a login, and of the longest payload but that of an RSCN.
pub const LOGIN_LEN: usize = size_of::<Layout>();

bits! {
    /// Features of a port, in the common service parameters.
    Features(u16) {
        /// Relative offsets grow continuously. Port logins have it.
        CONTINUOUS_OFFSET = 0x8000;
        /// The sender is the port of a fabric.
        F_PORT = 0x1000;
        /// E_D_TOV is in nanoseconds, not in milliseconds.
        E_D_TOV_NS = 0x0400;
    }
}

/// Parameters of class 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class3 {
    /// The most bytes of a frame's payload.
    pub receive_len: u16,
    /// The most sequences at a time.
    pub sequences: u16,
    /// The most open sequences of one exchange.
    pub open_sequences: u8,
}

/// PLOGI and PDISC, and their answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortLogin {
    /// The port's name.
    pub wwpn: Wwn,
    /// The node's name.
    pub wwnn: Wwn,
    /// Its features.
    pub features: Features,
    /// The most bytes of a frame's payload, 12 bits.
    pub receive_len: u16,
    /// The most sequences at a time, of all classes.
    pub sequences: u16,
    /// The kinds of information units with relative offsets, a bit for each.
    pub relative_offsets: u16,
    /// E_D_TOV, in the unit that the features say.
    pub e_d_tov: u32,
    /// Class 3; `None` if the port does not have it.
    pub class3: Option<Class3>,
}

/// FLOGI and FDISC, and their answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricLogin {
    /// The port's name.
    pub wwpn: Wwn,
    /// The node's name, or the fabric's.
    pub wwnn: Wwn,
    /// Its features.
    pub features: Features,
    /// The most bytes of a frame's payload, 12 bits.
    pub receive_len: u16,
    /// R_A_TOV in milliseconds; in answers only.
    pub r_a_tov_ms: u32,
    /// E_D_TOV, in the unit that the features say.
    pub e_d_tov: u32,
    /// Class 3; `None` if the port does not have it.
    pub class3: Option<Class3>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Class {
    options: U16,
    _control: U32,
    receive_len: U16,
    sequences: U16,
    _credit: U16,
    _zero: u8,
    open_sequences: u8,
    _reserved: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Layout {
    code: [u8; 4],
    version: U16,
    credit: U16,
    features: U16,
    receive_len: U16,
    /// Two fields of 2 bytes, or one of 4.
    limits: [U16; 2],
    e_d_tov: U32,
    wwpn: U64,
    wwnn: U64,
    _other_classes: [Class; 2],
    class3: Class,
    _class4: Class,
    _vendor: [u8; 16],
}

const _: () = assert!(LOGIN_LEN == 116);

const VERSION: u16 = 0x2020;
const CREDIT: u16 = 10;
const CLASS_VALID: u16 = 0x8000;
const CLASS_SEQUENTIAL: u16 = 0x0800;
/// The bits of a receive size.
const RECEIVE_LEN_MASK: u16 = 0x0fff;

/// The fields that both kinds of logins have alike.
struct Common {
    wwpn: Wwn,
    wwnn: Wwn,
    features: Features,
    receive_len: u16,
    limits: [U16; 2],
    e_d_tov: u32,
    class3: Option<Class3>,
}

impl Class {
    const NONE: Self = zerocopy::transmute!([0u8; size_of::<Self>()]);

    fn parse(&self) -> Option<Class3> {
        (self.options.get() & CLASS_VALID != 0).then(|| Class3 {
            receive_len: self.receive_len.get() & RECEIVE_LEN_MASK,
            sequences: self.sequences.get(),
            open_sequences: self.open_sequences,
        })
    }

    fn new(class: Option<Class3>) -> Self {
        let Some(class) = class else { return Self::NONE };
        Self {
            options: (CLASS_VALID | CLASS_SEQUENTIAL).into(),
            receive_len: (class.receive_len & RECEIVE_LEN_MASK).into(),
            sequences: class.sequences.into(),
            open_sequences: class.open_sequences,
            ..Self::NONE
        }
    }
}

impl Common {
    fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let (layout, _) = front::<Layout>(payload)?;
        Ok(Self {
            wwpn: Wwn(layout.wwpn.get()),
            wwnn: Wwn(layout.wwnn.get()),
            features: Features::from_wire(layout.features.get()),
            receive_len: layout.receive_len.get() & RECEIVE_LEN_MASK,
            limits: layout.limits,
            e_d_tov: layout.e_d_tov.get(),
            class3: layout.class3.parse(),
        })
    }

    fn emit(self, code: Code, payload: &mut Append<'_>) {
        payload.put(&Layout {
            code: word(code),
            version: VERSION.into(),
            credit: CREDIT.into(),
            features: self.features.to_wire().into(),
            receive_len: (self.receive_len & RECEIVE_LEN_MASK).into(),
            limits: self.limits,
            e_d_tov: self.e_d_tov.into(),
            wwpn: self.wwpn.0.into(),
            wwnn: self.wwnn.0.into(),
            _other_classes: [Class::NONE; 2],
            class3: Class::new(self.class3),
            _class4: Class::NONE,
            _vendor: [0; 16],
        });
    }
}

impl PortLogin {
    pub(super) fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let Common { wwpn, wwnn, features, receive_len, limits, e_d_tov, class3 } =
            Common::parse(payload)?;
        let [sequences, relative_offsets] = limits.map(U16::get);
        Ok(Self { wwpn, wwnn, features, receive_len, sequences, relative_offsets, e_d_tov, class3 })
    }

    pub(super) fn emit(&self, code: Code, payload: &mut Append<'_>) {
        let Self { wwpn, wwnn, features, receive_len, e_d_tov, class3, .. } = *self;
        let limits = [self.sequences, self.relative_offsets].map(U16::new);
        let common = Common { wwpn, wwnn, features, receive_len, limits, e_d_tov, class3 };
        common.emit(code, payload);
    }
}

impl FabricLogin {
    pub(super) fn parse(payload: &[u8]) -> Result<Self, Reject> {
        let Common { wwpn, wwnn, features, receive_len, limits, e_d_tov, class3 } =
            Common::parse(payload)?;
        let r_a_tov_ms: U32 = zerocopy::transmute!(limits);
        let r_a_tov_ms = r_a_tov_ms.get();
        Ok(Self { wwpn, wwnn, features, receive_len, r_a_tov_ms, e_d_tov, class3 })
    }

    pub(super) fn emit(&self, code: Code, payload: &mut Append<'_>) {
        let Self { wwpn, wwnn, features, receive_len, e_d_tov, class3, .. } = *self;
        let limits = zerocopy::transmute!(U32::new(self.r_a_tov_ms));
        let common = Common { wwpn, wwnn, features, receive_len, limits, e_d_tov, class3 };
        common.emit(code, payload);
    }
}
