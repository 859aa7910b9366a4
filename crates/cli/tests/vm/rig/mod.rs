//! The rig of a test in virtual machines: a segment, targets on this machine, and guests.
//!
//! ```text
//! this machine: tyche serve ── br0 ──┬── tap0 ── eth0 of the first guest: tyche connect
//!                10.9.0.1            └── tap1 ── eth0 of the second
//! ```
//!
//! All of it is removed when the test ends, however it ends. One test runs at a time, also across
//! programs: an emulated machine is slow enough.

mod console;
mod guest;
mod machine;
mod segment;
mod session;
mod target;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tyche_testkit::alone;

use crate::lab::LAB;
pub(crate) use guest::{Card, Guest, Job, PATIENCE, Shape, VIRTIO};
pub(crate) use machine::{Machine, is_in_order};
pub(crate) use segment::HOST;
use segment::{BRIDGE, Segment};
pub(crate) use session::Session;
pub(crate) use target::Target;
pub(crate) use tyche_testkit::process::{Running, run};
pub(crate) use tyche_testkit::wait::{wait_readable, wait_until};

pub(crate) const MIB: u64 = 1 << 20;

/// Parameters of every guest's kernel. On a busy machine its processors stall and its timer is
/// late, which is no error of the kernel.
const KERNEL: &str = "console=ttyS0 loglevel=5 panic=-1 mitigations=off no_timer_check";

/// The export's name.
pub(crate) const DISK: &str = "disk";

/// One test's share of the machine.
pub(crate) struct Rig {
    segment: Segment,
    dir: tempfile::TempDir,
    _alone: File,
}

impl Rig {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let tag = format!("tyche-vm-{}-{number}", std::process::id());
        let alone = alone::on_machine("tyche-vm");
        // On a disk: the tests use sparse files.
        let dir = tempfile::Builder::new().prefix(&tag).tempdir_in("/var/tmp").unwrap();
        let rig = Self { segment: Segment::new(&tag), dir, _alone: alone };
        // The guest runs a copy: a build may replace the original meanwhile.
        fs::create_dir(rig.path("bin")).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_tyche"), rig.program()).unwrap();
        rig
    }

    /// A rig with a target that serves a new sparse file of that size, and a guest.
    pub(crate) fn start(size: u64, shape: impl Into<Shape>) -> (Self, Target, Guest) {
        let rig = Self::new();
        let target = rig.serve_new(size);
        let guest = rig.boot(0, &shape.into());
        (rig, target, guest)
    }

    /// The program under test.
    pub(crate) fn program(&self) -> PathBuf {
        self.path("bin/tyche")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The file that [`serve`](Self::serve) exports.
    pub(crate) fn disk(&self) -> PathBuf {
        self.path("disk.img")
    }

    /// Serves a new sparse file of that size.
    pub(crate) fn serve_new(&self, size: u64) -> Target {
        self.serve_new_with(size, &[])
    }

    /// As [`serve_new`](Self::serve_new), with more arguments.
    pub(crate) fn serve_new_with(&self, size: u64, args: &[&str]) -> Target {
        File::create_new(self.disk()).unwrap().set_len(size).unwrap();
        self.serve(args)
    }

    /// Serves the existing file, with more arguments.
    pub(crate) fn serve(&self, args: &[&str]) -> Target {
        self.serve_exports(&[format!("{DISK}={}", self.disk().display())], args)
    }

    /// Serves exports, as `NAME=PATH`, with more arguments.
    pub(crate) fn serve_exports(&self, exports: &[String], args: &[&str]) -> Target {
        Target::start(self, "vm", ["--link", BRIDGE], exports, args)
    }

    /// Serves an export, as `NAME=PATH`, by another target of that name: on the segment, or on a
    /// link over IP.
    pub(crate) fn serve_as(&self, name: &str, link: Option<&str>, export: String) -> Target {
        Target::start(self, name, ["--link", link.unwrap_or(BRIDGE)], &[export], &[])
    }

    /// Serves the file over FCoE, with more arguments.
    pub(crate) fn serve_fcoe(&self, args: &[&str]) -> Target {
        let exports = [format!("{DISK}={}", self.disk().display())];
        Target::start(self, "vm", ["--fcoe", HOST], &exports, args)
    }

    /// Starts a forwarder of a fabric (FCF), which notices after 5 s that a node is silent.
    pub(crate) fn forward(&self) -> Running {
        let mut command = self.command(&*LAB);
        command.args(["fcf", BRIDGE, "--period", "2"]).stdout(Stdio::piped());
        let mut forwarder = Running::start(&mut command);
        let line = forwarder.line();
        assert!(line.starts_with("tyche-lab: forwarding on "), "{line:?}");
        forwarder
    }

    /// Boots a guest on the cable of that number.
    pub(crate) fn boot(&self, number: u8, shape: &Shape) -> Guest {
        Guest::boot(self, number, shape)
    }

    /// Cuts the cable of a guest without notice to it, until [`mend`](Self::mend).
    pub(crate) fn cut(&self, number: u8) {
        self.segment.set(number, "down");
    }

    /// Undoes [`cut`](Self::cut).
    pub(crate) fn mend(&self, number: u8) {
        self.segment.set(number, "up");
    }

    /// Drops all frames with data to a guest, and no others, until [`feed`](Self::feed).
    pub(crate) fn starve(&self, number: u8) {
        self.segment.starve(number);
    }

    /// Undoes [`starve`](Self::starve).
    pub(crate) fn feed(&self) {
        self.segment.feed();
    }

    /// Loses that many of a thousand frames of Fibre Channel on the way from a guest, and on the
    /// way to it.
    pub(crate) fn lose_fcoe(&self, number: u8, from: u32, to: u32) {
        self.segment.lose_fcoe(number, from, to);
    }

    /// Runs `action` at this machine's end of the segment: what it opens is there.
    pub(crate) fn inside<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        self.segment.on_thread(action)
    }

    /// Runs one of our commands on this machine, which must succeed.
    pub(crate) fn tyche(&self, args: &[&str]) -> String {
        run(self.command(self.program()).args(args))
    }

    /// A command at this machine's end of the segment. It ends with this thread.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.segment.inside("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program.as_ref());
        command.env("TYCHE_RUNTIME_DIR", self.path("run"));
        command.env("TYCHE_STATE_DIR", self.path("state"));
        command.env("TYCHE_KNOWN_TARGETS", self.path("known-targets"));
        command
    }
}

/// Bytes that a file occupies on its disk.
pub(crate) fn allocated(file: &Path) -> u64 {
    file.metadata().unwrap().blocks() * 512
}
