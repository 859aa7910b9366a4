//! `list` explains why a session is not live.

use std::process::Stdio;

use serde_json::Value;

use crate::rig::{DISK, Rig, Running, Side, rig, run, wait_until};

const SIZE: u64 = 64 << 20;
/// A host that is not this machine.
const OTHER_HOST: &str = "11111111-2222-4333-8444-555555555555";

/// Waits until the session is in that state; returns its problem, which the text output must
/// contain, too.
fn problem(rig: &Rig, state: &str) -> String {
    let mut session = Value::Null;
    wait_until(&format!("the session is {state}"), || {
        session = rig.ask(&["list"])["sessions"][0].take();
        session["state"] == state
    });
    let problem = session["problem"].as_str().unwrap_or_else(|| panic!("{session}")).to_owned();
    let text = run(&mut rig.tyche(Side::Host, &["list"]));
    println!("{text}");
    assert!(text.contains(&problem), "{problem}: {text}");
    problem
}

#[test]
fn a_target_that_stays_away() {
    let rig = rig!(1500);
    let target = rig.serve_file(SIZE);
    let times = ["--keep-alive-tmo", "1", "--ctrl-loss-tmo", "4"];
    let session = rig.connect_as("nbd-socket", &times);
    assert_eq!(rig.ask(&["list"])["sessions"][0]["problem"], Value::Null);
    target.kill();
    let lost = problem(&rig, "lost");
    let failed = problem(&rig, "failed");
    assert!(failed.contains("did not come back in time: "), "{failed} after {lost}");
    session.disconnect_by_force();
}

#[test]
fn an_export_that_is_another_disk_now() {
    let rig = rig!(1500);
    let target = rig.serve_file(SIZE);
    let session = rig.connect_as("nbd-socket", &["--keep-alive-tmo", "1"]);
    target.kill();
    // The administrator has removed the records of the earlier disk.
    std::fs::remove_dir_all(rig.path("state/targets/e2e/exports")).unwrap();
    let other = rig.file("other.img", SIZE);
    let _target = rig.serve(&["--export", &format!("{DISK}={}", other.display())]);
    let failed = problem(&rig, "failed");
    assert!(failed.contains("not the same disk"), "{failed}");
    session.disconnect_by_force();
}

#[test]
fn an_export_that_another_host_holds_now() {
    let rig = rig!();
    rig.cable.add(&[("t1", "h1"), ("t2", "h2")], 1500);
    rig.file("disk.img", SIZE);
    let links = ["--link", "t1", "--link", "t2"];
    let _target = rig.serve_on(&links, &["--export", &rig.export()]);
    let times = ["--keep-alive-tmo", "0.5", "--ctrl-loss-tmo", "-1"];
    let first = rig.connect_at((Side::Host, "h1"), "nbd-socket", &times);
    rig.cable.cut(Side::Target, &["t1"]);
    rig.cable.cut(Side::Host, &["h1"]);
    problem(&rig, "lost");
    // The target notices the loss before the host does, or soon after.
    let other = ["connect", DISK, "--link", "h2", "--as", "nbd-socket", "--foreground"];
    let other = [&other[..], &["--host-id", OTHER_HOST, "--host-name", "other-host"]].concat();
    let other = [&other[..], &["--retry", "0.2"]].concat();
    let mut command = rig.tyche(Side::Host, &other);
    let other = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("the other host has it", || {
        let target = &rig.ask(&["list"])["targets"][0];
        let sessions = target["exports"][0]["sessions"].as_array().cloned().unwrap_or_default();
        sessions.iter().any(|it| it["host_name"] == "other-host")
    });
    for side in [Side::Target, Side::Host] {
        rig.cable.mend(side);
    }
    let is_told = |session: &Value| {
        let problem = session["problem"].as_str().unwrap_or_default();
        problem.contains("other-host") || problem.contains("another host has written")
    };
    let mut list = Value::Null;
    wait_until("the first host is told", || {
        list = rig.ask(&["list"]);
        list["sessions"].as_array().unwrap().iter().any(is_told)
    });
    println!("{list}");
    drop(other);
    first.disconnect_by_force();
}
