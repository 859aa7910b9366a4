//! The host's side: connects, asks for the state, and disconnects, by the commands that a user
//! would type.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::command::{Doing, Failure, run, undo};
use super::net::Cables;
use super::stage::{Stage, daemons};
use super::target::{EXPORT, at_host};

/// Time limit for a connect, which probes the path and sets up the device.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
/// Time limit for a disconnect, which writes out dirty pages.
const DISCONNECT_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for commands that need no network.
const LIMIT: Duration = Duration::from_secs(10);
/// How long the kernel may take to release a device.
const DEVICE_LIMIT: Duration = Duration::from_secs(5);
/// Polling interval for state that only the kernel knows.
const POLL: Duration = Duration::from_millis(20);

/// Options of `tyche connect`.
#[derive(Clone, Copy, Default)]
pub(super) struct ConnectOptions {
    pub(super) read_only: bool,
    /// Seconds; -1 is for ever.
    pub(super) ctrl_loss_tmo: Option<i64>,
}

/// A loop device of the demo.
struct LoopDevice {
    path: PathBuf,
    /// The kernel's number for it, which changes whenever it is bound.
    sequence: Option<String>,
}

impl LoopDevice {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), sequence: attribute(path, "diskseq") }
    }

    /// The file that it is bound to, if it is still the demo's: another program may have taken it
    /// since it was released.
    fn file(&self) -> Option<String> {
        let file = attribute(&self.path, "loop/backing_file")?;
        (attribute(&self.path, "diskseq") == self.sequence).then_some(file)
    }
}

/// What the kernel says about a block device.
fn attribute(device: &Path, name: &str) -> Option<String> {
    let directory = Path::new("/sys/block").join(device.file_name()?);
    Some(fs::read_to_string(directory.join(name)).ok()?.trim_end().to_owned())
}

/// The loop devices of the demo, to be released in the end.
pub(super) struct Devices(Arc<Mutex<Vec<LoopDevice>>>);

impl Devices {
    /// Registers the release. Call it before anything is mounted, so that it runs after the
    /// unmount.
    pub(super) fn watch(stage: &Stage) -> Result<Self, Failure> {
        let devices = Arc::new(Mutex::new(Vec::<LoopDevice>::new()));
        let doomed = Arc::clone(&devices);
        stage.undo.push("loop devices; losetup -d", move || {
            let devices = doomed.lock().unwrap_or_else(PoisonError::into_inner);
            devices.iter().try_for_each(release)
        })?;
        Ok(Self(devices))
    }

    fn add(&self, device: &Path) {
        let device = LoopDevice::new(device);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(device);
    }

    /// Whether the kernel has not released all of them.
    fn are_bound(&self) -> bool {
        let devices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        devices.iter().any(|device| device.file().is_some())
    }
}

/// The host.
pub(super) struct Host<'a> {
    stage: &'a Stage,
    cables: &'a Cables,
    program: PathBuf,
    devices: Devices,
}

impl<'a> Host<'a> {
    /// Registers the forced end of all sessions with the clean-up. Connects nothing yet.
    ///
    /// The clean-up ends the sessions before anything is unmounted: processes that wait for the
    /// disk then get an error, and the data is no longer needed.
    pub(super) fn new(
        stage: &'a Stage,
        cables: &'a Cables,
        program: PathBuf,
        devices: Devices,
    ) -> Result<Self, Failure> {
        let runtime_dir = stage.runtime_dir();
        let what = format!(
            "sessions; TYCHE_RUNTIME_DIR={} tyche disconnect --all --force",
            runtime_dir.display()
        );
        let mut force = Command::new(&program);
        force.args(["disconnect", "--all", "--force"]);
        stage.at_home(&mut force);
        stage.undo.push(what, move || end_sessions(&mut force, &runtime_dir))?;
        Ok(Self { stage, cables, program, devices })
    }

    /// Connects the export as a loop device; returns its path.
    pub(super) fn connect(&self, options: ConnectOptions) -> Result<PathBuf, Failure> {
        let mut command = at_host(self.stage, self.cables, &self.program);
        command.args(["connect", EXPORT, "--as", "loop", "-o", "json"]);
        if options.read_only {
            command.arg("--read-only");
        }
        if let Some(seconds) = options.ctrl_loss_tmo {
            command.arg(format!("--ctrl-loss-tmo={seconds}"));
        }
        let text = run(&mut command, CONNECT_LIMIT, &self.stage.stop)?;
        let answer = parse(&text)?;
        let device = answer["device"].as_str().map(PathBuf::from);
        let device = device.ok_or_else(|| Failure::Failed(format!("no device in {text}")))?;
        self.devices.add(&device);
        Ok(device)
    }

    /// Disconnects, and waits until the device is released; returns how long it took.
    pub(super) fn disconnect(&self, device: &Path, force: bool) -> Result<Duration, Failure> {
        let began = Instant::now();
        let mut command = at_host(self.stage, self.cables, &self.program);
        command.arg("disconnect").arg(device).args(force.then_some("--force"));
        run(&mut command, DISCONNECT_LIMIT, &self.stage.stop)?;
        Ok(began.elapsed())
    }

    /// The output of `tyche stats` or `tyche list`.
    pub(super) fn ask(&self, verb: &str) -> Result<Value, Failure> {
        let mut command = at_host(self.stage, self.cables, &self.program);
        parse(&run(command.args([verb, "-o", "json"]), LIMIT, &self.stage.stop)?)
    }

    /// Waits until the kernel has released a device.
    pub(super) fn wait_free(&self, device: &Path) -> Result<(), Failure> {
        let deadline = Instant::now() + DEVICE_LIMIT;
        while self.devices.are_bound() {
            if Instant::now() > deadline {
                return Err(Failure::Failed(format!("{} is still bound", device.display())));
            }
            self.stage.stop.pause(POLL)?;
        }
        Ok(())
    }
}

fn parse(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).doing(format_args!("parse {text:?}"))
}

/// Ends every session of a run-time directory: orderly, and then by force.
fn end_sessions(force: &mut Command, runtime_dir: &Path) -> Result<(), String> {
    if daemons(runtime_dir).is_empty() {
        return Ok(());
    }
    let asked = undo(force, LIMIT);
    // The target lives in the same directory and has an end of its own; killing it here does no
    // harm, for nothing uses it any more.
    for pid in daemons(runtime_dir) {
        let _ = kill_process(pid, Signal::KILL);
    }
    let deadline = Instant::now() + DEVICE_LIMIT;
    while !daemons(runtime_dir).is_empty() {
        if Instant::now() > deadline {
            return Err(format!("a daemon does not end, even killed; disconnect said {asked:?}"));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Releases a loop device, if it is still bound to the demo's file.
fn release(device: &LoopDevice) -> Result<(), String> {
    let deadline = Instant::now() + DEVICE_LIMIT;
    while let Some(file) = device.file() {
        if Instant::now() > deadline {
            return Err(format!("{} is still bound to {file}", device.path.display()));
        }
        let _ = undo(Command::new("losetup").arg("-d").arg(&device.path), LIMIT);
        std::thread::sleep(POLL);
    }
    Ok(())
}
