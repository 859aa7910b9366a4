//! Programs of the system, with a bound on their time and on their output.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tonic::Status;

/// Most bytes of each output that are kept; what follows is read and dropped.
const OUTPUT_MAX: usize = 8 << 20;
/// Most bytes of its errors that are quoted.
const QUOTED_MAX: usize = 1000;

/// A program to run.
pub(crate) struct Program<'a> {
    name: OsString,
    args: Vec<OsString>,
    input: Option<&'a File>,
}

/// The end of a program.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The exit code; `None` if a signal has ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The reason why a program has not come to its end.
#[derive(Debug)]
pub(crate) enum Broken {
    /// It could not be started, or not be waited for.
    System(io::Error),
    /// It took longer than it may. It is killed, and may still be there: a process that waits for a
    /// disk can't be killed.
    Slow(Duration),
}

impl<'a> Program<'a> {
    pub(crate) fn new(name: impl AsRef<OsStr>) -> Self {
        Self { name: name.as_ref().to_owned(), args: Vec::new(), input: None }
    }

    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|it| it.as_ref().to_owned()));
        self
    }

    /// A file that it has as its standard input: a lock that has to be held as long as it runs.
    pub(crate) fn holds(mut self, lock: &'a File) -> Self {
        self.input = Some(lock);
        self
    }

    /// Runs it to its end, whether it succeeds or fails.
    ///
    /// # Errors
    /// It can't be started, or takes longer than `limit`.
    pub(crate) fn run(self, limit: Duration) -> Result<Finished, Broken> {
        let mut command = Command::new(&self.name);
        command.args(&self.args).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(match self.input {
            Some(lock) => Stdio::from(lock.try_clone().map_err(Broken::System)?),
            None => Stdio::null(),
        });
        let mut child = command.spawn().map_err(Broken::System)?;
        match collect(&mut child, limit) {
            Ok(finished) => Ok(finished),
            Err(error) => {
                let _ = child.kill();
                // It ends when the kernel lets it.
                let wait = move || child.wait();
                drop(std::thread::Builder::new().name("reaper".into()).spawn(wait));
                Err(error)
            }
        }
    }

    /// Runs a program that has to succeed; returns its output.
    ///
    /// # Errors
    /// `Internal` with what it says, or `DeadlineExceeded`.
    pub(crate) fn succeed(self, limit: Duration) -> Result<String, Status> {
        let name = self.name.to_string_lossy().into_owned();
        let finished = self.run(limit).map_err(|error| error.status(&name))?;
        if finished.code == Some(0) {
            return Ok(finished.stdout);
        }
        Err(finished.failed(&name))
    }
}

impl Finished {
    /// The error for a program that has failed.
    pub(crate) fn failed(&self, name: &str) -> Status {
        let code = self.code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
        Status::internal(format!("{name}: {code}: {}", self.complaint()))
    }

    /// Its message about its failure, in one line.
    pub(crate) fn complaint(&self) -> String {
        let said = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        let words: Vec<_> = said.split_whitespace().collect();
        words.join(" ").chars().take(QUOTED_MAX).collect()
    }
}

impl Broken {
    /// The error for an orchestrator.
    pub(crate) fn status(&self, name: &str) -> Status {
        match self {
            Self::System(error) => Status::internal(format!("{name}: {error}")),
            Self::Slow(limit) => {
                let limit = limit.as_secs();
                Status::deadline_exceeded(format!("{name} is not done after {limit} s"))
            }
        }
    }
}

/// An output of a child, and what was read of it.
struct Output {
    pipe: File,
    kept: Vec<u8>,
    is_open: bool,
}

impl Output {
    fn new(pipe: impl Into<OwnedFd>) -> Result<Self, Broken> {
        let pipe = File::from(pipe.into());
        let set = fcntl_setfl(&pipe, OFlags::NONBLOCK);
        set.map_err(|error| Broken::System(error.into()))?;
        Ok(Self { pipe, kept: Vec::new(), is_open: true })
    }

    /// Reads all that is there now.
    fn drain(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        while self.is_open {
            match self.pipe.read(&mut buffer) {
                Ok(0) => self.is_open = false,
                Ok(count) => {
                    let room = OUTPUT_MAX.saturating_sub(self.kept.len());
                    self.kept.extend_from_slice(&buffer[..count.min(room)]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Reads the outputs of a child until it has ended. Whoever it has started may keep them open.
fn collect(child: &mut Child, limit: Duration) -> Result<Finished, Broken> {
    let system = |error: Errno| Broken::System(error.into());
    let deadline = Instant::now() + limit;
    let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(system)?;
    let mut stdout = Output::new(child.stdout.take().expect("piped"))?;
    let mut stderr = Output::new(child.stderr.take().expect("piped"))?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| Broken::Slow(limit))?;
        let mut fds = vec![PollFd::new(&end, PollFlags::IN)];
        let open = [&stdout, &stderr].into_iter().filter(|it| it.is_open);
        fds.extend(open.map(|it| PollFd::new(&it.pipe, PollFlags::IN)));
        let has_ended = match poll(&mut fds, Some(&timeout)) {
            Err(Errno::INTR) => false,
            Err(error) => return Err(system(error)),
            Ok(0) => return Err(Broken::Slow(limit)),
            Ok(_) => !fds[0].revents().is_empty(),
        };
        stdout.drain().and_then(|()| stderr.drain()).map_err(Broken::System)?;
        if has_ended {
            let code = child.wait().map_err(Broken::System)?.code();
            let [stdout, stderr] =
                [stdout, stderr].map(|it| String::from_utf8_lossy(&it.kept).into_owned());
            return Ok(Finished { code, stdout, stderr });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Program<'static> {
        Program::new("sh").args(["-c", line])
    }

    #[test]
    fn both_outputs_and_the_exit_code_are_collected() {
        let line = "echo out; echo err >&2; exit 3";
        let done = shell(line).run(Duration::from_secs(20)).unwrap();
        assert_eq!((done.code, &*done.stdout, &*done.stderr), (Some(3), "out\n", "err\n"));
        assert!(done.failed("sh").message().contains("exit code 3: err"));
        let long = shell("yes | head -c 20000000").run(Duration::from_secs(60)).unwrap();
        assert_eq!(long.stdout.len(), OUTPUT_MAX);
        // A grandchild that holds the pipes is not waited for, nor one that closes them early.
        let done = shell("sleep 60 & exit 0").run(Duration::from_secs(20)).unwrap();
        assert_eq!(done.code, Some(0));
        let done = shell("exec >&- 2>&-; sleep 0.1; exit 4").run(Duration::from_secs(20)).unwrap();
        assert_eq!(done.code, Some(4));
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed() {
        let limit = Duration::from_millis(50);
        let error = shell("exec sleep 60").run(limit).unwrap_err();
        assert!(matches!(error, Broken::Slow(_)));
        assert_eq!(error.status("sleep").code(), tonic::Code::DeadlineExceeded);
        let none = Program::new("/no/such/program").run(limit).unwrap_err();
        assert!(none.status("it").message().contains("No such file"), "{none:?}");
    }

    #[test]
    fn a_lock_is_held_as_long_as_the_program_runs() {
        let dir = tempfile::tempdir().unwrap();
        let open = || File::create(dir.path().join("lock")).unwrap();
        let lock = open();
        lock.try_lock().unwrap();
        let slow = Program::new("sh").args(["-c", "echo; exec sleep 60"]).holds(&lock);
        let error = slow.run(Duration::from_millis(200)).unwrap_err();
        assert!(matches!(error, Broken::Slow(_)));
        drop(lock);
        // The killed program releases it.
        let again = open();
        let deadline = Instant::now() + Duration::from_secs(20);
        while again.try_lock().is_err() {
            assert!(Instant::now() < deadline, "the lock is never released");
            std::thread::yield_now();
        }
    }
}
