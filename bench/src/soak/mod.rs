//! `cargo xtask soak`: faults without end, in simulated worlds and on real interfaces.
//!
//! ```text
//! namespace of the host                                 namespace of the target
//!   fio --verify          veth0 ─────────────── veth0
//!   /dev/loopN ── tyche   veth1 ── cut, lossy ─ veth1   tyche serve ── disk.img
//!                         veth2 ─── down, up ── veth2    killed, started again
//! ```
//!
//! [Incidents](incident) come one after the other. After each, requests must get done again soon
//! ([`links`]), and fio must always read what it wrote last ([`load`]). Everything follows from one
//! random number, which is printed first: with it, the same incidents come in the same order.

mod incident;
mod links;
mod load;
mod progress;
mod random;
mod report;
mod simulator;
mod target;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Parser, ValueEnum};

use crate::process::{Doing, Failure, Result, Stop, failed};
use random::Random;
use report::{Links, Report};
use simulator::Seeds;

/// Let faults happen for as long as you like, and look for what must never happen.
///
/// Runs seeds of the simulator from random starts (`tyche-lab sim`, both kinds of worlds), and then
/// a target and a host in network namespaces, joined by three links, while links lose frames, are
/// cut one way or both, go down and flap, and the target is killed and started again; fio writes to
/// the disk and verifies what it reads. Ends with a failure if a seed failed, fio read what it had
/// not written last, a request failed, or requests did not get done after an incident.
#[derive(Debug, Parser)]
#[command(override_usage = "cargo xtask soak [OPTIONS]")]
pub(crate) struct SoakArgs {
    /// How long; half of it for the simulator and half for the links, unless only one is wanted.
    #[arg(long, value_name = "NUMBER", default_value_t = 20.0, value_parser = minutes)]
    minutes: f64,

    /// Only this.
    #[arg(long, value_enum, value_name = "PART")]
    only: Option<Part>,

    /// Repeat the run that said this number.
    #[arg(long, value_name = "NUMBER")]
    start: Option<u64>,

    /// How to print the summary.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,

    /// The `tyche` to run.
    #[arg(long, value_name = "FILE", hide = true, default_value = "tyche")]
    tyche: PathBuf,

    /// The `tyche-lab` that simulates.
    #[arg(long, value_name = "FILE", hide = true, default_value = "tyche-lab")]
    lab: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Simulator,
    Interfaces,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
}

fn minutes(text: &str) -> std::result::Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "write a number such as 20".to_owned())?;
    if (0.05..=100_000.0).contains(&minutes) {
        Ok(minutes)
    } else {
        Err("0.05 to 100000".to_owned())
    }
}

/// Runs the soak; returns whether all was well.
pub(crate) fn run(args: &SoakArgs) -> Result<bool> {
    let stop = Stop::new()?;
    let is_wanted = |part| args.only.is_none_or(|only| only == part);
    if is_wanted(Part::Interfaces) && !rustix::process::geteuid().is_root() {
        return failed("network namespaces need root; `--only simulator` does not");
    }
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let start = args.start.unwrap_or_else(|| clock().as_nanos() as u64);
    eprintln!("soak: to repeat this run: --start {start}");
    let parts = if args.only.is_none() { 2.0 } else { 1.0 };
    let time = Duration::from_secs_f64(args.minutes * 60.0 / parts);
    let absolute = |file: &Path| std::path::absolute(file).doing(file.display());
    let (tyche, lab) = (absolute(&args.tyche)?, absolute(&args.lab)?);
    let mut report = Report { start, seeds: None, links: None, failure: None };
    // Each part has its own random numbers, so that it runs the same with and without the other.
    let mut soak = || {
        if is_wanted(Part::Simulator) {
            let seeds = report.seeds.insert(Seeds::default());
            simulator::run(&lab, Random::new(start), time, seeds, &stop)?;
        }
        if is_wanted(Part::Interfaces) {
            let links = report.links.insert(Links::default());
            links::run(&tyche, Random::new(!start), time, links, &stop)?;
        }
        Ok(())
    };
    let done: Result<()> = soak();
    report.failure = done.as_ref().err().map(ToString::to_string);
    match args.output {
        Format::Text => print!("{report}"),
        Format::Json => println!("{}", serde_json::to_string(&report).doing("the summary")?),
    }
    match done {
        Err(Failure::Interrupted) => Err(Failure::Interrupted),
        _ => Ok(report.is_well()),
    }
}
