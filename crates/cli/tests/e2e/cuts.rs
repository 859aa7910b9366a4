//! Links that fail while requests go on: no request fails, and restored links are used again.

use std::time::{Duration, Instant};

use crate::links::{
    HOSTS, TARGETS, await_live, await_shares, connect, connect_evenly, lay_cables, link, links,
    serve,
};
use crate::load::Load;
use crate::rig::{PATIENCE, Rig, Side, rig, wait_until};

/// The longest time of a request while links fail. It is under 1 s on an idle machine; a test
/// shares its processors with others.
const STALL_LIMIT: Duration = Duration::from_secs(3);
/// Time limit for a restored link to be used again, twice the nominal time for the same reason.
const RETURN_LIMIT: Duration = Duration::from_secs(10);

/// Cuts five of six links under load with `cut`, and restores them with `mend`. `queues` is the
/// session's number of queues.
fn five_of_six_links_fail(
    queues: u16,
    cut: impl Fn(&Rig, &[&str], &[&str]),
    mend: impl Fn(&Rig, &[&str], &[&str]),
) {
    let rig = rig!();
    lay_cables(&rig, 6, 9000);
    let target = serve(&rig);
    let session = connect(&rig, &["--io-policy", "round-robin", "--queues", &queues.to_string()]);
    await_live(&rig, &HOSTS);
    let load = Load::start(&session.device);
    await_shares(&rig, Side::Host, &HOSTS);
    println!("before: a request took {:?} at most", load.longest());
    cut(&rig, &TARGETS[1..], &HOSTS[1..]);
    await_live(&rig, &HOSTS[..1]);
    load.await_progress();
    let stall = load.longest();
    println!("five of six links cut: a request took {stall:?} at most");
    mend(&rig, &TARGETS[1..], &HOSTS[1..]);
    let mended = Instant::now();
    await_live(&rig, &HOSTS);
    let took = mended.elapsed();
    println!("all links are live {took:?} after their return");
    await_shares(&rig, Side::Host, &HOSTS);
    load.finish();
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    assert!(stall < STALL_LIMIT, "{stall:?}");
    assert!(took < RETURN_LIMIT, "{took:?}");
    // Attempts on a link without carrier do not count as returns of the link.
    let backs = target.log().matches("link is back").count();
    assert!(backs <= 2 * HOSTS.len(), "{}", target.log());
    session.disconnect();
}

/// The network drops frames, without notice to either end.
fn five_of_six_links_are_cut(queues: u16) {
    let cut = |rig: &Rig, targets: &[&str], hosts: &[&str]| {
        rig.cable.cut(Side::Target, targets);
        rig.cable.cut(Side::Host, hosts);
    };
    let mend = |rig: &Rig, _: &[&str], _: &[&str]| {
        rig.cable.mend(Side::Target);
        rig.cable.mend(Side::Host);
    };
    five_of_six_links_fail(queues, cut, mend);
}

#[test]
fn five_of_six_links_are_cut_silently() {
    five_of_six_links_are_cut(1);
}

#[test]
fn five_of_six_links_of_each_queue_are_cut_silently() {
    five_of_six_links_are_cut(3);
}

/// Sets interfaces of one end up or down.
fn set(rig: &Rig, side: Side, links: &[&str], state: &str) {
    for link in links {
        rig.cable.ip(side, &["link", "set", link, state]);
    }
}

#[test]
fn five_of_six_links_go_down_at_the_host() {
    five_of_six_links_fail(
        1,
        |rig, _, hosts| set(rig, Side::Host, hosts, "down"),
        |rig, _, hosts| set(rig, Side::Host, hosts, "up"),
    );
}

#[test]
fn five_of_six_links_go_down_at_the_target() {
    five_of_six_links_fail(
        1,
        |rig, targets, _| set(rig, Side::Target, targets, "down"),
        |rig, targets, _| set(rig, Side::Target, targets, "up"),
    );
}

#[test]
fn an_interface_that_vanishes_is_used_again_when_there_is_one_of_its_name() {
    let rig = rig!();
    lay_cables(&rig, 2, 1500);
    let _target = serve(&rig);
    let session = connect_evenly(&rig);
    await_live(&rig, &HOSTS[..2]);
    let load = Load::start(&session.device);
    await_shares(&rig, Side::Host, &HOSTS[..2]);
    rig.cable.ip(Side::Host, &["link", "del", HOSTS[1]]);
    await_live(&rig, &HOSTS[..1]);
    load.await_progress();
    // The interface goes down before it vanishes, so `list` may report that first.
    let gone = format!("interface {} is gone", HOSTS[1]);
    wait_until("the list says that it is gone", || link(&rig, HOSTS[1])["problem"] == gone);
    // A new cable, with other addresses at both ends.
    rig.cable.add(&[(TARGETS[1], HOSTS[1])], 1500);
    await_live(&rig, &HOSTS[..2]);
    await_shares(&rig, Side::Host, &HOSTS[..2]);
    load.finish();
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    session.disconnect();
}

#[test]
fn a_link_whose_mtu_shrinks_goes_on_with_shorter_frames() {
    let rig = rig!();
    lay_cables(&rig, 3, 9000);
    let _target = serve(&rig);
    let session = connect_evenly(&rig);
    await_live(&rig, &HOSTS[..3]);
    let load = Load::start(&session.device);
    await_shares(&rig, Side::Host, &HOSTS[..3]);
    rig.cable.ip(Side::Host, &["link", "set", HOSTS[1], "mtu", "1500"]);
    rig.cable.ip(Side::Target, &["link", "set", TARGETS[2], "mtu", "1500"]);
    wait_until("both links go on with shorter frames", || {
        let links = links(&rig, Side::Host);
        links[1..].iter().all(|link| link["live"] == true && link["frame_len"] == 1514)
    });
    await_shares(&rig, Side::Host, &HOSTS[..3]);
    load.finish();
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    let log = rig.logs();
    println!("{log}");
    // Either end may be the first whose long frame is refused: that end drops the channel.
    let narrow = |link| format!("interface {link} takes only packets of 1500 bytes now");
    let refused = log.contains(&narrow(HOSTS[1])) || log.contains(&narrow(TARGETS[2]));
    assert!(refused, "{log}");
    let lost = log.lines().filter(|line| line.contains("channel lost"));
    assert!(lost.clone().any(|line| line.contains(HOSTS[1])), "{log}");
    assert!(lost.clone().any(|line| line.contains(HOSTS[2])), "{log}");
    session.disconnect();
}

/// Time limit for longer frames after the MTU was raised: both ends look at it within 1 s, and the
/// host probes every 5 s. Twice the sum, because a test shares its processors.
const GROWTH_LIMIT: Duration = Duration::from_secs(15);

#[test]
fn frames_grow_when_the_mtu_does_and_no_request_fails() {
    for count in [1, 2] {
        let rig = rig!();
        lay_cables(&rig, count, 1500);
        let _target = serve(&rig);
        let session = connect_evenly(&rig);
        await_live(&rig, &HOSTS[..count]);
        let load = Load::start(&session.device);
        let are = |frame_len: u64| {
            let links = links(&rig, Side::Host);
            links.iter().all(|link| link["live"] == true && link["frame_len"] == frame_len)
        };
        assert!(are(1514));
        let set = |mtu: &str| {
            for (target, host) in TARGETS.iter().zip(HOSTS).take(count) {
                rig.cable.ip(Side::Target, &["link", "set", target, "mtu", mtu]);
                rig.cable.ip(Side::Host, &["link", "set", host, "mtu", mtu]);
            }
        };
        // Longer than at the start, and longer again after they have shrunk.
        for mtu in ["9000", "1500", "9000"] {
            load.longest();
            set(mtu);
            let since = Instant::now();
            let wanted = if mtu == "9000" { 9014 } else { 1514 };
            wait_until("all links have the new length", || are(wanted));
            let took = since.elapsed();
            assert!(took < GROWTH_LIMIT, "{took:?}");
            load.await_progress();
            let stall = load.longest();
            println!("{count} links, MTU {mtu}: after {took:?}; a request took {stall:?} at most");
            assert!(stall < STALL_LIMIT, "{stall:?}");
        }
        let channels = |link: &serde_json::Value| link["channels"].as_array().map(Vec::len);
        wait_until("the channels with short frames are gone", || {
            links(&rig, Side::Host).iter().all(|link| channels(link) == Some(1))
        });
        load.finish();
        assert_eq!(rig.stats().0["requests"]["errors"], 0);
        session.disconnect();
    }
}

#[test]
fn a_killed_target_is_found_at_other_addresses_and_interfaces() {
    let rig = rig!();
    lay_cables(&rig, 3, 1500);
    rig.file("disk.img", crate::load::LOAD_SIZE);
    let serve = |names: &[&str]| {
        let links: Vec<_> = names.iter().flat_map(|link| ["--link", link]).collect();
        rig.serve_on(&links, &["--export", &rig.export()])
    };
    let target = serve(&TARGETS[..2]);
    let session = connect_evenly(&rig);
    await_live(&rig, &HOSTS[..2]);
    let load = Load::start(&session.device);
    target.kill();
    for (number, name) in TARGETS[..3].iter().enumerate() {
        let mac = format!("02:00:5e:10:00:{number:02x}");
        rig.cable.ip(Side::Target, &["link", "set", name, "address", &mac]);
    }
    let back = Instant::now();
    let _target = serve(&TARGETS[1..3]);
    await_live(&rig, &HOSTS[1..3]);
    println!("found again on both links after {:?}", back.elapsed());
    assert!(back.elapsed() < PATIENCE);
    load.await_progress();
    await_shares(&rig, Side::Host, &HOSTS[1..3]);
    load.finish();
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    session.disconnect();
}
