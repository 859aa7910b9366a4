//! The command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::floor;
use crate::pairs::PairsArgs;
use crate::peer::Programs;
use crate::plan::{CROWDS, MESSAGES, Suite, Wanted};
use crate::soak::SoakArgs;

/// Measure Tyche next to the same protocol over TCP, to NBD and to bare frames, in one run.
///
/// Two network namespaces joined by a veth pair, the target on core 1 and the host on core 0 (suite
/// `scale`: each on half of the cores); the same fio jobs for everybody, in turn. Writes
/// results.json, README.md and plots. Without options that narrow it this is the whole comparison,
/// about an hour; leave the machine alone.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) side: Option<Side>,

    /// The suite: peers over one link, over many links as one, or of Fibre Channel over Ethernet,
    /// or with keys, or of rings in the peer's memory (RDMA), or with more cores and hosts (scale).
    #[arg(long, value_enum, default_value_t)]
    pub(crate) suite: Suite,

    /// See that it works: two jobs, one short turn.
    #[arg(long)]
    quick: bool,

    /// How often everything is measured; the figures are medians. By default 5 times. Sets that
    /// draw figures of the papers are measured 3 times at most.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: Option<u32>,

    /// How long a job is measured; where batch sizes are tuned, seven and a half times as long.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    runtime: f64,

    /// Only these sets: mtu-9000, no-spin, mtu-1500, mtu-65535, default, 10g-batching,
    /// 10g-one-page, 10g-mixed, stages, 10g-threads, 10g-links; links, links-channels,
    /// links-unequal, links-lossy, links-recovery; fcoe, fcoe-contexts; keys; rdma-messages,
    /// rdma-queues, rdma-queues-bare, rdma-disks, rdma-disks-deep, rdma-streams; scale-cores,
    /// scale-hosts.
    #[arg(long, value_name = "SET,..", value_delimiter = ',')]
    sets: Vec<String>,

    /// Only networks of these MTUs.
    #[arg(long, value_name = "BYTES,..", value_delimiter = ',')]
    mtu: Vec<u32>,

    /// Only these peers: tyche, udp, tsockets, nbd, nbd-mptcp, default, floor, tyche-batch-none,
    /// fcoe, fcoe-layered, tyche-keys, nbd-tls, BASE16, ELIM, ..
    #[arg(long, value_name = "PEER,..", value_delimiter = ',')]
    peers: Vec<String>,

    /// Only jobs whose names begin like this, such as randread-4k-32, randwrite-4k or read; also
    /// `messages` and `crowds`.
    #[arg(long, value_name = "JOB,..", value_delimiter = ',')]
    jobs: Vec<String>,

    /// Suite `scale`: the most queues. By default one for each core of a side, but for one that is
    /// left for everything else where there are enough.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=64))]
    queues_max: Option<u16>,

    /// Measure nothing, and write an archive (.tar, .tar.gz) with all that the suite `scale` needs
    /// on a machine without Rust, packages and network: there, as root, `sh tyche-scale/run.sh`.
    #[arg(long, value_name = "FILE")]
    pub(crate) pack: Option<PathBuf>,

    /// Directory of the results. By default bench/results for the whole comparison,
    /// bench/results-SUITE for all of another suite, and target/bench for a part of one.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Measure nothing: write README.md and the plots anew from results.json.
    #[arg(long)]
    pub(crate) redraw: bool,

    /// The `tyche` to measure.
    #[arg(long, value_name = "FILE", hide = true, default_value = "tyche")]
    tyche: PathBuf,

    /// Its laboratory.
    #[arg(long, value_name = "FILE", hide = true, default_value = "tyche-lab")]
    lab: PathBuf,

    /// Its engine for fio.
    #[arg(long, value_name = "FILE", hide = true, default_value = "tyche.so")]
    engine: PathBuf,

    /// The directory of the job files.
    #[arg(long, value_name = "DIR", hide = true,
        default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/jobs"))]
    job_files: PathBuf,

    /// The commit that the programs were built from, where its sources are not.
    #[arg(long, value_name = "COMMIT", hide = true)]
    pub(crate) commit: Option<String>,

    /// The folder for results of a part.
    #[arg(long, value_name = "DIR", hide = true, default_value = "target/bench")]
    scratch: PathBuf,
}

/// Tasks of this program besides comparing.
#[derive(Debug, Subcommand)]
pub(crate) enum Side {
    /// One side of a measurement of bare frames, in its namespace.
    #[command(subcommand, hide = true)]
    Floor(floor::Command),
    #[command(hide = true)]
    Soak(SoakArgs),
    #[command(hide = true)]
    Pairs(PairsArgs),
}

impl Args {
    pub(crate) fn turns(&self) -> u32 {
        if self.quick { 1 } else { self.turns.unwrap_or(5) }
    }

    /// Run time of a job of the main set.
    pub(crate) fn runtime(&self) -> Result<Duration, String> {
        let seconds = if self.quick { 0.5 } else { self.runtime };
        if !(0.1..=3600.0).contains(&seconds) {
            return Err("--runtime: 0.1 to 3600 seconds".to_owned());
        }
        Ok(Duration::from_secs_f64(seconds))
    }

    /// The most queues that the user wants.
    pub(crate) fn queues_max(&self) -> Option<u16> {
        self.queues_max
    }

    pub(crate) fn wanted(&self) -> Wanted {
        let or = |list: &[String], quick: &[&str]| {
            if self.quick && list.is_empty() {
                quick.iter().map(|&it| it.to_owned()).collect()
            } else {
                list.to_vec()
            }
        };
        let (sets, jobs): (&[&str], &[&str]) = match self.suite {
            Suite::Main => (&["mtu-9000"], &["randread-4k-1", "randread-4k-32"]),
            Suite::Links => (&["links"], &["read-1m-16-veth0", "read-1m-16-veth0..5"]),
            Suite::Fcoe => (&["fcoe"], &["randread-4k-1", "randread-4k-64"]),
            Suite::Keys => (&["keys"], &["randread-4k-1", "randread-4k-32"]),
            // All of them: each takes seconds.
            Suite::Rdma => (&[], &[MESSAGES, "randread-4k", "read-1m", "read-4k-8"]),
            Suite::Scale => (&[], &["randread-4k-32", CROWDS]),
        };
        Wanted {
            sets: or(&self.sets, sets),
            mtus: self.mtu.clone(),
            peers: self.peers.clone(),
            jobs: or(&self.jobs, jobs),
        }
    }

    fn is_whole(&self) -> bool {
        let wanted = self.wanted();
        let lists = [&wanted.sets, &wanted.peers, &wanted.jobs];
        let is_narrow = self.queues_max.is_some() || !wanted.mtus.is_empty();
        lists.iter().all(|list| list.is_empty()) && !is_narrow
    }

    /// Directory of the results.
    pub(crate) fn out(&self) -> PathBuf {
        match &self.out {
            Some(dir) => dir.clone(),
            None if self.is_whole() => {
                Path::new(env!("CARGO_MANIFEST_DIR")).join(match self.suite {
                    Suite::Main => "results",
                    Suite::Links => "results-links",
                    Suite::Fcoe => "results-fcoe",
                    Suite::Keys => "results-keys",
                    Suite::Rdma => "results-rdma",
                    Suite::Scale => "results-scale",
                })
            }
            None => self.scratch.clone(),
        }
    }

    pub(crate) fn programs(&self) -> Programs {
        // The programs are started in other directories.
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.into());
        Programs {
            tyche: absolute(&self.tyche),
            lab: absolute(&self.lab),
            engine: absolute(&self.engine),
            jobs: absolute(&self.job_files),
        }
    }

    /// The command line, as a user would type it.
    pub(crate) fn typed(&self) -> String {
        let mut command = "cargo xtask bench".to_owned();
        command.push_str(match self.suite {
            Suite::Main => "",
            Suite::Links => " --suite links",
            Suite::Fcoe => " --suite fcoe",
            Suite::Keys => " --suite keys",
            Suite::Rdma => " --suite rdma",
            Suite::Scale => " --suite scale",
        });
        if self.quick {
            command.push_str(" --quick");
        } else {
            command.push_str(&format!(" --turns {} --runtime {}", self.turns(), self.runtime));
        }
        let mtus: Vec<_> = self.mtu.iter().map(u32::to_string).collect();
        let lists =
            [("sets", &self.sets), ("mtu", &mtus), ("peers", &self.peers), ("jobs", &self.jobs)];
        for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            command.push_str(&format!(" --{name} {}", list.join(",")));
        }
        if let Some(queues_max) = self.queues_max {
            command.push_str(&format!(" --queues-max {queues_max}"));
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_part_does_not_replace_the_whole() {
        let out = |args: &[&str]| Args::parse_from([&["bench"], args].concat()).out();
        assert!(out(&[]).ends_with("bench/results"));
        assert!(out(&["--suite", "links"]).ends_with("bench/results-links"));
        assert_eq!(out(&["--quick"]), Path::new("target/bench"));
        assert_eq!(out(&["--peers", "nbd"]), Path::new("target/bench"));
        assert_eq!(out(&["--quick", "--out", "x"]), Path::new("x"));
        assert!(out(&["--suite", "scale"]).ends_with("bench/results-scale"));
        assert_eq!(out(&["--suite", "scale", "--queues-max", "2"]), Path::new("target/bench"));
    }

    #[test]
    fn the_command_can_be_typed_again() {
        let args = Args::parse_from(["bench", "--turns", "2", "--jobs", "a,b", "--mtu", "9000"]);
        let command = args.typed();
        assert_eq!(command, "cargo xtask bench --turns 2 --runtime 2 --mtu 9000 --jobs a,b");
    }
}
