//! The values of the golden frames.

mod fabric;
mod fcp;
mod fip;
mod services;

use tyche_fc_wire::*;

use super::frames::Payload;

/// The value of a golden frame.
#[expect(clippy::large_enum_variant, reason = "a test has one at a time")]
pub(crate) enum Expected {
    Fip(tyche_fc_wire::fip::Frame<'static>),
    Fc(Ethernet, Header, Payload<'static>),
}

/// The names and addresses of a node and its port.
#[derive(Clone, Copy)]
struct Node {
    mac: Mac,
    wwnn: Wwn,
    wwpn: Wwn,
    id: PortId,
}

impl Node {
    const fn new(mac: [u8; 6], name: u64, id: u32) -> Self {
        let (wwnn, wwpn) = (Wwn(0x1000 << 48 | name), Wwn(0x2000 << 48 | name));
        Self { mac: Mac(mac), wwnn, wwpn, id: PortId::new(id) }
    }

    /// The Ethernet address of the port.
    fn vn_mac(&self) -> Mac {
        let is_in_fabric = self.id.to_u32() >> 16 != 0;
        Mac::fpma(if is_in_fabric { FcMap::FABRIC } else { FcMap::VN2VN }, self.id)
    }
}

const HOST: Node = Node::new([2, 0, 0, 0, 0x0a, 1], 0x0200_0000_0a01, 0xa01);
const TARGET: Node = Node::new([2, 0, 0, 0, 0x0b, 2], 0x0200_0000_0b02, 0xb02);
/// The host, logged in to the fabric.
const FABRIC_HOST: Node = Node { id: PortId::new(0x01_0a01), ..HOST };
/// The forwarder. Its node is the switch.
const FCF: Node = Node::new([2, 0, 0, 0, 0x0f, 0x0c], 0x0f0c, 0xff_fffe);

/// The value of the golden frame.
pub(crate) fn expected(name: &str) -> Expected {
    fip::expected(name)
        .or_else(|| services::expected(name))
        .or_else(|| fcp::expected(name))
        .or_else(|| fabric::expected(name))
        .unwrap_or_else(|| panic!("no value for {name}"))
}

/// A request of the host to the target.
fn up(kind: Kind, ox_id: u16, payload: Payload<'static>) -> Expected {
    let ethernet = Ethernet { destination: TARGET.vn_mac(), source: HOST.vn_mac() };
    let header = Header::request(kind, HOST.id, TARGET.id, Xid(ox_id));
    Expected::Fc(ethernet, header, payload)
}

/// The target's answer to one.
fn down(kind: Kind, ox_id: u16, payload: Payload<'static>) -> Expected {
    let ethernet = Ethernet { destination: HOST.vn_mac(), source: TARGET.vn_mac() };
    let request = Header::request(kind, HOST.id, TARGET.id, Xid(ox_id));
    Expected::Fc(ethernet, request.reply(kind, Xid(ox_id + 0x100)), payload)
}

impl Expected {
    /// The same with another header.
    fn with(self, change: impl FnOnce(Header) -> Header) -> Self {
        match self {
            Self::Fc(ethernet, header, payload) => Self::Fc(ethernet, change(header), payload),
            fip => fip,
        }
    }
}
