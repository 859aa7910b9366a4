//! Child processes: each with a time limit, ended with its owner, and with its CPU time measured.
//!
//! Ctrl-C reaches this process alone, because children have a process group of their own; all waits
//! here then return [`Failure::Interrupted`], and started children are ended on the way out.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Polling interval for conditions that cannot be waited for.
const LOOK: Duration = Duration::from_millis(10);
/// Time limit for programs that are quick.
const SHORT: Duration = Duration::from_secs(30);
/// How long a program may take to exit when asked to, before it is killed.
const FAREWELL: Duration = Duration::from_secs(2);
/// Lines of a program's output in a message.
const TAIL_LINES: usize = 12;

/// Why an operation failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The user interrupted the run.
    Interrupted,
    /// The cause of the failure, and the remedy.
    Failed(String),
}

/// The result type of most functions here.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted"),
            Self::Failed(message) => f.write_str(message),
        }
    }
}

/// Adds the operation that failed to an error.
pub(crate) trait Doing<T> {
    fn doing(self, doing: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Doing<T> for std::result::Result<T, E> {
    fn doing(self, doing: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure::Failed(format!("{doing}: {error}")))
    }
}

/// A failure in words.
pub(crate) fn failed<T>(message: impl Into<String>) -> Result<T> {
    Err(Failure::Failed(message.into()))
}

/// The stop flag: ends all waiting once a signal has come.
pub(crate) struct Stop {
    /// Readable once a signal has come; nothing ever reads from it.
    raised: UnixStream,
}

impl Stop {
    /// Catches SIGINT, SIGTERM and SIGHUP.
    pub(crate) fn new() -> Result<Self> {
        let (raised, raise) = UnixStream::pair().doing("a socket pair")?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let raise = raise.try_clone().doing("a socket pair")?;
            signal_hook::low_level::pipe::register(signal, raise).doing("catch signals")?;
        }
        Ok(Self { raised })
    }

    /// Waits until `fd` has something to read (true), or `limit` has passed (false).
    fn wait(&self, fd: Option<BorrowedFd<'_>>, limit: Duration) -> Result<bool> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).doing("a time limit")?;
            let mut polled = vec![PollFd::new(&self.raised, PollFlags::IN)];
            polled.extend(fd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            match poll(&mut polled, Some(&left)) {
                Ok(_) if !polled[0].revents().is_empty() => return Err(Failure::Interrupted),
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return failed(format!("poll: {error}")),
            }
        }
    }

    /// # Errors
    /// `Interrupted` once a signal has come.
    pub(crate) fn check(&self) -> Result<()> {
        self.wait(None, Duration::ZERO).map(drop)
    }

    /// Waits for `time`.
    pub(crate) fn pause(&self, time: Duration) -> Result<()> {
        self.wait(None, time).map(drop)
    }

    /// Polls until `ready` returns true; false when `limit` has passed.
    pub(crate) fn until(
        &self,
        limit: Duration,
        mut ready: impl FnMut() -> Result<bool>,
    ) -> Result<bool> {
        let deadline = Instant::now() + limit;
        while !ready()? {
            if Instant::now() > deadline {
                return Ok(false);
            }
            self.wait(None, LOOK)?;
        }
        Ok(true)
    }
}

/// The result of a program: its exit status, output and CPU time.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Seconds of CPU time of all its threads.
    pub(crate) cpu_s: f64,
}

/// A running program; dropping it ends it.
pub(crate) struct Running {
    name: String,
    child: Child,
    pidfd: OwnedFd,
    stdout: File,
    stderr: File,
}

impl Running {
    /// Starts the program, without input.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let name = name(command);
        let file = || tempfile::tempfile().doing("a temporary file");
        let (stdout, stderr) = (file()?, file()?);
        command.process_group(0).stdin(Stdio::null());
        command.stdout(stdout.try_clone().doing("a temporary file")?);
        command.stderr(stderr.try_clone().doing("a temporary file")?);
        let child = command.spawn().or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => failed(format!(
                "{program} is not installed; `cargo xtask bench` as root installs what is missing"
            )),
            _ => failed(format!("start {program}: {error}")),
        })?;
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).doing("pidfd_open")?;
        Ok(Self { name, child, pidfd, stdout, stderr })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The output so far.
    pub(crate) fn output(&self) -> Result<String> {
        read(&self.stdout)
    }

    /// Its standard error so far.
    pub(crate) fn errors(&self) -> Result<String> {
        read(&self.stderr)
    }

    /// Fails if the program has ended already.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait().doing("wait for a program")? {
            None => Ok(()),
            Some(status) => {
                let (name, output) = (self.name.clone(), read(&self.stderr)?);
                failed(format!("{name}: {status}\n{}", tail(&output)))
            }
        }
    }

    /// CPU time in seconds so far, of all its threads, ended ones included; to a hundredth.
    pub(crate) fn cpu_s(&self) -> Result<f64> {
        cpu_s(self.child.id())
    }

    /// Kills the program; returns its standard error.
    pub(crate) fn kill(mut self) -> Result<String> {
        self.child.kill().doing("kill a program")?;
        self.child.wait().doing("wait for a program")?;
        read(&self.stderr)
    }

    /// Waits for the program's end.
    pub(crate) fn finish(mut self, stop: &Stop, limit: Duration) -> Result<Finished> {
        if !stop.wait(Some(self.pidfd.as_fd()), limit)? {
            return failed(format!("{}: not done after {} s", self.name, limit.as_secs()));
        }
        // It has ended, but is still a zombie: its CPU time can still be read.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::PidFd(self.pidfd.as_fd()), ended).doing("wait for a program")?;
        let cpu_s = self.cpu_s()?;
        let status = self.child.wait().doing("wait for a program")?;
        let (stdout, stderr) = (read(&self.stdout)?, read(&self.stderr)?);
        Ok(Finished { status, stdout, stderr, cpu_s })
    }

    /// Waits for the program's end; fails unless it was successful.
    pub(crate) fn succeed(self, stop: &Stop, limit: Duration) -> Result<Finished> {
        let name = self.name.clone();
        let finished = self.finish(stop, limit)?;
        if finished.status.success() {
            return Ok(finished);
        }
        let output = format!("{}\n{}", finished.stdout, finished.stderr);
        failed(format!("{name}: {}\n{}", finished.status, tail(&output)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let pid = Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, Signal::TERM);
        let limit = Timespec { tv_sec: FAREWELL.as_secs() as i64, tv_nsec: 0 };
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        if !matches!(poll(&mut polled, Some(&limit)), Ok(1)) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// CPU time in seconds of a process so far; see [`Running::cpu_s`].
pub(crate) fn cpu_s(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).doing(&path)?;
    let ticks = cpu_ticks(&stat);
    let ticks = ticks.ok_or_else(|| Failure::Failed(format!("{path}: not understood")))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// A program and its arguments, for messages: without the wrapper commands, and without the
/// directories of this machine.
fn name(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    let own = words.iter().rposition(|word| word == "--" || word == "--cpu-list");
    let first = own.map_or(0, |at| if words[at] == "--" { at + 1 } else { at + 2 });
    let short = words[first..].iter().map(|word| match (word.find('/'), word.rfind('/')) {
        (Some(start), Some(end)) if !word.contains("://") => {
            format!("{}{}", &word[..start], &word[end + 1..])
        }
        _ => word.clone().into_owned(),
    });
    short.collect::<Vec<_>>().join(" ")
}

/// Runs a quick program to its end; returns its output.
pub(crate) fn run(command: &mut Command, stop: &Stop) -> Result<String> {
    Ok(Running::start(command)?.succeed(stop, SHORT)?.stdout)
}

/// User and system time in a line of `/proc/PID/stat`, in clock ticks. The name in parentheses may
/// contain anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

/// Reads a whole file, without moving the position at which the program writes.
fn read(file: &File) -> Result<String> {
    let len = file.metadata().doing("read a program's output")?.len();
    let mut bytes = vec![0; usize::try_from(len).doing("read a program's output")?];
    file.read_exact_at(&mut bytes, 0).doing("read a program's output")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn tail(output: &str) -> String {
    let lines: Vec<_> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0 1 0";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn names_are_those_of_programs() {
        let mut command = Command::new("nsenter");
        command.args(["--net=/run/netns/x", "--", "taskset", "--cpu-list", "0", "fio"]);
        command.args(["--ioengine=external:/a/tyche.so", "--uri=nbd://h:1", "/a/b/c.fio"]);
        assert_eq!(name(&command), "fio --ioengine=external:tyche.so --uri=nbd://h:1 c.fio");
        assert_eq!(
            name(Command::new("nsenter").args(["--net=x", "--", "tc", "qdisc"])),
            "tc qdisc"
        );
        assert_eq!(name(Command::new("/bin/git").arg("x")), "git x");
    }

    #[test]
    fn a_program_is_bounded_and_its_failure_is_shown() {
        let stop = Stop::new().unwrap();
        let finished = run(Command::new("sh").args(["-c", "echo out; echo err >&2"]), &stop);
        assert_eq!(finished.unwrap(), "out\n");
        let error = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"]), &stop);
        let message = error.unwrap_err().to_string();
        assert!(message.contains("why") && message.contains("exit status: 3"), "{message}");
        let endless = Running::start(Command::new("sleep").arg("1000")).unwrap();
        let late = endless.finish(&stop, Duration::from_millis(10));
        assert!(matches!(late, Err(Failure::Failed(message)) if message.contains("not done")));
        let error = run(&mut Command::new("no-such-program-of-tyche"), &stop).unwrap_err();
        assert!(error.to_string().contains("not installed"), "{error}");
    }
}
