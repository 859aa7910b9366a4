//! Sessions with keys: who is let in, and what a stranger can do. PROTOCOL.md, "Keys".

use std::sync::Arc;
use std::time::Duration;

use tyche_proto::crypto::SecretKey;
use tyche_proto::wire::{
    Accept, ChannelId, CommandFlags, Content, Control, Cookie, ExportInfo, Flags, Geometry,
    HEAD_LEN, Header, Kind, Opcode, Reason, Reject, Rejection, TAG_LEN, Text, Uuid, Versions,
};
use tyche_proto::{
    Access, Allowed, HostId, HostKeys, Identity, Listener, ListenerConfig, Operation, Outgoing,
    Problem, SessionConfig, SessionEvent,
};

use crate::pair::{FRAME_LEN, HOST, Pair, TARGET, name, seal, session};

pub(crate) fn secret(number: u8) -> SecretKey {
    SecretKey::from_random([number; 32])
}

pub(crate) fn target_key() -> SecretKey {
    secret(100)
}

/// A session with that key, for the target with `target`'s.
pub(crate) fn keyed(number: u8, target: &SecretKey) -> SessionConfig {
    let keys = HostKeys { secret: secret(number), target: target.public(), target_uuid: None };
    SessionConfig { keys: Some(Arc::new(keys)), ..session() }
}

pub(crate) fn access(hosts: &[(u8, &str)]) -> Access {
    let hosts = hosts.iter().map(|&(number, text)| (secret(number).public(), name(text)));
    Access { required: true, hosts: hosts.collect(), ..Access::default() }
}

/// A session that is about to look for a target with a key.
pub(crate) fn asking(config: SessionConfig) -> Pair {
    let mut pair = Pair::asking_over(config, false);
    pair.listener.set_keys(tyche_proto::Instant(0), target_key());
    pair.registry.set_access(access(&[(1, "alpha"), (2, "beta")]), []);
    pair
}

pub(crate) fn connected() -> Pair {
    let mut pair = asking(keyed(1, &target_key()));
    pair.connect();
    pair
}

/// Lets both talk for that long.
pub(crate) fn talk(pair: &mut Pair, time: Duration) {
    let until = pair.now + time;
    while pair.now < until {
        pair.step();
    }
}

pub(crate) fn events(pair: &mut Pair) -> Vec<SessionEvent> {
    std::iter::from_fn(|| pair.session.poll_event()).collect()
}

pub(crate) fn refusals(pair: &mut Pair) -> Vec<Reason> {
    let reason = |event| match event {
        SessionEvent::Rejected(rejection) => Some(rejection.reason),
        _ => None,
    };
    events(pair).into_iter().filter_map(reason).collect()
}

/// A write of a sector.
pub(crate) const WRITE: Operation =
    Operation { opcode: Opcode::Write, flags: CommandFlags::NONE, offset: 0, len: 512 };

pub(crate) fn write(pair: &mut Pair) -> Vec<u8> {
    pair.session.submit(pair.now, WRITE).unwrap();
    pair.host_sends().unwrap()
}

#[test]
fn frames_of_a_channel_are_sealed() {
    let mut pair = connected();
    let frame = write(&mut pair);
    let header = Header::parse(frame.first_chunk().unwrap()).unwrap();
    assert_eq!((header.kind, header.flags), (Kind::Data, Flags::NONE));
    assert_eq!(header.payload_crc, 0, "the tag covers all");
    let clear = HEAD_LEN + header.data_len as usize + usize::from(header.entries) * 24;
    assert_eq!(frame.len(), clear + TAG_LEN);
    assert!(frame[HEAD_LEN..].windows(8).all(|it| it != [0; 8]), "data were zeroes");
    pair.target_takes(&frame);
    assert_eq!(pair.listener.rejects().total(), 0);
    assert!(std::iter::from_fn(|| pair.listener.poll_event()).count() > 0, "it is executed");
    let info = pair.registry.sessions(pair.export)[0].clone();
    assert_eq!((info.host_name, info.key), (name("alpha"), Some(secret(1).public())));
    let machine = Uuid::from_u128(1);
    assert_eq!(info.host, Identity::Keyed { name: name("alpha"), machine });
}

#[test]
fn the_mark_of_a_made_up_frame_counts_for_nothing() {
    let mut pair = connected();
    let at_target = |pair: &Pair| pair.listener.stats().congested;
    let at_host = |pair: &Pair| pair.session.stats().congested;
    let frame = write(&mut pair);
    let mut forged = frame.clone();
    *forged.last_mut().unwrap() ^= 1;
    pair.target_takes_marked(&forged);
    assert_eq!((at_target(&pair), pair.listener.rejects().of(Reject::Forged)), (0, 1));
    pair.target_takes_marked(&frame);
    assert_eq!(at_target(&pair), 1);
    pair.target_takes_marked(&frame);
    assert_eq!(at_target(&pair), 1, "a repeated frame is none of the host's");
    talk(&mut pair, Duration::from_millis(2));
    let write = Operation { opcode: Opcode::Read, flags: CommandFlags::NONE, offset: 0, len: 512 };
    pair.session.submit(pair.now, write).unwrap();
    let frame = pair.host_sends().unwrap();
    pair.target_takes(&frame);
    pair.now = pair.now + Duration::from_millis(2);
    let answer = pair.target_sends().expect("an ack");
    let mut forged = answer.clone();
    *forged.last_mut().unwrap() ^= 1;
    pair.host_takes_marked(&forged);
    assert_eq!(at_host(&pair), 0);
    pair.host_takes_marked(&answer);
    assert_eq!(at_host(&pair), 1);
}

#[test]
fn a_frame_that_was_changed_or_seen_has_no_effect() {
    let mut pair = connected();
    let frame = write(&mut pair);
    while pair.listener.poll_event().is_some() {}
    let total = |pair: &Pair| pair.listener.rejects().total();
    for byte in 14..frame.len() {
        let mut forged = frame.clone();
        forged[byte] ^= 1;
        // As somebody would who knows the checksum of the header, which is no secret.
        mend(&mut forged);
        if forged == frame {
            continue;
        }
        let before = total(&pair);
        pair.target_takes(&forged);
        assert_eq!(total(&pair), before + 1, "byte {byte}");
        assert_eq!(pair.listener.poll_event(), None, "byte {byte}");
    }
    let rejects: Vec<_> = pair.listener.rejects().iter().collect();
    let forged = pair.listener.rejects().of(Reject::Forged) as usize;
    assert!(forged >= frame.len() - HEAD_LEN, "{rejects:?} of {}", frame.len());
    pair.target_takes(&frame);
    assert!(pair.listener.poll_event().is_some());
    while pair.listener.poll_event().is_some() {}
    for _ in 0..3 {
        pair.target_takes(&frame);
        assert_eq!(pair.listener.poll_event(), None);
    }
    assert_eq!(pair.listener.rejects().of(Reject::Replayed), 3);
    // The other way.
    pair.now = pair.now + Duration::from_millis(10);
    // Forged cookies were answered by a Reset, which names none of the host's channels.
    let resets = std::iter::from_fn(|| pair.target_sends());
    let answer = resets.last().unwrap();
    assert_eq!(pair.out.header.kind, Kind::Ack);
    for _ in 0..2 {
        pair.host_takes(&answer);
    }
    assert_eq!(pair.session.rejects().iter().collect::<Vec<_>>(), [(Reject::Replayed, 1)]);
}

/// Corrects the checksum of a frame's header.
fn mend(frame: &mut [u8]) {
    let crc = tyche_proto::wire::Checksum::of(&frame[14..60]);
    frame[60..64].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn answers_in_the_clear_are_hints() {
    let mut pair = asking(keyed(1, &target_key()));
    // Until the host has asked for a channel.
    let mut attempt = None;
    for _ in 0..100 {
        while let Some(frame) = pair.host_sends() {
            if let Content::Control(Control::SealedConnect(connect)) = &pair.out.content {
                attempt = Some(connect.attempt);
            }
            pair.target_takes(&frame);
        }
        if attempt.is_none() {
            pair.step();
        }
    }
    let attempt = attempt.unwrap();
    for reason in [Reason::Held, Reason::UnknownExport, Reason::KeyRequired] {
        let rejection = Rejection {
            attempt,
            versions: Versions::OURS,
            target: Uuid::from_u128(3),
            reason,
            detail: Text::EMPTY,
        };
        let mut out = Outgoing::new();
        out.set_control(HOST, Control::Reject(rejection));
        pair.host_takes(&out.to_bytes(TARGET, &[]));
    }
    assert_eq!(pair.session.rejects().of(Reject::Unexpected), 3);
    assert_eq!(refusals(&mut pair), []);
    pair.connect();
}

/// Otherwise another thread of the link would decide it again.
#[test]
fn a_sealed_connect_is_bound_to_the_cookie_that_links_sort_it_by() {
    let mut pair = asking(keyed(1, &target_key()));
    let mut found = None;
    for _ in 0..100 {
        while let Some(frame) = pair.host_sends() {
            if frame[15] == Kind::SealedConnect as u8 {
                found.get_or_insert(frame.clone());
            } else {
                pair.target_takes(&frame);
            }
        }
        if found.is_none() {
            pair.step();
        }
    }
    let frame = found.unwrap();
    let mut other = frame.clone();
    other[20] ^= 1;
    mend(&mut other);
    pair.target_takes(&other);
    pair.serve();
    assert_eq!(pair.listener.rejects().of(Reject::Forged), 1);
    assert!(pair.registry.sessions(pair.export).is_empty());
    pair.target_takes(&frame);
    pair.serve();
    assert_eq!(pair.registry.sessions(pair.export).len(), 1);
}

#[test]
fn a_target_with_another_key_is_not_talked_to() {
    let mut pair = asking(keyed(1, &secret(7)));
    talk(&mut pair, Duration::from_secs(3));
    assert!(!pair.session.is_live());
    assert_eq!(pair.session.problem(), Some(Problem::NoAccept));
    assert!(pair.listener.rejects().of(Reject::Forged) > 0);
    assert!(pair.registry.sessions(pair.export).is_empty());
}

#[test]
fn a_target_without_a_key_says_so_and_is_not_talked_to() {
    let mut pair = Pair::asking_over(keyed(1, &target_key()), false);
    talk(&mut pair, Duration::from_secs(3));
    assert!(!pair.session.is_live() && !pair.session.is_over());
    assert_eq!(pair.session.problem(), Some(Problem::NoKey));
}

/// Somebody without a key accepts the connects of a host that knows the target's key.
#[test]
fn an_accept_in_the_clear_is_not_the_targets() {
    let mut pair = asking(keyed(1, &secret(7)));
    let until = pair.now + Duration::from_secs(3);
    while pair.now < until {
        while let Some(frame) = pair.host_sends() {
            pair.target_takes(&frame);
            let Content::Control(Control::SealedConnect(connect)) = &pair.out.content else {
                continue;
            };
            let accept = Accept {
                attempt: connect.attempt,
                target: connect.target,
                generation: Uuid::nil(),
                export: pair.registry.export(pair.export).uuid,
                geometry: Geometry::new(1 << 20, 512),
                cookie: Cookie(9),
                channel: ChannelId(0),
                queue_size: 1,
                rings: [64; 2],
                frame_len: FRAME_LEN as u32,
                damq_pages: 256,
                checksum: true,
                stages: false,
                block_status: false,
                keep_alive_ms: 3000,
            };
            let mut out = Outgoing::new();
            out.set_control(HOST, Control::Accept(accept));
            pair.host_takes(&seal(&out, TARGET));
        }
        pair.step();
    }
    assert!(!pair.session.is_live() && !pair.session.is_over());
    assert_eq!(pair.session.problem(), Some(Problem::Unsealed));
}

#[test]
fn who_has_no_key_or_an_unknown_one_is_refused() {
    for (config, reason) in
        [(session(), Reason::KeyRequired), (keyed(3, &target_key()), Reason::Denied)]
    {
        let mut pair = asking(config);
        talk(&mut pair, Duration::from_secs(1));
        assert_eq!(refusals(&mut pair), [reason]);
        assert!(pair.session.is_over());
    }
}

#[test]
fn an_export_may_be_for_some_hosts_only() {
    let hosts = |names: &[&str]| Allowed {
        names: Some(names.iter().map(|text| name(text)).collect()),
        ..Allowed::default()
    };
    let mut pair = asking(keyed(1, &target_key()));
    pair.registry.set_allowed(pair.export, hosts(&["beta"]));
    talk(&mut pair, Duration::from_secs(1));
    assert_eq!(refusals(&mut pair), [Reason::Denied]);
    let mut pair = asking(session());
    let access_of_alpha = Access { required: false, ..access(&[(1, "alpha")]) };
    pair.registry.set_access(access_of_alpha, [(pair.export, hosts(&["alpha"]))]);
    talk(&mut pair, Duration::from_secs(1));
    assert_eq!(refusals(&mut pair), [Reason::KeyRequired], "it can't prove that it is alpha");
    let mut pair = connected();
    assert!(pair.registry.set_allowed(pair.export, hosts(&["alpha"])).is_empty());
    assert!(pair.session.is_live());
    let closed = pair.registry.set_allowed(pair.export, hosts(&["beta"]));
    assert_eq!(closed.len(), 1);
    talk(&mut pair, Duration::from_secs(12));
    assert_eq!(refusals(&mut pair), [Reason::Denied]);
}

#[test]
fn a_host_that_has_to_be_named_is_let_in_and_closed_as_exports_name_it() {
    let only_named = Access { only_named: [name("alpha")].into(), ..access(&[(1, "alpha")]) };
    let also = Allowed { also: [name("alpha")].into(), ..Allowed::default() };
    let mut pair = asking(keyed(1, &target_key()));
    pair.registry.set_access(only_named.clone(), []);
    talk(&mut pair, Duration::from_secs(1));
    assert_eq!(refusals(&mut pair), [Reason::Denied]);
    let mut pair = connected();
    assert!(pair.registry.set_access(only_named, [(pair.export, also)]).is_empty());
    assert!(pair.session.is_live());
    assert_eq!(pair.registry.set_allowed(pair.export, Allowed::default()).len(), 1);
}

#[test]
fn a_key_that_is_removed_ends_its_sessions_and_another_of_the_same_host_does_not() {
    let mut pair = connected();
    let closed = pair.registry.set_access(access(&[(1, "alpha"), (4, "alpha")]), []);
    assert!(closed.is_empty() && pair.session.is_live());
    let closed = pair.registry.set_access(access(&[(4, "alpha")]), []);
    assert_eq!(closed[0].host_name, name("alpha"));
    pair.serve();
    write(&mut pair);
    talk(&mut pair, Duration::from_secs(12));
    assert_eq!(refusals(&mut pair), [Reason::Denied]);
    assert!(pair.session.is_over());
}

/// The target that hosts find, and that answers nobody who does not know its key.
#[test]
fn a_silent_target_answers_only_who_knows_its_key() {
    let silent = |config| {
        let mut pair = asking(config);
        pair.listener.be_silent();
        pair
    };
    let mut pair = silent(keyed(1, &target_key()));
    pair.connect();
    let frame = write(&mut pair);
    assert_eq!(pair.listener.rejects().total(), 0);
    // Hosts without a key, and with that of another target.
    for config in [session(), keyed(1, &secret(7))] {
        let mut pair = silent(config);
        talk(&mut pair, Duration::from_secs(3));
        assert_eq!(pair.session.problem(), Some(Problem::NoOffer));
        assert!(pair.listener.rejects().of(Reject::Forged) > 0);
    }
    // Somebody who knows what the target is called, and has a ticket from before.
    let mut pair = asking(session());
    let mut asked = Vec::new();
    for _ in 0..100 {
        while let Some(frame) = pair.host_sends() {
            asked.push(frame.clone());
            pair.target_takes(&frame);
        }
        pair.step();
    }
    let kinds = [Kind::Discover, Kind::Hello, Kind::Connect];
    assert!(kinds.iter().all(|&kind| asked.iter().any(|frame| frame[15] == kind as u8)));
    pair.listener.be_silent();
    let mut version = asked[0].clone();
    version[14] = 3;
    asked.extend([version, frame]);
    for frame in &asked {
        let before = pair.listener.rejects().total();
        pair.now = pair.now + Duration::from_millis(10);
        pair.target_takes(frame);
        pair.serve();
        assert_eq!(pair.target_sends(), None, "{:?} is answered", pair.out.header.kind);
        assert_eq!(pair.listener.rejects().total(), before + 1);
    }
}

#[test]
fn who_is_refused_is_reported_and_who_repeats_is_not() {
    let mut pair = asking(keyed(3, &target_key()));
    talk(&mut pair, Duration::from_secs(1));
    let refusal = pair.listener.poll_refusal().unwrap();
    assert_eq!((refusal.from, refusal.reason, refusal.is_known), (HOST, Reason::Denied, false));
    assert_eq!((refusal.host_name, refusal.key), (name("host"), Some(secret(3).public())));
    assert_eq!(refusal.export_name, name("disk"));
    assert_eq!(pair.listener.poll_refusal(), None);
    // As the target calls it.
    let mut pair = asking(keyed(1, &target_key()));
    let denied = [HostId::Name(name("alpha"))].into();
    pair.registry.set_allowed(pair.export, Allowed { denied, ..Allowed::default() });
    talk(&mut pair, Duration::from_secs(1));
    let refusal = pair.listener.poll_refusal().unwrap();
    assert_eq!((refusal.host_name, refusal.is_known), (name("alpha"), true));
    // One that is let in.
    let mut pair = connected();
    assert_eq!(pair.listener.poll_refusal(), None);
}

#[test]
fn a_reset_needs_the_token_of_its_channel() {
    let mut pair = connected();
    let frame = write(&mut pair);
    // The target starts anew, with the same key.
    let mut next = asking(keyed(1, &target_key()));
    let (head, payload) = frame.split_first_chunk().unwrap();
    let mut opened = tyche_proto::Opened::default();
    next.listener.handle_frame(pair.now, (head, payload), &mut opened);
    let reset = next.target_sends().unwrap();
    let Content::Control(Control::Reset(it)) = &mut next.out.content else { panic!("a reset") };
    it.token.0[5] ^= 1;
    pair.host_takes(&next.out.to_bytes(TARGET, &[]));
    assert_eq!(pair.session.rejects().of(Reject::Unexpected), 1);
    assert!(pair.session.is_live());
    pair.host_takes(&reset);
    assert!(!pair.session.is_live());
}

#[test]
fn another_link_of_the_target_has_other_tokens() {
    let mut pair = connected();
    let frame = write(&mut pair);
    // Somebody sends the frame to a link that does not have the channel, and passes on the answer.
    let mut other = asking(keyed(1, &target_key()));
    let config =
        ListenerConfig { link: 1, frame_len_max: FRAME_LEN, rings: [64; 2], routed: false };
    other.listener = Listener::new(config, Uuid::from_u128(3), Box::new(|| 1));
    other.listener.set_keys(tyche_proto::Instant(0), target_key());
    other.target_takes(&frame);
    let reset = other.target_sends().unwrap();
    assert_eq!(other.out.header.kind, Kind::Reset);
    pair.host_takes(&reset);
    assert_eq!(pair.session.rejects().of(Reject::Unexpected), 1);
    assert!(pair.session.is_live());
}

/// Has somebody else answer each Discover first, with a changed Offer of the target's.
fn mislead(pair: &mut Pair, change: impl Fn(&mut ExportInfo)) {
    for _ in 0..100 {
        while let Some(frame) = pair.host_sends() {
            pair.target_takes(&frame);
        }
        pair.listener.serve_requests(pair.now, &mut pair.registry);
        while let Some(frame) = pair.target_sends() {
            if let Content::Control(Control::Offer(offer)) = &mut pair.out.content {
                change(&mut offer.exports[0]);
                let forged = pair.out.to_bytes(TARGET, &[]);
                pair.host_takes(&forged);
            }
            pair.host_takes(&frame);
        }
        pair.step();
    }
}

#[test]
fn an_offer_of_another_disk_does_not_end_a_session() {
    let mut pair = asking(keyed(1, &target_key()));
    mislead(&mut pair, |export| export.uuid = Uuid::from_u128(66));
    assert!(refusals(&mut pair).iter().all(|reason| *reason == Reason::UnknownExport));
    assert!(!pair.session.is_over());
    pair.connect();
}

#[test]
fn an_offer_of_a_disk_to_read_does_not_keep_a_session_from_writing() {
    let mut pair = asking(keyed(1, &target_key()));
    mislead(&mut pair, |export| export.geometry.read_only = true);
    assert!(pair.session.is_live());
    assert!(!pair.session.export().unwrap().geometry.read_only);
}
