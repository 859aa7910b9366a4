//! Ends of sessions with obstacles: a dead or stuck daemon, a device that is still mounted, a mount
//! namespace with a copy of the mounts.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tyche_testkit::leaks::threads;

use crate::refusals::expect;
use crate::rig::{DISK, PATIENCE, Rig, Running, Side, finish, rig, run, wait_until};

const SIZE: u64 = 64 << 20;

/// All sessions in `list`, which must print no warnings.
fn list(rig: &Rig) -> Vec<Value> {
    let done = finish(&mut rig.tyche(Side::Host, &["list", "-o", "json"]), PATIENCE);
    assert_eq!(done.stderr, "");
    let list: Value = serde_json::from_str(&done.stdout).unwrap();
    list["sessions"].as_array().unwrap().clone()
}

/// Runs the commands that `list` names for the only session, and checks that nothing of it is left.
fn clear_as_told(rig: &Rig) {
    let commands = list(rig)[0]["clear"].as_array().unwrap().clone();
    let text = run(&mut rig.tyche(Side::Host, &["list"]));
    println!("{text}");
    for command in commands.iter().map(|command| command.as_str().unwrap()) {
        assert!(text.contains(command), "{command}: {text}");
        run(&mut rig.shell(command));
    }
    assert_nothing_left(rig);
}

fn assert_nothing_left(rig: &Rig) {
    assert_eq!(list(rig), [] as [Value; 0]);
    assert_eq!(fs::read_dir(rig.path("run/sessions")).unwrap().count(), 0);
}

fn make_file_system(device: &Path) {
    run(Command::new("mkfs.ext4").arg("-q").arg(device));
}

#[test]
fn a_killed_daemon_is_listed_with_its_log_until_it_is_cleared() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    for kind in ["loop", "fuse", "nbd-socket"] {
        let session = rig.connect_as(kind, &[]);
        session.kill();
        for _ in 0..2 {
            let dead = &list(&rig)[0];
            assert_eq!(dead["state"], "dead", "--as {kind}: {dead}");
            let log = fs::read_to_string(dead["log"].as_str().unwrap()).unwrap();
            assert!(log.contains(session.value["session"].as_str().unwrap()), "{log}");
        }
        clear_as_told(&rig);
        wait_until("the device is gone", || !session.is_bound());
        assert!(rig.path("run/log/disk.log").exists());
    }
}

#[test]
fn a_removed_runtime_directory_is_made_anew() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let session = rig.connect(&[]);
    for _ in 0..2 {
        fs::remove_dir_all(rig.path("run")).unwrap();
        wait_until("the session is found again", || {
            list(&rig).first().is_some_and(|it| it["state"] == "live")
        });
        wait_until("the target is found again", || {
            !rig.ask(&["list"])["targets"].as_array().unwrap().is_empty()
        });
    }
    let twice = ["connect", DISK, "--link", rig.cable.link(Side::Host)];
    let done = finish(&mut rig.tyche(Side::Host, &twice), PATIENCE);
    expect(&done, &twice, 10, &["connected already"]);
    // The record is whole: what a killed daemon leaves is found.
    session.kill();
    clear_as_told(&rig);
    rig.connect(&[]).disconnect();
}

#[test]
fn an_interrupted_disconnect_leaves_the_device_where_it_is() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    for kind in ["loop", "fuse"] {
        let session = rig.connect_as(kind, &[]);
        let user = fs::File::open(&session.device).unwrap();
        let mut waiting = rig.tyche(Side::Host, &["disconnect", DISK, "--wait", "60"]);
        let mut waiting = waiting.spawn().unwrap();
        let answers = || threads(session.pid(), "control-answer").len();
        wait_until("the daemon is asked", || answers() > 0);
        waiting.kill().unwrap();
        waiting.wait().unwrap();
        drop(user);
        wait_until("nobody is answered any more", || answers() == 0);
        assert!(kind != "loop" || session.is_bound(), "the device is there");
        assert_eq!(list(&rig)[0]["state"], "live", "--as {kind}");
        session.disconnect();
    }
}

#[test]
fn a_dead_device_is_listed_for_as_long_as_it_is_mounted() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let session = rig.connect(&[]);
    make_file_system(&session.device);
    rig.mount(&session.device, "ro");
    session.kill();
    let args = ["disconnect", DISK];
    let done = finish(&mut rig.tyche(Side::Host, &args), PATIENCE);
    expect(&done, &args, 9, &["in use", "umount"]);
    // Another session of the export has another device, and does not hide the dead one.
    let other = rig.connect(&[]);
    assert_ne!(other.device, session.device);
    let states: Vec<_> = list(&rig).iter().map(|it| it["state"].clone()).collect();
    assert!(states.contains(&"live".into()) && states.contains(&"dead".into()), "{states:?}");
    run(&mut rig.tyche(Side::Host, &["disconnect", DISK]));
    clear_as_told(&rig);
    wait_until("the device is gone", || !session.is_bound());
}

#[test]
fn what_force_leaves_mounted_is_listed_until_it_is_unmounted() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let session = rig.connect(&[]);
    make_file_system(&session.device);
    rig.mount(&session.device, "ro");
    let done = finish(&mut rig.tyche(Side::Host, &["disconnect", DISK, "--force"]), PATIENCE);
    assert!(done.success() && done.stderr.contains("still in use"), "{}", done.stderr);
    assert!(done.stderr.contains("umount"), "{}", done.stderr);
    assert!(session.is_bound());
    let left = list(&rig)[0].clone();
    assert_eq!((&left["state"], &left["ended"]), (&"dead".into(), &true.into()), "{left}");
    // The session was ended already: this does not affect it.
    rig.disconnect_all();
    clear_as_told(&rig);
}

#[test]
fn a_copy_of_the_mounts_in_another_namespace_keeps_no_session() {
    let rig = rig!(alone, 1500);
    let _target = rig.serve_file(SIZE);
    for kind in ["loop", "fuse"] {
        for force in [false, true] {
            let session = rig.connect_as(kind, &[]);
            let _elsewhere = Running::with_copied_mounts("exec sleep 600");
            match force {
                true => drop(session.disconnect_by_force()),
                false => session.disconnect(),
            }
            assert_nothing_left(&rig);
        }
    }
}

#[test]
fn a_file_system_that_is_mounted_in_another_namespace_is_named() {
    let rig = rig!(alone, 1500);
    let _target = rig.serve_file(SIZE);
    let session = rig.connect(&[]);
    make_file_system(&session.device);
    rig.mount(&session.device, "ro");
    let elsewhere = Running::with_copied_mounts("exec sleep 600");
    rig.unmount();
    let args = ["disconnect", DISK];
    let done = finish(&mut rig.tyche(Side::Host, &args), PATIENCE);
    let umount = format!("nsenter -t {} -m umount", elsewhere.id());
    expect(&done, &args, 9, &["in use", &umount]);
    assert_eq!(list(&rig)[0]["state"], "live");
    session.disconnect_by_force();
    assert_eq!(list(&rig)[0]["state"], "dead");
    clear_as_told(&rig);
}

#[test]
fn a_session_that_is_ended_by_force_lets_go_of_the_export() {
    let rig = rig!(1500);
    let target = rig.serve_file(SIZE);
    for kind in ["loop", "fuse"] {
        // Without a farewell, the target would wait for so long.
        let session = rig.connect_as(kind, &["--keep-alive-tmo", "60"]);
        let user = fs::File::open(&session.device).unwrap();
        let left = || target.log().matches("has left disk after").count();
        let (before, begun) = (left(), Instant::now());
        session.disconnect_by_force();
        wait_until("the target knows", || left() > before);
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        drop(user);
        rig.disconnect_all();
    }
}

fn force_ends_a_stuck_daemon(kind: &str) {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let session = rig.connect_as(kind, &[]);
    session.signal(Signal::STOP);
    session.disconnect_by_force();
    assert_nothing_left(&rig);
}

#[test]
fn force_ends_a_daemon_that_is_stuck_with_a_loop_device() {
    force_ends_a_stuck_daemon("loop");
}

#[test]
fn force_ends_a_daemon_that_is_stuck_with_a_file() {
    force_ends_a_stuck_daemon("fuse");
}

#[test]
fn a_session_whose_device_was_taken_away_is_not_called_live() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let session = rig.connect_as("fuse", &[]);
    assert_eq!(list(&rig)[0]["state"], "live");
    run(Command::new("umount").arg("-l").arg(session.device.parent().unwrap()));
    let gone = &list(&rig)[0];
    assert_eq!(gone["state"], "gone", "{gone}");
    let text = run(&mut rig.tyche(Side::Host, &["list"]));
    assert!(text.contains("is not there any more"), "{text}");
    session.disconnect();
    assert_nothing_left(&rig);
}
