//! The target dies in the middle of the copy, as in a power failure, and comes back or not.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use serde::Serialize;

use super::command::{Doing, Failure};
use super::report::Traffic;
use super::session::Host;
use super::stage::Stage;
use super::target::Target;

/// What direct I/O wants of address and length.
const DIRECT_ALIGN: usize = 4096;
/// Between two looks at the list of sessions.
const LOOK: Duration = Duration::from_millis(200);
/// How long after everything has ended a thread may still be seen waiting for the disk.
const WAITING_LIMIT: Duration = Duration::from_secs(5);

/// What is to happen.
#[derive(Clone, Copy)]
pub(super) struct Outage {
    /// After the copy began; half-way through the copy at the latest.
    pub(super) kill_after: Duration,
    /// After the kill; never if `None`.
    pub(super) restart_after: Option<Duration>,
}

/// What did happen.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Witness {
    /// When the target was killed, in seconds since the copy began.
    pub(super) killed_after_s: f64,
    /// For how long there was no target, if it came back.
    pub(super) absent_s: Option<f64>,
    /// The time left as `tyche list` told it first, in seconds.
    pub(super) time_left_s: Option<f64>,
    #[serde(skip)]
    pub(super) killed_at: Instant,
    /// What the target had done until then.
    #[serde(skip)]
    pub(super) target_before: Traffic,
}

/// How the loss of a target for good ended.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Loss {
    /// What the copy got: EIO, or EROFS if the file system was the first to see it.
    pub(super) error: String,
    /// What the device itself says to a read: EIO.
    pub(super) device_error: String,
    /// When, in seconds after the kill.
    pub(super) failed_after_s: f64,
    /// How long `disconnect --force` took.
    pub(super) disconnect_s: f64,
}

impl Outage {
    /// Does it, while another thread copies. `half` says that half of the copy is done, and ends
    /// with the copy.
    pub(super) fn strike(
        self,
        stage: &Stage,
        target: &Target<'_>,
        host: &Host<'_>,
        half: &Receiver<()>,
    ) -> Result<Option<Witness>, Failure> {
        let began = Instant::now();
        if half.recv_timeout(self.kill_after) == Err(RecvTimeoutError::Disconnected) {
            return Ok(None);
        }
        let mut target_before = Traffic::default();
        target_before.add(&host.ask("stats")?["targets"][0]);
        target.kill()?;
        let killed_at = Instant::now();
        let killed_after_s = began.elapsed().as_secs_f64();
        stage.progress.say(&format!("             target killed after {killed_after_s:.1} s"));
        let mut witness =
            Witness { killed_after_s, absent_s: None, time_left_s: None, killed_at, target_before };
        if let Some(time) = self.restart_after {
            stage.stop.pause(time)?;
            target.start()?;
            let absent = killed_at.elapsed().as_secs_f64();
            stage.progress.say(&format!("             target back after {absent:.1} s"));
            witness.absent_s = Some(absent);
            return Ok(Some(witness));
        }
        // Ends when the copy does, which a session that never gives up would prevent: the command
        // line demands a limit.
        while half.recv_timeout(LOOK) != Err(RecvTimeoutError::Disconnected) {
            stage.stop.check()?;
            let list = host.ask("list")?;
            let session = &list["sessions"][0];
            let left = session["time_left_s"].as_f64().filter(|_| session["state"] == "lost");
            if let (Some(left), None) = (left, witness.time_left_s) {
                witness.time_left_s = Some(left);
                stage.progress.say(&format!("             list: lost, {left:.1} s left"));
            }
        }
        Ok(Some(witness))
    }
}

/// What a read of the device past all caches fails with.
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

/// Waits until none of our threads, and none of the kernel's for a device, waits for the disk in
/// a way that no signal ends.
pub(super) fn await_nobody_stuck(stage: &Stage, device: &Path) -> Result<(), Failure> {
    let deadline = Instant::now() + WAITING_LIMIT;
    loop {
        let stuck = stuck(device).doing("read /proc")?;
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

/// Threads in state D that have to do with us: of our program, or named after the device.
fn stuck(device: &Path) -> std::io::Result<Vec<String>> {
    let device = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut stuck = Vec::new();
    for process in std::fs::read_dir("/proc")?.flatten() {
        let tasks = std::fs::read_dir(process.path().join("task"));
        for task in tasks.into_iter().flatten().flatten() {
            // Gone in between: not stuck.
            let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { continue };
            let Some((name, rest)) = stat.rsplit_once(')') else { continue };
            let name = name.split_once('(').map_or("", |(_, name)| name);
            let ours = ["tyche", "mount", "umount", "mkfs", "fsck", "exe"];
            let ours = ours.iter().any(|it| name.starts_with(it)) || name.contains(&device);
            if ours && rest.trim_start().starts_with('D') {
                stuck.push(format!("{} ({name})", task.file_name().to_string_lossy()));
            }
        }
    }
    Ok(stuck)
}
