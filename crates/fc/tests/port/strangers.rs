//! Link services that no honest neighbour sends, or not then.

use tyche_fc::port::{Event, Failure};
use tyche_fc::wire::els::{Adisc, Code, Logo, Process, Rejection, Reply, Request};
use tyche_fc::wire::{Ethernet, FRAME_LEN_MAX, FcMap, Frame, Header, Kind, Mac, PortId, Wwn, Xid};
use tyche_testkit::random::Random;

use crate::air::ms;
use crate::network::{INITIATOR, Network, TARGET, pair};
use crate::offers::plogi;

/// The exchange of a stranger.
const OX_ID: Xid = Xid(0x0777);

/// A frame of the port `from` to the port `to`.
fn frame(from: PortId, to: PortId, kind: Kind, ox_id: Xid, payload: &[u8]) -> Vec<u8> {
    let header = Header { kind, ..Header::request(Kind::ElsRequest, from, to, ox_id) };
    let (destination, source) = (Mac::fpma(FcMap::VN2VN, to), Mac::fpma(FcMap::VN2VN, from));
    let ethernet = Ethernet { destination, source };
    let mut buffer = [0; FRAME_LEN_MAX];
    let len = Frame { ethernet, header, payload }.emit(&mut buffer);
    buffer[..len].to_vec()
}

/// Has a node receive a request of a port; returns the words that it sends.
fn ask(network: &mut Network, to: usize, from: PortId, request: &Request<'_>) -> Vec<String> {
    let mut payload = [0; 256];
    let len = request.emit(&mut payload);
    let id = network.nodes[to].id().unwrap();
    let frame = frame(from, id, Kind::ElsRequest, OX_ID, &payload[..len]);
    let (now, sent) = (network.now, network.nodes[to].sent.len());
    network.nodes[to].handle(now, &frame);
    network.drain(to);
    network.nodes[to].sent[sent..].to_vec()
}

#[test]
fn a_port_that_is_no_neighbour_gets_nothing_but_its_logout() {
    let mut network = pair(1, [INITIATOR, TARGET]);
    let stranger = PortId::new(0x7777);
    let login = plogi(Wwn(7));
    assert!(ask(&mut network, 1, stranger, &Request::Plogi(login)).is_empty());
    assert!(ask(&mut network, 1, stranger, &Request::Rtv).is_empty());
    assert_eq!(network.nodes[1].logins.ignored().stranger, 2);
    let logo = Request::Logo(Logo { id: stranger, wwpn: Wwn(7) });
    assert_eq!(ask(&mut network, 1, stranger, &logo), ["yes"]);
    network.assert_logged_in();
}

#[test]
fn a_name_that_is_not_the_neighbours_ends_no_login() {
    let mut network = pair(1, [INITIATOR, TARGET]);
    let id = network.nodes[0].id().unwrap();
    let answers = [
        (Request::Plogi(plogi(Wwn(7))), "no: 0x3"),
        (Request::Logo(Logo { id, wwpn: Wwn(7) }), "yes"),
        (Request::Scr(tyche_fc::wire::els::Scr { function: 3 }), "no: 0xb"),
    ];
    for (request, answer) in answers {
        assert_eq!(ask(&mut network, 1, id, &request), [answer]);
    }
    network.assert_logged_in();
    assert!(network.nodes[1].causes().is_empty());
    let mut unusable = plogi(*network.nodes[1].live.first_key_value().unwrap().0);
    unusable.class3 = None;
    assert_eq!(ask(&mut network, 1, id, &Request::Plogi(unusable)), ["no: 0x9"]);
    network.assert_logged_in();
}

#[test]
fn processes_and_questions_need_a_login() {
    let mut network = pair(1, [INITIATOR, TARGET]);
    let id = network.nodes[0].id().unwrap();
    let wwpn = *network.nodes[1].live.first_key_value().unwrap().0;
    let adisc = Request::Adisc(Adisc { wwpn, wwnn: wwpn, id });
    assert_eq!(ask(&mut network, 1, id, &adisc), ["yes"]);
    assert_eq!(ask(&mut network, 1, id, &Request::Rtv), ["yes"]);
    network.nodes[1].drains = false;
    let logo = Request::Logo(Logo { id, wwpn });
    assert!(ask(&mut network, 1, id, &logo).is_empty(), "not before it is drained");
    let process = Process { image_pair: true, response: 0, parameters: Default::default() };
    for request in [adisc, Request::Rtv, Request::Prli(process), Request::Prlo(process)] {
        assert_eq!(ask(&mut network, 1, id, &request), ["no: 0x9"], "{request:?}");
    }
    let now = network.now;
    network.nodes[1].logins.drained(now, wwpn);
    network.drain(1);
    assert_eq!(network.nodes[1].sent.last().unwrap(), "yes");
}

#[test]
fn frames_from_another_address_or_to_another_port_are_counted() {
    let mut network = pair(1, [INITIATOR, TARGET]);
    let ids = [0, 1].map(|index| network.nodes[index].id().unwrap());
    let mut payload = [0; 256];
    let wwpn = *network.nodes[1].live.first_key_value().unwrap().0;
    let len = Request::Logo(Logo { id: ids[0], wwpn }).emit(&mut payload);
    let mut forged = frame(ids[0], ids[1], Kind::ElsRequest, OX_ID, &payload[..len]);
    forged[6] = 2;
    let misled = frame(ids[0], PortId::new(0x7777), Kind::ElsRequest, OX_ID, &payload[..len]);
    let garbled = frame(ids[0], ids[1], Kind::ElsRequest, OX_ID, &[0x77; 8]);
    let late = frame(ids[0], ids[1], Kind::ElsReply, OX_ID, &[2, 0, 0, 0]);
    let now = network.now;
    for frame in [forged, misled, garbled, late] {
        network.nodes[1].handle(now, &frame);
        network.drain(1);
    }
    let ignored = network.nodes[1].logins.ignored();
    assert_eq!((ignored.stranger, ignored.not_ours, ignored.malformed), (1, 1, 1));
    network.assert_logged_in();
}

#[test]
fn answers_that_are_not_usable_are_failures_with_a_reason() {
    let mut network = Network::new(1, &[INITIATOR, TARGET]);
    network.air.delay = 5_000_000;
    // A refusal of all that the initiator has asked comes before the answer.
    while network.nodes[0].live.is_empty() && network.nodes[0].events.is_empty() {
        network.run(ms(1));
        let Some(from) = network.nodes[1].id() else { continue };
        let Some(to) = network.nodes[0].id() else { continue };
        if !network.nodes[0].sent.iter().any(|it| it == "Prli") {
            continue;
        }
        let mut payload = [0; 256];
        let refusal = Rejection { reason: Rejection::UNABLE, explanation: 0 };
        let len = Reply::Refused(refusal).emit(&mut payload);
        for ox_id in 0x100..0x120 {
            let frame = frame(from, to, Kind::ElsReply, Xid(ox_id), &payload[..len]);
            let now = network.now;
            network.nodes[0].handle(now, &frame);
        }
        network.drain(0);
    }
    let refused = Failure::Refused(Rejection { reason: Rejection::UNABLE, explanation: 0 });
    let Some(Event::Failed(_, Code::Prli, failure)) = network.nodes[0].events.first() else {
        panic!("{:?}", network.nodes[0].events)
    };
    assert_eq!(*failure, refused);
    network.run(ms(30_000));
    network.assert_logged_in();
}

#[test]
fn bytes_of_any_kind_break_nothing() {
    for seed in 0..100 {
        let (mut random, mut network) = (Random(seed), pair(1, [INITIATOR, TARGET]));
        for _ in 0..200 {
            let to = random.below(2) as usize;
            let ids = [0, 1].map(|index| network.nodes[index].id().unwrap());
            let codes = Code::ALL;
            let words = 1 + random.below(30) as usize;
            let mut payload = random.bytes(4 * words);
            payload[0] = codes[random.below(codes.len() as u64) as usize].to_wire();
            let kind = if random.chance(2) { Kind::ElsRequest } else { Kind::ElsReply };
            let frame = frame(ids[1 - to], ids[to], kind, OX_ID, &payload);
            let now = network.now;
            network.nodes[to].handle(now, &frame);
            network.drain(to);
            network.run(ms(random.below(100)));
        }
        network.run(ms(120_000));
        network.assert_logged_in();
    }
}
