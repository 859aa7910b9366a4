//! The target's daemon, a child process that may be killed and started again.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::command::{self, Doing, Failure};
use super::net::Cables;
use super::stage::Stage;

/// Time limit for the daemon's start.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// Time limit for the daemon's orderly end.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Prefix of the line that reports readiness.
const READY: &str = "tyche: serving";

/// The name of the disk.
pub(super) const EXPORT: &str = "demo";

struct Running {
    child: Child,
    /// Kept open: the daemon may print more after that line.
    stdout: ChildStdout,
}

/// The target.
pub(super) struct Target<'a> {
    stage: &'a Stage,
    cables: &'a Cables,
    program: PathBuf,
    running: Arc<Mutex<Option<Running>>>,
}

impl<'a> Target<'a> {
    /// Creates the disk, a sparse file. Starts nothing yet.
    pub(super) fn new(
        stage: &'a Stage,
        cables: &'a Cables,
        program: PathBuf,
        size: u64,
    ) -> Result<Self, Failure> {
        let disk = stage.dir.join("disk.img");
        let file = File::create_new(&disk).doing(format_args!("create {}", disk.display()))?;
        file.set_len(size).doing("ftruncate")?;
        let running = Arc::new(Mutex::new(None));
        let doomed = Arc::clone(&running);
        stage.undo.push(format!("target; pkill -f 'serve.*{}'", stage.tag), move || {
            let Some(Running { mut child, .. }) = lock(&doomed).take() else { return Ok(()) };
            if command::end_gently(&mut child, END_LIMIT) {
                return Ok(());
            }
            Err("does not end, even killed".to_owned())
        })?;
        Ok(Self { stage, cables, program, running })
    }

    /// The name of the target.
    pub(super) fn name(&self) -> &str {
        &self.stage.tag
    }

    /// Starts the daemon and waits until it serves.
    pub(super) fn start(&self) -> Result<(), Failure> {
        let log = self.stage.dir.join("target.log");
        let log = OpenOptions::new().create(true).append(true).open(log).doing("open the log")?;
        let export = format!("{EXPORT}={}", self.stage.dir.join("disk.img").display());
        let mut command = self.cables.at_target(&self.program);
        command.args(["serve", "--name", self.name(), "--export", &export]);
        command.stdout(Stdio::piped()).stderr(log);
        {
            // The clean-up takes this lock: it finds either no process or a complete entry.
            let mut running = lock(&self.running);
            self.stage.stop.check()?;
            let mut child = command::spawn(self.stage.at_home(&mut command))?;
            let stdout = child.stdout.take();
            let stdout = stdout.ok_or_else(|| Failure::Failed("no standard output".to_owned()))?;
            *running = Some(Running { child, stdout });
        }
        self.wait_ready()
    }

    fn wait_ready(&self) -> Result<(), Failure> {
        let mut running = lock(&self.running);
        let Some(Running { child, stdout }) = running.as_mut() else {
            return Err(Failure::Interrupted);
        };
        let deadline = Instant::now() + READY_LIMIT;
        let mut said = Vec::new();
        while !said.ends_with(b"\n") {
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.stage.stop.wait_readable(&*stdout, left)? {
                let text = format!("the target does not serve within {READY_LIMIT:?}");
                return Err(Failure::Failed(text));
            }
            let mut byte = [0];
            if stdout.read(&mut byte).doing("read from the target")? == 0 {
                let status = child.wait().doing("wait for the target")?;
                *running = None;
                return Err(Failure::Failed(format!("the target ended with {status}")));
            }
            said.push(byte[0]);
        }
        let said = String::from_utf8_lossy(&said);
        if said.starts_with(READY) {
            return Ok(());
        }
        Err(Failure::Failed(format!("the target says {said:?} instead of `{READY}..`")))
    }

    /// Kills the daemon as a power failure would.
    pub(super) fn kill(&self) -> Result<(), Failure> {
        let killed = lock(&self.running).take();
        let Some(Running { mut child, .. }) = killed else { return Ok(()) };
        if command::end(&mut child) {
            return Ok(());
        }
        Err(Failure::Failed("the killed target is not gone".to_owned()))
    }
}

/// One of our commands at the host, with the demo's own run-time directory.
pub(super) fn at_host(stage: &Stage, cables: &Cables, program: &PathBuf) -> Command {
    let mut command = cables.at_host(program);
    stage.at_home(&mut command);
    command
}

fn lock(running: &Mutex<Option<Running>>) -> MutexGuard<'_, Option<Running>> {
    // Every change is a single assignment, so a poisoned value is intact.
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
