//! One bad part of many keeps nothing down: disks, links and ports that are missing or wrong at the
//! start. The rest is served and connected, what is missing is said, and taken up when it comes.

use std::fs::{self, File};
use std::io::Read;

use rustix::process::Signal;
use serde_json::Value;
use tyche_testkit::process::finish;

use crate::links::{HOSTS, TARGETS, await_live, lay_cables, links};
use crate::refusals::refused;
use crate::rig::{DISK, PATIENCE, Rig, Side, rig, run, wait_until};

const MIB: u64 = 1 << 20;

/// Checks the exit code of `list --check` at one end, and that the list names these.
fn assert_check(rig: &Rig, side: Side, code: i32, named: &[&str]) {
    let done = finish(&mut rig.tyche(side, &["list", "--check"]), PATIENCE);
    assert_eq!(done.status.code(), Some(code), "{}{}", done.stdout, done.stderr);
    for part in named {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
}

/// Waits until `list --check` is content.
fn await_content(rig: &Rig, side: Side) {
    wait_until("nothing is missing", || {
        finish(&mut rig.tyche(side, &["list", "--check"]), PATIENCE).success()
    });
}

/// A link of the only target or session, by the name of its interface.
fn link(rig: &Rig, side: Side, name: &str) -> Value {
    let found = links(rig, side).into_iter().find(|it| it["interface"] == name);
    found.unwrap_or_default()
}

#[test]
fn a_missing_disk_is_offline_and_comes_online_while_the_others_are_served() {
    let rig = rig!(1500);
    let path = rig.path("late.img");
    let late = format!("late={}", path.display());
    let exports = ["--export", "disk=mem:8M", "--export", &late];
    let target = rig.serve(&exports);
    target.await_log("export late is offline until its disk is there");
    rig.connect(&[]).disconnect();
    let list = run(&mut rig.tyche(Side::Target, &["list"]));
    assert!(list.contains("export late of e2e: offline until its disk is there"), "{list}");
    assert_check(&rig, Side::Target, 9, &["no such file or device"]);
    let link = rig.cable.link(Side::Host);
    let offline =
        ["export `late` is offline", "no such file or device", "connect when its disk is back"];
    refused(&rig, Side::Host, &["connect", "late", "--link", link, "--as", "loop"], 7, &offline);
    let found = rig.ask(&["discover", "--link", link]);
    let found = found["exports"].as_array().unwrap();
    let is_offline = |name: &str| {
        let export = found.iter().find(|it| it["export"] == name).unwrap();
        export["offline"].as_bool().unwrap()
    };
    assert!(is_offline("late") && !is_offline(DISK));

    File::create_new(&path).unwrap().set_len(4 * MIB).unwrap();
    wait_until("it is online", || target.log().contains("export late: its disk is there: online"));
    await_content(&rig, Side::Target);
    let session = rig.connect_disk(Side::Host, "late", &["--link", link, "--as", "loop"]);
    assert_eq!(fs::read(&session.device).unwrap().len() as u64, 4 * MIB);
    session.disconnect();
}

#[test]
fn a_replaced_disk_is_offline_until_its_own_is_back() {
    let rig = rig!(1500);
    let (path, away) = (rig.file("disk.img", 4 * MIB), rig.path("away.img"));
    let exports = ["--export", &rig.export(), "--export", "other=mem:8M"];
    let target = rig.serve(&exports);
    rig.connect(&[]).disconnect();
    target.kill();
    fs::rename(&path, &away).unwrap();
    rig.file("disk.img", 4 * MIB);
    let target = rig.serve(&exports);
    let link = rig.cable.link(Side::Host);
    let connect = ["connect", DISK, "--link", link, "--as", "loop"];
    refused(&rig, Side::Host, &connect, 7, &["is offline", "is not the disk"]);
    let advice = "start once with --accept-changed-disk disk";
    assert_check(&rig, Side::Target, 9, &["is not the disk that disk was", advice]);
    rig.connect_disk(Side::Host, "other", &["--link", link, "--as", "loop"]).disconnect();
    fs::rename(&away, &path).unwrap();
    wait_until("it is online", || target.log().contains("its disk is there: online"));
    rig.connect(&[]).disconnect();
}

#[test]
fn a_session_waits_for_an_export_that_is_offline_after_a_restart() {
    let rig = rig!(1500);
    let (path, away) = (rig.file("disk.img", 4 * MIB), rig.path("away.img"));
    let exports = ["--export", &rig.export(), "--export", "other=mem:8M"];
    let target = rig.serve(&exports);
    let session = rig.connect(&[]);
    target.kill();
    fs::rename(&path, &away).unwrap();
    let target = rig.serve(&exports);
    wait_until("the session says why it is lost", || {
        run(&mut rig.tyche(Side::Host, &["list"])).contains("export `disk` is offline")
    });
    fs::rename(&away, &path).unwrap();
    wait_until("it is online", || target.log().contains("its disk is there: online"));
    assert_eq!(fs::read(&session.device).unwrap().len() as u64, 4 * MIB);
    session.disconnect();
}

#[test]
fn links_that_are_down_or_not_there_are_taken_up_when_they_come_at_both_ends() {
    let rig = rig!();
    lay_cables(&rig, 2, 1500);
    for (side, link) in [(Side::Target, TARGETS[1]), (Side::Host, HOSTS[1])] {
        rig.cable.ip(side, &["link", "set", link, "down"]);
    }
    let named = TARGETS[..3].iter().flat_map(|link| ["--link", link]).collect::<Vec<_>>();
    let target = rig.serve_on(&named, &["--export", "disk=mem:8M"]);
    for part in
        [format!("interface {} is down", TARGETS[1]), format!("no interface {}", TARGETS[2])]
    {
        wait_until(&part, || target.log().contains(&part));
        assert_check(&rig, Side::Target, 5, &[&part]);
    }
    let named = HOSTS[..3].iter().flat_map(|link| ["--link", link]).collect::<Vec<_>>();
    let session = rig.connect_over(Side::Host, &[&["--as", "loop"], &named[..]].concat());
    for part in [format!("interface {} is down", HOSTS[1]), format!("no interface {}", HOSTS[2])] {
        assert!(session.warnings.contains(&part), "{part}: {}", session.warnings);
        assert_check(&rig, Side::Host, 5, &[&part]);
    }
    for (side, link) in [(Side::Target, TARGETS[1]), (Side::Host, HOSTS[1])] {
        rig.cable.ip(side, &["link", "set", link, "up"]);
    }
    await_live(&rig, &HOSTS[..2]);
    rig.cable.add(&[(TARGETS[2], HOSTS[2])], 1500);
    await_live(&rig, &HOSTS[..3]);
    await_content(&rig, Side::Target);
    await_content(&rig, Side::Host);
    session.disconnect();
}

#[test]
fn discover_and_bench_ask_on_the_links_that_there_are() {
    let rig = rig!(1500);
    let config = rig.path("target.toml");
    fs::write(&config, "[[export]]\nname = \"disk\"\npath = \"mem:8M\"\nshared = true\n").unwrap();
    let _target = rig.serve(&["--config", config.to_str().unwrap()]);
    let links = ["--link", HOSTS[1], "--link", rig.cable.link(Side::Host)];
    let writes = ["--rw", "randwrite", "--yes", "--jobs", "2", "--runtime", "0.2"];
    for args in [&["discover"][..], &[&["bench", DISK], &writes[..]].concat()] {
        let args = [args, &links].concat();
        let done = finish(&mut rig.tyche(Side::Host, &args), PATIENCE);
        assert!(done.success() && done.stderr.contains(HOSTS[1]), "{args:?}: {}", done.stderr);
    }
    let gone = ["discover", "--link", HOSTS[1], "--link", HOSTS[2]];
    refused(&rig, Side::Host, &gone, 3, &[HOSTS[1]]);
}

#[test]
fn a_missing_link_of_a_session_can_be_given_up() {
    let rig = rig!(1500);
    let _target = rig.serve(&["--export", "disk=mem:8M"]);
    let session = rig.connect(&["--link", HOSTS[1]]);
    assert_check(&rig, Side::Host, 5, &[HOSTS[1]]);
    run(&mut rig.tyche(Side::Host, &["link", "del", DISK, HOSTS[1]]));
    assert_check(&rig, Side::Host, 0, &[]);
    session.disconnect();
}

#[test]
fn an_interface_that_leads_elsewhere_is_missing_only_if_it_was_named() {
    let rig = rig!();
    lay_cables(&rig, 2, 1500);
    let _target = rig.serve_on(&["--link", TARGETS[0]], &["--export", "disk=mem:8M"]);
    let session = rig.connect_over(Side::Host, &["--as", "loop"]);
    assert_check(&rig, Side::Host, 0, &[]);
    assert_eq!(link(&rig, Side::Host, HOSTS[1])["problem"], "no target is heard on it");
    session.disconnect();
    let named = ["--link", HOSTS[0], "--link", HOSTS[1], "--as", "loop"];
    let session = rig.connect_over(Side::Host, &named);
    assert_check(&rig, Side::Host, 5, &[]);
    session.disconnect();
}

#[test]
fn a_target_without_names_takes_interfaces_that_come_up_later() {
    let rig = rig!();
    let target = rig.serve_on(&[], &["--export", "disk=mem:8M", "--threads", "2"]);
    target.await_log("no Ethernet interface is up");
    lay_cables(&rig, 1, 1500);
    wait_until("it is served", || link(&rig, Side::Target, TARGETS[0])["mac"].is_string());
    let session = rig.connect_over(Side::Host, &["--link", HOSTS[0], "--as", "loop"]);
    rig.cable.add(&[(TARGETS[1], HOSTS[1])], 1500);
    run(&mut rig.tyche(Side::Host, &["link", "add", DISK, HOSTS[1]]));
    await_live(&rig, &HOSTS[..2]);
    session.disconnect();
}

#[test]
fn ports_of_fcoe_and_their_disks_come_later_too() {
    let rig = rig!();
    lay_cables(&rig, 2, 2500);
    rig.cable.ip(Side::Target, &["link", "set", TARGETS[1], "down"]);
    let path = rig.path("late.img");
    let late = format!("late={}", path.display());
    let ports = ["--fcoe", TARGETS[0], "--fcoe", TARGETS[1]];
    let target = rig.serve_on(&ports, &["--export", "disk=mem:8M", "--export", &late]);
    assert_check(&rig, Side::Target, 9, &[&format!("interface {} is down", TARGETS[1])]);
    let luns = || {
        let found = rig.ask(&["discover", "--fcoe", "--link", HOSTS[0]]);
        found["ports"][0]["luns"].as_array().map_or(0, Vec::len)
    };
    wait_until("one logical unit is shown", || luns() == 1);
    File::create_new(&path).unwrap().set_len(4 * MIB).unwrap();
    rig.cable.ip(Side::Target, &["link", "set", TARGETS[1], "up"]);
    await_content(&rig, Side::Target);
    target.await_log(&format!("{} is there: it is served", TARGETS[1]));
    wait_until("both logical units are shown", || luns() == 2);
}

#[test]
fn a_port_that_was_missing_shows_exports_to_whom_they_are_shown_now() {
    let rig = rig!(2500);
    let config = rig.path("target.toml");
    let (before, now) = ("21:00:00:00:00:00:00:01", "21:00:00:00:00:00:00:02");
    let configure = |initiator: &str| {
        let links = format!(
            "link = [\"{}\"]\n[[fcoe]]\nlink = \"{}\"\n",
            rig.cable.link(Side::Target),
            TARGETS[1]
        );
        let export = "[[export]]\nname = \"disk\"\npath = \"mem:8M\"\nread_only = true\n";
        let text = format!("{links}{export}initiators = [\"{initiator}\"]\n");
        fs::write(&config, text).unwrap();
    };
    configure(before);
    let target = rig.serve_on(&[], &["--config", config.to_str().unwrap()]);
    configure(now);
    target.process.signal(Signal::HUP);
    wait_until("it is read", || target.log().contains("nothing else has changed"));
    rig.cable.add(&[(TARGETS[1], HOSTS[1])], 2500);
    let luns = |wwpn: &str| {
        let found = rig.ask(&["discover", "--fcoe", "--link", HOSTS[1], "--wwpn", wwpn]);
        found["ports"][0]["luns"].as_array().map(Vec::len)
    };
    wait_until("the other sees it", || luns(now) == Some(1));
    assert_eq!(luns(before), Some(0));
}

#[test]
fn a_bridge_that_takes_an_interface_is_named_at_both_ends_until_it_lets_go() {
    let rig = rig!(1500);
    let [here, there] = [Side::Target, Side::Host].map(|side| rig.cable.link(side));
    let set = |side, link, args: &[&str]| {
        rig.cable.ip(side, &[&["link", "set", link], args].concat());
    };
    for side in [Side::Target, Side::Host] {
        rig.cable.ip(side, &["link", "add", "name", "tye-br", "type", "bridge"]);
        set(side, "tye-br", &["up"]);
    }
    let target = rig.serve(&["--export", "disk=mem:8M"]);
    let part = format!("{here} is part of tye-br");
    set(Side::Target, here, &["master", "tye-br"]);
    wait_until("an idle target says so", || target.log().contains(&part));
    assert_check(&rig, Side::Target, 5, &[&part]);
    set(Side::Target, here, &["nomaster"]);
    await_content(&rig, Side::Target);

    let session = rig.connect(&["--ctrl-loss-tmo", "600"]);
    for (side, link) in [(Side::Host, there), (Side::Target, here)] {
        let part = format!("{link} is part of tye-br, which takes all that arrives on it");
        set(side, link, &["master", "tye-br"]);
        wait_until("the list says so", || run(&mut rig.tyche(side, &["list"])).contains(&part));
        assert!(rig.logs().contains(&part), "{}", rig.logs());
        set(side, link, &["nomaster"]);
        await_content(&rig, Side::Host);
    }
    let mut block = [0; 4096];
    File::open(&session.device).unwrap().read_exact(&mut block).unwrap();
    session.disconnect();
}
