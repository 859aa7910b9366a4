//! The rig of an end-to-end test: two network namespaces joined by a cable, and daemons, devices
//! and mounts. All of it is removed when the test ends, however it ends.
//!
//! The daemons are the real program, found by their run-time directory, which is the test's own.
//! Four tests run at a time, because most of them wait for timers and kills. A test that measures
//! time, loads the machine, or copies its mounts says `rig!(alone, ..)`, and none runs beside it.

mod inline;
mod lab;
mod stranger;
mod wire;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::Value;
use tyche_cli::report::Output;
use tyche_testkit::alone::{HeldPlace, Places};

use crate::files::Files;
pub(crate) use crate::lab::LAB;
pub(crate) use inline::{await_done, submit};
pub(crate) use stranger::{Stranger, forged};
pub(crate) use tyche_testkit::process::{Done, Running, finish, run};
pub(crate) use tyche_testkit::wait::{PATIENCE, wait_readable, wait_until};
pub(crate) use wire::{Cable, DATAGRAMS, FRAMES};

/// The tests that run at a time.
pub(crate) static MACHINE: Places = Places::new("tyche-e2e", 4);

/// The export's name, unless a test sets another.
pub(crate) const DISK: &str = "disk";

/// An end of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Target,
    Host,
}

/// Makes the rig of a test, with a cable of the given MTU, or without any; after `alone` no other
/// test runs meanwhile. On a machine where the test cannot run, prints why and ends the test.
macro_rules! rig {
    (@ $places:ident, $mtu:expr) => {{
        tyche_testkit::need_root!("/dev/fuse", "/dev/loop-control");
        $crate::rig::Rig::new($crate::rig::MACHINE.$places(), $mtu)
    }};
    (alone) => {
        rig!(@ all, None)
    };
    (alone, $mtu:expr) => {
        rig!(@ all, Some($mtu))
    };
    () => {
        rig!(@ one, None)
    };
    ($mtu:expr) => {
        rig!(@ one, Some($mtu))
    };
}
pub(crate) use rig;

/// Parses what a command prints as JSON. The program's own types, of which the published schema is
/// made, must know every field of it, and find every field that they know.
pub(crate) fn parsed(text: &str) -> Value {
    let value: Value = serde_json::from_str(text).unwrap();
    let output = Output::deserialize(&value).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(serde_json::to_value(output).unwrap(), value);
    value
}

/// One test's share of the machine.
pub(crate) struct Rig {
    /// Declared first, so dropped first: processes that wait for the disk must be released before
    /// the rest can be removed.
    daemons: Daemons,
    pub(crate) cable: Cable,
    dir: tempfile::TempDir,
    _place: HeldPlace<'static>,
}

/// The processes and mounts that belong to a directory.
struct Daemons(PathBuf);

impl Rig {
    pub(crate) fn new(place: HeldPlace<'static>, mtu: Option<u32>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let tag = format!("tyche-e2e-{}-{number}", std::process::id());
        // On a disk: the tests use direct I/O and sparse files.
        let dir = tempfile::Builder::new().prefix(&tag).tempdir_in("/var/tmp").unwrap();
        let daemons = Daemons(dir.path().to_owned());
        let cable = mtu.map_or_else(|| Cable::none(&tag), |mtu| Cable::lay(&tag, mtu));
        Self { daemons, cable, dir, _place: place }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A sparse file.
    pub(crate) fn file(&self, name: &str, size: u64) -> PathBuf {
        let path = self.path(name);
        File::create_new(&path).unwrap().set_len(size).unwrap();
        path
    }

    /// One of our commands at one end of the cable: of `tyche-lab` if only that has it.
    pub(crate) fn tyche(&self, side: Side, args: &[&str]) -> Command {
        self.at(side, lab::program(args), args)
    }

    /// Any command at one end of the cable.
    pub(crate) fn at(&self, side: Side, program: &Path, args: &[&str]) -> Command {
        let mut command = self.cable.end(side).command(program);
        command.args(args).env("TYCHE_RUNTIME_DIR", self.path("run"));
        command.env("TYCHE_STATE_DIR", self.path("state"));
        command.env("TYCHE_KNOWN_TARGETS", self.path("known-targets"));
        command
    }

    /// Serves a sparse file of that size.
    pub(crate) fn serve_file(&self, size: u64) -> Target {
        self.file("disk.img", size);
        self.serve_again()
    }

    /// Serves the file of [`serve_file`](Self::serve_file) as it is.
    pub(crate) fn serve_again(&self) -> Target {
        self.serve(&["--export", &self.export()])
    }

    /// The file `disk.img` as an argument of `--export`.
    pub(crate) fn export(&self) -> String {
        format!("{DISK}={}", self.path("disk.img").display())
    }

    /// Starts a target on the cable and waits until it serves.
    pub(crate) fn serve(&self, args: &[&str]) -> Target {
        self.serve_on(&["--link", self.cable.link(Side::Target)], args)
    }

    /// Starts a target on all interfaces unless told otherwise, and waits until it serves.
    pub(crate) fn serve_on(&self, links: &[&str], args: &[&str]) -> Target {
        self.serve_as("e2e", links, args)
    }

    /// Starts a target of that name.
    pub(crate) fn serve_as(&self, name: &str, links: &[&str], args: &[&str]) -> Target {
        let fixed = [&["serve", "--name", name], links].concat();
        let log = self.path("target.log");
        let log_file = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = self.tyche(Side::Target, &[&fixed, args].concat());
        command.stdout(Stdio::piped()).stderr(log_file);
        let mut target = Target { process: Running::start(&mut command), log };
        let line = target.process.line();
        assert!(line.starts_with("tyche: serving "), "{line:?}; {}", target.log());
        target
    }

    /// Connects [`DISK`] as a loop device.
    pub(crate) fn connect(&self, args: &[&str]) -> Session<'_> {
        self.connect_as("loop", args)
    }

    pub(crate) fn connect_as(&self, kind: &str, args: &[&str]) -> Session<'_> {
        self.connect_at((Side::Host, self.cable.link(Side::Host)), kind, args)
    }

    /// Connects [`DISK`] on one link at one end.
    pub(crate) fn connect_at(
        &self,
        (side, link): (Side, &str),
        kind: &str,
        args: &[&str],
    ) -> Session<'_> {
        self.connect_over(side, &[&["--link", link, "--as", kind], args].concat())
    }

    /// Connects [`DISK`], on all interfaces of one end unless told otherwise.
    pub(crate) fn connect_over(&self, side: Side, args: &[&str]) -> Session<'_> {
        self.connect_disk(side, DISK, args)
    }

    /// Connects a disk by the name that `connect` takes.
    pub(crate) fn connect_disk(&self, side: Side, disk: &str, args: &[&str]) -> Session<'_> {
        let fixed = ["connect", disk, "-o", "json"];
        let done = finish(&mut self.tyche(side, &[&fixed, args].concat()), PATIENCE);
        assert!(done.success(), "connect: {}\n{}", done.stderr, self.logs());
        let value = parsed(&done.stdout);
        let device = PathBuf::from(value["device"].as_str().unwrap());
        // A thread of the daemon writes its log, at its leisure.
        let session = value["session"].as_str().unwrap();
        wait_until("the log names the session", || self.logs().contains(session));
        let sequence = sequence(&device);
        Session { rig: self, device, sequence, value, warnings: done.stderr }
    }

    /// The JSON output of one of our commands at the host.
    pub(crate) fn ask(&self, args: &[&str]) -> Value {
        self.ask_at(Side::Host, args)
    }

    pub(crate) fn ask_at(&self, side: Side, args: &[&str]) -> Value {
        let text = run(&mut self.tyche(side, &[args, &["-o", "json"]].concat()));
        if lab::is_published(args) { parsed(&text) } else { serde_json::from_str(&text).unwrap() }
    }

    /// The counters of the only session, and of the only target.
    pub(crate) fn stats(&self) -> (Value, Value) {
        let mut stats = self.ask(&["stats"]);
        (stats["sessions"][0].take(), stats["targets"][0].take())
    }

    /// Mounts a device.
    pub(crate) fn mount(&self, device: &Path, options: &str) -> PathBuf {
        let point = self.path("mnt");
        fs::create_dir_all(&point).unwrap();
        run(Command::new("mount").args(["-o", options]).arg(device).arg(&point));
        point
    }

    pub(crate) fn unmount(&self) {
        // Between its fork and its exec, a child of another test holds our open files as well: the
        // file system may be busy for a moment.
        wait_until("the file system can be unmounted", || {
            let done = finish(Command::new("umount").arg(self.path("mnt")), PATIENCE);
            assert!(done.success() || done.stderr.contains("busy"), "{}", done.stderr);
            done.success()
        });
    }

    /// Connects the disk read-only, with more arguments, compares the files on it and checks their
    /// file system.
    pub(crate) fn assert_kept(&self, files: &Files, args: &[&str]) {
        let session = self.connect(&[&["--read-only"], args].concat());
        files.assert_intact(&self.mount(&session.device, "ro"));
        self.unmount();
        check_ext4(&session.device);
        session.disconnect();
    }

    /// A shell command line on the host, with `tyche` in its path.
    pub(crate) fn shell(&self, line: &str) -> Command {
        let ours = Path::new(env!("CARGO_BIN_EXE_tyche")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut command = self.at(Side::Host, Path::new("sh"), &["-c", line]);
        command.env("PATH", format!("{}:{path}", ours.display()));
        command
    }

    /// Ends all sessions in an orderly way.
    pub(crate) fn disconnect_all(&self) {
        run(&mut self.tyche(Side::Host, &["disconnect", "--all"]));
    }

    /// The processes of the test's daemons and their helpers.
    pub(crate) fn living(&self) -> Vec<i32> {
        self.daemons.living().into_iter().map(Pid::as_raw_pid).collect()
    }

    /// The logs of the daemons.
    pub(crate) fn logs(&self) -> String {
        let mut text = fs::read_to_string(self.path("target.log")).unwrap_or_default();
        for log in fs::read_dir(self.path("run/log")).into_iter().flatten().flatten() {
            text += &fs::read_to_string(log.path()).unwrap_or_default();
        }
        text
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("logs of the daemons:\n{}", self.logs());
        }
        // By force, because the target may be lost. It may find nothing to end.
        let mut force = self.tyche(Side::Host, &["disconnect", "--all", "--force"]);
        let _ = finish(&mut force, PATIENCE);
        self.daemons.end();
        if !std::thread::panicking() {
            assert_eq!(self.daemons.living(), [], "processes are left");
            assert_eq!(self.daemons.mounts(), [] as [PathBuf; 0], "mounts are left");
        }
    }
}

impl Daemons {
    fn end(&self) {
        for pid in self.living() {
            let _ = kill_process(pid, Signal::KILL);
        }
        for path in self.mounts() {
            // It may have much to write first.
            let _ = finish(Command::new("umount").arg(&path), PATIENCE);
            let _ = unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
        let deadline = Instant::now() + PATIENCE;
        while !self.living().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Processes with a run-time directory below ours.
    fn living(&self) -> Vec<Pid> {
        let wanted = format!("TYCHE_RUNTIME_DIR={}/", self.0.display());
        let is_one = |pid: &Pid| {
            let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid()));
            let environment = environment.unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|it| it.starts_with(wanted.as_bytes()))
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Pid::from_raw).filter(is_one).collect()
    }

    fn mounts(&self) -> Vec<PathBuf> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let paths = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        let mut below: Vec<_> = paths.filter(|path| path.starts_with(&self.0)).collect();
        below.reverse();
        below
    }
}

/// A running target.
pub(crate) struct Target {
    pub(crate) process: Running,
    log: PathBuf,
}

impl Target {
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log contains this: a thread of its own writes it.
    pub(crate) fn await_log(&self, part: &str) {
        wait_until(part, || self.log().contains(part));
    }

    /// Kills the target as a power failure would.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

/// A connected export.
pub(crate) struct Session<'a> {
    rig: &'a Rig,
    pub(crate) device: PathBuf,
    sequence: Option<String>,
    /// The output of `connect`.
    pub(crate) value: Value,
    /// The warnings of `connect`.
    pub(crate) warnings: String,
}

/// The number that the kernel gives to a block device, and another whenever a loop device is bound.
fn sequence(device: &Path) -> Option<String> {
    let name = device.file_name().unwrap();
    fs::read_to_string(Path::new("/sys/block").join(name).join("diskseq")).ok()
}

impl Session<'_> {
    /// Whether the loop device is bound to the session's file. Another test may take it once it is
    /// released.
    pub(crate) fn is_bound(&self) -> bool {
        let name = self.device.file_name().unwrap();
        let is_bound = Path::new("/sys/block").join(name).join("loop/backing_file").exists();
        is_bound && sequence(&self.device) == self.sequence
    }

    pub(crate) fn pid(&self) -> u32 {
        u32::try_from(self.value["pid"].as_u64().unwrap()).unwrap()
    }

    /// Sends a signal to the daemon.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Kills the daemon, and waits until its process is gone.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
        wait_until("the daemon is gone", || !Path::new(&format!("/proc/{}", self.pid())).exists());
    }

    /// Disconnects in an orderly way.
    pub(crate) fn disconnect(self) {
        let device = self.device.to_str().unwrap();
        run(&mut self.rig.tyche(Side::Host, &["disconnect", device]));
        self.await_device_gone();
    }

    /// Disconnects by force; returns how long that took.
    pub(crate) fn disconnect_by_force(self) -> Duration {
        let began = Instant::now();
        let device = self.device.to_str().unwrap();
        run(&mut self.rig.tyche(Side::Host, &["disconnect", device, "--force"]));
        began.elapsed()
    }

    fn await_device_gone(&self) {
        wait_until("the device is free", || !self.is_bound());
    }
}

/// Checks the file system of a device, which must not be mounted.
pub(crate) fn check_ext4(device: &Path) {
    run(Command::new("e2fsck").args(["-f", "-n"]).arg(device));
}
