//! A target that lives, but whose disk does not answer: every wait is bounded, `list` names what
//! the session waits for, and force is immediate.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::rig::{DISK, Rig, Session, Side, Target, rig, run, wait_until};

const SIZE: u64 = 64 << 20;
/// The limit of a session, in seconds: long enough for `list` to be looked at meanwhile, which
/// takes seconds beside a target that does not answer.
const CTRL_LOSS_TMO: &str = "20";
/// Time limit for a forced disconnect.
const FORCE_LIMIT: Duration = Duration::from_secs(2);

/// A disk that hangs while the target behind it is stopped: the device of another session.
pub(crate) struct HungDisk<'a>(&'a Target);

impl<'a> HungDisk<'a> {
    pub(crate) fn hang(target: &'a Target) -> Self {
        target.process.signal(Signal::STOP);
        Self(target)
    }
}

impl Drop for HungDisk<'_> {
    fn drop(&mut self) {
        self.0.process.signal(Signal::CONT);
    }
}

/// Serves [`DISK`] for h2, which is the device of a session with another target. Returns the file
/// that this one serves, this target, and that of [`DISK`]: `outer`.
pub(crate) fn serve_nested(rig: &Rig, size: u64) -> (PathBuf, Target, Target) {
    rig.cable.add(&[("t1", "h1"), ("t2", "h2")], 1500);
    let file = rig.file("disk.img", size);
    let export = format!("inner={}", file.display());
    let inner = rig.serve_as("inner", &["--link", "t1"], &["--export", &export]);
    let forever = ["connect", "inner", "--link", "h1", "--as", "fuse", "--ctrl-loss-tmo", "-1"];
    let device = run(&mut rig.tyche(Side::Host, &forever));
    let export = format!("{DISK}={}", device.trim());
    let outer = rig.serve_as("outer", &["--link", "t2"], &["--export", &export]);
    (file, inner, outer)
}

fn connect(rig: &Rig) -> Session<'_> {
    let times = ["--ctrl-loss-tmo", CTRL_LOSS_TMO];
    rig.connect_at((Side::Host, "h2"), "fuse", &times)
}

/// The session on [`DISK`] in `list`.
fn listed(rig: &Rig) -> Value {
    let list = rig.ask(&["list"]);
    let sessions = list["sessions"].as_array().unwrap();
    sessions.iter().find(|it| it["export"] == DISK).cloned().unwrap_or_default()
}

/// Writes a block of the device in another thread, which returns the result and the time.
fn write(device: &Path) -> thread::JoinHandle<(std::io::Result<()>, Duration)> {
    let file = File::options().write(true).open(device).unwrap();
    thread::spawn(move || {
        let began = Instant::now();
        (file.write_all_at(&[7; 4096], 0), began.elapsed())
    })
}

/// Waits until `list` reports, as JSON and as text, that the session waits for the target.
fn await_said(rig: &Rig) {
    wait_until("a request waits", || {
        listed(rig)["waiting"]["longest_s"].as_f64().is_some_and(|longest| longest >= 3.0)
    });
    let session = listed(rig);
    assert_eq!((&session["state"], &session["operations"]), (&"live".into(), &1.into()));
    let text = run(&mut rig.tyche(Side::Host, &["list"]));
    println!("{text}");
    assert!(text.contains("waits for the target: 1 request, the oldest for "), "{text}");
}

#[test]
fn a_disk_that_hangs_is_waited_for_no_longer_than_told() {
    let rig = rig!();
    let (_, inner, outer) = serve_nested(&rig, SIZE);

    let session = connect(&rig);
    let hung = HungDisk::hang(&inner);
    let writing = write(&session.device);
    await_said(&rig);
    let took = session.disconnect_by_force();
    println!("disconnected by force in {took:?}, while a request waited");
    assert!(took < FORCE_LIMIT, "{took:?}");
    let (ended, _) = writing.join().unwrap();
    assert!(ended.is_err(), "what was in progress fails");
    drop(hung);

    let session = connect(&rig);
    write(&session.device).join().unwrap().0.unwrap();
    let hung = HungDisk::hang(&inner);
    let writing = write(&session.device);
    await_said(&rig);
    let (ended, took) = writing.join().unwrap();
    println!("a write ended after {took:?}: {ended:?}");
    assert_eq!(ended.unwrap_err().raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    assert!((Duration::from_secs(19)..Duration::from_secs(40)).contains(&took), "{took:?}");
    let failed = listed(&rig);
    assert_eq!(failed["state"], "failed", "{failed}");
    assert_eq!(failed["problem"], "the target lives, but did not answer in time", "{failed}");
    let took = session.disconnect_by_force();
    println!("disconnected by force in {took:?}, after the session has failed");
    assert!(took < FORCE_LIMIT, "{took:?}");
    wait_until("the target says it", || {
        outer.log().contains("export disk: its disk has not answered")
    });
    let text = run(&mut rig.tyche(Side::Target, &["list"]));
    assert!(text.contains("export disk of outer: its disk has not answered for "), "{text}");
    drop(hung);
    wait_until("it is over", || outer.log().contains("export disk: its disk answers again"));
}

#[test]
fn a_disk_that_hangs_at_the_start_keeps_no_other_from_being_served() {
    let rig = rig!();
    let (_, inner, outer) = serve_nested(&rig, SIZE);
    outer.kill();
    let list: Value =
        serde_json::from_str(&run(&mut rig.tyche(Side::Host, &["list", "-o", "json"]))).unwrap();
    let device = list["sessions"][0]["device"].as_str().unwrap();
    let hung = HungDisk::hang(&inner);
    let exports = ["--export", &format!("late={device}"), "--export", "disk=mem:8M"];
    // Waits until it serves.
    let outer = rig.serve_as("outer", &["--link", "t2"], &exports);
    wait_until("it is said", || outer.log().contains(&format!("{device} does not answer")));
    let session = connect(&rig);
    write(&session.device).join().unwrap().0.unwrap();
    session.disconnect();
    drop(hung);
    wait_until("its disk is there", || outer.log().contains("late: its disk is there: online"));
    rig.connect_disk(Side::Host, "late", &["--link", "h2", "--as", "fuse"]).disconnect();
}
