//! Programs with a time limit, and programs that run beside a test.

use std::env;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use crate::wait::{PATIENCE, wait_readable};

/// The result of a program.
#[derive(Debug)]
pub struct Done {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Done {
    /// Whether the program succeeded.
    pub fn success(&self) -> bool {
        self.status.success()
    }
}

/// Whether a program is in the path.
pub fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Runs a program that must succeed within [`PATIENCE`]; returns its output.
pub fn run(command: &mut Command) -> String {
    let done = finish(command, PATIENCE);
    let Done { status, stdout, stderr } = &done;
    assert!(done.success(), "{command:?}: {status}\n{stdout}{stderr}");
    done.stdout
}

/// Runs a program to its end, whether it succeeds or fails; the test fails if that takes longer
/// than `limit`.
pub fn finish(command: &mut Command, limit: Duration) -> Done {
    let memory = || File::from(memfd_create("output", MemfdFlags::CLOEXEC).unwrap());
    let (mut stdout, mut stderr) = (memory(), memory());
    command.stdout(stdout.try_clone().unwrap()).stderr(stderr.try_clone().unwrap());
    let mut child = spawn(command.stdin(Stdio::null()).process_group(0));
    if !has_ended(&child, limit) {
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
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

fn spawn(command: &mut Command) -> Child {
    command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Waits for a child to exit; false if it takes longer than `limit`.
fn has_ended(child: &Child, limit: Duration) -> bool {
    wait_readable(pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap(), limit)
}

/// A program that runs beside the test, and is killed when dropped.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts a program without input.
    pub fn start(command: &mut Command) -> Self {
        Self(spawn(command.stdin(Stdio::null())))
    }

    /// Starts a shell script in a mount namespace of its own, and waits until it has copies of the
    /// mounts. Its standard input is a pipe, which [`end`](Self::end) closes.
    pub fn with_copied_mounts(script: &str) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command.arg(format!("echo here; {script}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = Self(spawn(&mut command));
        assert_eq!(running.line(), "here\n");
        running
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// The next line of its standard output, which must be a pipe; incomplete if the program has
    /// closed its output.
    pub fn line(&mut self) -> String {
        let stdout = self.0.stdout.as_mut().unwrap();
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\n") {
            assert!(wait_readable(&*stdout, PATIENCE), "it prints no line");
            if stdout.read(&mut byte).unwrap() == 0 {
                break;
            }
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    /// Waits until it ends by itself.
    pub fn end(&mut self) -> ExitStatus {
        drop(self.0.stdin.take());
        assert!(has_ended(&self.0, PATIENCE), "it does not end");
        self.0.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
