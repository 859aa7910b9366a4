//! Descriptors: type (1 byte), length in words of 4 bytes (1 byte, header included), and a body.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bits::codes;
use crate::bytes::{Append, exactly, front};
use crate::{FC_HEADER_LEN, Fc4, FcMap, Header, Mac, PortId, Reject, Wwn};

codes! {
    /// The type of a descriptor.
    DescriptorKind(u8) {
        /// [`Descriptor::Priority`]
        Pri = 1;
        /// [`Descriptor::Mac`]
        Mac = 2;
        /// [`Descriptor::FcMap`]
        FcMap = 3;
        /// [`Descriptor::Name`]
        Name = 4;
        /// [`Descriptor::Fabric`]
        Fabric = 5;
        /// [`Descriptor::Size`]
        Size = 6;
        /// [`Service::Flogi`]
        Flogi = 7;
        /// [`Service::Fdisc`]
        Fdisc = 8;
        /// [`Service::Logo`]
        Logo = 9;
        /// [`Service::Elp`]
        Elp = 10;
        /// [`Descriptor::VnPort`]
        VnId = 11;
        /// [`Descriptor::KeepAlive`]
        Fka = 12;
        /// [`Descriptor::Vendor`]
        Vendor = 13;
        /// [`Descriptor::Vlan`]
        Vlan = 14;
        /// [`Descriptor::Fc4`]
        Fc4f = 15;
    }
}

/// The first type that a receiver may ignore if it does not know it.
const NON_CRITICAL: u8 = 128;

/// A descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor<'a> {
    /// The priority of a forwarder: the lower the number, the better. The default is 128.
    Priority(u8),
    /// The Ethernet address of the sender, or the one that a port has got.
    Mac(Mac),
    /// The upper half of addresses.
    FcMap(FcMap),
    /// The name of node or switch.
    Name(Wwn),
    /// The fabric that a forwarder belongs to.
    Fabric(Fabric),
    /// The longest FCoE frame, without the Ethernet header: 2158 for a payload of 2112 bytes.
    Size(u16),
    /// A frame of a link service.
    LinkService {
        /// The service.
        service: Service,
        /// The header of the frame.
        header: Header,
        /// The payload of the frame, a multiple of 4 bytes.
        payload: &'a [u8],
    },
    /// A port.
    VnPort(VnPort),
    /// The keep alives that a forwarder wants.
    KeepAlive(KeepAlivePeriod),
    /// The vendor.
    Vendor([u8; 8]),
    /// A VLAN with FCoE: its number, 12 bits.
    Vlan(u16),
    /// The protocols of a port.
    Fc4(Fc4),
}

/// A fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// The virtual fabric; 0 for none.
    pub vf_id: u16,
    /// The upper half of the addresses of its ports.
    pub map: FcMap,
    /// Its name.
    pub name: Wwn,
}

/// A port with its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VnPort {
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its address in the fabric.
    pub id: PortId,
    /// Its name (WWPN).
    pub name: Wwn,
}

/// The keep alives that a forwarder wants, and the interval of its advertisements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlivePeriod {
    /// Whether nodes are to send keep alives.
    pub wanted: bool,
    /// The period in milliseconds.
    pub ms: u32,
}

/// The link services that travel in descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Login of a node to the fabric, or to its neighbour.
    Flogi,
    /// Login of a further port of the node.
    Fdisc,
    /// Logout.
    Logo,
    /// Exchange of parameters between switches.
    Elp,
}

impl Service {
    fn kind(self) -> DescriptorKind {
        match self {
            Self::Flogi => DescriptorKind::Flogi,
            Self::Fdisc => DescriptorKind::Fdisc,
            Self::Logo => DescriptorKind::Logo,
            Self::Elp => DescriptorKind::Elp,
        }
    }
}

/// Structures behind type and length.
mod layout {
    use super::*;

    macro_rules! layouts {
        ($($name:ident { $($field:ident: $type:ty,)* })*) => {
            $(
                #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
                #[repr(C)]
                pub(super) struct $name { $(pub(super) $field: $type,)* }
            )*
        };
    }

    layouts! {
        Head { kind: u8, words: u8, }
        Priority { _zero: u8, priority: u8, }
        FcMapBody { _zero: [u8; 3], map: FcMap, }
        Name { _zero: U16, name: U64, }
        Fabric { vf_id: U16, _zero: u8, map: FcMap, name: U64, }
        LinkService { _zero: U16, header: [u8; FC_HEADER_LEN], }
        VnPort { mac: Mac, _zero: u8, id: PortId, name: U64, }
        KeepAlive { _zero: u8, flags: u8, ms: U32, }
        Vendor { _zero: U16, id: [u8; 8], }
        Fc4Body { _zero: U16, fc4: Fc4, }
    }
}

/// The flag of KEEP_ALIVE: no keep alives are wanted.
const FKA_NOT_WANTED: u8 = 1;

/// Bytes of type and length.
const HEAD_LEN: usize = size_of::<layout::Head>();

/// Bytes of a link service's descriptor without the payload.
pub(super) const LINK_SERVICE_LEN: usize = HEAD_LEN + size_of::<layout::LinkService>();

impl<'a> Descriptor<'a> {
    /// Takes a descriptor off the front of a list; `None` if its type is unknown, and may be
    /// ignored. Returns the rest of the list, too.
    pub(super) fn parse(list: &'a [u8]) -> Result<(Option<Self>, &'a [u8]), Reject> {
        let (head, _) = front::<layout::Head>(list).map_err(|_| Reject::DescriptorLength)?;
        let len = usize::from(head.words) * 4;
        if len == 0 || len > list.len() {
            return Err(Reject::DescriptorLength);
        }
        let (descriptor, rest) = list.split_at(len);
        let Some(kind) = DescriptorKind::from_wire(head.kind) else {
            let is_critical = head.kind < NON_CRITICAL;
            return if is_critical { Err(Reject::Descriptor) } else { Ok((None, rest)) };
        };
        match Self::parse_body(kind, &descriptor[HEAD_LEN..]) {
            Ok(descriptor) => Ok((Some(descriptor), rest)),
            Err(Reject::Length) => Err(Reject::DescriptorLength),
            Err(reject) => Err(reject),
        }
    }

    fn parse_body(kind: DescriptorKind, body: &'a [u8]) -> Result<Self, Reject> {
        Ok(match kind {
            DescriptorKind::Pri => Self::Priority(exactly::<layout::Priority>(body)?.priority),
            DescriptorKind::Mac => Self::Mac(*exactly(body)?),
            DescriptorKind::FcMap => Self::FcMap(exactly::<layout::FcMapBody>(body)?.map),
            DescriptorKind::Name => Self::Name(Wwn(exactly::<layout::Name>(body)?.name.get())),
            DescriptorKind::Fabric => {
                let &layout::Fabric { vf_id, map, name, .. } = exactly(body)?;
                Self::Fabric(Fabric { vf_id: vf_id.get(), map, name: Wwn(name.get()) })
            }
            DescriptorKind::Size => Self::Size(exactly::<U16>(body)?.get()),
            DescriptorKind::Flogi => Self::parse_service(Service::Flogi, body)?,
            DescriptorKind::Fdisc => Self::parse_service(Service::Fdisc, body)?,
            DescriptorKind::Logo => Self::parse_service(Service::Logo, body)?,
            DescriptorKind::Elp => Self::parse_service(Service::Elp, body)?,
            DescriptorKind::VnId => {
                let &layout::VnPort { mac, id, name, .. } = exactly(body)?;
                Self::VnPort(VnPort { mac, id, name: Wwn(name.get()) })
            }
            DescriptorKind::Fka => {
                let layout::KeepAlive { flags, ms, .. } = exactly(body)?;
                let wanted = flags & FKA_NOT_WANTED == 0;
                Self::KeepAlive(KeepAlivePeriod { wanted, ms: ms.get() })
            }
            DescriptorKind::Vendor => Self::Vendor(exactly::<layout::Vendor>(body)?.id),
            DescriptorKind::Vlan => Self::Vlan(exactly::<U16>(body)?.get() & 0xfff),
            DescriptorKind::Fc4f => Self::Fc4(exactly::<layout::Fc4Body>(body)?.fc4),
        })
    }

    fn parse_service(service: Service, body: &'a [u8]) -> Result<Self, Reject> {
        let (layout::LinkService { header, .. }, payload) = front(body)?;
        let (header, _) = Header::parse(header)?;
        Ok(Self::LinkService { service, header, payload })
    }

    /// Its type.
    pub fn kind(&self) -> DescriptorKind {
        match self {
            Self::Priority(_) => DescriptorKind::Pri,
            Self::Mac(_) => DescriptorKind::Mac,
            Self::FcMap(_) => DescriptorKind::FcMap,
            Self::Name(_) => DescriptorKind::Name,
            Self::Fabric(_) => DescriptorKind::Fabric,
            Self::Size(_) => DescriptorKind::Size,
            Self::LinkService { service, .. } => service.kind(),
            Self::VnPort(_) => DescriptorKind::VnId,
            Self::KeepAlive(_) => DescriptorKind::Fka,
            Self::Vendor(_) => DescriptorKind::Vendor,
            Self::Vlan(_) => DescriptorKind::Vlan,
            Self::Fc4(_) => DescriptorKind::Fc4f,
        }
    }

    /// Appends the descriptor.
    pub(super) fn emit(&self, frame: &mut Append<'_>) {
        let zero = U16::ZERO;
        match *self {
            Self::Priority(priority) => self.put(&layout::Priority { _zero: 0, priority }, frame),
            Self::Mac(mac) => self.put(&mac, frame),
            Self::FcMap(map) => self.put(&layout::FcMapBody { _zero: [0; 3], map }, frame),
            Self::Name(name) => {
                self.put(&layout::Name { _zero: zero, name: name.0.into() }, frame);
            }
            Self::Fabric(Fabric { vf_id, map, name }) => {
                let (vf_id, name) = (vf_id.into(), name.0.into());
                self.put(&layout::Fabric { vf_id, _zero: 0, map, name }, frame);
            }
            Self::Size(size) => self.put(&U16::new(size), frame),
            Self::LinkService { header, payload, .. } => {
                let header = header.to_bytes(payload.len());
                self.put_head(LINK_SERVICE_LEN + payload.len(), frame);
                frame.put(&layout::LinkService { _zero: zero, header }).put(payload);
            }
            Self::VnPort(VnPort { mac, id, name }) => {
                self.put(&layout::VnPort { mac, _zero: 0, id, name: name.0.into() }, frame);
            }
            Self::KeepAlive(KeepAlivePeriod { wanted, ms }) => {
                let flags = if wanted { 0 } else { FKA_NOT_WANTED };
                self.put(&layout::KeepAlive { _zero: 0, flags, ms: ms.into() }, frame);
            }
            Self::Vendor(id) => self.put(&layout::Vendor { _zero: zero, id }, frame),
            Self::Vlan(vid) => self.put(&U16::new(vid & 0xfff), frame),
            Self::Fc4(fc4) => self.put(&layout::Fc4Body { _zero: zero, fc4 }, frame),
        }
    }

    fn put<T: IntoBytes + Immutable>(&self, body: &T, frame: &mut Append<'_>) {
        self.put_head(HEAD_LEN + size_of::<T>(), frame);
        frame.put(body);
    }

    fn put_head(&self, len: usize, frame: &mut Append<'_>) {
        assert!(len.is_multiple_of(4), "a descriptor consists of whole words");
        let words = u8::try_from(len / 4).expect("no descriptor is longer than 255 words");
        frame.put(&layout::Head { kind: self.kind().to_wire(), words });
    }
}
