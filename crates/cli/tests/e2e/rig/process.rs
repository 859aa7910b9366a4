//! Programs with a time limit.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tyche_testkit::wait::{PATIENCE, wait_readable};

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    pub(crate) fn success(&self) -> bool {
        self.status.success()
    }
}

/// Runs a program that must succeed; returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let done = finish(command, PATIENCE);
    let Done { status, stdout, stderr } = &done;
    assert!(done.success(), "{command:?}: {status}\n{stdout}{stderr}");
    done.stdout
}

/// Runs a program to its end, whether it succeeds or fails; the test fails if that takes longer
/// than `limit`.
pub(crate) fn finish(command: &mut Command, limit: Duration) -> Done {
    let memory = || File::from(memfd_create("output", MemfdFlags::CLOEXEC).unwrap());
    let (mut stdout, mut stderr) = (memory(), memory());
    command.stdout(stdout.try_clone().unwrap()).stderr(stderr.try_clone().unwrap());
    let spawned = command.stdin(Stdio::null()).process_group(0).spawn();
    let mut child = spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let pid = Pid::from_child(&child);
    if !wait_readable(pidfd_open(pid, PidfdFlags::empty()).unwrap(), limit) {
        let _ = kill_process_group(pid, Signal::KILL);
        panic!("{command:?} is not done within {limit:?}");
    }
    let text = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let status = child.wait().unwrap();
    Done { status, stdout: text(&mut stdout), stderr: text(&mut stderr) }
}
