//! `tyche-lab sim`: the protocol under simulated time and faults.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use serde_json::json;
use tyche_console::error::{Code, Error, Result};
use tyche_console::output::{Format, has_terminal, show, write_error};
use tyche_sim::{Options, Profile, Report, Violation, canaries, hunt, run as run_seed};

/// Run the protocol in a simulated world of lossy networks, crashing targets and hosts, and check
/// the history of every block.
///
/// Every run follows from its seed: the same seed, the same run. A failure prints the seed. Some of
/// the worlds have a single link, others up to six links at each side, on segments of their own or
/// on one switch, of different speeds, MTUs and quality; links flap, lose frames in one direction,
/// or are cut just when one of them is fenced, and targets die, freeze, or move to other addresses.
/// Some segments are networks of routers, with trains of UDP datagrams, marks of congestion, narrow
/// paths and hosts whose addresses change.
/// On some segments are strangers: another target with a host of its own, a clone of a host, frames
/// from before a restart, and an attacker who replays frames and forges those that need no key.
///
/// With --fcoe the worlds are others: targets and initiators of Fibre Channel over Ethernet, whose
/// frames are lost, repeated, overtaken, damaged and forged, whose neighbours vanish, and which die
/// and come back.
#[derive(Args, Debug)]
pub(crate) struct SimArgs {
    /// How many seeds to run.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    seeds: u64,

    /// The first of them. By default another one each time, which is printed.
    #[arg(long, value_name = "NUMBER")]
    first: Option<u64>,

    /// Run this seed alone.
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,

    /// Only worlds with several links and many link failures.
    #[arg(long)]
    multi_link: bool,

    /// Worlds of Fibre Channel over Ethernet.
    #[arg(long, conflicts_with = "multi_link")]
    fcoe: bool,

    /// Operations of each seed.
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().operations)]
    ops: u32,

    /// Instead, break the protocol on purpose in the way of this name, or in `all` ways, until a
    /// check catches it.
    #[arg(long, value_name = "NAME")]
    canary: Option<String>,

    /// Seeds to run at a time. By default as many as there are cores.
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<usize>,

    /// Print everything that happens, with --seed.
    #[arg(short, long, requires = "seed")]
    verbose: bool,

    /// How to print the result.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

pub(crate) fn run(args: &SimArgs) -> Result<()> {
    // A panic in the simulated world is a violation, reported with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    if let Some(name) = &args.canary {
        return hunt_canaries(args, name);
    }
    if let Some(seed) = args.seed {
        return match run_seed(seed, options(args)) {
            Ok(report) => {
                show(args.output, || object(&report, 1), || format!("seed {seed}: {report}\n"))
            }
            Err(violation) => Err(found(&violation)),
        };
    }
    let begin = Instant::now();
    let first = args.first.unwrap_or_else(random_start);
    // A closed stream does not end the simulation.
    let _ = write_error(format!("{} seeds from {first} on\n", args.seeds).as_bytes());
    let total = run_all(args, first).map_err(|violation| found(&violation))?;
    let text = format!("{} seeds in {:.1?}, all well: {total}\n", args.seeds, begin.elapsed());
    show(args.output, || object(&total, args.seeds), || text)
}

/// A first seed that differs from run to run, short enough to be typed.
fn random_start() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    (since.as_nanos() as u64 >> 10) & 0xffff_ffff
}

/// The profile of the simulated worlds.
fn profile(args: &SimArgs) -> Profile {
    match (args.multi_link, args.fcoe) {
        (true, _) => Profile::MultiLink,
        (_, true) => Profile::Fcoe,
        _ => Profile::Mixed,
    }
}

fn options(args: &SimArgs) -> Options {
    let verbose = args.verbose.then(|| Box::new(std::io::stdout()) as Box<_>);
    Options { profile: profile(args), operations: args.ops, verbose, ..Options::default() }
}

fn found(violation: &Violation) -> Error {
    Error::new(Code::Other, format!("something happened that must never happen\n{violation}"))
}

/// Runs all seeds, several at a time; stops at the first violation.
fn run_all(args: &SimArgs, first: u64) -> Result<Report, Box<Violation>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, stop) = (AtomicU64::new(first), AtomicBool::new(false));
    let end = first.saturating_add(args.seeds);
    let state = Mutex::new((Report::default(), None));
    let talk = has_terminal();
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.unwrap_or(cores).max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let result = run_seed(seed, options(args));
                    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                    match result {
                        Ok(report) => state.0 += report,
                        Err(violation) => {
                            state.1.get_or_insert(violation);
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    if talk && (seed - first).is_multiple_of(16) {
                        let text = format!("\r{} of {} seeds ", seed - first, args.seeds);
                        // A closed terminal does not end the simulation.
                        let _ = write_error(text.as_bytes());
                    }
                }
            });
        }
    });
    if talk {
        let _ = write_error(b"\r\x1b[K");
    }
    let (total, violation) = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    violation.map_or(Ok(total), Err)
}

fn object(report: &Report, seeds: u64) -> serde_json::Value {
    json!({
        "schema": "tyche.sim/1",
        "seeds": seeds,
        "operations": report.operations,
        "failed": report.failed,
        "frames": report.frames,
        "lost": report.drops,
        "sent_again": report.retransmissions,
        "channels": report.channels,
        "target_crashes": report.target_crashes,
        "host_crashes": report.host_crashes,
        "fences": report.fences,
        "cuts": report.cuts,
        "slowest_s": report.slowest.as_secs_f64(),
        "virtual_s": report.virtual_time.as_secs_f64(),
    })
}

fn hunt_canaries(args: &SimArgs, name: &str) -> Result<()> {
    let all = canaries(profile(args));
    let chosen: Vec<_> = all.iter().copied().filter(|it| name == "all" || *it == name).collect();
    if chosen.is_empty() {
        let message = format!("no canary is called `{name}`; there are: {}", all.join(", "));
        return Err(Error::new(Code::Usage, message));
    }
    let (mut caught, mut escaped) = (Vec::new(), Vec::new());
    for name in chosen {
        match hunt(name, profile(args), args.first.unwrap_or(0), args.seeds) {
            Some(it) => caught.push((name, it)),
            None => escaped.push(name),
        }
    }
    show(
        args.output,
        || {
            let caught = caught.iter().map(|(name, it)| {
                json!({ "canary": name, "seed": it.seed, "violation": it.violation.what })
            });
            let caught: Vec<_> = caught.collect();
            json!({ "schema": "tyche.sim-canary/1", "caught": caught, "escaped": escaped })
        },
        || {
            let lines = caught.iter().map(|(name, it)| {
                format!("{name}: caught by seed {}: {}\n", it.seed, it.violation.what)
            });
            lines.collect()
        },
    )?;
    if escaped.is_empty() {
        return Ok(());
    }
    let message = format!("not caught in {} seeds: {}", args.seeds, escaped.join(", "));
    Err(Error::new(Code::Other, message))
}
