//! A target on this machine.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::Rig;
use super::segment::BRIDGE;

/// A running `tyche serve`.
pub(crate) struct Target {
    child: Child,
    log: PathBuf,
}

impl Target {
    /// Starts one with these exports, and waits until it serves.
    pub(super) fn start(rig: &Rig, exports: &[String], args: &[&str]) -> Self {
        let log = rig.path("target.log");
        let stderr = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = rig.command(Path::new(env!("CARGO_BIN_EXE_tyche")));
        command.args(["serve", "--name", "vm", "--link", BRIDGE]);
        command.args(exports.iter().flat_map(|it| ["--export", it])).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let target = Self { child, log };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert!(line.starts_with("tyche: serving "), "{line:?}; {}", target.log());
        target
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Makes it look at the size of its file.
    pub(crate) fn hang_up(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }

    /// Ends it as a power failure would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("log of the target:\n{}", self.log());
        }
    }
}
