//! The life of a port: stages, beacons, restarts, links that go down.

use tyche_fc::neighbour::{Address, Event, Interface};
use tyche_fc::wire::fip::{self, Flags, LinkService, Message, Operation, Service};
use tyche_fc::wire::{ETHERNET_LEN, Header, Kind, Mac, PortId, Xid};

use crate::air::ms;
use crate::network::{Network, Station, claim, forged, neighbour, present};

const A: u64 = 0x2000_0000_0000_0a0a;
const B: u64 = 0x2000_0000_0000_0b0b;

fn two() -> Network {
    let mut network = Network::new(1);
    network.add(A, None);
    network.add(B, None);
    network.run(ms(3_000));
    network.assert_converged();
    network
}

/// The milliseconds between the frames of a port.
fn gaps(station: &Station) -> Vec<(u64, Operation)> {
    let times = station.sent.windows(2);
    times.map(|it| (it[1].0.ns_since(it[0].0) / 1_000_000, it[1].1)).collect()
}

#[test]
fn a_port_alone_probes_twice_claims_and_shows_itself() {
    let mut network = Network::new(1);
    let start = network.now;
    network.add(A, None);
    network.run(ms(25_000));
    let station = &network.stations[0];
    assert!(station.sent[0].0 <= start + ms(100));
    assert_eq!(station.sent[0].1, Operation::ProbeRequest);
    let gaps = gaps(station);
    let wanted = [
        (100, Operation::ProbeRequest),
        (400, Operation::ClaimNotification),
        (400, Operation::Beacon),
        (400, Operation::Beacon),
    ];
    assert_eq!(gaps[..4], wanted);
    assert!(
        gaps[4..].iter().all(|(gap, it)| (8000..=8100).contains(gap) && *it == Operation::Beacon)
    );
    assert_eq!(gaps.len(), 6);
    let (id, mac) = (PortId::new(0x0a0a), Mac([0x0e, 0xfd, 0, 0, 0x0a, 0x0a]));
    assert_eq!(station.events, [Event::Claimed(Address { id, mac, fabric: None })]);
    for (_, operation, frame) in &station.sent {
        let frame = fip::Frame::parse(frame).unwrap();
        let source = if *operation == Operation::Beacon { mac } else { station.mac };
        assert_eq!(frame.ethernet.source, source, "{operation:?}");
        assert_eq!(frame.ethernet.destination, fip::ALL_VN2VN_ENODE_MACS);
        assert!(!frame.flags.has(Flags::REC), "nothing was recorded");
    }
}

#[test]
fn a_recorded_address_is_probed_as_such() {
    let mut network = Network::new(1);
    network.add(A, Some(0x0c0c));
    network.run(ms(3_000));
    let sent = network.stations[0].sent.iter().map(|it| fip::Frame::parse(&it.2).unwrap());
    let recorded = sent.map(|it| it.flags.has(Flags::REC)).collect::<Vec<_>>();
    assert_eq!(recorded[..3], [true, true, false]);
    assert_eq!(network.id(0), Some(PortId::new(0x0c0c)));
    for wrong in [0, 0xffff, 0x01_0203] {
        let mut network = Network::new(1);
        network.add(A, Some(wrong));
        network.run(ms(3_000));
        assert_eq!(network.id(0), Some(PortId::new(0x0a0a)), "{wrong:#x} is no port's");
    }
}

#[test]
fn ports_of_an_interface_begin_with_different_addresses() {
    let ids = [0, 1, 0xfff].map(|number| {
        let mut network = Network::new(1);
        network.add(A | number << 48, None);
        network.run(ms(3_000));
        network.id(0).unwrap().to_u32()
    });
    assert_eq!(ids, [0x0a0a, 0x0a0b, 0x05f5]);
}

#[test]
fn a_port_that_has_claimed_is_heard_of_before_it_is_present() {
    let mut network = Network::new(1);
    network.add(A, None);
    network.run(ms(20_000));
    network.add(B, None);
    network.run(ms(550));
    assert!(!network.stations[1].vn2vn.has_claimed());
    network.run(ms(100));
    let vn2vn = &network.stations[1].vn2vn;
    assert!(vn2vn.has_claimed() && vn2vn.neighbours().next().is_none());
    assert_eq!(vn2vn.claimed().map(|it| it.wwpn.0).collect::<Vec<_>>(), [A]);
}

#[test]
fn answers_to_claims_are_as_long_as_the_longest_frame_of_both() {
    for (theirs, len) in [(2158, 2172), (1500, 1514), (9000, 2172), (0, 232)] {
        let mut network = two();
        let mut claim = claim(7, 0x0707);
        claim.size = theirs;
        network.inject(&forged(Message::ClaimNotification(claim), Flags::EMPTY));
        network.run(ms(30));
        let (_, operation, frame) = network.stations[0].sent.last().unwrap();
        assert_eq!((*operation, frame.len()), (Operation::ClaimResponse, len));
        assert_eq!(frame[..6], claim.port.mac.0);
    }
    let mut network = two();
    let interface = Interface { mac: network.stations[0].mac, mtu: 1500 };
    network.stations[0].vn2vn.handle_link(network.now, Some(interface));
    network.run(ms(5_000));
    network.inject(&forged(Message::ClaimNotification(claim(7, 0x0707)), Flags::EMPTY));
    network.run(ms(30));
    assert_eq!(network.stations[0].sent.last().unwrap().2.len(), 1500 + ETHERNET_LEN);
}

#[test]
fn another_longest_frame_is_claimed_anew() {
    let mut network = two();
    network.run(ms(2_000));
    let (id, mac) = (network.stations[0].vn2vn.address().unwrap().id, network.stations[0].mac);
    for (mtu, is_another) in
        [(9000, false), (2158, false), (1500, true), (1500, false), (9000, true)]
    {
        let first = network.stations[0].events.len();
        network.stations[0].vn2vn.handle_link(network.now, Some(Interface { mac, mtu }));
        network.run(ms(5_000));
        let events = &network.stations[0].events[first..];
        assert_eq!(events.contains(&Event::Released(id)), is_another, "{mtu}: {events:?}");
        assert_eq!(network.stations[0].vn2vn.address().unwrap().id, id, "the same N_Port_ID");
        let shown = network.stations[1].vn2vn.neighbours().next().unwrap().fcoe_len_max;
        assert_eq!(usize::from(shown), mtu.min(2158), "the other knows it");
    }
}

#[test]
fn a_newcomer_and_a_port_see_each_other_before_the_next_beacon() {
    let mut network = two();
    network.run(ms(2_000));
    network.add(A + 1, None);
    network.run(ms(2_000));
    network.assert_converged();
}

#[test]
fn a_neighbour_is_present_with_its_beacon_and_gone_after_twenty_seconds_of_silence() {
    let mut network = two();
    let other = neighbour(&network.stations[1]);
    // Two beacons may be lost.
    network.run(ms(6_000));
    network.air.lost = 100;
    network.run(ms(13_000));
    network.air.lost = 0;
    network.run(ms(6_000));
    network.assert_converged();
    network.air.lost = 100;
    let last = network.now;
    network.run(ms(12_000));
    network.assert_converged();
    network.run_checked(ms(10_000), |network| {
        let gone = network.stations[0].vn2vn.neighbours().next().is_none();
        assert!(!gone || network.now >= last + ms(12_000));
    });
    assert_eq!(network.stations[0].events.last(), Some(&Event::Gone(other)));
    network.air.lost = 0;
    network.run(ms(20_000));
    network.assert_converged();
}

#[test]
fn a_neighbour_that_logs_in_to_us_is_present_without_a_beacon() {
    let mut network = Network::new(1);
    network.add(A, None);
    network.run(ms(2_000));
    let (claim, id) = (claim(7, 0x0707), network.id(0).unwrap());
    network.inject(&forged(Message::ClaimNotification(claim), Flags::EMPTY));
    let login = |service, to, from| {
        let header = Header::request(Kind::ElsRequest, from, to, Xid(1));
        let mac = Some(claim.port.port.mac);
        Message::LinkRequest(LinkService { service, header, payload: &[], mac })
    };
    let theirs = claim.port.port.id;
    let of_others = [
        login(Service::Logo, id, theirs),
        login(Service::Flogi, PortId::new(0x0808), theirs),
        login(Service::Flogi, id, PortId::new(0x0808)),
    ];
    for message in of_others {
        network.inject(&forged(message, Flags::EMPTY));
        network.run(ms(50));
        assert_eq!(network.stations[0].vn2vn.neighbours().count(), 0);
    }
    network.inject(&forged(login(Service::Flogi, id, theirs), Flags::EMPTY));
    network.run(ms(50));
    assert_eq!(present(&network.stations[0].events).len(), 1);
}

#[test]
fn a_port_that_starts_anew_gets_its_address_back_unnoticed() {
    for seed in 0..50 {
        let mut network = Network::new(seed);
        network.add(A, None);
        network.add(B, None);
        network.run(ms(10_000));
        let (events, id) = (network.stations[0].events.len(), network.id(1));
        network.restart(1, id);
        network.run(ms(3_000));
        network.assert_converged();
        assert_eq!(network.stations[0].events.len(), events);
    }
}

#[test]
fn a_port_that_starts_anew_elsewhere_is_another() {
    let mut network = two();
    let before = neighbour(&network.stations[1]);
    network.restart(1, Some(PortId::new(0x0d0d)));
    network.run(ms(3_000));
    network.assert_converged();
    let after = neighbour(&network.stations[1]);
    let events = &network.stations[0].events;
    assert_eq!(events[events.len() - 2..], [Event::Gone(before), Event::Appeared(after)]);
}

#[test]
fn a_link_that_goes_down_takes_address_and_neighbours_with_it() {
    let mut network = two();
    let (other, id) = (neighbour(&network.stations[1]), network.id(0).unwrap());
    network.set_link(0, false);
    let station = &network.stations[0];
    assert_eq!(
        station.events[station.events.len() - 2..],
        [Event::Gone(other), Event::Released(id)]
    );
    assert_eq!(station.joined, [fip::ALL_VN2VN_ENODE_MACS].into());
    assert_eq!((station.vn2vn.address(), station.vn2vn.poll_timeout()), (None, None));
    network.run(ms(30_000));
    network.set_link(0, true);
    network.run(ms(12_000));
    network.assert_converged();
    assert_eq!(network.id(0), Some(id), "it had it before");
}

#[test]
fn an_interface_with_another_address_is_another() {
    let mut network = two();
    let before = neighbour(&network.stations[0]);
    network.stations[0].mac = Mac([2, 0, 0, 0, 7, 7]);
    network.set_link(0, true);
    network.run(ms(12_000));
    network.assert_converged();
    let events = &network.stations[1].events;
    assert!(events.contains(&Event::Gone(before)));
    // The same again is no change.
    let sent = network.stations[0].sent.len();
    network.set_link(0, true);
    assert!(network.id(0).is_some());
    assert_eq!(network.stations[0].sent.len(), sent);
}
