//! `results.json`: every turn of every measurement, and medians over turns.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::floor::{Floor, Kind, Outcome};
use crate::job::Job;
use crate::machine::Machine;
use crate::process::{Doing, Result};

/// The format of the file; changes when a reader of the old one would misunderstand the new one.
const SCHEMA: &str = "tyche.comparison/1";

/// All that a run has found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) schema: String,
    pub(crate) machine: Machine,
    /// The command line.
    pub(crate) command: String,
    pub(crate) turns: u32,
    /// Of a job in the main set, in milliseconds.
    pub(crate) runtime_ms: u64,
    pub(crate) measurements: Vec<Measurement>,
    pub(crate) floors: Vec<FloorMeasurement>,
    pub(crate) failures: Vec<FailedTurn>,
}

/// Time from submission to completion, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

/// One peer's job in one turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) set: String,
    pub(crate) turn: u32,
    pub(crate) peer: String,
    pub(crate) mtu: u32,
    /// Bits per second of a shaped link, of all of them together.
    pub(crate) link_rate: Option<u64>,
    /// Whether TCP left segmentation to the interface.
    pub(crate) offloads: bool,
    pub(crate) spin_us: u32,
    pub(crate) job: Job,
    pub(crate) seconds: f64,
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    pub(crate) iops: f64,
    pub(crate) bytes_per_s: f64,
    pub(crate) lat_ns: Latency,
    /// CPU time of fio and of the server from fio's start to its end, without what fio takes to
    /// start and end.
    pub(crate) host_cpu_s: f64,
    pub(crate) target_cpu_s: f64,
    /// What passed the cable, both directions, as the interfaces count: a segment that TCP leaves
    /// to the interface is one frame.
    pub(crate) frames: u64,
    pub(crate) wire_bytes: u64,
}

/// Bare frames in one turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FloorMeasurement {
    pub(crate) set: String,
    pub(crate) turn: u32,
    pub(crate) floor: Floor,
    pub(crate) outcome: Outcome,
}

/// What did not work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FailedTurn {
    pub(crate) set: String,
    pub(crate) turn: u32,
    pub(crate) what: String,
    pub(crate) error: String,
}

/// A figure over all turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` without any values.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<_> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Some(Self { median, min, max })
    }
}

/// A figure of a measurement.
pub(crate) type Metric = fn(&Measurement) -> f64;

impl Measurement {
    pub(crate) fn iops(&self) -> f64 {
        self.iops
    }

    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.bytes_per_s
    }

    pub(crate) fn mean_ns(&self) -> f64 {
        self.lat_ns.mean
    }

    pub(crate) fn frames_per_io(&self) -> f64 {
        self.frames as f64 / self.ios as f64
    }

    /// CPU seconds at the host per GiB, or million requests; and at the target.
    pub(crate) fn host_cpu_per_gib(&self) -> f64 {
        self.host_cpu_s / self.bytes as f64 * f64::from(1 << 30)
    }

    pub(crate) fn target_cpu_per_gib(&self) -> f64 {
        self.target_cpu_s / self.bytes as f64 * f64::from(1 << 30)
    }

    pub(crate) fn host_cpu_per_million(&self) -> f64 {
        self.host_cpu_s / self.ios as f64 * 1e6
    }

    pub(crate) fn target_cpu_per_million(&self) -> f64 {
        self.target_cpu_s / self.ios as f64 * 1e6
    }

    /// Cores kept busy at the host, and at the target.
    pub(crate) fn host_cores(&self) -> f64 {
        self.host_cpu_s / self.seconds
    }

    pub(crate) fn target_cores(&self) -> f64 {
        self.target_cpu_s / self.seconds
    }

    /// Bits of data per bit that a shaped link could carry, 0 to 1 in the busier direction.
    pub(crate) fn utilization(&self) -> f64 {
        self.link_rate.map_or(f64::NAN, |rate| self.bytes_per_s * 8.0 / rate as f64)
    }
}

/// A peer in a set, with or without offloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who<'a> {
    pub(crate) set: &'a str,
    pub(crate) peer: &'a str,
    pub(crate) offloads: bool,
}

impl<'a> Who<'a> {
    /// With what interfaces usually do.
    pub(crate) fn new(set: &'a str, peer: &'a str) -> Self {
        Self { set, peer, offloads: true }
    }

    pub(crate) fn without_offloads(self) -> Self {
        Self { offloads: false, ..self }
    }

    fn is(&self, other: &Measurement) -> bool {
        self.set == other.set && self.peer == other.peer && self.offloads == other.offloads
    }
}

impl Results {
    pub(crate) fn new(machine: Machine, command: String, turns: u32, runtime_ms: u64) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            machine,
            command,
            turns,
            runtime_ms,
            measurements: Vec::new(),
            floors: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Reads a file that [`write`](Self::write) has written.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).doing(path.display())?;
        let results: Self = serde_json::from_str(&text).doing(path.display())?;
        if results.schema == SCHEMA {
            Ok(results)
        } else {
            Err(format!("its schema is {}, not {SCHEMA}", results.schema)).doing(path.display())
        }
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self).doing(path.display())?;
        text.push('\n');
        std::fs::write(path, text).doing(path.display())
    }

    /// A figure over all turns; `None` if it was not measured.
    pub(crate) fn spread(&self, who: Who<'_>, job: &Job, metric: Metric) -> Option<Spread> {
        let ours = self.measurements.iter().filter(|it| who.is(it) && it.job == *job);
        Spread::of(ours.map(metric))
    }

    /// Its median.
    pub(crate) fn median(&self, who: Who<'_>, job: &Job, metric: Metric) -> Option<f64> {
        self.spread(who, job, metric).map(|spread| spread.median)
    }

    /// A figure of bare frames over all turns.
    pub(crate) fn floor(
        &self,
        set: &str,
        kind: Kind,
        depth: u16,
        metric: fn(&Outcome) -> f64,
    ) -> Option<Spread> {
        let of_set = self.floors.iter().filter(|it| it.set == set);
        let ours = of_set.filter(|it| it.floor.kind == kind && it.floor.depth == depth);
        Spread::of(ours.map(|it| metric(&it.outcome)))
    }

    /// The jobs of a set, in order.
    pub(crate) fn jobs(&self, set: &str) -> Vec<Job> {
        let mut jobs: Vec<_> =
            self.measurements.iter().filter(|it| it.set == set).map(|it| it.job).collect();
        jobs.sort_unstable_by_key(|job| (job.block_bytes, job.large_percent, job.rw, job.depth));
        jobs.dedup();
        jobs
    }

    /// The peers of a set that ran with what interfaces usually do, in the order of appearance.
    pub(crate) fn peers(&self, set: &str) -> Vec<&str> {
        let mut peers = Vec::new();
        for measurement in self.measurements.iter().filter(|it| it.set == set) {
            if !peers.contains(&measurement.peer.as_str()) {
                peers.push(&measurement.peer);
            }
        }
        // Ours first, whatever the order of turns was, and what it is compared with last.
        peers.sort_by_key(|peer| (peer.starts_with("nbd"), !peer.starts_with("tyche")));
        peers
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Results that were not measured.

    use super::*;
    use crate::job::Pattern;

    pub(crate) fn empty() -> Results {
        let text = String::new;
        let machine = Machine {
            cpu: "a CPU".to_owned(),
            cores: 2,
            memory_bytes: 8 << 30,
            kernel: "6.1.0".to_owned(),
            fio: text(),
            nbdkit: text(),
            commit: text(),
            date: text(),
        };
        Results::new(machine, "cargo xtask bench".to_owned(), 1, 2000)
    }

    /// Random reads of 4 KiB at depth 32.
    pub(crate) fn measurement(set: &str, peer: &str, turn: u32, iops: f64) -> Measurement {
        Measurement {
            set: set.to_owned(),
            turn,
            peer: peer.to_owned(),
            mtu: 9000,
            link_rate: None,
            offloads: true,
            spin_us: 0,
            job: Job::new(Pattern::Randread, 4096, 32),
            seconds: 2.0,
            ios: (iops * 2.0) as u64,
            bytes: (iops * 8192.0) as u64,
            iops,
            bytes_per_s: iops * 4096.0,
            lat_ns: Latency { mean: 32e9 / iops, ..Latency::default() },
            host_cpu_s: 2.0,
            target_cpu_s: 1.0,
            frames: (iops * 2.0) as u64,
            wire_bytes: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        let of = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]).map(|it| it.median), Some(2.5));
    }
}
