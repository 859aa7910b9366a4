//! The frames of link services, extended and basic.

use tyche_fc_wire::bls::{BaAcc, BaRjt};
use tyche_fc_wire::els::*;
use tyche_fc_wire::{FCtl, Header, Kind, Xid};

use super::{Expected, HOST, Node, TARGET, down, up};
use crate::frames::Payload;

fn ask(ox_id: u16, request: Request<'static>) -> Option<Expected> {
    Some(up(Kind::ElsRequest, ox_id, Payload::Els(request)))
}

fn answer(ox_id: u16, code: Code, reply: Reply) -> Option<Expected> {
    Some(down(Kind::ElsReply, ox_id, Payload::ElsReply(code, reply)))
}

fn login(node: &Node) -> PortLogin {
    PortLogin {
        wwpn: node.wwpn,
        wwnn: node.wwnn,
        features: Features::CONTINUOUS_OFFSET,
        receive_len: 2112,
        sequences: 255,
        relative_offsets: 0x1f,
        e_d_tov: 2000,
        class3: Some(Class3 { receive_len: 2112, sequences: 255, open_sequences: 1 }),
    }
}

fn process(image_pair: bool, response: u8, parameters: u32) -> Process {
    Process { image_pair, response, parameters: FcpParameters::from_wire(parameters) }
}

const EXCHANGE: Exchange = Exchange { originator: HOST.id, ox_id: Xid(0x2a), rx_id: Xid(0x12a) };

pub(super) fn expected(name: &str) -> Option<Expected> {
    logins(name).or_else(|| states(name)).or_else(|| basic(name))
}

fn logins(name: &str) -> Option<Expected> {
    let adisc = |node: &Node| Adisc { wwpn: node.wwpn, wwnn: node.wwnn, id: node.id };
    let executed = Process::EXECUTED;
    match name {
        "plogi" => ask(0x10, Request::Plogi(login(&HOST))),
        "plogi-acc" => answer(0x10, Code::Plogi, Reply::PortLogin(login(&TARGET))),
        "prli" => ask(0x11, Request::Prli(process(true, 0, 0x1a2))),
        "prli-acc" => answer(0x11, Code::Prli, Reply::Process(process(true, executed, 0x12))),
        "prlo" => ask(0x12, Request::Prlo(process(false, 0, 0))),
        "prlo-acc" => answer(0x12, Code::Prlo, Reply::Process(process(false, executed, 0))),
        "logo" => ask(0x14, Request::Logo(Logo { id: HOST.id, wwpn: HOST.wwpn })),
        "logo-acc" => answer(0x14, Code::Logo, Reply::Accepted),
        "adisc" => ask(0x15, Request::Adisc(adisc(&HOST))),
        "adisc-acc" => answer(0x15, Code::Adisc, Reply::Adisc(adisc(&TARGET))),
        _ => None,
    }
}

fn states(name: &str) -> Option<Expected> {
    let (ox_id, rx_id) = (EXCHANGE.ox_id, EXCHANGE.rx_id);
    match name {
        "rtv" => ask(0x13, Request::Rtv),
        "rtv-acc" => {
            let timeouts = Timeouts { r_a_tov_ms: 10_000, e_d_tov: 2000, e_d_tov_ns: false };
            answer(0x13, Code::Rtv, Reply::Timeouts(timeouts))
        }
        "rec" => ask(0x16, Request::Rec(EXCHANGE)),
        "rec-acc" => {
            let status = ExchangeStatus {
                ox_id,
                rx_id,
                originator: HOST.id,
                responder: TARGET.id,
                transferred: 4096,
                estat: ESTAT_RESPONDER,
            };
            answer(0x16, Code::Rec, Reply::Exchange(status))
        }
        "srr" => {
            let srr = Request::Srr(Srr { ox_id, rx_id, offset: 2112, r_ctl: 1 });
            Some(up(Kind::Fc4Request, 0x17, Payload::Els(srr)))
        }
        "srr-acc" => {
            let accepted = Payload::ElsReply(Code::Srr, Reply::Accepted);
            Some(down(Kind::Fc4Reply, 0x17, accepted))
        }
        "rrq" => ask(0x18, Request::Rrq(EXCHANGE)),
        "rls" => ask(0x19, Request::Rls(Rls { id: TARGET.id })),
        "rls-acc" => answer(0x19, Code::Rls, Reply::LinkErrors(LinkErrors([1, 0, 0, 0, 0, 3]))),
        "ls-rjt" => {
            let (reason, explanation) = (Rejection::LOGICAL, Rejection::INVALID_XID);
            answer(0x1a, Code::Rec, Reply::Refused(Rejection { reason, explanation }))
        }
        _ => None,
    }
}

fn basic(name: &str) -> Option<Expected> {
    let second = |header: Header| Header { seq_id: 1, ..header };
    Some(match name {
        "abts" => up(Kind::Abts, 0x2a, Payload::Empty).with(|header| Header {
            f_ctl: FCtl::ABTS,
            rx_id: Xid(0x12a),
            ..second(header)
        }),
        "ba-acc" => {
            let acc = BaAcc::whole(EXCHANGE.ox_id, EXCHANGE.rx_id);
            down(Kind::BaAcc, 0x2a, Payload::BaAcc(acc)).with(second)
        }
        "ba-rjt" => down(Kind::BaRjt, 0x2b, Payload::BaRjt(BaRjt::UNKNOWN))
            .with(|header| Header { rx_id: Xid::NONE, ..second(header) }),
        _ => return None,
    })
}
