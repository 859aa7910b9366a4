//! Groups and addresses that a link joins, on a veth pair. Needs root.

use std::io::ErrorKind;

use crate::harness::{
    BROADCAST, Cable, NAMES, frame, receive_all, received_until_now, send_all, send_raw, wait,
};
use tyche_link::packet::PacketLink;
use tyche_link::udp::{UdpOptions, UdpServer};
use tyche_link::{Except, Link, Mac, RxBatch, Share, memory};
use tyche_testkit::need_root;
use tyche_testkit::wait::{PATIENCE, wait_until};

const MTU: usize = 1500;
const GROUPS: [Mac; 2] = [[0x01, 0x10, 0x18, 1, 0, 4], [0x01, 0x10, 0x18, 1, 0, 5]];
const CHOSEN: Mac = [0x0e, 0xfd, 0, 0, 0x12, 0x34];
const NOT_CHOSEN: Mac = [0x0e, 0xfd, 0, 0, 0x12, 0x35];

/// A frame to each of the addresses, from the far end.
fn to_each(far: &PacketLink, addresses: &[Mac]) -> Vec<Vec<u8>> {
    (0..).zip(addresses).map(|(seed, &to)| frame(to, far.mac(), 100, seed)).collect()
}

/// The destinations of the frames that the near end receives, of those to all addresses here.
fn received(far: &mut PacketLink, near: &mut PacketLink) -> Vec<Mac> {
    let all = [GROUPS[0], GROUPS[1], CHOSEN, NOT_CHOSEN, [0x33, 0x33, 0, 0, 0, 1], BROADCAST];
    let out = to_each(far, &all);
    send_all(far, &out);
    received_until_now(far, near).iter().map(|frame| frame[..6].try_into().unwrap()).collect()
}

#[test]
fn frames_to_members_are_received_until_the_address_is_left() {
    need_root!();
    let cable = Cable::new(MTU);
    let (mut far, mut near) = (cable.open(0), cable.open(1));
    assert_eq!(received(&mut far, &mut near), [BROADCAST]);
    near.join(GROUPS[1]).unwrap();
    assert_eq!(received(&mut far, &mut near), [GROUPS[1], BROADCAST]);
    near.join(CHOSEN).unwrap();
    near.join(GROUPS[0]).unwrap();
    assert_eq!(received(&mut far, &mut near), [GROUPS[0], GROUPS[1], CHOSEN, BROADCAST]);
    near.leave(GROUPS[1]).unwrap();
    near.leave(NOT_CHOSEN).unwrap();
    assert_eq!(received(&mut far, &mut near), [GROUPS[0], CHOSEN, BROADCAST]);
    near.leave(CHOSEN).unwrap();
    near.leave(GROUPS[0]).unwrap();
    assert_eq!(received(&mut far, &mut near), [BROADCAST]);
}

#[test]
fn the_interface_has_each_address_once_and_only_as_long_as_the_link() {
    need_root!();
    let cable = Cable::new(MTU);
    let mut near = cable.open(1);
    for address in [GROUPS[0], CHOSEN, GROUPS[0], CHOSEN] {
        near.join(address).unwrap();
    }
    // The kernel adds groups of its own at any time.
    let added = |cable: &Cable| {
        let mut now = cable.addresses(1);
        now.retain(|address| GROUPS.contains(address) || [CHOSEN, NOT_CHOSEN].contains(address));
        now.sort_unstable();
        now
    };
    assert_eq!(added(&cable), [GROUPS[0], CHOSEN]);
    near.leave(GROUPS[0]).unwrap();
    assert_eq!(added(&cable), [CHOSEN]);
    drop(near);
    // The kernel takes the addresses of a closed socket back a little later.
    wait_until("none is left", || added(&cable).is_empty());
}

#[test]
fn membership_outlives_an_interface_that_is_down() {
    need_root!();
    let cable = Cable::new(MTU);
    let (mut far, mut near) = (cable.open(0), cable.open(1));
    let mut batch = RxBatch::new(16, MTU);
    near.join(CHOSEN).unwrap();
    cable.ip(1, &["link", "set", NAMES[1], "down"]);
    assert!(wait(&near, PATIENCE));
    assert_eq!(near.receive(&mut batch).unwrap_err().kind(), ErrorKind::NetworkDown);
    near.join(GROUPS[0]).unwrap();
    cable.ip(1, &["link", "set", NAMES[1], "up"]);
    assert_eq!(near.receive(&mut batch).unwrap(), 0);
    assert_eq!(received(&mut far, &mut near), [GROUPS[0], CHOSEN, BROADCAST]);
    near.leave(CHOSEN).unwrap();
    near.leave(GROUPS[0]).unwrap();
    assert_eq!(received(&mut far, &mut near), [BROADCAST]);
    let left = cable.addresses(1);
    assert!(!left.contains(&CHOSEN) && !left.contains(&GROUPS[0]), "each was joined once");
}

#[test]
fn membership_begins_again_on_an_interface_that_takes_the_place() {
    need_root!();
    let cable = Cable::new(MTU);
    let (mut far, mut near) = (cable.open(0), cable.open(1));
    let mut batch = RxBatch::new(16, MTU);
    near.join(CHOSEN).unwrap();
    near.join(GROUPS[0]).unwrap();
    cable.ip(0, &["link", "del", NAMES[0]]);
    // The link does not know yet that the interface is gone.
    near.join(GROUPS[1]).unwrap();
    near.leave(GROUPS[0]).unwrap();
    for link in [&mut far, &mut near] {
        assert!(wait(link, PATIENCE));
        assert_eq!(link.receive(&mut batch).unwrap_err().kind(), ErrorKind::NotFound);
    }
    cable.plug(MTU);
    for link in [&mut far, &mut near] {
        assert_eq!(link.receive(&mut batch).unwrap(), 0);
    }
    assert_eq!(received(&mut far, &mut near), [GROUPS[1], CHOSEN, BROADCAST]);
    let joined = cable.addresses(1);
    assert!(joined.contains(&CHOSEN) && joined.contains(&GROUPS[1]));
    assert!(!joined.contains(&GROUPS[0]));
}

#[test]
fn a_narrow_link_and_a_share_hold_for_members_too() {
    need_root!();
    const AT: usize = 20;
    let cable = Cable::new(MTU);
    let (mut far, mut near) = (cable.open(0), cable.open(1));
    near.join(CHOSEN).unwrap();
    near.join(GROUPS[0]).unwrap();
    near.narrow(AT, [7; 4]);
    assert!(near.select(Share { index: 1, of: 2, at: AT + 4, except: None }));
    let mut out = Vec::new();
    for to in [CHOSEN, GROUPS[0], NOT_CHOSEN, near.mac()] {
        for marks in [[7, 7, 7, 7, 1], [7, 7, 7, 7, 2], [7, 7, 7, 8, 1]] {
            let mut frame = frame(to, far.mac(), 100, 1);
            frame[AT..][..5].copy_from_slice(&marks);
            out.push(frame);
        }
    }
    send_all(&mut far, &out);
    let wanted = [0, 3, 9].map(|index| out[index].clone());
    assert_eq!(receive_all(&mut near, &mut RxBatch::new(16, MTU), 3), wanted);
    assert!(!wait(&near, std::time::Duration::ZERO));
}

#[test]
fn a_share_is_that_of_the_kernels_filter() {
    need_root!();
    const AT: usize = 20;
    let cable = Cable::new(MTU);
    let (mut far, mut near) = (cable.open(0), cable.open(1));
    let out = (0..=u8::MAX).flat_map(|key| [0x00, 0x7f, 0x80, 0xff].map(|kind| (key, kind)));
    let out = out.map(|(key, kind)| {
        let mut frame = frame(near.mac(), far.mac(), 100, 1);
        frame[AT..][..3].copy_from_slice(&[key, kind, !key]);
        frame
    });
    let out: Vec<_> = out.collect();
    let kinds = |by| Except { at: AT + 1, mask: 0x80, value: 0, by };
    for except in [None, Some(kinds(None)), Some(kinds(Some(AT + 2)))] {
        let shares = [0, 1, 2].map(|index| Share { index, of: 3, at: AT, except });
        for share in shares {
            assert!(near.select(share));
            for out in out.chunks(64) {
                send_all(&mut far, out);
                let wanted: Vec<_> = out.iter().filter(|it| share.has(it)).cloned().collect();
                let got = receive_all(&mut near, &mut RxBatch::new(64, MTU), wanted.len());
                assert_eq!(got, wanted, "{share:?}");
            }
            assert!(!wait(&near, std::time::Duration::ZERO));
        }
        let owners = |frame: &Vec<u8>| shares.iter().filter(|share| share.has(frame)).count();
        assert!(out.iter().all(|frame| owners(frame) == 1));
    }
}

#[test]
fn frames_to_a_group_in_a_vlan_that_is_not_here_are_nobodys() {
    need_root!();
    let cable = Cable::new(MTU);
    let (mut far, mut near) = (cable.open(0), cable.open(1));
    near.join(GROUPS[0]).unwrap();
    let plain = frame(GROUPS[0], far.mac(), 100, 1);
    for (tag, is_own) in [(10_u16, false), (7 << 13, true)] {
        let mut tagged = plain.clone();
        tagged.splice(12..12, [0x8100_u16.to_be_bytes(), tag.to_be_bytes()].concat());
        cable.inside(0, || send_raw(NAMES[0], &tagged));
        let wanted = if is_own { std::slice::from_ref(&plain) } else { &[] };
        assert_eq!(received_until_now(&mut far, &mut near), wanted, "tag {tag:#06x}");
    }
}

#[test]
fn two_links_with_ethertypes_and_addresses_of_their_own_share_an_interface() {
    need_root!();
    const KINDS: [(u16, usize); 2] = [(0x8906, 52), (0x8914, 24)];
    let cable = Cable::new(2500);
    let open = |side, kind: (u16, usize)| {
        cable.open_with(side, |options| (options.ethertype, options.head_len) = kind)
    };
    let mut ends = [0, 1].map(|side| KINDS.map(|kind| open(side, kind)));
    let chosen = [CHOSEN, NOT_CHOSEN];
    for (links, address) in ends.iter_mut().zip(chosen) {
        links[0].join(address).unwrap();
        links[1].join(GROUPS[0]).unwrap();
    }
    let [here, there] = &mut ends;
    for ((kind, head_len), (a, b)) in KINDS.into_iter().zip(here.iter_mut().zip(there)) {
        let group = if head_len == KINDS[1].1 { GROUPS[0] } else { chosen[1] };
        // The shortest that Ethernet has, and the longest of a full Fibre Channel frame.
        let out: Vec<_> = [60, 64, 2172, 60]
            .map(|len| {
                let mut frame = frame(group, chosen[0], len, 1);
                frame[12..14].copy_from_slice(&kind.to_be_bytes());
                frame
            })
            .into();
        send_all(a, &out);
        let mut batch = RxBatch::with_head(head_len, 8, 2172);
        assert_eq!(receive_all(b, &mut batch, 4), out, "EtherType {kind:#06x}");
        assert_eq!(b.malformed(), Default::default());
    }
    for link in ends.iter_mut().flatten() {
        assert!(!wait(link, std::time::Duration::ZERO), "{link:?} has what is for another");
    }
}

#[test]
fn memberships_are_bounded() {
    need_root!();
    let cable = Cable::new(MTU);
    let (mut far, mut near) = (cable.open(0), cable.open(1));
    let address = |nth: u8| [0x0e, 0xfd, 0, 0, 1, nth];
    for nth in 0..32 {
        near.join(address(nth)).unwrap();
    }
    assert_eq!(near.join(CHOSEN).unwrap_err().kind(), ErrorKind::QuotaExceeded);
    near.join(address(31)).unwrap();
    let all: Vec<_> = (0..33).map(address).collect();
    let out = to_each(&far, &all);
    send_all(&mut far, &out);
    assert_eq!(received_until_now(&mut far, &mut near), out[..32]);
    near.leave(address(7)).unwrap();
    near.join(CHOSEN).unwrap();
}

#[test]
fn links_without_memberships_say_so_and_those_with_all_frames_have_all() {
    let listen = ["127.0.0.1:0".parse().unwrap()];
    let mut udp: Box<dyn Link> =
        Box::new(UdpServer::listen(&listen, &UdpOptions::default()).unwrap());
    for result in [udp.join(GROUPS[0]), udp.leave(GROUPS[0])] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("only frames to its own address"), "{error}");
    }
    let (memory, _other) = memory::pair(1514).unwrap();
    let mut boxed: Box<dyn Link> = Box::new(memory);
    boxed.join(GROUPS[0]).unwrap();
    boxed.leave(GROUPS[0]).unwrap();
}
