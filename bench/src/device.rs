//! A connected export: a block device, and the daemon that serves it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use crate::network::{Network, Side};
use crate::process::{Doing, Result, Stop, failed, run};

/// The variable that names a run-time directory, in which targets and sessions are found.
pub(crate) const RUNTIME_DIR: &str = "TYCHE_RUNTIME_DIR";
/// Time limit for a device to go.
const GONE: Duration = Duration::from_secs(30);
/// Time limit in seconds for a session to end, even by force.
const FAREWELL_S: &str = "20";

/// A connected disk. Dropping it disconnects by force, even if requests wait for it.
pub(crate) struct Disk {
    tyche: PathBuf,
    runtime: PathBuf,
    pub(crate) device: PathBuf,
    /// The process ID of its daemon.
    pub(crate) pid: i32,
}

/// The output of `tyche connect`.
#[derive(Deserialize)]
struct Connected {
    device: PathBuf,
    pid: i32,
}

impl Disk {
    /// Connects at the host with the arguments of `tyche connect`; its run-time directory is below
    /// `dir`.
    pub(crate) fn connect(
        tyche: &Path,
        arguments: &[&str],
        network: &Network,
        dir: &Path,
        stop: &Stop,
    ) -> Result<Self> {
        let (tyche, runtime) = (tyche.to_owned(), dir.join("run"));
        let mut connect = network.inside(Side::Host, &tyche.to_string_lossy());
        connect.arg("connect").args(arguments).args(["-o", "json"]);
        connect.env(RUNTIME_DIR, &runtime);
        // Constructed first, so that it is dropped: an interrupted connect may leave a daemon.
        let mut disk = Self { tyche, runtime, device: PathBuf::new(), pid: 0 };
        let said = run(&mut connect, stop)?;
        let Connected { device, pid } = serde_json::from_str(&said).doing("tyche connect")?;
        (disk.device, disk.pid) = (device, pid);
        Ok(disk)
    }

    /// Runs a command of Tyche's at the host; returns its output.
    pub(crate) fn ask(&self, args: &[&str], stop: &Stop) -> Result<String> {
        run(Command::new(&self.tyche).args(args).env(RUNTIME_DIR, &self.runtime), stop)
    }

    /// Disconnects in an orderly way: nothing may be left of the device.
    pub(crate) fn disconnect(self, stop: &Stop) -> Result<()> {
        self.ask(&["disconnect", &self.device.to_string_lossy()], stop)?;
        if stop.until(GONE, || Ok(!self.is_there()))? {
            return Ok(());
        }
        failed(format!("{} is still there after `tyche disconnect`", self.device.display()))
    }

    /// Fails all waiting requests, so that the processes that made them can end.
    pub(crate) fn force(&self) {
        let mut force = Command::new("timeout");
        force.arg(FAREWELL_S).arg(&self.tyche).args(["disconnect", "--all", "--force"]);
        force.env(RUNTIME_DIR, &self.runtime);
        // There may be nothing to end.
        let _ = force.output();
    }

    fn is_there(&self) -> bool {
        block(&self.device).join("loop/backing_file").exists()
    }

    /// The log of its daemon, with the file before it.
    pub(crate) fn log(&self) -> String {
        let logs = fs::read_dir(self.runtime.join("log")).into_iter().flatten().flatten();
        let logs = logs.map(|it| fs::read_to_string(it.path()));
        logs.map(std::result::Result::unwrap_or_default).collect()
    }
}

impl Drop for Disk {
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
pub(crate) fn block(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}
