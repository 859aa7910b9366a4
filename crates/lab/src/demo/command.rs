//! Child processes, each with a time limit, and the stop flag that ends all waiting.
//!
//! Children get a process group of their own, so that Ctrl-C reaches the demo alone, which then
//! ends them in the right order. Their output goes to memory files: nothing needs to be drained
//! while they run, and a daemon that they leave behind holds no pipe of ours.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// How long a killed child may take to exit; longer means that it is stuck in the kernel.
const REAP_LIMIT: Duration = Duration::from_secs(2);
/// Lines of a program's output in a message.
const TAIL_LINES: usize = 12;

/// Why a step of the demo failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The user interrupted the demo.
    Interrupted,
    /// What went wrong, in words.
    Failed(String),
    /// A read or write in the mounted file system failed with this error number.
    Disk {
        /// The operation that failed.
        doing: String,
        /// The kernel's error.
        source: std::io::Error,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted"),
            Self::Failed(message) => f.write_str(message),
            Self::Disk { doing, source } => write!(f, "{doing}: {source}"),
        }
    }
}

/// Adds the operation that failed to an error.
pub(super) trait Doing<T> {
    fn doing(self, doing: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, doing: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::Failed(format!("{doing}: {error}")))
    }
}

/// The stop flag: ends all waiting once raised.
pub(super) struct Stop {
    event: OwnedFd,
    raised: AtomicBool,
}

impl Stop {
    pub(super) fn new() -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, raised: AtomicBool::new(false) })
    }

    pub(super) fn raise(&self) {
        self.raised.store(true, Ordering::Release);
        // The counter stays above zero: every wait from now on returns at once. It cannot
        // overflow, so the write cannot fail.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// # Errors
    /// `Interrupted` once raised.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.raised.load(Ordering::Acquire) { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// Waits until `fd` has something to read, or `limit` has passed (false).
    ///
    /// # Errors
    /// `Interrupted` once raised.
    pub(super) fn wait_readable(&self, fd: impl AsFd, limit: Duration) -> Result<bool, Failure> {
        wait_any(&[fd.as_fd(), self.event.as_fd()], limit)
            .map_err(|error| Failure::Failed(format!("poll: {error}")))
            .and_then(|ready| self.check().map(|()| ready))
    }

    /// Waits for `time`.
    ///
    /// # Errors
    /// `Interrupted` once raised.
    pub(super) fn pause(&self, time: Duration) -> Result<(), Failure> {
        self.wait_readable(self.event.as_fd(), time).map(|_| ())
    }
}

/// Whether any of the descriptors became readable in time.
fn wait_any(fds: &[std::os::fd::BorrowedFd<'_>], limit: Duration) -> std::io::Result<bool> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        match poll(&mut polled, Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The result of a program: its exit status and output.
pub(super) struct Finished {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// The program and its arguments, for messages.
fn name(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or_default();
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(program.to_owned()).chain(args).collect::<Vec<_>>().join(" ")
}

/// Starts a program in a process group of its own, without input.
pub(super) fn spawn(command: &mut Command) -> Result<Child, Failure> {
    let spawned = command.process_group(0).stdin(Stdio::null()).spawn();
    spawned.map_err(|error| {
        let program = command.get_program().to_string_lossy().into_owned();
        let remedy = match error.kind() {
            std::io::ErrorKind::NotFound => "; `cargo xtask demo` installs what is missing",
            _ => "",
        };
        Failure::Failed(format!("start {program}: {error}{remedy}"))
    })
}

/// Runs a program that must succeed; returns its standard output.
pub(super) fn run(command: &mut Command, limit: Duration, stop: &Stop) -> Result<String, Failure> {
    let finished = finish(command, limit, Some(stop))?;
    if finished.status.success() {
        return Ok(finished.stdout);
    }
    let Finished { status, stdout, stderr } = finished;
    let said = tail(&format!("{stdout}{stderr}"));
    Err(Failure::Failed(format!("`{}` ended with {status}: {said}", name(command))))
}

/// Runs a program of the clean-up, without interruption. The error is its failure in words.
pub(super) fn undo(command: &mut Command, limit: Duration) -> Result<(), String> {
    match finish(command, limit, None) {
        Ok(finished) if finished.status.success() => Ok(()),
        Ok(finished) => Err(tail(&format!("{}{}", finished.stdout, finished.stderr))),
        Err(failure) => Err(failure.to_string()),
    }
}

/// Runs a program to its end, whether it succeeds or fails.
pub(super) fn finish(
    command: &mut Command,
    limit: Duration,
    stop: Option<&Stop>,
) -> Result<Finished, Failure> {
    let memory = |name| memfd_create(name, MemfdFlags::CLOEXEC).map(File::from);
    let mut stdout = memory("stdout").doing("memfd_create")?;
    let mut stderr = memory("stderr").doing("memfd_create")?;
    command.stdout(stdout.try_clone().doing("dup")?);
    command.stderr(stderr.try_clone().doing("dup")?);
    let mut child = spawn(command)?;
    let ended = match stop {
        Some(stop) => wait(&child, limit, stop),
        None => wait_uninterrupted(&child, limit),
    };
    match ended {
        Ok(true) => {}
        Ok(false) => {
            end(&mut child);
            let seconds = limit.as_secs();
            let text = format!("`{}` was not done within {seconds} s", name(command));
            return Err(Failure::Failed(text));
        }
        Err(failure) => {
            end(&mut child);
            return Err(failure);
        }
    }
    let status = child.wait().doing("wait")?;
    Ok(Finished { status, stdout: text(&mut stdout)?, stderr: text(&mut stderr)? })
}

/// Waits for a child to exit; false if it takes longer than `limit`.
pub(super) fn wait(child: &Child, limit: Duration, stop: &Stop) -> Result<bool, Failure> {
    stop.wait_readable(pidfd(child)?, limit)
}

fn wait_uninterrupted(child: &Child, limit: Duration) -> Result<bool, Failure> {
    wait_any(&[pidfd(child)?.as_fd()], limit).doing("poll")
}

fn pidfd(child: &Child) -> Result<OwnedFd, Failure> {
    pidfd_open(Pid::from_child(child), PidfdFlags::empty()).doing("pidfd_open")
}

/// Kills a child and its group. False if it does not exit even then: it is stuck in the kernel.
pub(super) fn end(child: &mut Child) -> bool {
    // It may have exited already.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let gone = wait_uninterrupted(child, REAP_LIMIT).unwrap_or(false);
    gone && child.wait().is_ok()
}

/// Terminates a child, and kills it if it does not exit within `limit`.
pub(super) fn end_gently(child: &mut Child, limit: Duration) -> bool {
    let _ = rustix::process::kill_process(Pid::from_child(child), Signal::TERM);
    match wait_uninterrupted(child, limit) {
        Ok(true) => child.wait().is_ok(),
        _ => end(child),
    }
}

fn text(file: &mut File) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    file.rewind().doing("rewind")?;
    file.read_to_end(&mut bytes).doing("read")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last lines of a text.
pub(super) fn tail(text: &str) -> String {
    let lines: Vec<_> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status_are_kept_apart() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let finished = finish(&mut command, Duration::from_secs(10), None).unwrap();
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!(finished.status.code(), Some(3));
    }

    #[test]
    fn what_takes_too_long_is_ended_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 100 & sleep 100"]);
        let before = Instant::now();
        let failure = finish(&mut command, Duration::from_millis(50), None).err().unwrap();
        assert!(failure.to_string().contains("was not done within"), "{failure}");
        assert!(before.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn a_raised_flag_ends_waiting() {
        let stop = Stop::new().unwrap();
        stop.raise();
        let mut command = Command::new("sleep");
        let failure = run(command.arg("100"), Duration::from_secs(90), &stop);
        assert!(matches!(failure, Err(Failure::Interrupted)));
        assert!(matches!(stop.pause(Duration::from_secs(90)), Err(Failure::Interrupted)));
    }

    #[test]
    fn a_missing_program_is_named_with_the_remedy() {
        let failure = finish(&mut Command::new("tyche-no-such"), REAP_LIMIT, None).err().unwrap();
        let text = failure.to_string();
        assert!(text.contains("tyche-no-such") && text.contains("cargo xtask demo"), "{text}");
    }
}
