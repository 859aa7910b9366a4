//! The frames between a host, the name server and the fabric controller.

use tyche_fc_wire::ct::{Command, NamedPort, Reply, Request};
use tyche_fc_wire::els::{self, ChangedPort, Rscn, Scr};
use tyche_fc_wire::{Ethernet, FC4_FCP, Fc4, Fc4Functions, Fc4Types, Header, Kind, PortId, Xid};

use super::{Expected, FABRIC_HOST, FCF, TARGET};
use crate::frames::Payload;

const HOST: PortId = FABRIC_HOST.id;
const OTHER: PortId = PortId::new(0x01_0b02);

/// A frame of the host through the forwarder.
fn up(to: PortId, kind: Kind, ox_id: u16, payload: Payload<'static>) -> Expected {
    let ethernet = Ethernet { destination: FCF.mac, source: FABRIC_HOST.vn_mac() };
    Expected::Fc(ethernet, Header::request(kind, HOST, to, Xid(ox_id)), payload)
}

fn ask(ox_id: u16, request: Request<'static>) -> Expected {
    up(PortId::NAME_SERVER, Kind::CtRequest, ox_id, Payload::Ct(request))
}

fn answer(ox_id: u16, command: Command, reply: Reply<'static>) -> Expected {
    let ethernet = Ethernet { destination: FABRIC_HOST.vn_mac(), source: FCF.mac };
    let request = Header::request(Kind::CtRequest, HOST, PortId::NAME_SERVER, Xid(ox_id));
    let header = request.reply(Kind::CtReply, Xid(ox_id + 0x100));
    Expected::Fc(ethernet, header, Payload::CtReply(command, reply))
}

pub(super) fn expected(name: &str) -> Option<Expected> {
    Some(match name {
        "scr" => {
            let scr = Payload::Els(els::Request::Scr(Scr { function: Scr::FULL }));
            up(PortId::FABRIC_CONTROLLER, Kind::ElsRequest, 0x1b, scr)
        }
        "rscn" => {
            let ports = [
                ChangedPort { flags: 0, id: OTHER },
                ChangedPort { flags: 2, id: PortId::new(0x02_0000) },
            ];
            let ports = Vec::from(ports).leak();
            let rscn = Payload::Els(els::Request::Rscn(Rscn { ports }));
            let ethernet = Ethernet { destination: FABRIC_HOST.vn_mac(), source: FCF.mac };
            let from = PortId::FABRIC_CONTROLLER;
            Expected::Fc(ethernet, Header::request(Kind::ElsRequest, from, HOST, Xid(0x1c)), rscn)
        }
        "ct-rnn-id" => ask(0x30, Request::RnnId(HOST, FABRIC_HOST.wwnn)),
        "ct-rsnn-nn" => ask(0x31, Request::RsnnNn(FABRIC_HOST.wwnn, b"tyche")),
        "ct-rspn-id" => ask(0x32, Request::RspnId(HOST, b"eth1")),
        "ct-rft-id" => ask(0x33, Request::RftId(HOST, Fc4Types::only(FC4_FCP))),
        "ct-rff-id" => {
            ask(0x34, Request::RffId { id: HOST, functions: Fc4::INITIATOR, kind: FC4_FCP })
        }
        "ct-acc" => answer(0x34, Command::RffId, Reply::Registered),
        "ct-gpn-ft" => ask(0x35, Request::GpnFt(FC4_FCP)),
        "ct-gpn-ft-acc" => {
            let ports = [
                NamedPort::new(HOST, FABRIC_HOST.wwpn, false),
                NamedPort::new(OTHER, TARGET.wwpn, true),
            ];
            answer(0x35, Command::GpnFt, Reply::Ports(Vec::from(ports).leak()))
        }
        "ct-gpn-id" => ask(0x36, Request::GpnId(OTHER)),
        "ct-gpn-id-acc" => answer(0x36, Command::GpnId, Reply::Name(TARGET.wwpn)),
        "ct-gff-id" => ask(0x38, Request::GffId(OTHER)),
        "ct-gff-id-acc" => {
            let functions = Reply::Functions(Fc4Functions::fcp(Fc4::TARGET));
            answer(0x38, Command::GffId, functions)
        }
        "ct-rjt" => answer(0x37, Command::GpnId, Reply::Refused { reason: 9, explanation: 1 }),
        _ => return None,
    })
}
