//! `tyche-lab demo`: the whole path from file system to disk on this machine alone, over cables
//! between two network namespaces, with a real file system and real files.
//!
//! ```text
//! namespace tyche-demo-PID-h                    namespace tyche-demo-PID-t
//!   tyche connect ── tyche-h0 ─ veth pair ─ tyche-t0 ── tyche serve
//!        │        └─ tyche-h1 ─ veth pair ─ tyche-t1 ─┘    │
//!   /dev/loopN: mkfs, mount, copy, compare              disk.img
//! ```
//!
//! One thread runs the scenario. The main thread waits for its end or for a signal, and then undoes
//! everything, even if the scenario's thread is blocked: the forced end of the session makes every
//! wait for the disk return. Steps that can't be undone are listed.

mod command;
mod filesystem;
mod net;
mod outage;
mod progress;
mod report;
mod scenario;
mod session;
mod stage;
mod target;
mod traffic;
mod tree;
mod undo;

use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tyche_console::error::{Code, Error, Result};
use tyche_console::output::{Format, bytes, show};
use tyche_console::size;

use command::Failure;
use filesystem::Filesystem;
use outage::{Kills, Outages};
use report::Report;
use stage::Stage;
/// Time limit for an interrupted scenario to finish its step.
const GRACE: Duration = Duration::from_secs(3);
/// Time limit after the clean-up for a scenario that is still blocked in the kernel.
const STUCK_LIMIT: Duration = Duration::from_secs(10);

/// Demonstrate Tyche on this machine alone: a disk over virtual cables, a file system on it, and
/// real files copied and compared.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("kill").args(["kill_target", "kill_target_after"])))]
pub(crate) struct DemoArgs {
    /// File system to put on the disk.
    #[arg(long, value_enum, default_value_t = Filesystem::Ext4)]
    fs: Filesystem,

    /// Cables between host and target, 1 to 6: all are found and used as one.
    #[arg(long, default_value_t = 1, value_name = "NUMBER",
        value_parser = clap::value_parser!(u8).range(1..=6))]
    links: u8,

    /// MTU of the cables, in bytes.
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u32).range(576..=65535))]
    mtu: u32,

    /// Frames to lose each way, in percent.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = percent)]
    loss: f64,

    /// Size of the disk; its file takes no more room than is written.
    #[arg(long, default_value = "2G", value_parser = disk_size)]
    size: u64,

    /// Directory to copy; at most 450 MB of it. By default the Rust toolchain's, or /usr.
    #[arg(long, value_name = "DIRECTORY")]
    tree: Option<PathBuf>,

    /// Kill the target that many times while files are copied, evenly over the copy, and start it
    /// again each time.
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u8).range(1..=100))]
    kill_target: Option<u8>,

    /// Kill the target that many seconds after the copy began, half-way through it at the latest.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    kill_target_after: Option<Duration>,

    /// Start the killed target again after that many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "3")]
    #[arg(requires = "kill")]
    restart_after: Duration,

    /// Do not start the killed target again: the copy must fail, and everything must end.
    #[arg(long, conflicts_with = "restart_after", requires = "ctrl_loss_tmo")]
    #[arg(requires = "kill_target_after")]
    no_restart: bool,

    /// Seconds until requests to a lost target fail; -1 for never.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(-1..=1_000_000_000))]
    ctrl_loss_tmo: Option<i64>,

    /// Directory for the disk's file and everything else.
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp")]
    dir: PathBuf,

    /// Leave everything in place at the end, and print how to remove it.
    #[arg(long)]
    keep: bool,

    /// How to print the summary.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

impl DemoArgs {
    fn outages(&self) -> Option<Outages> {
        let spread = self.kill_target.map(|times| Kills::Spread(times.into()));
        let kills = spread.or(self.kill_target_after.map(Kills::Once))?;
        let restart_after = Some(self.restart_after).filter(|_| !self.no_restart);
        Some(Outages { kills, restart_after })
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "write a number such as 0.1".to_owned())?;
    if (0.0..=50.0).contains(&number) { Ok(number) } else { Err("0 to 50".to_owned()) }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "write a number such as 1.5".to_owned())?;
    if (0.0..=3600.0).contains(&number) {
        Ok(Duration::from_secs_f64(number))
    } else {
        Err("0 to 3600".to_owned())
    }
}

fn disk_size(text: &str) -> Result<u64, String> {
    let size = size::parse(text)?;
    let (min, max) = (512 << 20, 8 << 40);
    let limits = || format!("{} to {}", bytes(min), bytes(max));
    if (min..=max).contains(&size) { Ok(size) } else { Err(limits()) }
}

/// An event that the main thread waits for.
enum Event {
    Ended(Box<Result<Report, Failure>>),
    Signal,
}

/// Runs the demo and cleans up after it.
pub(crate) fn run(args: &DemoArgs) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        let message = "the demo makes network namespaces and mounts: run it as root";
        return Err(Error::new(Code::Permission, message));
    }
    let stage = Arc::new(Stage::new(&args.dir)?);
    let (sender, events) = channel();
    let signals = sender.clone();
    let mut caught = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in caught.forever() {
            if signals.send(Event::Signal).is_err() {
                return;
            }
        }
    })?;
    let (playing, story) = (Arc::clone(&stage), args.clone());
    thread::Builder::new().name("story".into()).spawn(move || {
        let play = || scenario::play(&playing, &story);
        let ended = panic::catch_unwind(AssertUnwindSafe(play))
            .unwrap_or_else(|_| Err(Failure::Failed("the demo itself panicked".to_owned())));
        // Released first: from here on only the main thread may hold the stage.
        drop(playing);
        let _ = sender.send(Event::Ended(Box::new(ended)));
    })?;
    let ended = await_story(&stage, &events);
    let logs = if ended.is_err() { stage.logs() } else { String::new() };
    let left = clean_up(&stage, args.keep, &ended, &events);
    conclude(args, ended, &left, &logs)
}

/// Waits until the scenario ends or is interrupted.
fn await_story(stage: &Stage, events: &Receiver<Event>) -> Result<Report, Failure> {
    match events.recv() {
        Ok(Event::Ended(ended)) => *ended,
        Ok(Event::Signal) | Err(_) => {
            stage.stop.raise();
            stage.progress.clear();
            progress::line("interrupted; cleaning up");
            await_end(events, GRACE);
            Err(Failure::Interrupted)
        }
    }
}

/// Gives the scenario time to end, regardless of further signals; returns whether it has ended.
fn await_end(events: &Receiver<Event>, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Signal) => progress::line("still cleaning up"),
            Ok(Event::Ended(_)) | Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

/// Undoes everything; returns what is left.
fn clean_up(
    stage: &Stage,
    keep: bool,
    ended: &Result<Report, Failure>,
    events: &Receiver<Event>,
) -> Vec<String> {
    if keep && !matches!(ended, Err(Failure::Interrupted)) {
        progress::line("kept; remove it in this order:");
        for what in stage.undo.keep() {
            progress::line(&format!("  {what}"));
        }
        return Vec::new();
    }
    let mut left = stage.undo.run();
    if matches!(ended, Err(Failure::Interrupted)) {
        // The scenario has ended by now, unless it was blocked.
        await_end(events, Duration::ZERO);
    }
    left.extend(stage.leftovers(STUCK_LIMIT));
    left
}

/// Prints the summary, or returns the failure as an error.
fn conclude(
    args: &DemoArgs,
    ended: Result<Report, Failure>,
    left: &[String],
    logs: &str,
) -> Result<()> {
    let left = left.iter().map(|what| format!("\nleft behind: {what}")).collect::<String>();
    match ended {
        Err(failure) => {
            let code =
                if matches!(failure, Failure::Disk { .. }) { Code::Device } else { Code::Other };
            let logs = if matches!(failure, Failure::Interrupted) { "" } else { logs };
            Err(Error::new(code, format!("{failure}{logs}{left}")))
        }
        Ok(_) if !left.is_empty() => {
            Err(Error::new(Code::Other, format!("all went well, but not all is gone{left}")))
        }
        Ok(report) => show(args.output, || json!(report), || report.to_string()),
    }
}
