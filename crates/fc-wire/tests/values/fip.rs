//! The frames of FIP.

use tyche_fc_wire::els::{Class3, FabricLogin, Features, Logo, Rejection, Reply, Request};
use tyche_fc_wire::fip::*;
use tyche_fc_wire::{Ethernet, Fc4, FcMap, Header, Kind, Mac, PortId, Wwn, Xid};

use super::{Expected, FABRIC_HOST, FCF, HOST, Node, TARGET};
use crate::frames::Payload;

/// No flags: there is no fabric.
const NONE: Flags = Flags::EMPTY;

/// A frame without more padding than it needs.
fn frame(destination: Mac, source: Mac, flags: Flags, message: Message<'static>) -> Expected {
    let mut frame = Frame::new(Ethernet { destination, source }, flags, message);
    frame.len = frame.emit(&mut [0; 2172]);
    Expected::Fip(frame)
}

fn link_service(
    service: Service,
    header: Header,
    payload: &Payload<'static>,
    mac: Option<Mac>,
) -> LinkService<'static> {
    LinkService { service, header, payload: payload.emit().leak(), mac }
}

fn vn_port(node: &Node) -> VnPort {
    VnPort { mac: node.vn_mac(), id: node.id, name: node.wwpn }
}

fn port(node: &Node) -> Port {
    Port { mac: node.mac, name: node.wwnn, port: vn_port(node) }
}

fn claim(node: &Node, functions: u8) -> Claim {
    Claim { port: port(node), fc4: Fc4::fcp(functions), size: 2158 }
}

fn login(node: &Node, r_a_tov_ms: u32, e_d_tov: u32, class3: Class3) -> FabricLogin {
    FabricLogin {
        wwpn: node.wwpn,
        wwnn: node.wwnn,
        features: Features::EMPTY,
        receive_len: 2112,
        r_a_tov_ms,
        e_d_tov,
        class3: Some(class3),
    }
}

pub(super) fn expected(name: &str) -> Option<Expected> {
    fabric(name).or_else(|| services(name)).or_else(|| vn2vn(name))
}

fn fabric(name: &str) -> Option<Expected> {
    let fp = Flags::FP;
    let all_fcf = |message| frame(ALL_FCF_MACS, HOST.mac, fp, message);
    Some(match name {
        "solicitation" => all_fcf(Message::Solicitation(Solicitation {
            mac: HOST.mac,
            name: HOST.wwnn,
            size: 2158,
            fc_map: None,
        })),
        "solicitation-fcf" => {
            let flags = fp.with(Flags::FCF).with(Flags::F);
            let (mac, name, fc_map) = (FCF.mac, FCF.wwnn, Some(FcMap::FABRIC));
            let solicitation = Solicitation { mac, name, size: 2158, fc_map };
            frame(ALL_ENODE_MACS, FCF.mac, flags, Message::Solicitation(solicitation))
        }
        "advertisement" => {
            let flags = fp.with(Flags::A).with(Flags::F);
            let fabric = Fabric { vf_id: 0, map: FcMap::FABRIC, name: Wwn(0x1000_0000_0000_fab1) };
            let advertisement = Advertisement {
                priority: 128,
                mac: FCF.mac,
                name: FCF.wwnn,
                fabric,
                keep_alive: KeepAlivePeriod { wanted: true, ms: 8000 },
            };
            frame(ALL_ENODE_MACS, FCF.mac, flags, Message::Advertisement(advertisement))
        }
        "keep-alive" => {
            let message = Message::KeepAlive(KeepAlive { mac: HOST.mac, port: None });
            frame(FCF.mac, HOST.mac, fp, message)
        }
        "keep-alive-port" => {
            let port = Some(vn_port(&FABRIC_HOST));
            let message = Message::KeepAlive(KeepAlive { mac: HOST.mac, port });
            frame(FCF.mac, FABRIC_HOST.vn_mac(), fp, message)
        }
        "clear-virtual-link" => {
            let ports = [vn_port(&FABRIC_HOST)].into_iter().collect();
            let clear = ClearVirtualLink { mac: FCF.mac, name: FCF.wwnn, ports };
            frame(HOST.mac, FCF.mac, fp.with(Flags::F), Message::ClearVirtualLink(clear))
        }
        "vlan-request" => {
            all_fcf(Message::VlanRequest(VlanRequest { mac: HOST.mac, name: Some(HOST.wwnn) }))
        }
        "vlan-notification" => {
            let vids = [100, 2002].into_iter().collect();
            let vlans = VlanNotification { mac: FCF.mac, vids };
            frame(HOST.mac, FCF.mac, fp.with(Flags::F), Message::VlanNotification(vlans))
        }
        "vn2vn-vlan-notification" => {
            let vlans = VlanNotification { mac: TARGET.mac, vids: [100].into_iter().collect() };
            frame(HOST.mac, TARGET.mac, NONE, Message::Vn2vnVlanNotification(vlans))
        }
        _ => return None,
    })
}

fn services(name: &str) -> Option<Expected> {
    let request = Header::request(Kind::ElsRequest, HOST.id, TARGET.id, Xid(7));
    let reply = request.reply(Kind::ElsReply, Xid(0x101));
    let answer = |payload: Payload<'static>, mac| {
        let service = link_service(Service::Flogi, reply, &payload, mac);
        frame(HOST.mac, TARGET.mac, NONE, Message::LinkReply(service))
    };
    Some(match name {
        "fip-flogi" => {
            let class3 = Class3 { receive_len: 0, sequences: 0, open_sequences: 0 };
            let flogi = Payload::Els(Request::Flogi(login(&HOST, 0, 0, class3)));
            let service = link_service(Service::Flogi, request, &flogi, Some(HOST.vn_mac()));
            frame(TARGET.mac, HOST.mac, NONE, Message::LinkRequest(service))
        }
        "fip-flogi-acc" => {
            let class3 = Class3 { receive_len: 2112, sequences: 255, open_sequences: 1 };
            let login = login(&TARGET, 4000, 2000, class3);
            let code = tyche_fc_wire::els::Code::Flogi;
            let accepted = Payload::ElsReply(code, Reply::FabricLogin(login));
            answer(accepted, Some(TARGET.vn_mac()))
        }
        "fip-flogi-rjt" => {
            let reason = Rejection::FIP;
            let explanation = Rejection::UNKNOWN_NEIGHBOUR;
            let refused = Reply::Refused(Rejection { reason, explanation });
            answer(Payload::ElsReply(tyche_fc_wire::els::Code::Flogi, refused), None)
        }
        "fip-logo" => {
            let logo = Request::Logo(Logo { id: FABRIC_HOST.id, wwpn: HOST.wwpn });
            let header = Header::request(Kind::ElsRequest, FABRIC_HOST.id, PortId::F_PORT, Xid(8));
            let mac = Some(FABRIC_HOST.vn_mac());
            let service = link_service(Service::Logo, header, &Payload::Els(logo), mac);
            frame(FCF.mac, HOST.mac, Flags::FP, Message::LinkRequest(service))
        }
        _ => return None,
    })
}

fn vn2vn(name: &str) -> Option<Expected> {
    let all = ALL_VN2VN_ENODE_MACS;
    Some(match name {
        "probe-request" => frame(all, HOST.mac, Flags::REC, Message::ProbeRequest(port(&HOST))),
        "probe-reply" => frame(HOST.mac, TARGET.mac, NONE, Message::ProbeReply(port(&TARGET))),
        "claim-notification" => {
            let claim = claim(&TARGET, Fc4::TARGET);
            frame(all, TARGET.mac, NONE, Message::ClaimNotification(claim))
        }
        "claim-response" => {
            let claim = claim(&HOST, Fc4::INITIATOR);
            let ethernet = Ethernet { destination: TARGET.mac, source: HOST.mac };
            let len = padded_len(2158);
            let frame = Frame::new(ethernet, NONE, Message::ClaimResponse(claim));
            Expected::Fip(Frame { len, ..frame })
        }
        "beacon" => frame(all, TARGET.vn_mac(), NONE, Message::Beacon(port(&TARGET))),
        _ => return None,
    })
}
