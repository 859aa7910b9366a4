//! `cargo xtask bench`: Tyche next to its alternatives, and to bare frames.
//!
//! ```text
//!  plan ----> measure ----> result ----> bars, table, plot
//!  what       turn by       every turn,  README.md and SVG
//!  and with   turn          medians
//!  whom         |
//!            network, peer, floor: namespaces, servers and fio, bare frames
//! ```
//!
//! Nothing in the report is typed by hand: `--redraw` makes it anew from `results.json`.
//!
//! `cargo xtask soak` and `cargo xtask pairs` are here as well ([`soak`], [`pairs`]): they need the
//! same networks and programs.

mod args;
mod bars;
mod cores;
mod counters;
mod crowd;
mod device;
mod double;
mod floor;
mod job;
mod machine;
mod measure;
mod messages;
mod network;
mod outage;
mod own_load;
mod pairs;
mod peer;
mod plan;
mod plot;
mod process;
mod report;
mod result;
mod secrets;
mod soak;
mod stages;
mod switches;
mod table;
mod timeline;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;

use args::{Args, Side};
use cores::Cores;
use machine::Machine;
use measure::Stage;
use network::SIDES;
use peer::Programs;
use plan::{Offered, Suite};
use process::{Doing, Failure, Result, Stop, failed, run};
use result::Results;

/// The file that everything else is made from.
const RESULTS: &str = "results.json";
/// The kernel's switch of multipath TCP.
const MPTCP: &str = "/proc/sys/net/mptcp/enabled";
/// A shell's exit code for a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(Side::Floor(command)) = &args.side {
        return match floor::run(command) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("floor: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let (name, done) = match &args.side {
        Some(Side::Soak(args)) => ("soak", soak::run(args)),
        Some(Side::Pairs(args)) => ("pairs", pairs::run(args)),
        _ => ("bench", compare(&args)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("{name}: {failure}");
            ExitCode::from(if matches!(failure, Failure::Interrupted) { INTERRUPTED } else { 1 })
        }
    }
}

/// Measures and reports; returns whether every measurement worked.
fn compare(args: &Args) -> Result<bool> {
    if args.pack.is_some() {
        return failed("`cargo xtask bench --suite scale --pack FILE` makes the archive");
    }
    let out = args.out();
    let results =
        if args.redraw { Results::read(&out.join(RESULTS))? } else { measure(args, &out)? };
    report::write(&results, &out)?;
    println!("bench: see {}", out.join("README.md").display());
    for failure in &results.failures {
        eprintln!("bench: {} {} failed: {}", failure.set, failure.what, failure.error);
    }
    Ok(results.failures.is_empty())
}

fn measure(args: &Args, out: &Path) -> Result<Results> {
    let (runtime, programs, stop) = (args.runtime().doing("usage")?, args.programs(), Stop::new()?);
    if !rustix::process::geteuid().is_root() {
        return failed("network namespaces and raw frames need root");
    }
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return failed("host and target need a core each, and this machine has one");
    }
    for program in [&programs.tyche, &programs.lab, &programs.engine] {
        if !program.exists() {
            return failed(format!(
                "{}: not there; `cargo xtask bench` builds it",
                program.display()
            ));
        }
    }
    let offered = offered(args, &programs, &stop)?;
    let sets = plan::narrow(plan::sets(args.suite, runtime, offered), &args.wanted());
    if sets.is_empty() {
        return failed("no job of no set is left; see `cargo xtask bench --help`");
    }
    let machine = Machine::look(args.commit.as_deref(), &stop)?;
    fs::create_dir_all(out).doing(out.display())?;
    let turns = args.turns();
    let runtime_ms = runtime.as_millis() as u64;
    let mut results = Results::new(args.suite, machine, args.typed(), turns, runtime_ms);
    let estimate: Duration = sets.iter().map(|set| measure::estimate(set, turns)).sum();
    let minutes = estimate.as_secs().div_ceil(60);
    println!("bench: {} sets, {turns} turns, about {minutes} minutes", sets.len());
    if args.suite == Suite::Scale {
        plan::scale::cannot_tell(results.machine.cores)
            .iter()
            .for_each(|it| println!("bench: {it}"));
    }
    let each = sets[0].cores.unwrap_or(1);
    let mut cores = Cores::new(SIDES.map(|side| side.first_core(each)), estimate / 2);
    for set in &sets {
        stop.check()?;
        println!("bench: {}: servers start, and their memory is filled", set.name);
        let mut stage = Stage::set_up(set, &programs, &stop, &mut results)?;
        for turn in 1..=set.turns(turns) {
            stage.turn(turn, &mut cores, &mut results)?;
            // The results so far survive a failure in the next set.
            results.write(&out.join(RESULTS))?;
        }
    }
    Ok(results)
}

/// The variants that this Tyche and this system offer.
fn offered(args: &Args, programs: &Programs, stop: &Stop) -> Result<Offered> {
    let help = |program: &Path, verb| run(Command::new(program).args([verb, "--help"]), stop);
    let serving = help(&programs.lab, "serve")?;
    let connecting = help(&programs.tyche, "connect")?;
    let wrapped = run(Command::new("sh").args(["-c", "command -v mptcpize || true"]), stop)?;
    let switch = fs::read_to_string(MPTCP).unwrap_or_default();
    Ok(Offered {
        batch: serving.contains("--batch "),
        hand_over: serving.contains("--hand-over"),
        channels: connecting.contains("--channels"),
        mptcp: switch.trim() == "1" && !wrapped.is_empty(),
        cores: std::thread::available_parallelism()
            .map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(u16::MAX)),
        queues_max: args.queues_max(),
    })
}
