//! Many links as one: discovery, use, addition and removal of links, and warnings about links that
//! cannot be used well.

use std::fs::File;
use std::io::Read;

use serde_json::Value;

use crate::load::{LOAD_SIZE, Load};
use crate::refusals::refused;
use crate::rig::{DISK, Rig, Session, Side, Target, rig, wait_until};

/// Names of interfaces, by end.
pub(crate) const TARGETS: [&str; 6] = ["tye-t0", "tye-t1", "tye-t2", "tye-t3", "tye-t4", "tye-t5"];
pub(crate) const HOSTS: [&str; 6] = ["tye-h0", "tye-h1", "tye-h2", "tye-h3", "tye-h4", "tye-h5"];
/// More frames than discovery, probes and keep-alives send.
const FRAMES: u64 = 400;

/// Serves a disk for a [`Load`], on all interfaces.
pub(crate) fn serve(rig: &Rig) -> Target {
    let export = format!("{DISK}=sparse:{LOAD_SIZE}");
    rig.serve_on(&[], &["--export", &export])
}

/// Connects the disk with all interfaces of the host unless told otherwise.
pub(crate) fn connect<'a>(rig: &'a Rig, args: &[&str]) -> Session<'a> {
    rig.connect_over(Side::Host, &[&["--as", "fuse"], args].concat())
}

/// Connects the disk with round robin, so that every link has its share of the requests: the
/// default policy leaves links idle if a few can do all of the work.
pub(crate) fn connect_evenly(rig: &Rig) -> Session<'_> {
    connect(rig, &["--io-policy", "round-robin"])
}

/// Lays `count` cables.
pub(crate) fn lay_cables(rig: &Rig, count: usize, mtu: u32) {
    let ends: Vec<_> = TARGETS.into_iter().zip(HOSTS).take(count).collect();
    rig.cable.add(&ends, mtu);
}

/// The links of the only session, or of the only target, in `list`.
pub(crate) fn links(rig: &Rig, side: Side) -> Vec<Value> {
    let list = rig.ask(&["list"]);
    let daemon = &list[if side == Side::Host { "sessions" } else { "targets" }][0];
    daemon["links"].as_array().cloned().unwrap_or_default()
}

/// One link of the session in `list`.
pub(crate) fn link(rig: &Rig, name: &str) -> Value {
    let found = links(rig, Side::Host).into_iter().find(|it| it["interface"] == name);
    found.unwrap_or_default()
}

/// Waits until the session's live links are these.
pub(crate) fn await_live(rig: &Rig, names: &[&str]) {
    wait_until("the right links are live", || {
        let links = links(rig, Side::Host);
        let live = links.iter().filter(|link| link["live"] == true);
        live.map(|link| link["interface"].as_str().unwrap()).eq(names.iter().copied())
    });
}

/// Waits until each of these links at one end has carried a good part of the load from now on.
pub(crate) fn await_shares(rig: &Rig, side: Side, names: &[&str]) {
    let frames = || {
        let links = links(rig, side);
        let count = |link: &Value| {
            link["tx_frames"].as_u64().unwrap() + link["rx_frames"].as_u64().unwrap()
        };
        let named = |name: &&str| links.iter().find(|link| link["interface"] == *name).map(count);
        names.iter().map(named).collect::<Option<Vec<_>>>().unwrap_or_default()
    };
    let before = frames();
    assert_eq!(before.len(), names.len(), "a link is missing");
    wait_until("every link has carried frames", || {
        frames().iter().zip(&before).all(|(now, before)| now - before >= FRAMES)
    });
}

#[test]
fn all_links_are_found_and_the_one_that_leads_nowhere_is_left_alone() {
    let rig = rig!();
    lay_cables(&rig, 3, 1500);
    // No target serves at the other end of this cable.
    rig.cable.add(&[(TARGETS[3], HOSTS[3])], 1500);
    let serving = TARGETS[..3].iter().flat_map(|link| ["--link", link]).collect::<Vec<_>>();
    let export = format!("{DISK}=sparse:{LOAD_SIZE}");
    let _target = rig.serve_on(&serving, &["--export", &export]);
    // With the default policy: a link with a bad start must not be avoided for ever.
    let session = connect(&rig, &[]);
    let load = Load::start(&session.device);
    await_live(&rig, &HOSTS[..3]);
    await_shares(&rig, Side::Host, &HOSTS[..3]);
    wait_until("the link that leads nowhere is known for that", || {
        link(&rig, HOSTS[3])["problem"] == "no target is heard on it"
    });
    assert_eq!(link(&rig, HOSTS[3])["channels"].as_array().map(Vec::len), Some(0));
    load.finish();
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    session.disconnect();
}

#[test]
fn every_nic_of_both_sides_is_used_on_one_switch() {
    for (targets, hosts) in [(3, 2), (2, 3), (1, 2)] {
        let rig = rig!();
        let (targets, hosts) = (&TARGETS[..targets], &HOSTS[..hosts]);
        let ends = targets.iter().map(|link| (Side::Target, *link));
        let ends: Vec<_> = ends.chain(hosts.iter().map(|link| (Side::Host, *link))).collect();
        rig.cable.lay_bridge(&ends, 1500, 1500);
        let _target = serve(&rig);
        let session = connect_evenly(&rig);
        let load = Load::start(&session.device);
        await_live(&rig, hosts);
        await_shares(&rig, Side::Host, hosts);
        wait_until("the target's links have channels", || {
            let links = links(&rig, Side::Target);
            links.iter().all(|link| link["channels"].as_array().is_some_and(|it| !it.is_empty()))
        });
        await_shares(&rig, Side::Target, targets);
        load.finish();
        assert_eq!(rig.stats().0["requests"]["errors"], 0);
        session.disconnect();
    }
}

#[test]
fn links_with_different_mtus_are_used_as_one() {
    let rig = rig!();
    rig.cable.add(&[(TARGETS[0], HOSTS[0])], 9000);
    rig.cable.add(&[(TARGETS[1], HOSTS[1])], 1500);
    let _target = serve(&rig);
    let session = connect_evenly(&rig);
    let load = Load::start(&session.device);
    await_live(&rig, &HOSTS[..2]);
    await_shares(&rig, Side::Host, &HOSTS[..2]);
    let lens = HOSTS[..2].iter().map(|name| link(&rig, name)["frame_len"].as_u64());
    assert_eq!(lens.collect::<Vec<_>>(), [Some(9014), Some(1514)]);
    load.finish();
    assert_eq!(session.warnings, "");
    session.disconnect();
}

#[test]
fn links_are_added_and_removed_while_requests_go_on() {
    let rig = rig!();
    lay_cables(&rig, 3, 9000);
    let _target = serve(&rig);
    let session = connect(&rig, &["--io-policy", "round-robin", "--link", HOSTS[0]]);
    let load = Load::start(&session.device);
    let change = |verb, link| {
        let changed = rig.ask(&["link", verb, DISK, link]);
        assert_eq!(changed["session"], session.value["session"], "{changed}");
    };
    let refuses = |verb, link, code, parts: &[&str]| {
        refused(&rig, Side::Host, &["link", verb, DISK, link], code, parts);
    };

    refuses("del", HOSTS[0], 2, &[HOSTS[0], "last link", "tyche disconnect"]);
    refuses("del", HOSTS[1], 3, &["does not use", HOSTS[1], "tyche list"]);
    refuses("add", HOSTS[0], 2, &["uses", HOSTS[0], "already"]);
    refuses("add", "eth77", 3, &["eth77", HOSTS[1]]);
    refused(&rig, Side::Host, &["link", "add", "nothing", HOSTS[1]], 3, &["nothing", "tyche list"]);

    change("add", HOSTS[1]);
    await_live(&rig, &HOSTS[..2]);
    change("add", HOSTS[2]);
    await_live(&rig, &HOSTS[..3]);
    await_shares(&rig, Side::Host, &HOSTS[..3]);
    change("del", HOSTS[0]);
    await_live(&rig, &HOSTS[1..3]);
    load.await_progress();
    change("del", HOSTS[2]);
    await_live(&rig, &HOSTS[1..2]);
    load.await_progress();
    refuses("del", HOSTS[1], 2, &["last link"]);
    change("add", HOSTS[0]);
    wait_until("the link is live again", || link(&rig, HOSTS[0])["live"] == true);
    await_shares(&rig, Side::Host, &HOSTS[..2]);
    load.finish();
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    session.disconnect();
}

/// Changes the address of an interface.
fn readdress(rig: &Rig, side: Side, link: &str, mac: &str) {
    rig.cable.ip(side, &["link", "set", link, "address", mac]);
}

#[test]
fn interfaces_with_one_address_are_named_and_nothing_is_lost() {
    const MAC: &str = "02:00:5e:10:00:77";
    let rig = rig!();
    let ends = [(Side::Target, TARGETS[0]), (Side::Target, TARGETS[1])];
    let ends = [ends, [(Side::Host, HOSTS[0]), (Side::Host, HOSTS[1])]].concat();
    rig.cable.lay_bridge(&ends, 1500, 1500);
    for (side, names) in [(Side::Host, HOSTS), (Side::Target, TARGETS)] {
        let own = [names[0], names[1]].map(|name| (name, rig.cable.mac(side, name)));
        readdress(&rig, side, names[0], MAC);
        readdress(&rig, side, names[1], MAC);
        let target = serve(&rig);
        let session = connect(&rig, &[]);
        let said = if side == Side::Host { session.warnings.clone() } else { target.log() };
        println!("{said}");
        for part in [names[0], names[1], MAC, &format!("ip link set {} address", names[1])] {
            assert!(said.contains(part), "{part:?} is missing in {said:?}");
        }
        let load = Load::start(&session.device);
        (0..8).for_each(|_| load.await_progress());
        load.finish();
        assert_eq!(rig.stats().0["requests"]["errors"], 0);
        session.disconnect();
        for (name, mac) in own {
            readdress(&rig, side, name, &mac);
        }
    }
}

#[test]
fn what_cannot_be_used_is_left_out_unless_there_is_nothing_else() {
    let rig = rig!();
    lay_cables(&rig, 3, 1500);
    rig.cable.ip(Side::Host, &["link", "set", HOSTS[1], "mtu", "1000"]);
    // A bridge takes the frames of its members, so the bridge must be used.
    rig.cable.ip(Side::Host, &["link", "add", "name", "tye-br", "type", "bridge"]);
    rig.cable.ip(Side::Host, &["link", "set", HOSTS[2], "master", "tye-br"]);
    rig.cable.ip(Side::Host, &["link", "set", "tye-br", "up"]);
    rig.cable.await_running(&[(Side::Host, "tye-br")]);
    let target = serve(&rig);
    let session = connect(&rig, &[]);
    println!("{}", session.warnings);
    let warning = format!("{} has an MTU of 1000", HOSTS[1]);
    assert!(session.warnings.contains(&warning), "{}", session.warnings);
    assert!(rig.logs().contains(&warning), "{}", rig.logs());
    await_live(&rig, &[HOSTS[0], "tye-br"]);
    let names: Vec<_> = links(&rig, Side::Host).iter().map(|it| it["interface"].clone()).collect();
    assert_eq!(names, [HOSTS[0], "tye-br"]);
    let mut block = [0; 4096];
    File::open(&session.device).unwrap().read_exact(&mut block).unwrap();
    session.disconnect();

    let session = connect(&rig, &["--link", HOSTS[0], "--link", HOSTS[1]]);
    assert!(session.warnings.contains(&warning), "{}", session.warnings);
    session.disconnect();
    let twice = ["connect", DISK, "--link", HOSTS[0], "--link", HOSTS[0]];
    refused(&rig, Side::Host, &twice, 2, &[HOSTS[0], "named twice"]);
    // Without any other interface, that is the error.
    for link in [HOSTS[0], HOSTS[2], "tye-br"] {
        rig.cable.ip(Side::Host, &["link", "del", link]);
    }
    refused(&rig, Side::Host, &["connect", DISK], 5, &[HOSTS[1], "MTU of 1000", "ip link set"]);
    drop(target);
}

/// They are those of the device, whoever serves it, until a user says something else.
#[test]
fn links_that_were_changed_are_those_of_the_next_daemon() {
    let rig = rig!();
    lay_cables(&rig, 3, 1500);
    let _target = serve(&rig);
    let over = |links: &[&'static str]| {
        let links = links.iter().flat_map(|link| ["--link", link]);
        let args: Vec<_> = ["--as", "vhost-user"].into_iter().chain(links).collect();
        rig.connect_over(Side::Host, &args)
    };
    let session = over(&HOSTS[..2]);
    rig.ask(&["link", "add", DISK, HOSTS[2]]);
    rig.ask(&["link", "del", DISK, HOSTS[0]]);
    await_live(&rig, &HOSTS[1..3]);
    for _ in 0..2 {
        rig.ask(&["reload", DISK]);
        await_live(&rig, &HOSTS[1..3]);
    }
    session.kill();
    let session = over(&HOSTS[..2]);
    await_live(&rig, &HOSTS[1..3]);
    rig.ask(&["link", "add", DISK, HOSTS[0]]);
    session.kill();
    let session = over(&HOSTS[..1]);
    await_live(&rig, &HOSTS[..1]);
    session.kill();
    let _session = over(&HOSTS[..2]);
    await_live(&rig, &HOSTS[..2]);
    rig.disconnect_all();
}
