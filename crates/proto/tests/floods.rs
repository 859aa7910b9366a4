//! A host with a key connects beside floods of strangers, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use tyche_proto::crypto::{PublicKey, SecretKey};
use tyche_proto::wire::{
    ChannelId, Connect, ConnectFlags, Content, Control, Cookie, Discover, ExportInfo, Flags,
    Geometry, Header, Hello, Kind, Mac, Offer, SealedConnect, Ticket, Uuid, Versions,
};
use tyche_proto::{
    Access, Instant, Outgoing, PortConfig, Session, SessionConfig, connect_proof, nonce_of_question,
};
use tyche_testkit::random::Random;

use crate::pair::{FRAME_LEN, HOST, Pair, TARGET, name, seal, session};

const IDENTITY: Uuid = Uuid::from_u128(3);
/// The longest that a host may wait.
const PATIENCE: Duration = Duration::from_secs(2);

fn secret(number: u8) -> SecretKey {
    SecretKey::from_random([number; 32])
}

fn target_key() -> PublicKey {
    secret(100).public()
}

/// A target with a key, and a host that is about to look for it by broadcast.
fn asking() -> Pair {
    let keys = tyche_proto::HostKeys { secret: secret(1), target: target_key(), target_uuid: None };
    let config = SessionConfig { keys: Some(Arc::new(keys)), ..session() };
    let mut pair = Pair::asking_over(config.clone(), false);
    pair.listener.set_keys(Instant(0), secret(100));
    let hosts = [(secret(1).public(), name("alpha"))].into();
    pair.registry.set_access(Access { hosts, ..Access::default() }, []);
    let port = PortConfig {
        frame_len_max: FRAME_LEN,
        rings: [64; 2],
        target: None,
        node: None,
        transport: 0,
        routed: false,
        checks_data: false,
    };
    pair.now = Instant(1_000_000_000);
    pair.session = Session::new(config, &[port], Box::new(Random(1).numbers()), pair.now);
    pair.session.handle_timeout(pair.now);
    pair
}

/// How long the host takes to connect with a flood beside it, which is called once a millisecond.
fn time_to_connect(pair: &mut Pair, mut flood: impl FnMut(&mut Pair)) -> Duration {
    let began = pair.now;
    while !pair.session.is_live() {
        let time = pair.now.since(began);
        assert!(time < PATIENCE, "no channel: {:?}", pair.listener.rejects());
        flood(pair);
        pair.step();
    }
    pair.now.since(began)
}

/// A frame outside of channels.
fn frame(src: Mac, control: Control) -> Vec<u8> {
    let mut out = Outgoing::new();
    (out.destination, out.header) = (TARGET, Header::new(control.kind()));
    out.content = Content::Control(control);
    seal(&out, src)
}

fn mac(number: u64) -> Mac {
    let [.., a, b, c] = number.to_be_bytes();
    Mac([2, 9, 0, a, b, c])
}

fn hello(nonce: u64) -> Control {
    let frame_len = FRAME_LEN as u32;
    Control::Hello(Hello { nonce, target: IDENTITY, ticket: Ticket::NONE, frame_len })
}

/// A ticket for somebody at an address; `None` if the target drops the question.
fn ticket(pair: &mut Pair, src: Mac, nonce: u64) -> Option<Ticket> {
    pair.target_takes(&frame(src, hello(nonce)));
    let mut ticket = None;
    while let Some(answer) = pair.target_sends() {
        match &pair.out.content {
            Content::Control(Control::Hello(it)) if pair.out.destination == src => {
                assert_eq!(pair.out.header.flags, Flags::REPLY);
                ticket = Some(it.ticket);
            }
            _ => pair.host_takes(&answer),
        }
    }
    ticket
}

fn sealed(ticket: Ticket, random: &mut Random) -> SealedConnect {
    let mut message = [0; SealedConnect::MESSAGE_LEN];
    random.fill(&mut message);
    let proof = [7; SealedConnect::PROOF_LEN];
    SealedConnect { attempt: random.next(), ticket, target: IDENTITY, message, proof }
}

/// 10,000 a second from one address, by somebody who knows the target's key or does not.
#[test]
fn random_sealed_connects_take_nothing_from_others() {
    for knows in [false, true] {
        let (mut pair, mut random, src) = (asking(), Random(3), mac(1));
        let mut good = ticket(&mut pair, src, 1).unwrap();
        // For as long as the target's tokens for bursts last.
        for round in 0..3000 {
            if round % 1000 == 0 {
                good = ticket(&mut pair, src, random.next()).unwrap_or(good);
            }
            knock(&mut pair, src, good, knows, &mut random);
            pair.serve();
            while pair.target_sends().is_some() {}
            pair.now = pair.now + Duration::from_millis(1);
        }
        let fresh = ticket(&mut pair, src, 7).unwrap();
        let time = time_to_connect(&mut pair, |pair| knock(pair, src, fresh, knows, &mut random));
        assert!(time < Duration::from_millis(500), "{time:?}");
    }
}

/// Ten sealed connects.
fn knock(pair: &mut Pair, src: Mac, ticket: Ticket, knows: bool, random: &mut Random) {
    for _ in 0..10 {
        let mut connect = sealed(ticket, random);
        if knows {
            connect.proof = connect_proof(&target_key(), Cookie(0), &connect);
        }
        pair.target_takes(&frame(src, Control::SealedConnect(connect)));
    }
}

/// 100,000 Discovers and as many Hellos a second, and Connects with good tickets, from 1,000
/// addresses.
#[test]
fn questions_and_connects_of_many_addresses_take_nothing_from_a_host_with_a_key() {
    let (mut pair, mut random) = (asking(), Random(3));
    let mut flood = |pair: &mut Pair| {
        for _ in 0..100 {
            let src = mac(random.next() % 1000);
            let host = Uuid::from_u64_pair(random.next(), random.next());
            let discover = Discover::any(random.next(), host);
            pair.target_takes(&frame(src, Control::Discover(discover)));
            pair.target_takes(&frame(src, hello(random.next())));
        }
        for _ in 0..8 {
            let src = mac(random.next() % 1000);
            let Some(ticket) = ticket(pair, src, random.next()) else { continue };
            for _ in 0..4 {
                pair.target_takes(&frame(src, Control::Connect(connect(ticket, &mut random))));
            }
        }
    };
    for _ in 0..200 {
        flood(&mut pair);
        pair.serve();
        while pair.target_sends().is_some() {}
        pair.now = pair.now + Duration::from_millis(1);
    }
    let time = time_to_connect(&mut pair, flood);
    assert!(time < Duration::from_millis(500), "{time:?}");
}

/// A connect of a made-up host for reading.
fn connect(ticket: Ticket, random: &mut Random) -> Connect {
    let mut uuid = || Uuid::from_u64_pair(random.next(), random.next());
    let (host, session) = (uuid(), uuid());
    Connect {
        attempt: random.next(),
        ticket,
        target: IDENTITY,
        host,
        session,
        device: session,
        export: Uuid::from_u128(4),
        host_name: name("made-up"),
        cookie: Cookie(random.next() | 1),
        channel: ChannelId(0),
        queue_size: 8,
        rings: [64; 2],
        frame_len: FRAME_LEN as u32,
        damq_pages: 256,
        flags: ConnectFlags::READ_ONLY,
        keep_alive_ms: 3000,
    }
}

/// Forged offers for a question, of targets and addresses that are made up, come before the
/// target's.
#[test]
fn forged_offers_do_not_push_out_the_targets() {
    let key = *target_key().as_bytes();
    // What the forger knows: neither key nor UUID of the target; the key, so that each of his
    // targets is tried; or both.
    for (knows, count) in [((false, false), 500), ((true, false), 2), ((true, true), 15)] {
        let (mut pair, mut random) = (asking(), Random(5));
        let began = pair.now;
        while !pair.session.is_live() {
            assert!(pair.now.since(began) < 2 * PATIENCE, "{knows:?}");
            while let Some(asked) = pair.host_sends() {
                let nonce = match &pair.out.content {
                    Content::Control(Control::Discover(it)) => it.nonce,
                    _ => {
                        // Nobody else answers what is meant for him.
                        if pair.out.destination == TARGET {
                            pair.target_takes(&asked);
                        }
                        continue;
                    }
                };
                for _ in 0..count {
                    let target = if knows.1 { IDENTITY } else { Uuid::from_u128(99) };
                    let mut offer = forged(nonce, target, &mut random);
                    offer.key = knows.0.then_some(key);
                    let mut out = Outgoing::new();
                    out.set_control(HOST, Control::Offer(offer));
                    pair.host_takes(&out.to_bytes(mac(random.next() & 0xffff), &[]));
                }
                pair.target_takes(&asked);
            }
            pair.step();
        }
    }
}

/// An offer of the export by a target; by any if it is the one with the number 99.
fn forged(nonce: u64, target: Uuid, random: &mut Random) -> Offer {
    let any = Uuid::from_u64_pair(random.next(), random.next());
    let info = ExportInfo {
        name: name("disk"),
        uuid: Uuid::from_u128(4),
        geometry: Geometry::new(1 << 20, 512),
        held: false,
        shared: false,
    };
    Offer {
        nonce,
        versions: Versions::OURS,
        target: if target == Uuid::from_u128(99) { any } else { target },
        name: name("target"),
        first: 0,
        total: 1,
        exports: std::iter::once(info).collect(),
        key: None,
    }
}

/// A question without a proof is one of the flood's class, whatever key it is for.
#[test]
fn a_proof_for_another_key_is_none() {
    let other = nonce_of_question(Some(&secret(7).public()), Kind::Hello, 5);
    let ours = nonce_of_question(Some(&target_key()), Kind::Hello, 5);
    let mut pair = asking();
    while ticket(&mut pair, mac(1), other).is_some() {}
    assert!(ticket(&mut pair, mac(1), ours).is_some());
}
