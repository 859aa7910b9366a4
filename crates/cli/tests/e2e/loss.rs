//! Deaths of the target: it comes back and nothing is lost, or it does not and everything ends.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::files::Files;
use crate::rig::{rig, run, wait_until};

const SIZE: u64 = 1 << 30;
/// The longest wait for EIO if requests may wait 5 s for a lost target.
const EIO_LIMIT: Duration = Duration::from_secs(10);

#[test]
fn a_killed_target_that_returns_loses_nothing() {
    let rig = rig!(9000);
    let mut target = Some(rig.serve_file(SIZE));
    let session = rig.connect(&[]);
    run(Command::new("mkfs.ext4").arg("-q").arg(&session.device));
    let point = rig.mount(&session.device, "rw");
    let files = Files::new(4, 160 << 20);
    files.write_disturbed(&point, 1, || {
        target.take().unwrap().kill();
        wait_until("the loss is noticed", || rig.ask(&["list"])["sessions"][0]["state"] == "lost");
        target = Some(rig.serve_again());
    });
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    rig.unmount();
    session.disconnect();

    rig.assert_kept(&files, &[]);
}

#[test]
fn a_target_lost_for_good_ends_in_errors_not_in_waiting() {
    let rig = rig!(9000);
    let target = rig.serve_file(SIZE);
    let session = rig.connect(&["--ctrl-loss-tmo", "5"]);
    run(Command::new("mkfs.ext4").arg("-q").arg(&session.device));
    let point = rig.mount(&session.device, "rw");
    let direct = OFlags::DIRECT.bits().cast_signed();
    let device = File::options().read(true).custom_flags(direct).open(&session.device).unwrap();
    let file = File::create(point.join("file")).unwrap();
    target.kill();
    let killed = Instant::now();
    thread::scope(|scope| {
        // One thread reads the device, another writes files.
        let reader = scope.spawn(|| {
            let mut memory = vec![0; 8192];
            let skip = memory.as_ptr().align_offset(4096);
            let error = device.read_at(&mut memory[skip..skip + 4096], 64 << 20).unwrap_err();
            (error, killed.elapsed())
        });
        let writer = scope.spawn(|| {
            file.write_at(&[7; 1 << 20], 0).unwrap();
            (file.sync_all().unwrap_err(), killed.elapsed())
        });
        let mut left = Vec::new();
        wait_until("the loss is listed", || {
            let list = rig.ask(&["list"]);
            let session = &list["sessions"][0];
            left.extend(session["time_left_s"].as_f64().filter(|_| session["state"] == "lost"));
            session["state"] == "failed"
        });
        let counts_down = left.windows(2).all(|pair| pair[0] >= pair[1]);
        assert!(left.len() > 2 && left[0] <= 5.0 && counts_down, "{left:?}");
        println!("counted down from {:.1} s to {:.1} s", left[0], left[left.len() - 1]);
        for (name, thread) in [("read", reader), ("fsync", writer)] {
            let (error, after) = thread.join().unwrap();
            println!("{name}: {error} after {after:.1?}");
            let is_eio = error.raw_os_error() == Some(5);
            let is_erofs = error.kind() == ErrorKind::ReadOnlyFilesystem;
            assert!(is_eio || (name == "fsync" && is_erofs), "{error}");
            assert!(after < EIO_LIMIT, "{name} took {after:?}");
        }
    });
    drop((device, file));
    let pid = session.pid();
    let took = session.disconnect_by_force();
    println!("disconnect --force took {took:.2?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    wait_until("the daemon is gone", || !Path::new(&format!("/proc/{pid}")).exists());
    rig.unmount();
}

#[test]
fn a_daemon_that_is_killed_leaves_nothing_that_waits() {
    let rig = rig!(9000);
    let _target = rig.serve_file(SIZE);
    let session = rig.connect(&[]);
    run(Command::new("mkfs.ext4").arg("-q").arg(&session.device));
    let point = rig.mount(&session.device, "rw");
    let file = File::create(point.join("file")).unwrap();
    file.write_at(&[7; 1 << 20], 0).unwrap();
    session.signal(rustix::process::Signal::KILL);
    let error = file.sync_all().unwrap_err();
    println!("fsync: {error}");
    drop(file);
    rig.unmount();
    // The kernel closes a daemon's sockets one after the other: wait until the process is gone.
    wait_until("the daemon is gone", || !Path::new(&format!("/proc/{}", session.pid())).exists());
    assert_eq!(rig.ask(&["list"])["sessions"][0]["state"], "dead");
    // The same host may connect the export again at once, which removes the predecessor.
    rig.connect(&[]).disconnect();
    assert_eq!(rig.ask(&["list"])["sessions"].as_array().map(Vec::len), Some(0));
}
