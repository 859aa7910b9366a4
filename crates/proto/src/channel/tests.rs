use tyche_wire::{EntryList, Event};

use super::*;
use crate::rules::AllRules;

/// A channel of standard frames that stays alive for a minute.
pub(crate) fn config() -> ChannelConfig {
    let side = |n| (ChannelId(n), Cookie(u64::from(n)));
    ChannelConfig {
        own: side(1),
        peer: side(2),
        peer_mac: Mac([2; 6]),
        frame_len: 1514,
        rx_rings: [256; 2],
        tx_rings: [256; 2],
        keep_alive_ns: 60_000_000_000,
        checksum: true,
        stages: false,
        block_status: true,
        batch: BatchPolicy::Natural,
    }
}

/// Bytes of data that fill a frame together with one entry.
const DATA: usize = 1514 - HEAD_LEN - ENTRY_LEN;
/// Frames of full length in the first window.
const FLIGHT: u32 = 10;

/// A channel with a full window in flight, and how many frames that is.
fn full_flight() -> (Channel<AllRules>, u32) {
    let mut channel = Channel::<AllRules>::new(config(), Instant(0));
    let (entry, mut frames) = ([Entry::Event(Event::Removed)], 0);
    while channel.may_send(Instant(0), Ring::Command) {
        channel.send(Instant(0), Ring::Command, &entry, DATA);
        frames += 1;
    }
    assert_eq!((frames, channel.in_flight()), (FLIGHT, u64::from(FLIGHT) * 1514));
    (channel, FLIGHT)
}

#[test]
fn entries_are_counted_once_and_the_tuned_size_with_them() {
    let batch = BatchPolicy::Adaptive;
    let mut channel = Channel::<AllRules>::new(ChannelConfig { batch, ..config() }, Instant(0));
    let size = u64::from(channel.batching.size());
    for entries in [1, 3] {
        let entries = vec![Entry::Event(Event::Removed); entries];
        channel.send(Instant(0), Ring::Command, &entries, 0);
    }
    let mut now = Instant(0);
    assert!(!expire(&mut channel, &mut now).is_empty(), "frames are sent again");
    let ChannelStats { batches, batch_entries, batch_sizes, .. } = channel.stats;
    assert_eq!((batches, batch_entries, batch_sizes), (2, 4, 2 * size));
    let (natural, frames) = full_flight();
    assert_eq!((natural.stats.batches, natural.stats.batch_sizes), (u64::from(frames), 0));
}

/// Lets the next timer expire, and returns what is sent again.
fn expire(channel: &mut Channel<AllRules>, now: &mut Instant) -> Vec<Header> {
    *now = channel.poll_timeout().max(*now);
    channel.handle_timeout(*now).unwrap();
    std::iter::from_fn(|| channel.resend(*now, &mut EntryList::new(), |_| true)).collect()
}

/// Has the channel take a frame without a body.
fn take(channel: &mut Channel<AllRules>, now: Instant, header: &Header) {
    let arrival = channel.check(header, &Body::Empty).unwrap();
    channel.receive(now, header, &Body::Empty, arrival);
}

#[test]
fn late_acks_cost_one_probe() {
    let (mut channel, flight) = full_flight();
    let mut now = Instant(0);
    let probes = expire(&mut channel, &mut now);
    assert_eq!(probes.len(), 1);
    assert_eq!(probes[0].position, Position(flight - 1));
    assert!(probes[0].flags.contains(Flags::ACK_REQUEST));
    let acks = [Position(flight), Position(0)];
    let ack = Header { acks, packet: PacketNumber(1), ..Header::new(Kind::Ack) };
    take(&mut channel, now, &ack);
    assert_eq!((channel.in_flight(), channel.congestion_window()), (0, 2 * FLIGHT - 1));
    assert_eq!(channel.poll_timeout(), now + Duration::from_secs(60) / 3);
}

#[test]
fn a_flight_that_is_lost_whole_is_sent_again_whole() {
    let (mut channel, flight) = full_flight();
    let mut now = Instant(0);
    assert_eq!(expire(&mut channel, &mut now).len(), 1, "the probe is lost, too");
    let mut positions = Vec::new();
    while positions.len() < flight as usize {
        now = channel.poll_timeout().max(now);
        channel.handle_timeout(now).unwrap();
        while let Some(header) = channel.resend(now, &mut EntryList::new(), |_| true) {
            positions.push(header.position);
            // The peer acknowledges each: the window opens again.
            let acks = [header.position.plus(1), Position(0)];
            let ack = Header { acks, packet: header.packet, ..Header::new(Kind::Ack) };
            take(&mut channel, now, &ack);
        }
    }
    assert_eq!(positions, (0..flight).map(Position).collect::<Vec<_>>());
    assert!(now.since(Instant(0)) < Duration::from_millis(60), "two expiries, not one a frame");
    assert_eq!(channel.in_flight(), 0);
}

#[test]
fn packet_numbers_that_are_too_old_are_rejected_just_beyond_the_edge() {
    let mut channel = Channel::<AllRules>::new(config(), Instant(0));
    let keepalive = |packet| Header { packet, ..Header::new(Kind::Keepalive) };
    let newest = 5 + PACKET_AGE_MAX;
    take(&mut channel, Instant(1), &keepalive(PacketNumber(newest)));
    assert_eq!(
        channel.check(&keepalive(PacketNumber(4)), &Body::Empty),
        Err(Reject::Stale),
        "one further back"
    );
    take(&mut channel, Instant(2), &keepalive(PacketNumber(5)));
    assert_eq!(channel.newest, PacketNumber(newest));
}

#[test]
fn data_are_checksummed_as_agreed_or_rejected() {
    for checksum in [false, true] {
        let config = ChannelConfig { checksum, ..config() };
        let channel = Channel::<AllRules>::new(config, Instant(0));
        for flags in [Flags::NONE, Flags::CHECKSUMMED] {
            let header = Header { flags, packet: PacketNumber(1), ..Header::new(Kind::Data) };
            let is_agreed = checksum == (flags == Flags::CHECKSUMMED);
            let expected = if is_agreed { Ok(Arrival::New) } else { Err(Reject::Flags) };
            assert_eq!(channel.check(&header, &Body::Empty), expected);
        }
    }
}

#[test]
fn frames_longer_than_what_was_agreed_are_rejected() {
    let channel = Channel::<AllRules>::new(config(), Instant(0));
    let flags = if config().checksum { Flags::CHECKSUMMED } else { Flags::NONE };
    let header = Header { packet: PacketNumber(1), flags, ..Header::new(Kind::Data) };
    let long = Header { data_len: 1514 - 64 - 23, entries: 1, ..header };
    assert_eq!(channel.check(&long, &Body::Empty), Err(Reject::Length));
    let fits = Header { data_len: 1514 - 64 - 24, entries: 1, ..header };
    assert_eq!(channel.check(&fits, &Body::Empty), Ok(Arrival::New));
}

#[test]
fn a_peer_that_was_never_heard_is_asked_again_and_again() {
    let mut channel = Channel::<AllRules>::new(config(), Instant(0));
    channel.ask_for_life(Instant(0));
    let mut out = Outgoing::new();
    for round in 0..5 {
        let now = Instant(0) + UNHEARD_INTERVAL * round;
        channel.handle_timeout(now).unwrap();
        assert!(channel.poll_upkeep(now, &mut out), "round {round}");
        assert_eq!(out.header.kind, Kind::Keepalive);
        assert_eq!(channel.asked_for(now), UNHEARD_INTERVAL * round, "from the first question on");
        assert!(!channel.poll_upkeep(now, &mut out));
        assert_eq!(channel.poll_timeout(), now + UNHEARD_INTERVAL);
    }
    let ack = Header { packet: PacketNumber(1), ..Header::new(Kind::Ack) };
    take(&mut channel, Instant(0) + UNHEARD_INTERVAL * 4, &ack);
    assert!(channel.poll_timeout() > Instant(0) + UNHEARD_INTERVAL * 5);
}

#[test]
fn a_congested_network_is_told_once_and_shrinks_the_window_once_a_flight() {
    let (mut channel, flight) = full_flight();
    let now = Instant(1000);
    channel.note_congestion();
    let entry = [Entry::Event(Event::Removed)];
    let flags = [(), ()].map(|()| channel.send(now, Ring::Data, &entry, 0).flags);
    assert!(flags[0].contains(Flags::CONGESTED) && !flags[1].contains(Flags::CONGESTED));
    channel.note_congestion();
    channel.ack_at = Some(now);
    let mut out = Outgoing::new();
    assert!(channel.poll_upkeep(now, &mut out) && out.header.kind == Kind::Ack);
    assert!(out.header.flags.contains(Flags::CONGESTED));

    let marked = |packet, acked| Header {
        acks: [Position(acked), Position(0)],
        packet: PacketNumber(packet),
        flags: Flags::CONGESTED,
        ..Header::new(Kind::Ack)
    };
    take(&mut channel, now, &marked(1, 1));
    let once = channel.congestion_window();
    assert!(once < flight);
    for (packet, acked) in [(2, flight / 2), (3, flight)] {
        take(&mut channel, now, &marked(packet, acked));
        assert!(channel.congestion_window() >= once, "frames of the same flight");
    }
    channel.send(now, Ring::Command, &entry, 0);
    take(&mut channel, now, &marked(4, flight + 1));
    assert!(channel.congestion_window() < once, "a frame that was sent after that");
}

#[test]
fn a_slow_path_gets_short_bursts() {
    let (mut channel, flight) = full_flight();
    // An ack of half the flight after 100 ms: some 150 kB/s.
    let acks = [Position(flight / 2), Position(0)];
    let ack = Header { acks, packet: PacketNumber(1), window: 256, ..Header::new(Kind::Ack) };
    let mut now = Instant(100_000_000);
    take(&mut channel, now, &ack);
    assert_eq!(channel.burst, 2 * 1514);
    let entry = [Entry::Event(Event::Removed)];
    let mut sent = Vec::new();
    while now < Instant(150_000_000) {
        while channel.may_send(now, Ring::Command) {
            channel.send(now, Ring::Command, &entry, DATA);
            sent.push(now);
        }
        match channel.pacer.poll_timeout() {
            Some(at) => now = at,
            None => break,
        }
    }
    assert!(sent.len() > 5 && channel.pacer.poll_timeout().is_none(), "the window is full");
    // The first burst may be late, and the second be sent with it.
    let pairs = sent[4..].chunks(2).map(|pair| pair.last().unwrap().since(pair[0]));
    assert!(pairs.clone().all(|apart| apart.is_zero()), "in pairs: {sent:?}");
    let pauses = sent[4..].windows(2).filter(|it| it[1].since(it[0]) > Duration::from_millis(2));
    assert_eq!(pauses.count() + 1, pairs.count(), "{sent:?}");
}

#[test]
fn a_short_round_trip_takes_no_timer() {
    let (mut channel, flight) = full_flight();
    let acks = [Position(flight), Position(0)];
    let ack = Header { acks, packet: PacketNumber(1), window: 256, ..Header::new(Kind::Ack) };
    let now = Instant(30_000);
    take(&mut channel, now, &ack);
    let entry = [Entry::Event(Event::Removed)];
    while channel.may_send(now, Ring::Command) {
        channel.send(now, Ring::Command, &entry, DATA);
    }
    assert!(channel.in_flight() >= channel.congestion.window());
    assert_eq!(channel.pacer.poll_timeout(), None);
}

#[test]
fn what_is_lost_in_one_ring_waits_for_no_pause_of_the_other() {
    let mut channel = Channel::<AllRules>::new(config(), Instant(0));
    let entry = [Entry::Event(Event::Removed)];
    let lost = channel.send(Instant(0), Ring::Command, &entry, 0);
    let (mut now, mut sent) = (Instant(0), 0_u32);
    // Data go on all the time, and arrive within 100 us.
    while !channel.tx[Ring::Command as usize].has_lost() {
        assert!(now < Instant(100_000_000), "nothing is sent again");
        channel.send(now, Ring::Data, &entry, 0);
        sent += 1;
        now = now + Duration::from_micros(100);
        let acks = [lost.position, Position(sent)];
        take(
            &mut channel,
            now,
            &Header { acks, packet: PacketNumber(sent.into()), ..Header::new(Kind::Ack) },
        );
        if channel.poll_timeout() <= now {
            channel.handle_timeout(now).unwrap();
        }
    }
    let again = channel.resend(now, &mut EntryList::new(), |_| true).expect("it may leave");
    assert_eq!((again.kind, again.position), (Kind::Command, lost.position));
}

#[test]
fn a_ring_that_is_stalled_is_not_hidden_by_the_other() {
    let config = ChannelConfig { keep_alive_ns: 1_000_000_000, ..config() };
    let mut channel = Channel::<AllRules>::new(config, Instant(0));
    let entry = [Entry::Event(Event::Removed)];
    // Long frames no longer get through.
    (0..3).for_each(|_| _ = channel.send(Instant(0), Ring::Data, &entry, DATA));
    let (mut now, mut sent) = (Instant(0), 0_u32);
    // Short ones do, and are acked within 100 us.
    let dead = loop {
        assert!(now < Instant(4_000_000_000), "stuck since {:?}", channel.stuck_since());
        channel.send(now, Ring::Command, &entry, 0);
        sent += 1;
        now = now + Duration::from_micros(100);
        let acks = [Position(sent), Position(0)];
        let packet = PacketNumber(sent.into());
        take(&mut channel, now, &Header { acks, packet, ..Header::new(Kind::Ack) });
        if let Err(dead) = channel.handle_timeout(now) {
            break dead;
        }
        while channel.resend(now, &mut EntryList::new(), |_| true).is_some() {}
    };
    assert_eq!((dead, now.ns_since(Instant(0)) / STALL_NS_MIN), (Dead::Stall, 1));
}
