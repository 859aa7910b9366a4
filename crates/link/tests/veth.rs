//! The packet link over a real cable: a veth pair between two network namespaces. Needs root.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{
    BROADCAST, Cable, ETHERTYPE, NAMES, contents, frame, receive_all, send_all, send_raw, wait,
};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use tyche_link::packet::{OpenError, PacketLink, PacketOptions, interfaces};
use tyche_link::{HEAD, Link, Malformed, RxBatch, TxVectors};
use tyche_testkit::need_root;
use tyche_testkit::wait::{PATIENCE, wait_until};

const NOW: Duration = Duration::ZERO;
const ETHERNET: usize = 14;

/// Sends one frame.
fn send(link: &mut PacketLink, frame: &[u8]) -> std::io::Result<usize> {
    let (head, rest) = frame.split_first_chunk::<HEAD>().unwrap();
    let mut vectors = TxVectors::new(1, 1);
    let mut batch = vectors.batch();
    batch.push(head, [rest], &[]);
    link.send(&batch)
}

/// Asserts that frames flow between both ends of a cable.
fn assert_connected(a: &mut PacketLink, b: &mut PacketLink) {
    let mut batch = RxBatch::new(8, 1450);
    let there = frame(b.mac(), a.mac(), 100, 1);
    send_all(a, std::slice::from_ref(&there));
    assert_eq!(receive_all(b, &mut batch, 1), [there]);
    let back = frame(a.mac(), b.mac(), 100, 2);
    send_all(b, std::slice::from_ref(&back));
    assert_eq!(receive_all(a, &mut batch, 1), [back]);
}

fn every_size_arrives(mtu: usize, lens: impl Iterator<Item = usize>) {
    let cable = Cable::new(mtu);
    let (mut a, mut b) = (cable.open(0), cable.open(1));
    assert_eq!(a.frame_len_max(), mtu + ETHERNET);
    let mut batch = RxBatch::new(64, mtu + ETHERNET - HEAD);
    let lens: Vec<_> = lens.chain([mtu + ETHERNET]).collect();
    for lens in lens.chunks(64) {
        let out: Vec<_> = lens.iter().map(|&len| frame(b.mac(), a.mac(), len, 3)).collect();
        send_all(&mut a, &out);
        let got = receive_all(&mut b, &mut batch, out.len());
        assert!(batch.iter().all(|frame| frame.payload.as_ptr().addr() % 4096 == 0));
        assert!(got == out, "frames of {} to {} bytes differ", lens[0], lens[lens.len() - 1]);
    }
    assert_eq!((b.overruns(), b.malformed()), (0, Default::default()));
}

#[test]
fn frames_of_every_size_arrive_intact() {
    need_root!();
    every_size_arrives(1500, HEAD..1514);
    every_size_arrives(9000, HEAD..9014);
    every_size_arrives(65535, (HEAD..65549).step_by(509));
}

#[test]
fn a_link_grows_with_its_interface() {
    need_root!();
    let cable = Cable::new(1500);
    let (mut a, mut b) = (cable.open(0), cable.open(1));
    assert_eq!(b.look_after(), Some(1514));
    let before = b.receive_capacity(1514);
    b.narrow(HEAD - 4, [7; 4]);
    for mtu in [4000, 9000, 65535] {
        for (end, name) in NAMES.iter().enumerate() {
            cable.ip(end, &["link", "set", name, "mtu", &mtu.to_string()]);
        }
        let longest = mtu + ETHERNET;
        wait_until("both ends have grown", || {
            [&mut a, &mut b].into_iter().all(|link| link.look_after() == Some(longest))
        });
        assert!(b.receive_capacity(longest) >= before);
        let mut batch = RxBatch::new(8, longest - HEAD);
        let mut out: Vec<_> = (0..3).map(|n| frame(b.mac(), a.mac(), longest, n)).collect();
        for (frame, mark) in out.iter_mut().zip([7, 8, 7]) {
            frame[HEAD - 4..HEAD].fill(mark);
        }
        send_all(&mut a, &out);
        out.remove(1);
        assert!(receive_all(&mut b, &mut batch, 2) == out, "MTU {mtu}; the filter stays");
        assert_eq!((b.overruns(), b.malformed()), (0, Default::default()));
    }
}

#[test]
fn a_batch_is_filled_and_the_rest_comes_next() {
    need_root!();
    let cable = Cable::new(1500);
    let (mut a, mut b) = (cable.open(0), cable.open(1));
    let mut batch = RxBatch::new(4, 1450);
    assert_eq!(b.receive(&mut batch).unwrap(), 0, "nothing is there");
    assert!(!wait(&b, NOW));
    let out: Vec<_> = (0..10).map(|n| frame(b.mac(), a.mac(), 200, n)).collect();
    send_all(&mut a, &out);
    let mut got = Vec::new();
    for wanted in [4, 4, 2, 0] {
        assert_eq!(wait(&b, NOW), wanted > 0);
        assert_eq!(b.receive(&mut batch).unwrap(), wanted);
        assert_eq!(batch.len(), wanted);
        got.extend(contents(&batch));
        // While they are being read, frames still occupy their slots.
        batch.clear();
    }
    assert!(got == out);
    assert!(!wait(&a, NOW), "nothing of what was sent comes back");
}

#[test]
fn foreign_frames_are_not_seen() {
    need_root!();
    let cable = Cable::new(1500);
    let (mut a, mut b) = (cable.open(0), cable.open(1));
    let mut other = cable.open_with(1, |options| options.ethertype = ETHERTYPE + 1);
    let mut foreign = frame(b.mac(), a.mac(), 100, 1);
    foreign[12..14].copy_from_slice(&(ETHERTYPE + 1).to_be_bytes());
    let out = [
        frame([0x02, 9, 9, 9, 9, 9], a.mac(), 100, 2),
        frame([0x03, 9, 9, 9, 9, 9], a.mac(), 100, 3),
        frame([0x33, 0x33, 0, 0, 0, 1], a.mac(), 100, 4),
        foreign.clone(),
        frame(BROADCAST, a.mac(), 100, 5),
        frame(b.mac(), a.mac(), 100, 6),
    ];
    send_all(&mut a, &out);
    let mut batch = RxBatch::new(8, 1450);
    // Veth keeps the order, so the received frames show the missing ones.
    assert_eq!(receive_all(&mut b, &mut batch, 2), out[4..]);
    assert_eq!(receive_all(&mut other, &mut batch, 1), [foreign]);
}

#[test]
fn a_narrow_link_receives_what_is_marked_for_it_or_not_at_all() {
    need_root!();
    const AT: usize = 20;
    let cable = Cable::new(1500);
    let (mut a, mut b, mut c) = (cable.open(0), cable.open(1), cable.open(1));
    let marked = |dst, mark: u32| {
        let mut frame = frame(dst, a.mac(), 100, 1);
        frame[AT..][..4].copy_from_slice(&mark.to_be_bytes());
        frame
    };
    let out = [
        marked(b.mac(), 0xDEAD_BEEF),
        marked(b.mac(), 0xDEAD_BEEE),
        marked(b.mac(), 0),
        marked([0x02, 9, 9, 9, 9, 9], 0xDEAD_BEEF),
        marked(BROADCAST, 0xDEAD_BEEF),
    ];
    let mut batch = RxBatch::new(8, 1450);
    for (mark, wanted) in [
        (0xDEAD_BEEF_u32, vec![&out[0][..], &out[2], &out[4]]),
        (0xDEAD_BEEE, vec![&out[1][..], &out[2]]),
    ] {
        b.narrow(AT, mark.to_be_bytes());
        send_all(&mut a, &out);
        assert_eq!(receive_all(&mut b, &mut batch, wanted.len()), wanted);
        assert_eq!(receive_all(&mut c, &mut batch, 4).len(), 4, "the other link hears as before");
    }
}

#[test]
fn frames_of_a_wrong_length_are_dropped_and_counted() {
    need_root!();
    let cable = Cable::new(1500);
    let (mut a, mut b) = (cable.open(0), cable.open(1));
    let out: Vec<_> =
        [164, 165, 1514, 64].map(|len| frame(b.mac(), a.mac(), len, 1)).into_iter().collect();
    send_all(&mut a, &out[..3]);
    let short = frame(b.mac(), a.mac(), 60, 1);
    cable.inside(0, || send_raw(NAMES[0], &short));
    send_all(&mut a, &out[3..]);
    let mut batch = RxBatch::new(8, 100);
    assert_eq!(receive_all(&mut b, &mut batch, 2), [out[0].clone(), out[3].clone()]);
    assert_eq!((b.malformed().short, b.malformed().long), (1, 2));
    assert_eq!(b.overruns(), 0);
}

#[test]
fn the_shortest_frames_pass_if_heads_are_shorter() {
    const HEAD_LEN: usize = 52;
    need_root!();
    let cable = Cable::new(1500);
    let [mut a, mut b] =
        [0, 1].map(|it| cable.open_with(it, |options| options.head_len = HEAD_LEN));
    let out = [60, HEAD_LEN, 1514].map(|len| frame(b.mac(), a.mac(), len, 1));
    send_all(&mut a, &out);
    let mut batch = RxBatch::with_head(HEAD_LEN, 8, 1514 - HEAD_LEN);
    assert_eq!(receive_all(&mut b, &mut batch, 3), out);
    assert_eq!(b.malformed(), Malformed::default());
    batch.clear();
    send_all(&mut a, &out[..1]);
    assert!(wait(&b, PATIENCE));
    assert_eq!(b.receive(&mut batch).unwrap(), 1);
    assert!(batch.iter().all(|frame| frame.payload.as_ptr().addr() % 4096 == 0));
}

#[test]
fn an_interface_that_goes_down_is_reported_and_recovers() {
    need_root!();
    let cable = Cable::new(1500);
    let (mut a, mut b) = (cable.open(0), cable.open(1));
    let mut batch = RxBatch::new(8, 1450);
    assert_connected(&mut a, &mut b);

    cable.ip(1, &["link", "set", NAMES[1], "down"]);
    assert!(wait(&b, PATIENCE), "going down wakes the waiter");
    for _ in 0..3 {
        let error = b.receive(&mut batch).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkDown);
        assert!(error.to_string().contains("`ip link set tyl1 up`"), "{error}");
    }
    let out = frame(a.mac(), b.mac(), 100, 1);
    assert_eq!(send(&mut b, &out).unwrap_err().kind(), ErrorKind::NetworkDown);
    // The peer's side has lost its carrier; it receives nothing, which is no error.
    assert_eq!(a.receive(&mut batch).unwrap(), 0);
    let deadline = Instant::now() + PATIENCE;
    let error = loop {
        // The kernel takes a moment to notice that the carrier is gone.
        match send(&mut a, &out) {
            Ok(sent) => assert_eq!(sent, 0, "sent without a carrier"),
            Err(error) => break error,
        }
        assert!(Instant::now() < deadline);
    };
    assert_eq!(error.kind(), ErrorKind::NetworkDown);
    assert!(error.to_string().contains("no carrier"), "{error}");

    cable.ip(1, &["link", "set", NAMES[1], "up"]);
    assert_eq!(b.receive(&mut batch).unwrap(), 0);
    assert_connected(&mut a, &mut b);

    // Down and up between two calls: the pending error is outdated.
    cable.ip(1, &["link", "set", NAMES[1], "down"]);
    cable.ip(1, &["link", "set", NAMES[1], "up"]);
    assert_eq!(b.receive(&mut batch).unwrap(), 0);
    assert_connected(&mut a, &mut b);
}

#[test]
fn an_interface_that_becomes_part_of_a_bridge_is_reported_and_recovers() {
    need_root!();
    let cable = Cable::new(1500);
    let (mut a, mut b) = (cable.open(0), cable.open(1));
    let mut batch = RxBatch::new(8, 1450);
    assert_connected(&mut a, &mut b);
    assert!(b.look_after().is_some() && b.receive(&mut batch).is_ok(), "it is single");
    cable.ip(1, &["link", "add", "name", "tyl-br", "type", "bridge"]);
    for up in ["up", "down"] {
        cable.ip(1, &["link", "set", NAMES[1], up, "master", "tyl-br"]);
        cable.ip(1, &["link", "set", NAMES[1], "up"]);
        b.look_after();
        for _ in 0..2 {
            let error = b.receive(&mut batch).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NetworkDown);
            let error = error.to_string();
            assert!(
                error.contains("tyl1 is part of tyl-br") && error.contains("nomaster"),
                "{error}"
            );
        }
        let out = frame(b.mac(), a.mac(), 100, 1);
        assert_eq!(send(&mut b, &out).unwrap_err().kind(), ErrorKind::NetworkDown);
        cable.ip(1, &["link", "set", NAMES[1], "nomaster"]);
        assert_eq!(b.receive(&mut batch).unwrap(), 0);
        assert_connected(&mut a, &mut b);
    }
}

#[test]
fn an_interface_that_is_removed_is_reported_and_recovers_when_there_is_a_new_one() {
    need_root!();
    let cable = Cable::new(1500);
    let (mut a, mut b) = (cable.open(0), cable.open(1));
    let mut batch = RxBatch::new(8, 1450);
    cable.ip(0, &["link", "del", NAMES[0]]);
    for link in [&mut a, &mut b] {
        assert!(wait(link, PATIENCE));
        for _ in 0..2 {
            let error = link.receive(&mut batch).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            let out = frame(BROADCAST, [2; 6], 100, 1);
            assert_eq!(send(link, &out).unwrap_err().kind(), ErrorKind::NotFound);
        }
        assert!(link.frame_len_max() == 1514, "what was last seen stays");
    }
    cable.plug(2000);
    for link in [&mut a, &mut b] {
        assert_eq!(link.receive(&mut batch).unwrap(), 0);
        assert_eq!(link.frame_len_max(), 2014);
    }
    assert_connected(&mut a, &mut b);

    // Sending finds the new interface, too, and so does a link that missed the change.
    cable.ip(0, &["link", "del", NAMES[0]]);
    cable.plug(1500);
    let out = frame(BROADCAST, [2; 6], 100, 1);
    assert_eq!(send(&mut a, &out).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(send(&mut a, &out).unwrap(), 1);
    assert_eq!(b.receive(&mut batch).unwrap(), 0);
    assert_connected(&mut a, &mut b);
}

#[test]
fn a_changed_mtu_and_address_are_noticed() {
    need_root!();
    let cable = Cable::new(9000);
    let (mut a, b) = (cable.open(0), cable.open(1));
    let long = vec![0; 9014 - HEAD];
    let mut vectors = TxVectors::new(4, 1);
    let mut batch = vectors.batch();
    batch.push(&[0; HEAD], [&long[..100]], &[]);
    batch.push(&[0; HEAD], [&long[..1514 - HEAD]], &[]);
    batch.push(&[0; HEAD], [&long[..1515 - HEAD]], &[]);
    batch.push(&[0; HEAD], [&long[..]], &[]);
    cable.ip(0, &["link", "set", NAMES[0], "mtu", "1500"]);
    assert_eq!(a.send(&batch).unwrap(), 2, "frames before the one that is too long go out");
    batch.skip(2);
    let error = a.send(&batch).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(a.frame_len_max(), 1514, "noticed at once");

    cable.ip(1, &["link", "set", NAMES[1], "mtu", "1400"]);
    cable.ip(1, &["link", "set", NAMES[1], "address", "02:00:00:00:00:77"]);
    wait_until("the link looks at its interface", || b.frame_len_max() == 1414);
    assert_eq!(b.mac(), [2, 0, 0, 0, 0, 0x77]);
    cable.ip(1, &["link", "set", NAMES[1], "mtu", "1300"]);
    b.refresh();
    assert_eq!(b.frame_len_max(), 1314);
}

#[test]
fn the_receive_capacity_is_honest() {
    need_root!();
    const TOO_MANY: usize = 10;
    for (mtu, lens) in [(1500, [64, 1514]), (9000, [4160, 9014]), (65535, [64, 65549])] {
        let cable = Cable::new(mtu);
        let (mut a, mut b) = (cable.open(0), cable.open(1));
        for (round, len) in (1..).zip(lens) {
            let holds = b.receive_capacity(len);
            let out: Vec<_> =
                (0..holds + TOO_MANY).map(|n| frame(b.mac(), a.mac(), len, n as u64)).collect();
            send_all(&mut a, &out);
            let mut batch = RxBatch::new(64, mtu + ETHERNET - HEAD);
            let got = receive_all(&mut b, &mut batch, holds);
            assert!(got == out[..holds], "frames of {len} bytes");
            assert_eq!(b.receive(&mut batch).unwrap(), 0, "no more than it said");
            for _ in 0..2 {
                assert_eq!(b.overruns(), round * TOO_MANY as u64, "read, and not forgotten");
            }
        }
    }
}

#[test]
fn frames_are_left_alone_until_their_batch_is_cleared() {
    need_root!();
    let cable = Cable::new(1500);
    let (mut a, mut b) = (cable.open(0), cable.open(1));
    let (holds, kept) = (b.receive_capacity(1514), 30);
    let all: Vec<_> = (0..3 * holds).map(|n| frame(b.mac(), a.mac(), 200, n as u64)).collect();
    // A batch is kept while the others go twice round the ring, or would: its slots are in the way.
    let (mut old, mut batch) = (RxBatch::new(kept, 1450), RxBatch::new(64, 1450));
    send_all(&mut a, &all[..holds]);
    assert_eq!(b.receive(&mut old).unwrap(), kept);
    assert!(receive_all(&mut b, &mut batch, holds - kept) == all[kept..holds]);
    batch.clear();
    send_all(&mut a, &all[holds..]);
    assert_eq!(b.receive(&mut batch).unwrap(), 0, "the next slot is taken");
    assert!(contents(&old) == all[..kept]);
    old.clear();
    send_all(&mut a, &all[..holds]);
    assert!(receive_all(&mut b, &mut batch, holds) == all[..holds]);
    assert_eq!(b.overruns(), 2 * holds as u64);

    // The ring's memory outlives the link.
    send_all(&mut a, &all[..1]);
    assert!(wait(&b, PATIENCE));
    assert_eq!(b.receive(&mut batch).unwrap(), 1);
    drop(b);
    assert!(contents(&batch) == all[..1]);
}

#[test]
fn a_longer_mtu_than_at_the_start_is_used_as_far_as_slots_reach() {
    need_root!();
    let cable = Cable::new(1500);
    let (mut a, mut b) = (cable.open(0), cable.open(1));
    for (side, link) in [&a, &b].into_iter().enumerate() {
        cable.ip(side, &["link", "set", NAMES[side], "mtu", "9000"]);
        link.refresh();
    }
    let longest = b.frame_len_max();
    assert!((1515..9014).contains(&longest), "{longest}");
    let mut long = cable.open(0);
    let out = [longest, longest + 1, longest].map(|len| frame(b.mac(), a.mac(), len, 1));
    send_all(&mut a, &out[..1]);
    send_all(&mut long, &out[1..2]);
    send_all(&mut a, &out[2..]);
    let mut batch = RxBatch::new(8, 8950);
    assert!(receive_all(&mut b, &mut batch, 2) == [&out[0][..], &out[2]]);
    assert_eq!((b.malformed().short, b.malformed().long), (0, 1));
}

#[test]
fn a_full_queue_is_a_partial_send() {
    need_root!();
    let cable = Cable::new(1500);
    // Shaping only shows when the queueing discipline is not bypassed. At 8 Mbit/s a frame of
    // 1,514 bytes takes 1.5 ms.
    let shape = ["qdisc", "add", "dev", NAMES[0], "root", "tbf", "rate", "8mbit"];
    cable.tc(0, &[&shape[..], &["burst", "2000", "limit", "1000000"]].concat());
    let mut a = cable.open_with(0, |options| {
        options.qdisc_bypass = false;
        options.send_buffer = 8192;
    });
    let mut b = cable.open(1);
    let out: Vec<_> = (0..100).map(|n| frame(b.mac(), a.mac(), 1514, n)).collect();
    let mut vectors = TxVectors::new(100, 1);
    let mut batch = vectors.batch();
    for frame in &out {
        let (head, rest) = frame.split_first_chunk::<HEAD>().unwrap();
        batch.push(head, [rest], &[]);
    }
    let first = a.send(&batch).unwrap();
    assert!((1..50).contains(&first), "{first} of 100 frames in 8 KiB");
    batch.skip(first);
    let mut received = RxBatch::new(64, 1450);
    let mut got = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while got.len() < out.len() {
        assert!(wait(&b, deadline.saturating_duration_since(Instant::now())), "{}", got.len());
        b.receive(&mut received).unwrap();
        got.extend(contents(&received));
        let sent = a.send(&batch).unwrap();
        batch.skip(sent);
    }
    assert!(got == out, "the retried frames are there once, in order");
}

#[test]
fn opening_says_what_is_wrong() {
    need_root!();
    let cable = Cable::new(1500);
    let open = |options: &PacketOptions| cable.inside(0, || PacketLink::open(options).unwrap_err());
    for name in ["tyl7", "", "a-name-that-is-too-long-for-linux", "tyl0\0"] {
        let error = open(&PacketOptions::new(name));
        let OpenError::NoSuchInterface { present, .. } = &error else { panic!("{error}") };
        assert_eq!(present, &["tyl0"]);
        assert!(error.to_string().contains("there are: tyl0"), "{error}");
    }
    let error = open(&PacketOptions { ethertype: 0x0003, ..PacketOptions::new(NAMES[0]) });
    assert!(matches!(error, OpenError::EtherType(3)), "{error}");
    cable.ip(0, &["link", "set", NAMES[0], "mtu", "1279"]);
    let error = open(&PacketOptions::new(NAMES[0]));
    assert!(matches!(error, OpenError::MtuTooSmall { mtu: 1279, .. }), "{error}");
    cable.ip(0, &["link", "set", NAMES[0], "down"]);
    let error = open(&PacketOptions::new(NAMES[0]));
    assert!(matches!(error, OpenError::Down { .. }), "{error}");
    cable.ip(0, &["link", "del", NAMES[0]]);
    let error = open(&PacketOptions::new(NAMES[0]));
    assert!(error.to_string().contains("nor any Ethernet interface"), "{error}");
}

/// Drops capabilities of the calling thread for good.
fn give_up(given_up: CapabilitySet) {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None).unwrap();
    let sets = CapabilitySets {
        effective: effective & !given_up,
        permitted: permitted & !given_up,
        inheritable: inheritable & !given_up,
    };
    set_capabilities(None, sets).unwrap();
}

#[test]
fn missing_capabilities_are_named() {
    need_root!();
    let cable = Cable::new(1500);
    let error = cable.inside(0, || {
        give_up(CapabilitySet::NET_RAW);
        PacketLink::open(&PacketOptions::new(NAMES[0])).unwrap_err()
    });
    assert!(matches!(error, OpenError::NotPermitted), "{error}");

    let limit: usize =
        std::fs::read_to_string("/proc/sys/net/core/wmem_max").unwrap().trim().parse().unwrap();
    let wanted = limit + 4096;
    let options = PacketOptions { send_buffer: wanted, ..PacketOptions::new(NAMES[0]) };
    let link = cable.inside(0, || {
        give_up(CapabilitySet::NET_ADMIN);
        PacketLink::open(&options).unwrap()
    });
    let short = link.shortfall().unwrap();
    assert_eq!((short.granted, short.wanted), (limit, wanted));
    let remedy = format!("`sysctl -w net.core.wmem_max={wanted}`");
    assert!(short.to_string().contains(&remedy), "{short}");
    let forced = cable.inside(0, || PacketLink::open(&options).unwrap());
    assert_eq!(forced.shortfall(), None);
}

#[test]
fn interfaces_are_listed_with_what_they_are_like() {
    need_root!();
    let cable = Cable::new(4000);
    cable.ip(0, &["link", "add", "tyl5", "type", "veth", "peer", "name", "tyl6"]);
    cable.ip(0, &["link", "set", "lo", "up"]);
    let list = cable.inside(0, || interfaces().unwrap());
    let names: BTreeSet<_> = list.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["tyl0", "tyl5", "tyl6"]));
    let find = |name| list.iter().find(|info| info.name == name).unwrap();
    let link = cable.open(0);
    let up = find("tyl0");
    assert_eq!((up.mtu, up.up, up.mac), (4000, true, link.mac()));
    let down = find("tyl5");
    assert_eq!((down.mtu, down.up, down.running), (1500, false, false));
    assert_ne!(up.index, down.index);
}

#[test]
fn two_threads_exchange_frames_asleep_and_awake() {
    need_root!();
    let cable = Cable::new(9000);
    let (mut a, mut b) = (cable.open(0), cable.open(1));
    let question: Vec<_> = (0..300).map(|n| frame(b.mac(), a.mac(), 64 + n, n as u64)).collect();
    let answer: Vec<_> = (0..300).map(|n| frame(a.mac(), b.mac(), 9014 - n, n as u64)).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut batch = RxBatch::new(16, 8950);
            for (question, answer) in question.iter().zip(&answer) {
                assert!(receive_all(&mut b, &mut batch, 1) == [&question[..]]);
                send_all(&mut b, std::slice::from_ref(answer));
            }
        });
        let mut batch = RxBatch::new(16, 8950);
        for (question, answer) in question.iter().zip(&answer) {
            send_all(&mut a, std::slice::from_ref(question));
            assert!(receive_all(&mut a, &mut batch, 1) == [&answer[..]]);
        }
    });
}

#[test]
fn frames_say_how_long_they_waited_only_if_that_is_asked_for() {
    need_root!();
    let cable = Cable::new(1500);
    let (mut a, mut b) = (cable.open(0), cable.open(1));
    let mut batch = RxBatch::new(8, 1450);
    let out = frame(b.mac(), a.mac(), 100, 1);
    let mut waited = |b: &mut PacketLink, least: Duration| {
        let begun = Instant::now();
        send_all(&mut a, std::slice::from_ref(&out));
        assert!(wait(b, PATIENCE));
        thread::sleep(least);
        assert_eq!(b.receive(&mut batch).unwrap(), 1);
        let passed = begun.elapsed();
        assert_eq!(contents(&batch), [&out[..]]);
        let waited = batch.waited(0);
        assert!(waited.is_none_or(|waited| waited <= passed), "{waited:?} of {passed:?}");
        waited
    };
    assert_eq!(waited(&mut b, NOW), None);
    assert!(b.stamp_arrivals(true));
    let least = Duration::from_millis(2);
    for _ in 0..3 {
        assert!(waited(&mut b, least).unwrap() >= least);
    }
    assert!(b.stamp_arrivals(false));
    assert_eq!(waited(&mut b, NOW), None);
}
