//! A target on this machine.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::Signal;

use super::{Rig, Running};

/// A running `tyche serve`.
pub(crate) struct Target {
    process: Running,
    log: PathBuf,
}

impl Target {
    /// Starts a target with these exports on these links, and waits until it serves.
    pub(super) fn start(
        rig: &Rig,
        name: &str,
        links: [&str; 2],
        exports: &[String],
        args: &[&str],
    ) -> Self {
        let log = rig.path("target.log");
        let stderr = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = rig.command(rig.program());
        command.args(["serve", "--name", name]).args(links);
        command.args(exports.iter().flat_map(|it| ["--export", it])).args(args);
        command.stdout(Stdio::piped()).stderr(stderr);
        let mut target = Self { process: Running::start(&mut command), log };
        let line = target.process.line();
        assert!(line.starts_with("tyche: serving "), "{line:?}; {}", target.log());
        target
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Makes the target look at the size of its file.
    pub(crate) fn hang_up(&self) {
        self.process.signal(Signal::HUP);
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
