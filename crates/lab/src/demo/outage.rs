//! Outages of the target during the copy, as in a power failure: once or several times, with or
//! without a restart.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::Pid;
use serde::Serialize;

use super::command::{Doing, Failure};
use super::session::Host;
use super::stage::{Stage, daemons};
use super::target::Target;
use super::traffic::Traffic;

/// Alignment of address and length for direct I/O.
const DIRECT_ALIGN: usize = 4096;
/// Polling interval for the list of sessions.
const LOOK: Duration = Duration::from_millis(200);
/// Polling interval while the session is about to become live again.
const GLANCE: Duration = Duration::from_millis(50);
/// Time limit for the session to find a restarted target.
const LIVE_LIMIT: Duration = Duration::from_secs(30);
/// Time limit after the disconnect for threads that still wait for the disk.
const WAITING_LIMIT: Duration = Duration::from_secs(5);

/// When the target is killed.
#[derive(Clone, Copy)]
pub(super) enum Kills {
    /// Once, at this time after the copy began; half-way through the copy at the latest.
    Once(Duration),
    /// This many times, spread evenly over the copy.
    Spread(u32),
}

/// The outages that the user asked for.
#[derive(Clone, Copy)]
pub(super) struct Outages {
    pub(super) kills: Kills,
    /// Time from each kill to the restart; `None`: never.
    pub(super) restart_after: Option<Duration>,
}

/// The record of one outage.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Witness {
    /// When the target was killed, in seconds since the copy began.
    pub(super) killed_after_s: f64,
    /// Share of the copy that was done by then, in percent.
    pub(super) copied_percent: f64,
    /// Requests that waited for the target just before it came back.
    pub(super) waiting: Option<u64>,
    /// How long the target was absent, if it came back.
    pub(super) absent_s: Option<f64>,
    /// Time from the kill until the session was live again.
    pub(super) live_after_s: Option<f64>,
    /// Whether the copy was still running then: the kill fell into it.
    pub(super) within_copy: bool,
    /// The first time left that `tyche list` reported, in seconds.
    pub(super) time_left_s: Option<f64>,
    #[serde(skip)]
    pub(super) killed_at: Instant,
    /// Traffic of the target from its start to this kill.
    #[serde(skip)]
    pub(super) target_before: Traffic,
}

/// The end of a session whose target is lost for good.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Loss {
    /// The copy's error: EIO, or EROFS if the file system was the first to see it.
    pub(super) error: String,
    /// The device's own error for a read: EIO.
    pub(super) device_error: String,
    /// When the copy failed, in seconds after the kill.
    pub(super) failed_after_s: f64,
    /// How long `disconnect --force` took.
    pub(super) disconnect_s: f64,
}

impl Outages {
    /// Number of kills.
    pub(super) fn count(self) -> u32 {
        match self.kills {
            Kills::Once(_) => 1,
            Kills::Spread(times) => times,
        }
    }

    /// Runs the outages while another thread copies `bytes`. `copied` receives the number of bytes
    /// done, and closes with the copy.
    pub(super) fn strike(
        self,
        stage: &Stage,
        target: &Target<'_>,
        host: &Host<'_>,
        bytes: u64,
        copied: &Receiver<u64>,
    ) -> Result<Vec<Witness>, Failure> {
        let act = Strike { stage, target, host, copied, bytes, began: Instant::now() };
        let mut witnesses = Vec::new();
        for number in 1..=u64::from(self.count()) {
            let (mark, limit) = match self.kills {
                Kills::Once(after) => (bytes / 2, Some(after)),
                Kills::Spread(times) => (bytes * number / (u64::from(times) + 1), None),
            };
            let Some(done) = act.await_mark(mark, limit) else { break };
            let mut witness = act.kill(done)?;
            match self.restart_after {
                Some(time) => act.restart(time, &mut witness)?,
                None => act.watch(&mut witness)?,
            }
            witnesses.push(witness);
        }
        Ok(witnesses)
    }
}

/// State shared by the steps of an outage.
struct Strike<'a> {
    stage: &'a Stage,
    target: &'a Target<'a>,
    host: &'a Host<'a>,
    /// Receives how many of the `bytes` are copied.
    copied: &'a Receiver<u64>,
    bytes: u64,
    began: Instant,
}

impl Strike<'_> {
    /// Waits until `mark` bytes are copied, or until `limit` after the beginning; returns how many
    /// are. `None` if the copy has ended.
    fn await_mark(&self, mark: u64, limit: Option<Duration>) -> Option<u64> {
        let mut done = 0;
        while done < mark {
            let left = limit.map(|limit| limit.saturating_sub(self.began.elapsed()));
            match self.copied.recv_timeout(left.unwrap_or(Duration::MAX)) {
                Ok(more) => done = more,
                Err(RecvTimeoutError::Timeout) => return Some(done),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        Some(done)
    }

    fn kill(&self, done: u64) -> Result<Witness, Failure> {
        let mut target_before = Traffic::default();
        target_before.add(&self.host.ask("stats")?["targets"][0]);
        self.target.kill()?;
        let killed_after_s = self.began.elapsed().as_secs_f64();
        let copied_percent = done as f64 * 100.0 / self.bytes.max(1) as f64;
        self.stage.progress.say(&format!(
            "             target killed after {killed_after_s:.1} s, {copied_percent:.0} % copied"
        ));
        Ok(Witness {
            killed_after_s,
            copied_percent,
            waiting: None,
            absent_s: None,
            live_after_s: None,
            within_copy: false,
            time_left_s: None,
            killed_at: Instant::now(),
            target_before,
        })
    }

    /// Restarts the target after a while, and waits until the session is live.
    fn restart(&self, after: Duration, witness: &mut Witness) -> Result<(), Failure> {
        self.stage.stop.pause(after)?;
        witness.waiting = self.host.ask("list")?["sessions"][0]["operations"].as_u64();
        self.target.start()?;
        let since = || witness.killed_at.elapsed().as_secs_f64();
        witness.absent_s = Some(since());
        let deadline = Instant::now() + LIVE_LIMIT;
        while self.host.ask("list")?["sessions"][0]["state"] != "live" {
            if Instant::now() > deadline {
                let text = format!("the session is not live {LIVE_LIMIT:?} after the target");
                return Err(Failure::Failed(text));
            }
            self.stage.stop.pause(GLANCE)?;
        }
        let live = since();
        witness.live_after_s = Some(live);
        // Without the target the copy can have gone on only until its next sync.
        witness.within_copy = !self.is_copied();
        let waiting = witness.waiting.unwrap_or_default();
        let text = format!("target back, live after {live:.1} s; {waiting} requests waited");
        self.stage.progress.say(&format!("             {text}"));
        Ok(())
    }

    /// Whether the copy is over.
    fn is_copied(&self) -> bool {
        loop {
            match self.copied.try_recv() {
                Ok(_) => {}
                Err(error) => return error == TryRecvError::Disconnected,
            }
        }
    }

    /// Waits until the copy ends. A session that never gives up would prevent that: the command
    /// line demands a limit.
    fn watch(&self, witness: &mut Witness) -> Result<(), Failure> {
        witness.within_copy = true;
        while self.copied.recv_timeout(LOOK) != Err(RecvTimeoutError::Disconnected) {
            self.stage.stop.check()?;
            let list = self.host.ask("list")?;
            let session = &list["sessions"][0];
            let left = session["time_left_s"].as_f64().filter(|_| session["state"] == "lost");
            if let (Some(left), None) = (left, witness.time_left_s) {
                witness.time_left_s = Some(left);
                self.stage.progress.say(&format!("             list: lost, {left:.1} s left"));
            }
        }
        Ok(())
    }
}

/// The error of a read of the device past all caches.
pub(super) fn device_error(device: &Path) -> Result<String, Failure> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    let opened = File::options().read(true).custom_flags(flags).open(device);
    let file = opened.doing(format_args!("open {}", device.display()))?;
    let mut memory = vec![0; 2 * DIRECT_ALIGN];
    let skip = memory.as_ptr().align_offset(DIRECT_ALIGN);
    match file.read_at(&mut memory[skip..skip + DIRECT_ALIGN], 0) {
        Err(error) => Ok(error.to_string()),
        Ok(_) => Err(Failure::Failed(format!("{} can still be read", device.display()))),
    }
}

/// Waits until no thread of the stage's daemons, and none that is named after the device, is in
/// uninterruptible sleep (state D).
pub(super) fn await_nobody_stuck(stage: &Stage, device: &Path) -> Result<(), Failure> {
    let deadline = Instant::now() + WAITING_LIMIT;
    loop {
        let stuck = stuck(&daemons(&stage.runtime_dir()), device).doing("read /proc")?;
        if stuck.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let text = format!("still in state D: {}", stuck.join(", "));
            return Err(Failure::Failed(text));
        }
        stage.stop.pause(LOOK)?;
    }
}

/// Threads in state D: those of the daemons, and those with the name of the device.
fn stuck(daemons: &[Pid], device: &Path) -> std::io::Result<Vec<String>> {
    let device = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut stuck = Vec::new();
    for process in std::fs::read_dir("/proc")?.flatten() {
        let number = process.file_name();
        let is_daemon = daemons.iter().any(|it| *number == *it.as_raw_pid().to_string());
        let tasks = std::fs::read_dir(process.path().join("task"));
        for task in tasks.into_iter().flatten().flatten() {
            // Fails for a thread that has ended: it is not stuck.
            let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { continue };
            let Some((name, rest)) = stat.rsplit_once(')') else { continue };
            let name = name.split_once('(').map_or("", |(_, name)| name);
            let is_ours = is_daemon || name.contains(&device);
            if is_ours && rest.trim_start().starts_with('D') {
                stuck.push(format!("{} ({name})", task.file_name().to_string_lossy()));
            }
        }
    }
    Ok(stuck)
}
