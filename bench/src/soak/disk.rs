//! A target on one side and a connected disk on the other: a file served write-through, and a loop
//! device.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use crate::network::{Network, Side};
use crate::process::{Doing, Result, Running, Stop, failed, run};

/// Name and size of the target's disk.
const EXPORT: &str = "soak";
const SIZE: u64 = 256 << 20;
/// Time limit for a target to start.
const READY: Duration = Duration::from_secs(30);
/// Time limit in seconds for a session to end, even by force.
const FAREWELL_S: &str = "20";

/// A running target.
pub(super) struct Target(Running);

impl Target {
    /// Starts a target on all of its side's interfaces, and waits until it serves.
    pub(super) fn start(tyche: &Path, network: &Network, dir: &Path, stop: &Stop) -> Result<Self> {
        let file = dir.join("disk.img");
        let disk =
            File::options().create(true).append(true).open(&file).doing("the disk's file")?;
        disk.set_len(SIZE).doing("the disk's file")?;
        let mut serve = network.inside(Side::Target, &tyche.to_string_lossy());
        serve.args(["serve", "--name", "soak", "--export"]);
        serve.arg(format!("{EXPORT}={}", file.display())).env("TYCHE_RUNTIME_DIR", dir.join("run"));
        serve.env("TYCHE_STATE_DIR", dir.join("state"));
        let mut running = Running::start(&mut serve)?;
        let ready = stop.until(READY, || {
            running.check()?;
            Ok(!running.output()?.is_empty())
        })?;
        if ready { Ok(Self(running)) } else { failed("the target does not serve") }
    }

    /// Kills the target as a power failure would. Its log is appended to a file.
    pub(super) fn kill(self, log: &Path) -> Result<()> {
        let said = self.0.kill()?;
        let log = File::options().create(true).append(true).open(log);
        log.and_then(|mut log| log.write_all(said.as_bytes())).doing("the target's log")
    }
}

/// A connected disk. Dropping it disconnects by force, even if requests wait for it.
pub(super) struct Disk<'a> {
    tyche: &'a Path,
    network: &'a Network,
    runtime: PathBuf,
    pub(super) device: PathBuf,
    pid: i32,
}

/// The output of `tyche connect`.
#[derive(Deserialize)]
struct Connected {
    device: PathBuf,
    pid: i32,
}

impl<'a> Disk<'a> {
    /// Connects over all interfaces of its side.
    pub(super) fn connect(
        tyche: &'a Path,
        network: &'a Network,
        dir: &Path,
        stop: &Stop,
    ) -> Result<Self> {
        let runtime = dir.join("run");
        // Constructed first, so that it is dropped: an interrupted connect may leave a daemon.
        let mut disk = Self { tyche, network, runtime, device: PathBuf::new(), pid: 0 };
        let said = disk.ask(&["connect", EXPORT, "--as", "loop", "-o", "json"], stop)?;
        let Connected { device, pid } = serde_json::from_str(&said).doing("tyche connect")?;
        (disk.device, disk.pid) = (device, pid);
        Ok(disk)
    }

    /// Runs a command of Tyche's at the host; returns its output.
    pub(super) fn ask(&self, args: &[&str], stop: &Stop) -> Result<String> {
        run(self.command(&self.tyche.to_string_lossy()).args(args), stop)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.network.inside(Side::Host, program);
        command.env("TYCHE_RUNTIME_DIR", &self.runtime);
        command
    }

    /// Disconnects in an orderly way: nothing may be left of the device.
    pub(super) fn disconnect(self, stop: &Stop) -> Result<()> {
        self.ask(&["disconnect", &self.device.to_string_lossy()], stop)?;
        if stop.until(READY, || Ok(!self.is_there()))? {
            return Ok(());
        }
        failed(format!("{} is still there after `tyche disconnect`", self.device.display()))
    }

    /// Fails all waiting requests, so that the processes that made them can end.
    pub(super) fn force(&self) {
        let mut force = self.command("timeout");
        force.arg(FAREWELL_S).arg(self.tyche).args(["disconnect", "--all", "--force"]);
        // There may be nothing to end.
        let _ = force.output();
    }

    fn is_there(&self) -> bool {
        block(&self.device).join("loop/backing_file").exists()
    }

    /// The log of its daemon, with the file before it.
    pub(super) fn log(&self) -> String {
        let logs = fs::read_dir(self.runtime.join("log")).into_iter().flatten().flatten();
        let logs = logs.map(|it| fs::read_to_string(it.path()));
        logs.map(std::result::Result::unwrap_or_default).collect()
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        self.force();
        if !self.is_there() {
            return;
        }
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).output();
        if self.is_there() {
            eprintln!("left behind: losetup --detach {}", self.device.display());
        }
    }
}

/// The kernel's directory for a block device.
pub(super) fn block(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}
