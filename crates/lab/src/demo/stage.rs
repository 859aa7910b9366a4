//! The stage that all steps of the demo share: the stop flag, the undo stack, a directory, and the
//! progress display.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::command::{Doing, Failure, Stop, tail};
use super::progress::Progress;
use super::undo::Undo;

/// Polling interval for state that only the kernel knows.
const POLL: Duration = Duration::from_millis(20);

/// The resources of one demo. Their names contain the process ID, so that several demos may run.
pub(super) struct Stage {
    /// Part of every name: `tyche-demo-PID`.
    pub(super) tag: String,
    /// Everything that lives in files: the disk, mount point, logs and run-time state.
    pub(super) dir: PathBuf,
    pub(super) stop: Stop,
    pub(super) undo: Undo,
    pub(super) progress: Progress,
}

impl Stage {
    /// # Errors
    /// When the system has no event descriptors left.
    pub(super) fn new(parent: &Path) -> std::io::Result<Self> {
        let tag = format!("tyche-demo-{}", std::process::id());
        let dir = parent.join(&tag);
        let (stop, undo, progress) = (Stop::new()?, Undo::new(), Progress::new());
        Ok(Self { tag, dir, stop, undo, progress })
    }

    /// Runs one step; its name becomes part of the failure.
    pub(super) fn step<T>(
        &self,
        name: &str,
        action: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.stop.check()?;
        let step = self.progress.begin(name);
        let result = action();
        match &result {
            Ok(_) => self.progress.end(&step, name),
            Err(_) => self.progress.clear(),
        }
        result.map_err(|failure| match failure {
            Failure::Failed(message) => Failure::Failed(format!("{name}: {message}")),
            Failure::Disk { doing, source } => {
                Failure::Disk { doing: format!("{name}: {doing}"), source }
            }
            Failure::Interrupted => Failure::Interrupted,
        })
    }

    /// Creates the directory.
    pub(super) fn create_dir(&self) -> Result<(), Failure> {
        let dir = self.dir.clone();
        self.undo.push(format!("directory; rm -r {}", dir.display()), move || remove(&dir))?;
        let create = fs::DirBuilder::new().mode(0o700).create(&self.dir);
        create.doing(format_args!("create {}", self.dir.display()))
    }

    /// Where the file system is mounted.
    pub(super) fn mount_point(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    /// Where the daemons keep their sockets and logs.
    pub(super) fn runtime_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Sets the demo's own directories in the environment of one of our commands.
    pub(super) fn at_home<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("TYCHE_STATE_DIR", self.dir.join("state"));
        command.env("TYCHE_KNOWN_TARGETS", self.dir.join("known-targets"));
        command.env("TYCHE_RUNTIME_DIR", self.runtime_dir())
    }

    /// Remains of the demo after its clean-up, in words; waits up to `limit` for processes that are
    /// about to exit.
    pub(super) fn leftovers(&self, limit: Duration) -> Vec<String> {
        let deadline = Instant::now() + limit;
        loop {
            let left = self.look_around();
            if left.is_empty() || Instant::now() > deadline {
                return left;
            }
            std::thread::sleep(POLL);
        }
    }

    fn look_around(&self) -> Vec<String> {
        let mut left = Vec::new();
        let processes = daemons(&self.runtime_dir());
        left.extend(processes.iter().map(|pid| format!("process {}", pid.as_raw_pid())));
        left.extend(mounts_below(&self.dir).iter().map(|path| format!("mount {}", path.display())));
        for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&format!("{}-", self.tag)) {
                left.push(format!("network namespace {name}"));
            }
        }
        if self.dir.exists() {
            left.push(format!("directory {}", self.dir.display()));
        }
        left
    }

    /// The last lines of every daemon's log.
    pub(super) fn logs(&self) -> String {
        let mut logs = Vec::new();
        collect_logs(&self.dir, &mut logs);
        collect_logs(&self.runtime_dir().join("sessions"), &mut logs);
        let mut text = String::new();
        for log in logs {
            let Ok(content) = fs::read_to_string(&log) else { continue };
            let name = log.strip_prefix(&self.dir).unwrap_or(&log);
            text.push_str(&format!("\n--- {} ---\n{}", name.display(), tail(&content)));
        }
        text
    }
}

/// The logs in a directory, and in the directories right below it.
fn collect_logs(dir: &Path, logs: &mut Vec<PathBuf>) {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    let is_log = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "log");
    logs.extend(entries(dir).map(|entry| entry.path()).filter(is_log));
    if dir.ends_with("sessions") {
        for session in entries(dir) {
            logs.extend(entries(&session.path()).map(|entry| entry.path()).filter(is_log));
        }
    }
}

/// The living processes that were started with a run-time directory, ourselves aside.
pub(super) fn daemons(runtime_dir: &Path) -> Vec<Pid> {
    let wanted = format!("TYCHE_RUNTIME_DIR={}", runtime_dir.display());
    let is_one = |pid: &Pid| {
        let dir = PathBuf::from(format!("/proc/{}", pid.as_raw_pid()));
        // A zombie has no environment.
        let environment = fs::read(dir.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw).filter(is_one).collect()
}

/// Mount points below a directory, innermost first.
pub(super) fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // The kernel escapes nothing in our own paths.
    let paths = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut below: Vec<_> = paths.filter(|path| path.starts_with(dir)).collect();
    below.reverse();
    below
}

/// Removes the directory, unless something is mounted in it: that must not be deleted.
fn remove(dir: &Path) -> Result<(), String> {
    let mounted = mounts_below(dir);
    if let Some(path) = mounted.first() {
        return Err(format!("{} is still mounted", path.display()));
    }
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
        _ => Ok(()),
    }
}
