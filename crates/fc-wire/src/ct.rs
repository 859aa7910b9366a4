//! FC-CT, the common transport of a fabric's services, and what the name server is asked (FC-GS-6).
//!
//! ```text
//! off len field
//!   0   1 revision     1
//!   1   3 IN_ID        0
//!   4   1 GS type      0xfc, the directory
//!   5   1 GS subtype   2, the name server
//!   6   2 options, 0
//!   8   2 command      of the request; in answers 0x8001 refused, 0x8002 accepted
//!  10   2 size         requests: the longest answer in words, 0 for any
//!  12   1 0
//!  13   1 reason       answers that refuse
//!  14   1 explanation
//!  15   1 vendor
//!  16   n object
//! ```
//!
//! | command | object | object of the answer |
//! |---|---|---|
//! | GPN_ID | 0, N_Port_ID 3 | WWPN 8 |
//! | GFF_ID | 0, N_Port_ID 3 | functions 128: four bits for each type |
//! | GPN_FT | 0, domain 0, area 0, TYPE | for each port: 0x80 if it is the last, N_Port_ID 3, 0 × 4, WWPN 8 |
//! | RNN_ID | 0, N_Port_ID 3, WWNN 8 | |
//! | RFT_ID | 0, N_Port_ID 3, types 32 | |
//! | RSPN_ID | 0, N_Port_ID 3, length 1, name | |
//! | RFF_ID | 0, N_Port_ID 3, 0 × 2, functions 1, TYPE | |
//! | RSNN_NN | WWNN 8, length 1, name | |
//!
//! An answer of several frames is to be put together before it is parsed.

use zerocopy::byteorder::big_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bits::codes;
use crate::bytes::{Append, front};
use crate::{Fc4Functions, Fc4Types, PortId, Reject, Wwn};

codes! {
    /// The commands of the name server.
    Command(u16) {
        /// The name of a port.
        GpnId = 0x0112;
        /// The functions of a port, in all protocols.
        GffId = 0x011f;
        /// The ports with a protocol, and their names.
        GpnFt = 0x0172;
        /// Registers the name of a port's node.
        RnnId = 0x0213;
        /// Registers the protocols of a port.
        RftId = 0x0217;
        /// Registers a text about a port.
        RspnId = 0x0218;
        /// Registers the functions of a port in a protocol.
        RffId = 0x021f;
        /// Registers a text about a node.
        RsnnNn = 0x0239;
    }
}

/// The command of an answer that refuses.
const REFUSED: u16 = 0x8001;
/// The command of an answer that accepts.
const ACCEPTED: u16 = 0x8002;
/// Bytes in front of the object.
pub const CT_HEADER_LEN: usize = size_of::<Layout>();

/// A request to the name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// [`Command::GpnId`]
    GpnId(PortId),
    /// [`Command::GffId`]
    GffId(PortId),
    /// [`Command::GpnFt`]: the protocol's type.
    GpnFt(u8),
    /// [`Command::RnnId`]
    RnnId(PortId, Wwn),
    /// [`Command::RftId`]
    RftId(PortId, Fc4Types),
    /// [`Command::RspnId`]: at most 255 bytes.
    RspnId(PortId, &'a [u8]),
    /// [`Command::RffId`]
    RffId {
        /// The port.
        id: PortId,
        /// Its functions, 4 bits: see [`Fc4`](crate::Fc4).
        functions: u8,
        /// The protocol's type.
        kind: u8,
    },
    /// [`Command::RsnnNn`]: at most 255 bytes.
    RsnnNn(Wwn, &'a [u8]),
}

/// An answer of the name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The request is refused.
    Refused {
        /// The reason.
        reason: u8,
        /// The explanation.
        explanation: u8,
    },
    /// The answer to [`Request::GpnId`].
    Name(Wwn),
    /// The answer to [`Request::GffId`].
    Functions(Fc4Functions),
    /// The answer to [`Request::GpnFt`]: one port or more, only the last marked so.
    Ports(&'a [NamedPort]),
    /// The answer to a registration.
    Registered,
}

/// A port with its name.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NamedPort {
    flags: u8,
    id: PortId,
    _zero: [u8; 4],
    name: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Layout {
    revision: u8,
    _in_id: PortId,
    service: [u8; 2],
    _options: U16,
    command: U16,
    _size: U16,
    _zero: u8,
    reason: u8,
    explanation: u8,
    _vendor: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Id {
    _zero: u8,
    id: PortId,
}

const REVISION: u8 = 1;
const NAME_SERVER: [u8; 2] = [0xfc, 0x02];
const LAST: u8 = 0x80;

impl Layout {
    fn new(command: u16, (reason, explanation): (u8, u8)) -> Self {
        Self {
            revision: REVISION,
            _in_id: PortId::NONE,
            service: NAME_SERVER,
            _options: U16::ZERO,
            command: command.into(),
            _size: U16::ZERO,
            _zero: 0,
            reason,
            explanation,
            _vendor: 0,
        }
    }

    /// Takes the header off the front, and checks all but the command.
    fn parse(payload: &[u8]) -> Result<(&Self, &[u8]), Reject> {
        let (layout, object) = front::<Self>(payload)?;
        if layout.revision != REVISION {
            return Err(Reject::Version);
        }
        if layout.service != NAME_SERVER {
            return Err(Reject::Code);
        }
        Ok((layout, object))
    }
}

impl NamedPort {
    /// A port of an answer.
    pub fn new(id: PortId, name: Wwn, is_last: bool) -> Self {
        Self { flags: if is_last { LAST } else { 0 }, id, _zero: [0; 4], name: name.0.into() }
    }

    /// Its address.
    pub fn id(&self) -> PortId {
        self.id
    }

    /// Its name (WWPN).
    pub fn name(&self) -> Wwn {
        Wwn(self.name.get())
    }

    /// Whether it is the last of the answer.
    pub fn is_last(&self) -> bool {
        self.flags & LAST != 0
    }
}

impl PartialEq for NamedPort {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.name, self.is_last()) == (other.id, other.name, other.is_last())
    }
}

impl Eq for NamedPort {}

impl core::fmt::Debug for NamedPort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let last = if self.is_last() { ", the last" } else { "" };
        write!(f, "{} {}{last}", self.id, self.name())
    }
}

/// Takes a name off the front.
fn name(bytes: &[u8]) -> Result<(Wwn, &[u8]), Reject> {
    front::<U64>(bytes).map(|(name, rest)| (Wwn(name.get()), rest))
}

/// Takes a text with its length off the front.
fn text(bytes: &[u8]) -> Result<&[u8], Reject> {
    let (len, text) = bytes.split_first().ok_or(Reject::Length)?;
    text.get(..usize::from(*len)).ok_or(Reject::Length)
}

fn put_text(text: &[u8], payload: &mut Append<'_>) {
    let len = u8::try_from(text.len()).expect("at most 255 bytes");
    payload.put(&len).put(text);
}

impl<'a> Request<'a> {
    /// Parses a payload.
    ///
    /// # Errors
    /// `Version`, `Length`; `Code` if it is for another service, or the command is unknown: the
    /// answer is [`Reply::Refused`] then.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Reject> {
        let (layout, object) = Layout::parse(payload)?;
        let command = Command::from_wire(layout.command.get()).ok_or(Reject::Code)?;
        let port = || front::<Id>(object).map(|(layout, rest)| (layout.id, rest));
        Ok(match command {
            Command::GpnId => Self::GpnId(port()?.0),
            Command::GffId => Self::GffId(port()?.0),
            Command::GpnFt => Self::GpnFt(front::<[u8; 4]>(object)?.0[3]),
            Command::RnnId => {
                let (id, rest) = port()?;
                Self::RnnId(id, name(rest)?.0)
            }
            Command::RftId => {
                let (id, rest) = port()?;
                Self::RftId(id, *front(rest)?.0)
            }
            Command::RspnId => {
                let (id, rest) = port()?;
                Self::RspnId(id, text(rest)?)
            }
            Command::RffId => {
                let (id, rest) = port()?;
                let &[_, _, functions, kind] = front::<[u8; 4]>(rest)?.0;
                Self::RffId { id, functions: functions & 0xf, kind }
            }
            Command::RsnnNn => {
                let (name, rest) = name(object)?;
                Self::RsnnNn(name, text(rest)?)
            }
        })
    }

    /// Its command.
    pub fn command(&self) -> Command {
        match self {
            Self::GpnId(_) => Command::GpnId,
            Self::GffId(_) => Command::GffId,
            Self::GpnFt(_) => Command::GpnFt,
            Self::RnnId(..) => Command::RnnId,
            Self::RftId(..) => Command::RftId,
            Self::RspnId(..) => Command::RspnId,
            Self::RffId { .. } => Command::RffId,
            Self::RsnnNn(..) => Command::RsnnNn,
        }
    }

    /// Writes the payload; returns its length.
    ///
    /// # Panics
    /// If the buffer is shorter than the payload, or a text longer than 255 bytes.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut payload = Append::new(buffer);
        payload.put(&Layout::new(self.command().to_wire(), (0, 0)));
        let id = |id| Id { _zero: 0, id };
        match *self {
            Self::GpnId(port) | Self::GffId(port) => _ = payload.put(&id(port)),
            Self::GpnFt(kind) => _ = payload.put(&[0, 0, 0, kind]),
            Self::RnnId(port, name) => _ = payload.put(&id(port)).put(&U64::new(name.0)),
            Self::RftId(port, types) => _ = payload.put(&id(port)).put(&types),
            Self::RspnId(port, text) => put_text(text, payload.put(&id(port))),
            Self::RffId { id: port, functions, kind } => {
                payload.put(&id(port)).put(&[0, 0, functions & 0xf, kind]);
            }
            Self::RsnnNn(name, text) => put_text(text, payload.put(&U64::new(name.0))),
        }
        payload.len()
    }
}

impl<'a> Reply<'a> {
    /// Parses the payload of the answer to a request with this command.
    ///
    /// # Errors
    /// `Version`, `Code`, `Length`; so is a list of ports without a last one.
    pub fn parse(request: Command, payload: &'a [u8]) -> Result<Self, Reject> {
        let (layout, object) = Layout::parse(payload)?;
        match (layout.command.get(), request) {
            (REFUSED, _) => {
                Ok(Self::Refused { reason: layout.reason, explanation: layout.explanation })
            }
            (ACCEPTED, Command::GpnId) => Ok(Self::Name(name(object)?.0)),
            (ACCEPTED, Command::GffId) => Ok(Self::Functions(*front(object)?.0)),
            (ACCEPTED, Command::GpnFt) => {
                let (ports, _) = front::<[NamedPort]>(object)?;
                let last = ports.iter().position(NamedPort::is_last).ok_or(Reject::Length)?;
                Ok(Self::Ports(&ports[..=last]))
            }
            (ACCEPTED, _) => Ok(Self::Registered),
            _ => Err(Reject::Code),
        }
    }

    /// Ends a list of ports, the payload of an answer that was too long to be kept, with the last
    /// port that is there as a whole.
    pub fn cut(payload: &mut [u8]) {
        let ports = payload.len().saturating_sub(CT_HEADER_LEN) / size_of::<NamedPort>();
        if ports > 0 {
            payload[CT_HEADER_LEN + (ports - 1) * size_of::<NamedPort>()] |= LAST;
        }
    }

    /// Writes the payload; returns its length.
    ///
    /// # Panics
    /// If the buffer is shorter than the payload.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut payload = Append::new(buffer);
        let (command, reason) = match *self {
            Self::Refused { reason, explanation } => (REFUSED, (reason, explanation)),
            _ => (ACCEPTED, (0, 0)),
        };
        payload.put(&Layout::new(command, reason));
        match *self {
            Self::Name(name) => _ = payload.put(&U64::new(name.0)),
            Self::Functions(functions) => _ = payload.put(&functions),
            Self::Ports(ports) => _ = payload.put(ports),
            Self::Refused { .. } | Self::Registered => {}
        }
        payload.len()
    }
}
