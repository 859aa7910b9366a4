//! Requests that fail before their session does, and sessions that have failed and come back.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::Signal;
use serde_json::Value;

use crate::rig::{PATIENCE, Rig, Side, finish, rig, run, wait_until};

const SIZE: u64 = 64 << 20;
const DISK: &str = "disk";
const BLOCK: usize = 4096;
/// The longest that a request may take if requests fail after 3 s, and the target's silence counts
/// after half a second; on a busy machine.
const EARLY_MAX: Duration = Duration::from_secs(10);
/// The longest that a request takes which fails at once.
const ONCE_MAX: Duration = Duration::from_millis(2500);

/// A block in memory, aligned for direct I/O.
struct Block(Vec<u8>, usize);

impl Block {
    fn of(byte: u8) -> Self {
        let memory = vec![byte; 2 * BLOCK];
        let skip = memory.as_ptr().align_offset(BLOCK);
        Self(memory, skip)
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.0[self.1..self.1 + BLOCK]
    }
}

fn direct(device: &Path) -> File {
    let direct = OFlags::DIRECT.bits().cast_signed();
    File::options().read(true).write(true).custom_flags(direct).open(device).unwrap()
}

fn session(rig: &Rig) -> Value {
    rig.ask(&["list"])["sessions"][0].clone()
}

fn is_eio<T>(result: io::Result<T>) -> bool {
    result.err().and_then(|error| error.raw_os_error()) == Some(5)
}

/// Asserts that requests fail, and the session goes on.
fn assert_fails_fast(rig: &Rig) {
    let now = session(rig);
    assert_eq!((&now["state"], &now["fails_fast"]), (&"lost".into(), &true.into()));
    assert!(now["time_left_s"].as_f64().unwrap() > 500.0, "the session goes on");
}

#[test]
fn requests_fail_early_and_are_answered_again_by_the_same_session() {
    let rig = rig!(9000);
    let target = rig.serve_file(SIZE);
    let tmo = ["--fast-io-fail-tmo", "3", "--keep-alive-tmo", "0.5", "--ctrl-loss-tmo", "600"];
    let connected = rig.connect(&tmo);
    let before = session(&rig);
    let device = direct(&connected.device);
    device.write_all_at(Block::of(1).bytes(), 0).unwrap();
    target.kill();
    let killed = Instant::now();
    assert!(is_eio(device.write_all_at(Block::of(2).bytes(), 0)));
    assert!(killed.elapsed() < EARLY_MAX, "{:?}", killed.elapsed());
    assert_fails_fast(&rig);
    let begun = Instant::now();
    assert!(is_eio(device.read_at(Block::of(0).bytes(), 0)));
    assert!(begun.elapsed() < ONCE_MAX, "{:?}", begun.elapsed());
    let text = run(&mut rig.tyche(Side::Host, &["list"]));
    assert!(text.contains(" s, requests fail"), "{text}");

    let _target = rig.serve_again();
    wait_until("it is live again", || session(&rig)["state"] == "live");
    let mut block = Block::of(0);
    device.read_exact_at(block.bytes(), 0).unwrap();
    assert!([1, 2].contains(&block.bytes()[0]), "the failed write may have been executed");
    device.write_all_at(Block::of(3).bytes(), 0).unwrap();
    device.sync_all().unwrap();
    let after = session(&rig);
    assert_eq!((&after["session"], &after["pid"]), (&before["session"], &before["pid"]));
    drop(device);
    connected.disconnect();
    let mut kept = vec![0; BLOCK];
    File::open(rig.path("disk.img")).unwrap().read_exact_at(&mut kept, 0).unwrap();
    assert!(kept.iter().all(|&byte| byte == 3));
}

#[test]
fn requests_fail_early_over_fcoe_and_are_answered_again() {
    let rig = rig!(2500);
    rig.file("disk.img", SIZE);
    let links = ["--fcoe", rig.cable.link(Side::Target)];
    let serve = || rig.serve_on(&links, &["--export", &rig.export()]);
    let target = serve();
    let tmo = ["--fast-io-fail-tmo", "1", "--ctrl-loss-tmo", "600", "--queues", "2"];
    let disk = await_port(&rig);
    let connected = rig.connect_disk(Side::Host, &disk, &[&fcoe(&rig), &tmo[..]].concat());
    let before = session(&rig);
    let device = direct(&connected.device);
    device.write_all_at(Block::of(1).bytes(), 0).unwrap();
    target.kill();
    assert!(is_eio(device.write_all_at(Block::of(2).bytes(), 0)));
    assert_fails_fast(&rig);
    let begun = Instant::now();
    for _ in 0..4 {
        assert!(is_eio(device.read_at(Block::of(0).bytes(), 0)), "on each queue");
    }
    assert!(begun.elapsed() < ONCE_MAX, "{:?}", begun.elapsed());

    let _target = serve();
    wait_until("it is live again", || session(&rig)["state"] == "live");
    assert_eq!(session(&rig)["fails_fast"], false);
    device.write_all_at(Block::of(3).bytes(), 0).unwrap();
    device.sync_all().unwrap();
    let after = session(&rig);
    assert_eq!((&after["session"], &after["pid"]), (&before["session"], &before["pid"]));
    drop(device);
    connected.disconnect();
}

/// The WWPN of the target's port, once it is found.
fn await_port(rig: &Rig) -> String {
    let mut port = None;
    wait_until("the target is found", || {
        let found = rig.ask(&[&["discover"], &fcoe(rig)[..]].concat());
        port = found["ports"][0]["wwpn"].as_str().map(str::to_owned);
        port.is_some()
    });
    port.unwrap()
}

fn fcoe(rig: &Rig) -> [&str; 3] {
    ["--fcoe", "--link", rig.cable.link(Side::Host)]
}

#[test]
fn a_limit_that_would_never_be_reached_is_refused() {
    let rig = rig!(9000);
    for (disk, links) in [(DISK, &fcoe(&rig)[1..]), ("20:00:02:00:5e:10:00:01", &fcoe(&rig))] {
        let tmo = ["--fast-io-fail-tmo", "10", "--ctrl-loss-tmo", "10"];
        let args = [&["connect", disk], links, &tmo].concat();
        let done = finish(&mut rig.tyche(Side::Host, &args), PATIENCE);
        assert!(!done.success() && done.stderr.contains("fast-io-fail-tmo"), "{}", done.stderr);
    }
}

/// Neither a reload nor the death of the daemon turns a device that fails into one that waits.
#[test]
fn requests_go_on_failing_in_the_next_daemon() {
    let rig = rig!(1500);
    let target = rig.serve_file(SIZE);
    let tmo = ["--fast-io-fail-tmo", "1", "--keep-alive-tmo", "0.5", "--ctrl-loss-tmo", "600"];
    let connected = rig.connect_as("vhost-user", &tmo);
    let before = session(&rig);
    target.kill();
    let fails = || session(&rig)["fails_fast"] == true;
    wait_until("requests fail", fails);
    rig.ask(&["reload", DISK]);
    wait_until("requests fail in the next program", fails);
    let reloaded = session(&rig);
    assert_ne!(reloaded["session"], before["session"]);
    assert_eq!((&reloaded["pid"], &reloaded["state"]), (&before["pid"], &"lost".into()));
    connected.kill();
    let next = rig.connect_as("vhost-user", &tmo);
    assert!(next.warnings.contains("requests fail until it is back"), "{}", next.warnings);
    wait_until("requests fail in the next daemon", fails);
    let _target = rig.serve_again();
    wait_until("it is live again", || session(&rig)["state"] == "live" && !fails());
    wait_until("that is on record", || session(&rig)["changed"]["fails"] == false);
    rig.disconnect_all();
}

/// The target is away again when the next program begins, or so long that the session failed.
#[test]
fn a_session_that_has_failed_fails_in_the_next_daemon() {
    let rig = rig!(1500);
    let target = rig.serve_file(SIZE);
    let connected =
        rig.connect_as("vhost-user", &["--ctrl-loss-tmo", "1", "--keep-alive-tmo", "0.5"]);
    target.kill();
    wait_until("it has failed, and is tried", || session(&rig)["trying"] == true);
    rig.ask(&["reload", DISK]);
    assert_eq!(session(&rig)["changed"]["fails"], true);
    wait_until("it has failed, and is tried", || session(&rig)["trying"] == true);
    let _target = rig.serve_again();
    wait_until("it is live again", || session(&rig)["state"] == "live");
    assert_eq!(session(&rig)["pid"], connected.value["pid"]);
    rig.disconnect_all();
}

#[test]
fn a_session_that_has_failed_begins_anew_when_its_target_is_back() {
    let rig = rig!(1500);
    let target = rig.serve_file(SIZE);
    let tmo = ["--ctrl-loss-tmo", "1", "--keep-alive-tmo", "0.5"];
    let connected = rig.connect_as("vhost-user", &tmo);
    let before = session(&rig);
    target.kill();
    wait_until("it has failed, and is tried", || session(&rig)["trying"] == true);
    assert_eq!(session(&rig)["state"], "failed");
    let text = run(&mut rig.tyche(Side::Host, &["list"]));
    assert!(text.contains("failed, trying again"), "{text}");
    let _target = rig.serve_again();
    wait_until("it is live again", || session(&rig)["state"] == "live");
    let after = session(&rig);
    assert_ne!(after["session"], before["session"]);
    assert_eq!((&after["pid"], &after["lasting"]), (&before["pid"], &before["lasting"]));
    assert!(connected.device.exists());
    run(&mut rig.tyche(Side::Host, &["disconnect", DISK]));
}

#[test]
fn a_session_is_not_tried_again_after_another_host_has_written() {
    let rig = rig!(1500);
    let target = rig.serve_file(SIZE);
    let tmo = ["--ctrl-loss-tmo", "1", "--keep-alive-tmo", "0.5"];
    let connected = rig.connect_as("vhost-user", &tmo);
    target.kill();
    wait_until("it has failed, and is tried", || session(&rig)["trying"] == true);
    // It must not be there first.
    connected.signal(Signal::STOP);
    let _target = rig.serve_again();
    let other = "7d9f2b52-6a3c-4c1e-9a39-1f8d51d0a001";
    let second = rig.connect_as("loop", &["--host-id", other]);
    direct(&second.device).write_all_at(Block::of(4).bytes(), 0).unwrap();
    let first = || {
        let sessions = rig.ask(&["list"])["sessions"].clone();
        let is_first = |it: &&Value| it["kind"] == "vhost-user";
        sessions.as_array().unwrap().iter().find(is_first).cloned().unwrap()
    };
    connected.signal(Signal::CONT);
    second.disconnect();
    wait_until("it is given up", || first()["trying"] == false);
    assert_eq!(first()["state"], "failed");
    run(&mut rig.tyche(Side::Host, &["disconnect", DISK, "--force"]));
}

#[test]
fn a_device_that_ends_with_its_daemon_stays_failed() {
    let rig = rig!(1500);
    let target = rig.serve_file(SIZE);
    let connected = rig.connect(&["--ctrl-loss-tmo", "1", "--keep-alive-tmo", "0.5"]);
    target.kill();
    wait_until("it has failed", || session(&rig)["state"] == "failed");
    assert_eq!(session(&rig)["trying"], false);
    connected.disconnect();
}
