//! A target on this machine.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::segment::BRIDGE;
use super::{Process, Rig};

/// A running `tyche serve`.
pub(crate) struct Target {
    process: Process,
    log: PathBuf,
}

impl Target {
    /// Starts a target with these exports, and waits until it serves.
    pub(super) fn start(rig: &Rig, exports: &[String], args: &[&str]) -> Self {
        let log = rig.path("target.log");
        let stderr = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = rig.command(rig.program());
        command.args(["serve", "--name", "vm", "--link", BRIDGE]);
        command.args(exports.iter().flat_map(|it| ["--export", it])).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let target = Self { process: Process(child), log };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert!(line.starts_with("tyche: serving "), "{line:?}; {}", target.log());
        target
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Makes the target look at the size of its file.
    pub(crate) fn hang_up(&self) {
        kill_process(Pid::from_child(&self.process.0), Signal::HUP).unwrap();
    }

    /// Kills the target as a power failure would.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the target:\n{}", self.log());
        }
    }
}
