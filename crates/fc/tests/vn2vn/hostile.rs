//! Frames that no honest port sends: each is a counter, or has a bounded effect.

use tyche_fc::neighbour::{Event, NEIGHBOURS_MAX};
use tyche_fc::vn2vn::Ignored;
use tyche_fc::wire::fip::{self, Flags, Message, Operation};
use tyche_fc::wire::{Ethernet, Mac, PortId, Wwn};
use tyche_testkit::random::Random;

use crate::air::ms;
use crate::network::{Network, claim, forged, stranger};

const A: u64 = 0x2000_0000_0000_0a0a;

fn one() -> Network {
    let mut network = Network::new(1);
    network.add(A, None);
    network.run(ms(2_000));
    network.assert_converged();
    network
}

fn ignored(network: &Network) -> Ignored {
    network.stations[0].vn2vn.ignored()
}

#[test]
fn impossible_ports_are_counted_and_have_no_effect() {
    let mut network = one();
    let sent = network.stations[0].sent.len();
    let valid = claim(7, 0x0707);
    let mut wrong = vec![claim(7, 0), claim(7, 0xffff), claim(7, 0x01_0707), valid, valid];
    wrong[3].port.port.mac = Mac([0x0e, 0xfd, 0, 0, 7, 8]);
    wrong[4].port.mac = Mac([0x03, 0, 0, 0, 9, 9]);
    for (count, claim) in (1..).zip(wrong) {
        network.inject(&forged(Message::ClaimNotification(claim), Flags::EMPTY));
        network.run(ms(30));
        let wanted = Ignored { wrong_address: count, ..Ignored::default() };
        assert_eq!(ignored(&network), wanted);
    }
    network.inject(&forged(Message::ClaimNotification(claim(A, 0x0707)), Flags::EMPTY));
    network.run(ms(30));
    assert_eq!(ignored(&network).own_name, 1);
    assert_eq!(network.stations[0].sent.len(), sent);
    network.set_link(0, false);
    let frame = forged(Message::ClaimNotification(valid), Flags::EMPTY);
    let frame = fip::Frame::parse(&frame).unwrap();
    network.stations[0].vn2vn.handle_frame(network.now, &frame);
    assert_eq!(ignored(&network).down, 1);
}

#[test]
fn there_is_room_for_so_many_neighbours_until_they_are_silent() {
    let mut network = one();
    let all = NEIGHBOURS_MAX as u32 + 20;
    for number in 1..=all {
        let claim = claim(u64::from(number), number);
        network.inject(&forged(Message::ClaimNotification(claim), Flags::EMPTY));
        network.run(ms(25));
        network.inject(&forged(Message::Beacon(claim.port), Flags::EMPTY));
        network.run(ms(25));
    }
    assert_eq!(network.stations[0].vn2vn.neighbours().count(), NEIGHBOURS_MAX);
    assert_eq!(ignored(&network).no_room, 20);
    network.run(ms(20_000));
    assert_eq!(network.stations[0].vn2vn.neighbours().count(), 0);
}

#[test]
fn a_beacon_alone_makes_no_neighbour_but_asks_for_a_claim_now_and_then() {
    let mut network = one();
    let sent = network.stations[0].sent.len();
    for _ in 0..40 {
        network.inject(&forged(Message::Beacon(stranger(7, 0x0707)), Flags::EMPTY));
        network.run(ms(50));
    }
    let asked = network.stations[0].sent[sent..].iter();
    let claims = asked.filter(|it| it.1 == Operation::ClaimNotification).count();
    assert!((4..=6).contains(&claims), "{claims} claims in two seconds");
    assert_eq!(network.stations[0].vn2vn.neighbours().count(), 0);
}

#[test]
fn a_port_that_has_been_asked_for_a_claim_shows_itself_to_who_has_just_heard_of_it() {
    let mut network = one();
    network.run(ms(3_000));
    let sent = network.stations[0].sent.len();
    network.inject(&forged(Message::Beacon(stranger(7, 0x0707)), Flags::EMPTY));
    network.run(ms(430));
    let sent: Vec<_> = network.stations[0].sent[sent..].iter().map(|it| it.1).collect();
    assert_eq!(sent, [Operation::ClaimNotification, Operation::Beacon]);
}

#[test]
fn nobody_delays_the_first_probe() {
    let mut network = Network::new(1);
    let start = network.now;
    network.add(A, None);
    // Whichever it wants next is taken, more often than it may collide.
    for id in (1..0xffff).cycle().take(12 * 0xfffe) {
        let message = Message::ProbeRequest(stranger(u64::MAX, id));
        let ethernet = Ethernet { destination: fip::ALL_VN2VN_ENODE_MACS, source: Mac([2; 6]) };
        let frame = fip::Frame::new(ethernet, Flags::EMPTY, message);
        network.stations[0].vn2vn.handle_frame(start, &frame);
    }
    network.run(ms(100));
    assert_eq!(network.stations[0].sent[0].1, Operation::ProbeRequest);
    network.run(ms(1_000));
    assert!(network.id(0).is_some_and(|id| id != PortId::new(0x0a0a)));
}

#[test]
fn a_flood_of_claims_is_answered_in_part() {
    let mut network = one();
    let sent = network.stations[0].sent.len();
    let flood = forged(Message::ClaimNotification(claim(7, 0x0707)), Flags::EMPTY);
    for _ in 0..100 {
        for _ in 0..100 {
            network.inject(&flood);
        }
        network.run(ms(1));
    }
    network.run(ms(50));
    let answers = network.stations[0].sent.len() - sent;
    assert!((300..450).contains(&answers), "{answers} answers to 10,000 claims in 0.1 s");
    assert!(ignored(&network).busy > 9_000);
}

#[test]
fn a_port_that_is_denied_every_address_asks_rarely() {
    let mut network = Network::new(1);
    network.add(A, None);
    let (start, mut seen) = (network.now, 0);
    while network.now < start + ms(100_000) {
        network.run(ms(5));
        for (_, operation, frame) in network.stations[0].sent.split_off(0) {
            if operation == Operation::ProbeRequest {
                seen += 1;
                let Message::ProbeRequest(port) = fip::Frame::parse(&frame).unwrap().message else {
                    unreachable!("a probe")
                };
                let taken = stranger(1, port.port.id.to_u32());
                network.inject(&forged(Message::ProbeReply(taken), Flags::EMPTY));
            }
        }
    }
    assert_eq!(network.id(0), None);
    assert!((18..=24).contains(&seen), "{seen} probes in 100 s");
    network.run(ms(12_000));
    assert!(network.id(0).is_some(), "it has not given up");
}

#[test]
fn a_living_neighbour_is_not_displaced_by_a_lower_name() {
    let mut network = one();
    let both = [claim(9, 0x0707), claim(8, 0x0707)];
    network.inject(&forged(Message::ClaimNotification(both[0]), Flags::EMPTY));
    network.run(ms(30));
    network.inject(&forged(Message::Beacon(both[0].port), Flags::EMPTY));
    network.run(ms(30));
    network.inject(&forged(Message::ClaimNotification(both[1]), Flags::EMPTY));
    network.run(ms(30));
    assert_eq!(ignored(&network).conflict, 1);
    let names = |network: &Network| {
        network.stations[0].vn2vn.neighbours().map(|it| it.wwpn).collect::<Vec<_>>()
    };
    assert_eq!(names(&network), [Wwn(9)]);
    network.inject(&forged(Message::ClaimNotification(claim(10, 0x0707)), Flags::EMPTY));
    network.run(ms(30));
    assert!(names(&network).is_empty(), "a higher one displaces it, and has sent no beacon yet");
}

#[test]
fn claims_of_our_own_address_move_only_a_lower_name() {
    let mut network = one();
    network.run(ms(2_000));
    network.inject(&forged(Message::ClaimNotification(claim(7, 0x0a0a)), Flags::EMPTY));
    network.run(ms(30));
    assert_eq!(network.stations[0].sent.last().unwrap().1, Operation::ClaimNotification);
    assert_eq!(network.id(0), Some(PortId::new(0x0a0a)));
    network.inject(&forged(Message::ClaimNotification(claim(A + 1, 0x0a0a)), Flags::EMPTY));
    network.run(ms(30));
    assert_eq!(network.id(0), None);
    let events = &network.stations[0].events;
    assert_eq!(events.last(), Some(&Event::Released(PortId::new(0x0a0a))));
    network.run(ms(2_000));
    assert!(network.id(0).is_some_and(|id| id != PortId::new(0x0a0a)));
}

/// It may not hear our claims, so nobody else can end this.
#[test]
fn a_beacon_with_our_own_address_moves_us_if_its_name_is_higher() {
    let mut network = one();
    network.run(ms(2_000));
    network.inject(&forged(Message::Beacon(stranger(A - 1, 0x0a0a)), Flags::EMPTY));
    network.run(ms(30));
    assert_eq!(network.stations[0].sent.last().unwrap().1, Operation::ClaimNotification);
    assert_eq!(network.id(0), Some(PortId::new(0x0a0a)));
    network.inject(&forged(Message::Beacon(stranger(A + 1, 0x0a0a)), Flags::EMPTY));
    network.run(ms(30));
    assert_eq!(network.id(0), None);
    network.run(ms(2_000));
    assert_ne!(network.id(0), Some(PortId::new(0x0a0a)));
}

#[test]
fn bytes_of_any_kind_break_nothing() {
    for seed in 0..200 {
        let (mut random, mut network) = (Random(seed), one());
        network.add(A + 1, None);
        for _ in 0..200 {
            let id = if random.chance(3) { 0x0a0a } else { random.below(0x1_0000) as u32 };
            let claim = claim(random.below(4), id);
            let message = match random.below(5) {
                0 => Message::ProbeRequest(claim.port),
                1 => Message::ProbeReply(claim.port),
                2 => Message::ClaimNotification(claim),
                3 => Message::ClaimResponse(claim),
                _ => Message::Beacon(claim.port),
            };
            let flags = if random.chance(2) { Flags::REC } else { Flags::EMPTY };
            let mut frame = forged(message, flags);
            for _ in 0..random.below(3) {
                let bit = random.below(8 * (frame.len() as u64 - 14)) as usize;
                frame[14 + bit / 8] ^= 1 << (bit % 8);
            }
            network.inject(&frame);
            network.run(ms(random.below(300)));
        }
        // Strangers are silent from now on.
        network.run(ms(60_000));
        network.assert_converged();
    }
}
