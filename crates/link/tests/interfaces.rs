//! Related interfaces: a link takes the frames of its own interface, and no others. VLANs and
//! bonds, which this kernel may lack, are tested in `crates/cli/tests/vm`. Needs root.

use crate::harness::{
    BROADCAST, Cable, NAMES, frame, receive_all, received_until_now, send_all, send_raw, wait,
};
use tyche_link::packet::{OpenError, PacketLink, PacketOptions, usable_interfaces};
use tyche_link::{Link, Mac, RxBatch};
use tyche_testkit::need_root;
use tyche_testkit::wait::PATIENCE;

const MTU: usize = 1500;
/// The interface above the second end of the cable.
const ABOVE: &str = "tyl-above";

/// A macvlan on the second end of the cable, which has an address of its own.
fn add_macvlan(cable: &Cable) -> PacketLink {
    cable.ip(1, &["link", "add", "link", NAMES[1], "name", ABOVE, "type", "macvlan"]);
    cable.ip(1, &["link", "set", ABOVE, "up"]);
    cable.try_open(1, &PacketOptions::new(ABOVE)).unwrap()
}

#[test]
fn frames_of_a_macvlan_are_not_those_of_the_interface_below() {
    need_root!();
    let cable = Cable::new(MTU);
    let (mut far, mut below) = (cable.open(0), cable.open(1));
    let mut above = add_macvlan(&cable);
    let to_above = frame(above.mac(), far.mac(), 100, 2);
    let to_below = frame(below.mac(), far.mac(), 100, 3);
    let to_all = frame(BROADCAST, far.mac(), 100, 4);
    send_all(&mut far, &[to_above.clone(), to_below.clone(), to_all.clone()]);
    assert_eq!(received_until_now(&mut far, &mut below), [to_below, to_all.clone()]);
    // The kernel makes a copy of each broadcast, some time later.
    let mut came = receive_all(&mut above, &mut RxBatch::new(16, MTU), 2);
    came.sort_by_key(|it| *it == to_all);
    assert_eq!(came, [to_above, to_all]);
}

#[test]
fn the_filter_is_that_of_the_interface_that_has_the_name_now() {
    need_root!();
    const AT: usize = 20;
    const MARK: [u8; 4] = [1, 2, 3, 4];
    let cable = Cable::new(MTU);
    let (mut far, mut below) = (cable.open(0), cable.open(1));
    below.narrow(AT, MARK);
    let mut batch = RxBatch::new(16, MTU);
    cable.ip(0, &["link", "del", NAMES[0]]);
    for link in [&mut far, &mut below] {
        assert!(wait(link, PATIENCE), "{link:?} is told");
        link.receive(&mut batch).unwrap_err();
    }
    cable.plug(MTU);
    for link in [&mut far, &mut below] {
        assert_eq!(link.receive(&mut batch).unwrap(), 0, "{link:?} has found the new interface");
    }
    let above = add_macvlan(&cable);
    let marked = |to: Mac, seed, mark: [u8; 4]| {
        let mut frame = frame(to, far.mac(), 100, seed);
        frame[AT..][..4].copy_from_slice(&mark);
        frame
    };
    let own = marked(below.mac(), 2, MARK);
    let out = [marked(above.mac(), 1, MARK), marked(below.mac(), 3, [9; 4]), own.clone()];
    send_all(&mut far, &out);
    assert!(wait(&below, PATIENCE));
    assert_eq!(receive_all(&mut below, &mut batch, 1), [own]);
}

#[test]
fn frames_of_a_vlan_that_is_not_here_are_nobodys() {
    need_root!();
    let cable = Cable::new(MTU);
    let (mut far, mut near) = (cable.open(0), cable.open(1));
    let plain = frame(near.mac(), far.mac(), 100, 2);
    for (tag, is_own) in [(10_u16, false), (0, true), (7 << 13, true), (7 << 13 | 10, false)] {
        let mut tagged = plain.clone();
        tagged.splice(12..12, [0x8100_u16.to_be_bytes(), tag.to_be_bytes()].concat());
        cable.inside(0, || send_raw(NAMES[0], &tagged));
        let came = received_until_now(&mut far, &mut near);
        // A tag without a number only carries a priority. The kernel strips it.
        let wanted = if is_own { std::slice::from_ref(&plain) } else { &[] };
        assert_eq!(came, wanted, "tag {tag:#06x}");
    }
}

#[test]
fn what_arrives_at_a_member_is_the_bridges() {
    need_root!();
    let cable = Cable::new(MTU);
    let (mut far, mut member) = (cable.open(0), cable.open(1));
    cable.ip(1, &["link", "add", "name", ABOVE, "type", "bridge", "mcast_snooping", "0"]);
    cable.ip(1, &["link", "set", ABOVE, "up"]);
    cable.ip(1, &["link", "set", NAMES[1], "master", ABOVE]);
    let error = cable.try_open(1, &PacketOptions::new(NAMES[1])).unwrap_err();
    assert!(
        matches!(&error, OpenError::Member { master: Some(name), .. } if name == ABOVE),
        "{error}"
    );
    let usable: Vec<_> = cable.inside(1, usable_interfaces).unwrap();
    assert_eq!(usable.iter().map(|it| &it.name[..]).collect::<Vec<_>>(), [ABOVE]);

    let mut bridge = cable.try_open(1, &PacketOptions::new(ABOVE)).unwrap();
    let to_bridge = frame(bridge.mac(), far.mac(), 100, 2);
    let to_all = frame(BROADCAST, far.mac(), 100, 3);
    send_all(&mut far, &[to_bridge.clone(), to_all.clone()]);
    assert_eq!(received_until_now(&mut far, &mut bridge), [to_bridge, to_all]);
    // By now it would have arrived.
    assert_eq!(member.receive(&mut RxBatch::new(16, MTU)).unwrap(), 0);
}
