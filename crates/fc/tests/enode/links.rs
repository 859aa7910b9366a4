//! Forwarders, logins with them, and their end.

use tyche_fc::neighbour::{Address, Event};
use tyche_fc::wire::els::Features;
use tyche_fc::wire::fip::{
    ALL_FCF_MACS, ClearVirtualLink, Flags, KeepAlive, Message, Service, VnPort,
};
use tyche_fc::wire::{FcMap, Mac, PortId, Wwn};

use crate::script::{FCF, ID, NODE, SWITCH, Script, USABLE, WWPN, ms};

const LONG: usize = 2172;

fn other(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0x0f, number])
}

/// Whom the node asks for a login.
fn asked(script: &Script) -> Vec<Mac> {
    let requests = script.sent.iter().filter(|it| it.word() == "LinkRequest");
    requests.map(|it| it.fip().ethernet.destination).collect()
}

#[test]
fn forwarders_are_asked_for_again_and_again() {
    let mut script = Script::new();
    script.run(ms(20_000));
    let start = script.sent[0].at;
    let at: Vec<_> = script.sent.iter().map(|it| it.at.since(start)).collect();
    assert_eq!(at, [0, 2_000, 10_000, 18_000].map(ms));
    for sent in &script.sent {
        let frame = sent.fip();
        let Message::Solicitation(it) = frame.message else { panic!("{frame:?}") };
        assert_eq!((it.mac, it.size, it.fc_map), (NODE, 2158, None));
        assert_eq!((frame.ethernet.destination, frame.flags), (ALL_FCF_MACS, Flags::FP));
    }
}

#[test]
fn the_login_asks_for_an_address_of_the_fabric() {
    let mut script = Script::new();
    script.advertise(FCF, 128, USABLE.with(Flags::S), LONG);
    script.run(ms(1_999));
    assert_eq!(script.words(), "Solicitation");
    script.run(ms(1));
    let sent = script.sent[0].clone();
    let Message::LinkRequest(flogi) = sent.fip().message else { panic!("{sent:?}") };
    assert_eq!((flogi.service, flogi.mac), (Service::Flogi, Some(Mac::default())));
    assert_eq!((flogi.header.s_id, flogi.header.d_id), (PortId::NONE, PortId::F_PORT));
    let mac = Mac::fpma(FcMap::FABRIC, ID);
    script.accept(mac, Features::F_PORT);
    let [Event::Claimed(Address { id, mac: claimed, fabric: Some(fabric) })] = script.events[..]
    else {
        panic!("{:?}", script.events)
    };
    assert_eq!((id, claimed, fabric.forwarder), (ID, mac, FCF));
}

#[test]
fn the_best_of_those_that_can_be_used_is_asked() {
    let mut script = Script::new();
    let solicited = USABLE.with(Flags::S);
    // Not available; not proven; no addresses of the fabric; worse.
    script.advertise(other(1), 1, Flags::FP.with(Flags::F).with(Flags::S), LONG);
    script.advertise(other(2), 1, solicited, LONG - 1);
    script.advertise(other(3), 1, Flags::F.with(Flags::A).with(Flags::S), LONG);
    script.advertise(other(4), 129, solicited, LONG);
    script.advertise(other(6), 128, solicited, LONG);
    script.advertise(other(5), 128, solicited, LONG);
    script.run(ms(2_000));
    assert_eq!(asked(&script), [other(5)]);
    // It does not answer; then the next does not accept.
    script.run(ms(12_000));
    assert_eq!(asked(&script), [other(5), other(6)]);
    script.accept(Mac::fpma(FcMap::FABRIC, ID), Features::EMPTY);
    script.run(ms(2_000));
    assert_eq!(asked(&script), [other(5), other(6), other(4)]);
    script.accept(Mac::fpma(FcMap::VN2VN, ID), Features::F_PORT);
    assert_eq!((script.node.address(), script.events.len()), (None, 0));
}

#[test]
fn an_advertisement_without_a_proof_is_answered_with_a_question_and_a_flood_of_them_is_not() {
    let mut script = Script::new();
    script.words();
    script.advertise(FCF, 128, USABLE, 0);
    assert_eq!(script.sent[0].fip().ethernet.destination, FCF);
    assert_eq!(script.words(), "Solicitation");
    for number in 0..200 {
        script.advertise(other(number), 128, USABLE, 0);
    }
    assert_eq!(script.words().split(' ').count(), 15, "as many as fit at once");
    assert_eq!(script.node.ignored().no_room, 200 - 16);
}

#[test]
fn node_and_port_say_that_they_are_there() {
    let mut script = Script::logged_in();
    script.sent.clear();
    let (start, port) = (script.now, Mac::fpma(FcMap::FABRIC, ID));
    for _ in 0..24 {
        script.advertise(FCF, 128, USABLE, 0);
        script.run(ms(8_000));
    }
    let alive = script.sent.iter().filter(|it| it.word() == "KeepAlive");
    let (mut node, mut ports) = (Vec::new(), Vec::new());
    for sent in alive {
        let frame = sent.fip();
        let Message::KeepAlive(KeepAlive { mac, port: about }) = frame.message else { panic!() };
        assert_eq!((mac, frame.ethernet.destination), (NODE, FCF));
        let times = if about.is_some() { &mut ports } else { &mut node };
        times.push(sent.at.since(start).as_secs());
        let source = if about.is_some() { port } else { NODE };
        assert_eq!(frame.ethernet.source, source);
    }
    assert_eq!(node, (1..=24).map(|it| it * 8).collect::<Vec<_>>());
    assert_eq!(ports, [90, 180]);
}

#[test]
fn a_forwarder_that_is_silent_for_two_and_a_half_intervals_is_lost() {
    let mut script = Script::logged_in();
    // It was heard 2 s ago.
    script.run(ms(17_999));
    assert_eq!(script.events.len(), 1);
    script.run(ms(1));
    assert_eq!(script.events[1..], [Event::Released(ID)]);
    assert_eq!(script.sent.last().unwrap().word(), "Solicitation");
}

#[test]
fn links_are_cleared_by_their_own_forwarder_only() {
    let port = VnPort { mac: Mac::fpma(FcMap::FABRIC, ID), id: ID, name: WWPN };
    let another = VnPort { id: PortId::new(0x01_0102), ..port };
    let cases = [
        (other(1), other(1), SWITCH, vec![], false),
        (FCF, FCF, Wwn(1), vec![], false),
        (FCF, FCF, SWITCH, vec![another], false),
        (FCF, FCF, SWITCH, vec![another, port], true),
        (FCF, FCF, SWITCH, vec![], true),
    ];
    for (source, mac, name, ports, is_cleared) in cases {
        let mut script = Script::logged_in();
        let ports = ports.into_iter().collect();
        let message = Message::ClearVirtualLink(ClearVirtualLink { mac, name, ports });
        script.receive(source, NODE, Flags::FP, message, 0);
        assert_eq!(script.node.address().is_none(), is_cleared);
        assert_eq!(script.events.contains(&Event::Released(ID)), is_cleared);
    }
}

#[test]
fn who_logs_out_is_silent_from_then_on() {
    let mut script = Script::logged_in();
    script.sent.clear();
    script.node.log_out();
    script.drain();
    let Message::LinkRequest(logo) = script.sent[0].fip().message else { panic!() };
    assert_eq!((logo.service, logo.header.s_id), (Service::Logo, ID));
    assert_eq!(script.events.last(), Some(&Event::Released(ID)));
    let interface = script.node.interface();
    script.node.handle_link(script.now, Some(interface));
    script.run(ms(60_000));
    assert_eq!(script.sent.len(), 1);
}
