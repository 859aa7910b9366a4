//! A target whose process has no memory or no descriptors left: who asks for more waits, and
//! everybody else is served as before.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::rig::{Rig, Running, Session, Side, Target, rig, wait_until};

const MIB: u64 = 1 << 20;
const TCP: &str = "tcp:127.0.0.1:8650";

/// Gives a target so much of a resource.
fn limit(target: &Target, resource: Resource, current: Option<u64>, maximum: Option<u64>) {
    let pid = Pid::from_raw(target.pid() as i32);
    prlimit(pid, resource, Rlimit { current, maximum }).unwrap();
}

/// Address space of a target in bytes.
fn address_space(target: &Target) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{}/statm", target.pid())).unwrap();
    let pages: u64 = statm.split_whitespace().next().unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// The next descriptor that a target gets.
fn next_descriptor(target: &Target) -> u64 {
    let is_free =
        |number: &u64| !Path::new(&format!("/proc/{}/fd/{number}", target.pid())).exists();
    (0..).find(is_free).unwrap()
}

/// Begins to connect `other`.
fn begin(rig: &Rig, side: Side, link: &str) -> Running {
    let args = ["connect", "other", "--link", link, "--as", "fuse", "--timeout", "60"];
    Running::start(rig.tyche(side, &args).stdout(Stdio::piped()))
}

/// Writes and reads blocks of a session.
fn exercise(session: &Session<'_>) {
    let device = File::options().read(true).write(true).open(&session.device).unwrap();
    for number in 1..=100_u8 {
        let (offset, mut back) = (u64::from(number) * 8192, [0; 4096]);
        device.write_all_at(&[number; 4096], offset).unwrap();
        device.sync_all().unwrap();
        device.read_exact_at(&mut back, offset).unwrap();
        assert_eq!(back, [number; 4096]);
    }
}

#[test]
fn a_channel_without_memory_costs_itself_only() {
    let rig = rig!(1500);
    let target = rig.serve(&["--export", "disk=mem:8M", "--export", "other=mem:8M"]);
    let session = rig.connect_as("fuse", &[]);
    exercise(&session);
    limit(&target, Resource::As, Some(address_space(&target) + MIB / 4), None);
    let mut other = begin(&rig, Side::Host, rig.cable.link(Side::Host));
    wait_until("it is turned away", || target.log().contains("no memory for a channel"));
    exercise(&session);
    limit(&target, Resource::As, None, None);
    let device = other.line();
    wait_until("it is served", || {
        File::open(device.trim()).is_ok_and(|it| it.read_exact_at(&mut [1; 4096], 0).is_ok())
    });
    let said = target.log().matches("no memory for a channel").count();
    assert!(said < 5, "{}", target.log());
}

#[test]
fn a_connection_without_a_descriptor_costs_itself_only() {
    let rig = rig!(1500);
    rig.cable.ip(Side::Target, &["link", "set", "lo", "up"]);
    let exports = ["--export", "disk=mem:8M", "--export", "other=mem:8M"];
    let target = rig.serve_on(&["--link", TCP], &exports);
    let session = rig.connect_at((Side::Target, TCP), "fuse", &[]);
    exercise(&session);
    limit(&target, Resource::Nofile, Some(next_descriptor(&target)), Some(1024));
    let mut other = begin(&rig, Side::Target, TCP);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        exercise(&session);
    }
    assert!(!target.log().contains("link failed"), "{}", target.log());
    limit(&target, Resource::Nofile, Some(1024), Some(1024));
    let device = other.line();
    File::open(device.trim()).unwrap().read_exact_at(&mut [1; 4096], 0).unwrap();
    let link = &rig.ask_at(Side::Target, &["list"])["targets"][0]["links"][0];
    let failed = link["connections_unaccepted"].as_u64().unwrap();
    assert!((1..10).contains(&failed), "{link}");
}

#[test]
fn a_target_takes_as_many_descriptors_as_it_may_have() {
    let rig = rig!(1500);
    let link = rig.cable.link(Side::Target);
    let shell = ["-c", "ulimit -Sn 64; ulimit -Hn 512; exec \"$@\"", "sh"];
    let serve = ["serve", "--name", "e2e", "--link", link, "--export", "disk=mem:8M"];
    let args = [&shell[..], &[env!("CARGO_BIN_EXE_tyche")], &serve].concat();
    let mut command = rig.at(Side::Target, Path::new("bash"), &args);
    let mut target = Running::start(command.stdout(Stdio::piped()));
    assert!(target.line().starts_with("tyche: serving "));
    let limits = fs::read_to_string(format!("/proc/{}/limits", target.id())).unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().collect::<Vec<_>>(), ["512", "512", "files"]);
}
