//! The outside of a process: logs and output that can't be written, limits, commands that are
//! interrupted, and daemons that do not answer. One fault costs one, and every command ends.

use std::fs::{self, File};
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::process::Signal;

use crate::refusals::{expect, refused};
use crate::rig::{DISK, PATIENCE, Rig, Running, Side, finish, rig, run, wait_until};

const MIB: u64 = 1 << 20;

/// A pipe that is full, and that nobody reads.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}

/// Starts a target with these standard streams.
fn serve(rig: &Rig, stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Running {
    let link = rig.cable.link(Side::Target);
    let export = format!("{DISK}=mem:8M");
    let args = ["serve", "--name", "e2e", "--link", link, "--export", &export];
    let mut command = rig.tyche(Side::Target, &args);
    Running::start(command.stdout(stdout).stderr(stderr))
}

fn is_served(rig: &Rig) {
    let session = rig.connect_as("fuse", &[]);
    File::open(&session.device).unwrap().read_exact_at(&mut [0; 4096], 0).unwrap();
    session.disconnect();
}

#[test]
fn a_target_serves_whatever_becomes_of_its_output_and_its_log() {
    let rig = rig!(1500);
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut target = serve(&rig, full(), full());
    is_served(&rig);
    // Each is a line of the log.
    for _ in 0..3 {
        target.signal(Signal::HUP);
    }
    is_served(&rig);
    assert!(target.is_running());
    drop(target);

    // Closed by its reader.
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut target = serve(&rig, writer.try_clone().unwrap(), writer);
    is_served(&rig);
    target.signal(Signal::HUP);
    is_served(&rig);
    assert!(target.is_running());
    drop(target);

    // Never read.
    let (_reader, writer) = full_pipe();
    let mut target = serve(&rig, writer.try_clone().unwrap(), writer);
    is_served(&rig);
    for _ in 0..3 {
        target.signal(Signal::HUP);
    }
    is_served(&rig);
    target.signal(Signal::TERM);
    assert!(target.end().success(), "a log that blocks does not keep it from ending");
}

#[test]
fn a_result_that_can_not_be_printed_is_an_error_unless_nobody_reads_it() {
    let rig = rig!(1500);
    for args in [&["list"][..], &["list", "-o", "json"], &["completions", "bash"]] {
        let mut command = rig.tyche(Side::Host, args);
        command.stdout(File::options().write(true).open("/dev/full").unwrap());
        let mut running = Running::start(command.stderr(Stdio::null()));
        assert_eq!(running.end().code(), Some(1), "{args:?}");
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let mut command = rig.tyche(Side::Host, args);
        let mut running = Running::start(command.stdout(writer).stderr(Stdio::null()));
        assert_eq!(running.end().code(), Some(0), "{args:?}");
    }
}

#[test]
fn a_target_that_waits_for_its_key_ends_when_told_to() {
    let rig = rig!(1500);
    let key = rig.path("key");
    run(Command::new("mkfifo").args(["-m", "600"]).arg(&key));
    let link = rig.cable.link(Side::Target);
    let served = ["serve", "--name", "e2e", "--link", link, "--export", "disk=mem:8M", "--key"];
    let args = [&served[..], &[key.to_str().unwrap()]].concat();
    let mut target = Running::start(rig.tyche(Side::Target, &args).stderr(Stdio::null()));
    // A pipe without a reader can't be opened for writing. Nothing is written.
    let mut writer = None;
    wait_until("the target reads its key", || {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        writer = open(&key, flags, Mode::empty()).ok();
        writer.is_some()
    });
    target.signal(Signal::TERM);
    assert!(!target.end().success());
}

#[test]
fn a_write_beyond_the_limit_of_file_sizes_fails_alone() {
    let rig = rig!(1500);
    let (disk, other) = (rig.file("disk.img", 64 * MIB), rig.file("other.img", MIB));
    let exports = [format!("{DISK}={}", disk.display()), format!("other={}", other.display())];
    let link = rig.cable.link(Side::Target);
    let [one, two] = exports.each_ref().map(|it| format!("--export={it}"));
    let args = ["serve", "--name", "e2e", "--link", link, &one, &two];
    // 4 MiB, in units of 1024 bytes.
    let tyche = env!("CARGO_BIN_EXE_tyche");
    let limited = ["-c", "ulimit -f 4096; exec \"$@\"", "sh", tyche];
    let mut command = rig.at(Side::Target, Path::new("bash"), &[&limited[..], &args].concat());
    let mut target = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
    assert!(target.line().starts_with("tyche: serving "));
    let session = rig.connect_as("fuse", &[]);
    let device = File::options().write(true).open(&session.device).unwrap();
    device.write_all_at(&[7; 4096], 0).unwrap();
    device.write_all_at(&[7; 4096], 32 * MIB).unwrap_err();
    device.write_all_at(&[7; 4096], MIB).unwrap();
    drop(device);
    session.disconnect();
    assert!(target.is_running());
}

#[test]
fn a_daemon_that_does_not_answer_is_named_and_killed_by_force() {
    let rig = rig!(1500);
    let _target = rig.serve_file(8 * MIB);
    let session = rig.connect_as("fuse", &[]);
    let pid = session.pid();
    session.signal(Signal::STOP);
    let process = format!("process {pid}");
    let says = [&process[..], "does not answer", "disconnect --force"];
    let began = Instant::now();
    for args in [&["disconnect", DISK][..], &["disconnect", DISK, "--wait", "1"]] {
        expect(&finish(&mut rig.tyche(Side::Host, args), PATIENCE), args, 6, &says);
    }
    refused(&rig, Side::Host, &["link", "del", DISK, rig.cable.link(Side::Host)], 6, &says);
    let list = run(&mut rig.tyche(Side::Host, &["list"]));
    assert!(says.iter().all(|part| list.contains(part)), "{list}");
    let checked = finish(&mut rig.tyche(Side::Host, &["list", "--check"]), PATIENCE);
    assert_eq!(checked.status.code(), Some(6), "{}", checked.stdout);
    run(&mut rig.tyche(Side::Host, &["disconnect", DISK, "--force"]));
    // The machine may be busy; without a bound each took ten minutes.
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    wait_until("nothing is left", || !Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_target_that_does_not_answer_is_shown_as_such() {
    let rig = rig!(1500);
    let target = rig.serve_file(8 * MIB);
    let host = "00000000-0000-4000-8000-000000000001";
    let orders: [&[&str]; 2] = [&["export", "allow", DISK, host], &["export", "resize", DISK]];
    target.process.signal(Signal::STOP);
    let says = ["target e2e: does not answer", &format!("kill -CONT {}", target.pid())];
    for args in orders {
        refused(&rig, Side::Target, args, 6, &says);
    }
    let args = ["list", "--check"];
    let listed = finish(&mut rig.tyche(Side::Target, &args), PATIENCE);
    assert_eq!(listed.status.code(), Some(6), "{}", listed.stdout);
    assert!(says.iter().all(|part| listed.stdout.contains(part)), "{}", listed.stdout);
    let report = &rig.ask_at(Side::Target, &["list"])["targets"][0];
    assert_eq!((&report["name"], &report["pid"]), (&"e2e".into(), &target.pid().into()));
    assert!(report["problem"].as_str().is_some_and(|it| it.contains("is stuck")), "{report}");
    let stats = run(&mut rig.tyche(Side::Target, &["stats", "e2e"]));
    assert!(stats.starts_with("e2e silent"), "{stats}");
    target.process.signal(Signal::CONT);
    run(&mut rig.tyche(Side::Target, &args));
    run(&mut rig.tyche(Side::Target, orders[0]));
}

#[test]
fn a_connect_that_is_interrupted_leaves_no_daemon() {
    let rig = rig!(1500);
    let link = rig.cable.link(Side::Host);
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let args = ["connect", DISK, "--link", link, "--timeout", "600"];
        let mut command = rig.tyche(Side::Host, &args);
        let mut running = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let sessions = rig.path("run/sessions");
        wait_until("the daemon has begun", || {
            fs::read_dir(&sessions).is_ok_and(|mut it| it.next().is_some())
        });
        running.signal(signal);
        assert!(!running.end().success());
        wait_until("the daemon has ended", || rig.living().is_empty());
    }
}

#[test]
fn an_export_that_is_not_there_is_missed_however_short_the_time_is() {
    let rig = rig!(1500);
    let exports: Vec<_> = (10..45).map(|number| format!("--export=d{number}=mem:1M")).collect();
    let exports: Vec<_> = exports.iter().map(String::as_str).collect();
    let _target = rig.serve(&exports);
    let link = rig.cable.link(Side::Host);
    let args = ["connect", "nope", "--link", link, "--as", "fuse", "--timeout", "1"];
    let done = finish(&mut rig.tyche(Side::Host, &args), PATIENCE);
    // A busy machine may not hear the whole list in that time; then it does not say what there is.
    if done.status.code() != Some(6) {
        expect(&done, &args, 3, &["no export `nope`", "d10, d11", "and 25 more"]);
    }
    let args = [&args[..6], &["--timeout", "60"]].concat();
    refused(&rig, Side::Host, &args, 3, &["no export `nope`", "d10, d11", "and 25 more"]);
}

#[test]
fn a_device_whose_path_can_not_be_printed_is_connected_all_the_same() {
    let rig = rig!(1500);
    let _target = rig.serve_file(8 * MIB);
    let args = ["connect", DISK, "--link", rig.cable.link(Side::Host), "--as", "fuse"];
    let mut command = rig.tyche(Side::Host, &args);
    command.stdout(File::options().write(true).open("/dev/full").unwrap());
    let mut running = Running::start(command.stderr(Stdio::null()));
    assert_eq!(running.end().code(), Some(1));
    let session = rig.ask(&["list"])["sessions"][0].clone();
    assert_eq!(session["state"], "live", "{session}");
    let device = File::open(session["device"].as_str().unwrap()).unwrap();
    device.read_exact_at(&mut [0; 4096], 0).unwrap();
    drop(device);
    rig.disconnect_all();
}

#[test]
fn a_daemon_leaves_the_directory_in_which_it_was_called() {
    let rig = rig!(1500);
    let _target = rig.serve_file(8 * MIB);
    let stick = rig.path("mnt");
    fs::create_dir(&stick).unwrap();
    run(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&stick));
    let args = ["connect", DISK, "--link", rig.cable.link(Side::Host), "--as", "fuse"];
    run(rig.tyche(Side::Host, &args).current_dir(&stick));
    rig.unmount();
    fs::remove_dir(&stick).unwrap();
    rig.disconnect_all();
}

#[test]
fn counters_that_are_watched_in_a_pipe_are_plain_text() {
    let rig = rig!(1500);
    let _target = rig.serve_file(8 * MIB);
    let mut command = rig.tyche(Side::Target, &["stats", "--watch"]);
    let mut watched = Running::start(command.stdout(Stdio::piped()));
    // The second round begins with rates.
    let mut line = watched.line();
    while !line.starts_with("target e2e: ") {
        assert!(!line.is_empty() && !line.contains('\x1b'), "{line:?}");
        line = watched.line();
    }
}
