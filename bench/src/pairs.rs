//! `cargo xtask pairs COMMIT`: a change next to what it was made from.
//!
//! ```text
//! turn 1:  before, now   job after job, link after link
//! turn 2:  now, before
//! ..
//! ratio of a job: the median of now / before within a turn
//! ```
//!
//! The machine's speed differs from minute to minute by more than a change does; within a pair it
//! seldom does. Where the memory of a target happens to lie also makes it faster or slower by
//! percents, as long as it runs: so target and host are started anew for each figure.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::device::RUNTIME_DIR;
use crate::job::{Job, Pattern, size};
use crate::network::{Link, Network, Side, address, interface};
use crate::own_load;
use crate::process::{Doing, Result, Running, Stop, failed};
use crate::result::Spread;

use Pattern::{Randread, Randwrite, Read, Write};

/// The jobs: small requests alone, some and many at a time, and large ones.
const JOBS: [Job; 8] = [
    Job::new(Randread, 4 << 10, 1),
    Job::new(Randread, 4 << 10, 32),
    Job::new(Randread, 4 << 10, 128),
    Job::new(Randwrite, 4 << 10, 1),
    Job::new(Randwrite, 4 << 10, 32),
    Job::new(Randwrite, 4 << 10, 128),
    Job::new(Read, 1 << 20, 16),
    Job::new(Write, 1 << 20, 16),
];
/// Writes all of the export before a job reads it: pages that nobody has written are not there.
const FILL: Job = Job::new(Write, 1 << 20, 16);
const FILLING: Duration = Duration::from_millis(200);
/// The export, and the longest time that either side spins before it sleeps.
const EXPORT: &str = "disk=mem:64M";
const SPIN_US: &str = "1000";
const PORT: u16 = 8650;
/// Time limit for a target to accept connections, and for a job beyond its run time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measure a change next to the commit before it, in pairs.
///
/// Starts both targets in turn on one side of a veth pair, each pinned to a core, and its own
/// `tyche bench` on the other. Fails if a job's median ratio is below --bar.
#[derive(Debug, Parser)]
#[command(override_usage = "cargo xtask pairs COMMIT [OPTIONS]")]
pub(crate) struct PairsArgs {
    /// How often each job is measured with each.
    #[arg(long, value_name = "NUMBER", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: u32,

    /// How long a job is measured.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    runtime: f64,

    /// Over these links.
    #[arg(long, value_enum, value_name = "LINK,..", value_delimiter = ',',
        default_values_t = [Over::Ethernet, Over::Udp, Over::Tcp])]
    links: Vec<Over>,

    /// The MTU of the links.
    #[arg(long, value_name = "BYTES", default_value_t = 9000)]
    mtu: u32,

    /// Only jobs whose names begin like this, such as randread-4k-32, randwrite-4k or read.
    #[arg(long, value_name = "JOB,..", value_delimiter = ',')]
    jobs: Vec<String>,

    /// The least ratio.
    #[arg(long, value_name = "RATIO", default_value_t = 0.97)]
    bar: f64,

    /// The `tyche` of the commit before.
    #[arg(long, value_name = "FILE", hide = true)]
    before: PathBuf,

    /// The `tyche` of the change.
    #[arg(long, value_name = "FILE", hide = true, default_value = "tyche")]
    tyche: PathBuf,
}

/// How the two reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Over {
    Ethernet,
    Udp,
    Tcp,
}

impl Over {
    fn link(self) -> String {
        let place = |transport| format!("{transport}:{}:{PORT}", address(Side::Target, 0));
        match self {
            Self::Ethernet => interface(0),
            Self::Udp => place("udp"),
            Self::Tcp => place("tcp"),
        }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "ethernet",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

/// A job over a link, and its figures so far.
struct Line {
    over: Over,
    job: Job,
    /// Requests a second before and now, by turn.
    pairs: Vec<[f64; 2]>,
}

impl Line {
    /// The ratios of now to before.
    fn ratios(&self) -> Option<Spread> {
        Spread::of(self.pairs.iter().map(|[before, now]| now / before))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { over, job, pairs } = self;
        write!(f, "{:9}{:18}", over.to_string(), job.to_string())?;
        for side in 0..2 {
            let spread = Spread::of(pairs.iter().map(|pair| pair[side]));
            write!(f, "{:9.0}", spread.map_or(0.0, |spread| spread.median))?;
        }
        let Some(Spread { median, min, max }) = self.ratios() else { return Ok(()) };
        write!(f, "{median:8.3}  ({min:.3} to {max:.3})")
    }
}

/// Measures, and prints a table; returns whether no job has become slower.
pub(crate) fn run(args: &PairsArgs) -> Result<bool> {
    let stop = Stop::new()?;
    if !rustix::process::geteuid().is_root() {
        return failed("network namespaces and raw frames need root");
    }
    if !(0.1..=3600.0).contains(&args.runtime) {
        return failed("--runtime: 0.1 to 3600 seconds");
    }
    let absolute = |file: &Path| std::path::absolute(file).doing(file.display());
    let programs = [absolute(&args.before)?, absolute(&args.tyche)?];
    let is_wanted = |job: &Job| args.jobs.is_empty() || args.jobs.iter().any(|it| job.is_a(it));
    let jobs: Vec<_> = JOBS.into_iter().filter(is_wanted).collect();
    let of_link = |over: &Over| jobs.iter().map(|&job| (*over, job)).collect::<Vec<_>>();
    let lines = args.links.iter().flat_map(of_link);
    let mut lines: Vec<_> =
        lines.map(|(over, job)| Line { over, job, pairs: Vec::new() }).collect();
    if lines.is_empty() {
        return failed("no job is left; see `cargo xtask pairs --help`");
    }
    let network = Network::lay(Link::unshaped(args.mtu), &stop)?;
    let runtime = Duration::from_secs_f64(args.runtime);
    for turn in 0..args.turns {
        for line in &mut lines {
            let mut pair = [0.0; 2];
            for step in 0..2 {
                let which = (turn as usize + step) % 2;
                pair[which] = figure(&programs[which], line, runtime, (&network, &stop))?;
            }
            line.pairs.push(pair);
        }
        eprintln!("pairs: turn {} of {}", turn + 1, args.turns);
    }
    println!(
        "{:9}{:18}{:>9}{:>9}{:>8}  requests a second",
        "link", "job", "before", "now", "ratio"
    );
    lines.iter().for_each(|line| println!("{line}"));
    let is_slower = |line: &&Line| line.ratios().is_some_and(|ratios| ratios.median < args.bar);
    let slower = lines.iter().filter(is_slower).count();
    println!("{slower} of {} below {}", lines.len(), args.bar);
    Ok(slower == 0)
}

/// Requests a second of a job, with a target and a host of their own.
fn figure(
    tyche: &Path,
    line: &Line,
    runtime: Duration,
    (network, stop): (&Network, &Stop),
) -> Result<f64> {
    let dir = tempfile::tempdir().doing("a temporary directory")?;
    let link = line.over.link();
    let program = |side, place: &str| {
        let mut command: Command = network.pinned(side, &tyche.to_string_lossy());
        command.env(RUNTIME_DIR, dir.path().join(place));
        command.env("TYCHE_STATE_DIR", dir.path().join("state"));
        command
    };
    let mut serve = program(Side::Target, "target");
    serve.args(["serve", "--export", EXPORT, "--link", &link, "--spin", SPIN_US]);
    let mut target = Running::start(&mut serve)?;
    let is_ready = stop.until(PATIENCE, || {
        target.check()?;
        Ok(!target.output()?.is_empty())
    })?;
    if !is_ready {
        return failed("the target does not get ready");
    }
    let load = |job: &Job, runtime: Duration| {
        let mut bench = program(Side::Host, "host");
        bench.args(["bench", "disk", "--link", &link, "--spin", SPIN_US, "--yes", "-o", "json"]);
        bench.args(["--rw", job.rw.fio(), "--bs", &size(job.block_bytes)]);
        bench.args(["--iodepth", &job.depth.to_string()]);
        bench.args(["--runtime", &runtime.as_secs_f64().to_string()]);
        own_load::parse(&Running::start(&mut bench)?.succeed(stop, runtime + PATIENCE)?.stdout)
    };
    load(&FILL, FILLING)?;
    let measured = load(&line.job, runtime)?;
    Ok(measured.ios as f64 / measured.seconds)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        PairsArgs::command().debug_assert();
    }

    #[test]
    fn a_line_tells_the_median_of_the_ratios_of_pairs() {
        let pairs = vec![[100.0, 90.0], [10.0, 10.0], [50.0, 60.0]];
        let line = Line { over: Over::Udp, job: FILL, pairs };
        let text = "udp      write-1m-16              50       60   1.000  (0.900 to 1.200)";
        assert_eq!(line.to_string(), text);
    }
}
