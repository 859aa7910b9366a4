//! `tyche doctor` on set-ups that are broken on purpose: real interfaces, targets and sessions.

use std::fs;

use serde_json::Value;
use tyche_testkit::process::finish;

use crate::rig::{DISK, PATIENCE, Rig, Side, parsed, rig, wait_until};

/// A directory in the place of `/` for files, with that tychetab.
fn root(rig: &Rig, tab: &str) -> String {
    let etc = rig.path("root/etc/tyche");
    fs::create_dir_all(&etc).unwrap();
    fs::write(etc.join("tychetab"), tab).unwrap();
    rig.path("root").display().to_string()
}

/// The report and the exit code at one end.
fn doctor(rig: &Rig, side: Side, args: &[&str]) -> (Value, i32) {
    let done = finish(&mut rig.tyche(side, &[&["doctor", "-o", "json"], args].concat()), PATIENCE);
    println!("{}{}", done.stdout, done.stderr);
    (parsed(&done.stdout), done.status.code().unwrap())
}

/// The finding of that name, if there is one.
fn finding<'a>(report: &'a Value, id: &str) -> Option<&'a Value> {
    report["findings"].as_array().unwrap().iter().find(|it| it["id"] == id)
}

/// Checks that a finding is there, and that it says this.
fn assert_found(report: &Value, id: &str, said: &str) {
    let found = finding(report, id).unwrap_or_else(|| panic!("no {id}: {report}"));
    assert!(found["what"].as_str().unwrap().contains(said), "{found}");
    assert_ne!(found["remedy"], "", "{found}");
}

#[test]
fn a_smaller_mtu_on_the_way_and_a_copy_of_this_machine_are_named() {
    let rig = rig!(1500);
    rig.cable.insert_bridge(9000, 1500);
    let _target = rig.serve(&["--export", "disk=mem:8M"]);
    let root = root(&rig, "");
    let mut last = None;
    // The target may be too busy to answer in time.
    wait_until("it answers", || {
        let (report, code) = doctor(&rig, Side::Host, &["--root", &root, "--target", "e2e"]);
        let is_answered = report["paths"][0]["frame_len"].as_u64() >= Some(1514);
        last = Some((report, code));
        is_answered
    });
    let (report, code) = last.unwrap();
    assert_found(&report, "mtu-on-the-way", "an MTU of 1500 get through");
    let path = &report["paths"][0];
    assert_eq!(path["link"], rig.cable.link(Side::Host));
    assert_eq!((&path["frame_len"], &path["frame_len_max"]), (&1514.into(), &9014.into()));
    // Both ends are one machine here, with two addresses: as a copy of it would be.
    assert_found(&report, "duplicate-machine-id", "target e2e");
    assert_eq!(code, 8);
    // A session finds the same without being asked.
    let session = rig.connect(&[]);
    let (report, _) = doctor(&rig, Side::Host, &["--root", &root]);
    assert_found(&report, "mtu-on-the-way", "on the way to disk");
    session.disconnect();
    let (report, code) = doctor(&rig, Side::Host, &["--root", &root, "--target", "other"]);
    assert_found(&report, "target-unheard", "target other is not heard; heard: ");
    assert_eq!(code, 6);
}

#[test]
fn links_that_are_down_missing_or_part_of_a_bridge_are_named() {
    let rig = rig!(1500);
    rig.cable.add(&[("t1", "h1")], 9000);
    let (link, end) = (rig.cable.link(Side::Host), Side::Host);
    let root = root(&rig, &format!("disk {link},h1,h9 noauto\n"));
    let (report, _) = doctor(&rig, end, &["--root", &root]);
    assert_found(&report, "link-missing", "tychetab's line of disk names h9");
    assert_found(&report, "mtu-not-jumbo", link);
    assert!(finding(&report, "link-down").is_none() && finding(&report, "link-member").is_none());
    rig.cable.ip(end, &["link", "set", "h1", "down"]);
    rig.cable.ip(end, &["link", "add", "name", "br0", "type", "bridge"]);
    rig.cable.ip(end, &["link", "set", link, "master", "br0"]);
    let (report, code) = doctor(&rig, end, &["--root", &root]);
    assert_found(&report, "link-down", "h1, which tychetab's line of disk names");
    assert_found(&report, "link-member", &format!("{link}, which is part of br0"));
    assert_eq!(code, 5);
    rig.cable.ip(end, &["link", "set", "h1", "up"]);
    rig.cable.ip(Side::Target, &["link", "set", "t1", "down"]);
    wait_until("the carrier is lost", || {
        let (report, _) = doctor(&rig, end, &["--root", &root]);
        finding(&report, "link-no-carrier").is_some()
    });
    // For people, with a line each.
    let done = finish(&mut rig.tyche(end, &["doctor", "--quiet", "--root", &root]), PATIENCE);
    assert_eq!(done.status.code(), Some(5));
    let line = done.stdout.lines().find(|line| line.contains("link-missing")).unwrap();
    assert!(line.starts_with("error") && line.contains("`ip link` lists them"), "{line}");
}

#[test]
fn a_dead_daemon_and_a_firewall_before_a_target_are_named() {
    let rig = rig!(1500);
    let target = rig.cable.end(Side::Target);
    target.ip(&["address", "add", "10.8.9.1/24", "dev", rig.cable.link(Side::Target)]);
    let links = ["--link", rig.cable.link(Side::Target), "--link", "udp:10.8.9.1"];
    let _target = rig.serve_on(&links, &["--export", "disk=mem:8M"]);
    let (report, _) = doctor(&rig, Side::Target, &[]);
    assert!(finding(&report, "firewall-drops").is_none(), "{report}");
    target.nft(
        "add table inet filter; add chain inet filter input { type filter hook input priority 0; \
         policy drop; }; add rule inet filter input tcp dport 22 accept",
    );
    let (report, _) = doctor(&rig, Side::Target, &[]);
    assert_found(&report, "firewall-drops", "udp port 8650");
    let session = rig.connect(&[]);
    session.kill();
    let (report, code) = doctor(&rig, Side::Host, &["--root", &root(&rig, "")]);
    assert_found(&report, "session-dead", DISK);
    assert_eq!(code, 9);
}
