//! `results.json`: every turn of every measurement, and medians over turns.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::counters::Counters;
use crate::crowd::CrowdMeasurement;
use crate::double::DOUBLES;
use crate::floor::{Floor, Kind, Outcome};
use crate::job::Job;
use crate::machine::Machine;
use crate::messages::MessageMeasurement;
use crate::network::payload_share;
use crate::plan::Suite;
use crate::process::{Doing, Result};
use crate::stages::StagedMeasurement;
use crate::timeline::Timeline;

/// Version of the file format; changes when a reader of the old version would misunderstand the new
/// one.
const SCHEMA: &str = "tyche.comparison/1";

/// All results of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) schema: String,
    #[serde(default)]
    pub(crate) suite: Suite,
    pub(crate) machine: Machine,
    /// The command line.
    pub(crate) command: String,
    pub(crate) turns: u32,
    /// Run time of a job in the main set, in milliseconds.
    pub(crate) runtime_ms: u64,
    pub(crate) measurements: Vec<Measurement>,
    pub(crate) floors: Vec<FloorMeasurement>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) timelines: Vec<Timeline>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) stages: Vec<StagedMeasurement>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) messages: Vec<MessageMeasurement>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) crowds: Vec<CrowdMeasurement>,
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
    /// Bits per second of all shaped links together.
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
    /// CPU time of fio and of the server from fio's start to its end, minus fio's own start and
    /// end.
    pub(crate) host_cpu_s: f64,
    pub(crate) target_cpu_s: f64,
    /// Traffic of the cables in both directions, as the interfaces count: a segment that TCP leaves
    /// to the interface counts as one frame.
    pub(crate) frames: u64,
    pub(crate) wire_bytes: u64,
    /// Voluntary context switches of both sides, those of fio's start and end included.
    #[serde(default)]
    pub(crate) host_switches: u64,
    #[serde(default)]
    pub(crate) target_switches: u64,
    /// Counters of both sides of our sessions, where they could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host_counters: Option<Counters>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target_counters: Option<Counters>,
    /// Requests that each thread of the target has answered, where it was told how many to have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) requests_by_thread: Vec<u64>,
    /// The distance of the cores meanwhile, in nanoseconds; 0: not known.
    #[serde(default)]
    pub(crate) cores_ns: f64,
}

/// Bare frames in one turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FloorMeasurement {
    pub(crate) set: String,
    pub(crate) turn: u32,
    pub(crate) floor: Floor,
    pub(crate) outcome: Outcome,
    /// As in [`Measurement`].
    #[serde(default)]
    pub(crate) cores_ns: f64,
}

/// A measurement that failed.
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

    /// CPU seconds of both sides per million requests.
    pub(crate) fn cpu_per_million(&self) -> f64 {
        self.host_cpu_per_million() + self.target_cpu_per_million()
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

    /// Voluntary context switches of the host, and of the target, for each request.
    pub(crate) fn host_switches_per_io(&self) -> f64 {
        self.host_switches as f64 / self.ios as f64
    }

    pub(crate) fn target_switches_per_io(&self) -> f64 {
        self.target_switches as f64 / self.ios as f64
    }

    /// Threads of the target that have answered at least a tenth of the share of one queue, where
    /// all queues have the same; NaN if it is not known.
    pub(crate) fn busy_threads(&self) -> f64 {
        let threads = &self.requests_by_thread;
        let all: u64 = threads.iter().sum();
        let least = all as f64 / f64::from(self.job.threads) / 10.0;
        let busy = threads.iter().filter(|requests| **requests as f64 >= least.max(1.0)).count();
        if threads.is_empty() { f64::NAN } else { busy as f64 }
    }

    /// Entries in a frame that the host, and the target, sent.
    pub(crate) fn host_entries(&self) -> f64 {
        self.host_counters.map_or(f64::NAN, |it| it.entries_per_frame())
    }

    pub(crate) fn target_entries(&self) -> f64 {
        self.target_counters.map_or(f64::NAN, |it| it.entries_per_frame())
    }

    /// The tuned batch size of the host, and of the target.
    pub(crate) fn host_batch_size(&self) -> f64 {
        self.host_counters.map_or(f64::NAN, |it| it.batch_size())
    }

    pub(crate) fn target_batch_size(&self) -> f64 {
        self.target_counters.map_or(f64::NAN, |it| it.batch_size())
    }

    /// Frames in a train that the host, and the target, sent.
    pub(crate) fn host_train(&self) -> f64 {
        self.host_counters.map_or(f64::NAN, |it| it.frames_per_train())
    }

    pub(crate) fn target_train(&self) -> f64 {
        self.target_counters.map_or(f64::NAN, |it| it.frames_per_train())
    }

    /// Data divided by the data that shaped links could carry in our frames, without headers.
    pub(crate) fn payload_utilization(&self) -> f64 {
        self.utilization() / payload_share(self.mtu)
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
    /// A peer with the usual offloads.
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
    pub(crate) fn new(
        suite: Suite,
        machine: Machine,
        command: String,
        turns: u32,
        runtime_ms: u64,
    ) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            suite,
            machine,
            command,
            turns,
            runtime_ms,
            measurements: Vec::new(),
            floors: Vec::new(),
            timelines: Vec::new(),
            stages: Vec::new(),
            messages: Vec::new(),
            crowds: Vec::new(),
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

    /// A peer in a set as it mostly ran there: with the usual offloads, if it ever did.
    pub(crate) fn who<'a>(&self, set: &'a str, peer: &'a str) -> Who<'a> {
        let mut of_set = self.measurements.iter().filter(|it| it.set == set);
        Who { offloads: of_set.any(|it| it.offloads), ..Who::new(set, peer) }
    }

    /// A figure over all turns; `None` if it was not measured.
    pub(crate) fn spread(&self, who: Who<'_>, job: &Job, metric: Metric) -> Option<Spread> {
        let ours = self.measurements.iter().filter(|it| who.is(it) && it.job == *job);
        Spread::of(ours.map(metric).filter(|value| !value.is_nan()))
    }

    /// The median of a figure over all turns.
    pub(crate) fn median(&self, who: Who<'_>, job: &Job, metric: Metric) -> Option<f64> {
        self.spread(who, job, metric).map(|spread| spread.median)
    }

    /// A figure of bare frames over all turns, on one link.
    pub(crate) fn floor(
        &self,
        set: &str,
        kind: Kind,
        depth: u16,
        metric: fn(&Outcome) -> f64,
    ) -> Option<Spread> {
        self.floor_of(set, metric, |floor| {
            floor.kind == kind && floor.depth == depth && floor.links == 1
        })
    }

    /// A figure of bare frames over all turns, for the measurements that `which` selects.
    pub(crate) fn floor_of(
        &self,
        set: &str,
        metric: fn(&Outcome) -> f64,
        which: impl Fn(&Floor) -> bool,
    ) -> Option<Spread> {
        let of_set = self.floors.iter().filter(|it| it.set == set);
        Spread::of(of_set.filter(|it| which(&it.floor)).map(|it| metric(&it.outcome)))
    }

    /// The distances of the cores during all figures, in nanoseconds.
    pub(crate) fn distances(&self) -> impl Iterator<Item = f64> {
        let loads = self.measurements.iter().map(|it| it.cores_ns);
        let floors = self.floors.iter().map(|it| it.cores_ns);
        loads.chain(floors).chain(self.stages.iter().map(|it| it.cores_ns))
    }

    /// The outages of a set, each with its turns.
    pub(crate) fn outages(&self, set: &str) -> Vec<Vec<&Timeline>> {
        let mut outages: Vec<Vec<&Timeline>> = Vec::new();
        for timeline in self.timelines.iter().filter(|it| it.set == set) {
            let is_same = |it: &&mut Vec<&Timeline>| {
                let other = it[0];
                let kind = |it: &Timeline| (it.job, it.how, it.links);
                other.peer == timeline.peer && kind(other) == kind(timeline)
            };
            match outages.iter_mut().find(is_same) {
                Some(turns) => turns.push(timeline),
                None => outages.push(vec![timeline]),
            }
        }
        outages
    }

    /// The turns of a peer's job that was cut into stages.
    pub(crate) fn staged(&self, set: &str, peer: &str, job: &Job) -> Vec<&StagedMeasurement> {
        let of_set = self.stages.iter().filter(|it| it.set == set && it.peer == peer);
        of_set.filter(|it| it.job == *job).collect()
    }

    /// The jobs of a set that were cut into stages, in order.
    pub(crate) fn staged_jobs(&self, set: &str) -> Vec<Job> {
        let of_set = self.stages.iter().filter(|it| it.set == set);
        of_set.map(|it| it.job).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The peers of those jobs: those that spin first, then as they are named.
    pub(crate) fn staged_peers(&self, set: &str) -> Vec<String> {
        let of_set = self.stages.iter().filter(|it| it.set == set);
        let peers: BTreeSet<_> = of_set.map(|it| (it.spin_us == 0, it.peer.clone())).collect();
        peers.into_iter().map(|(_, peer)| peer).collect()
    }

    /// A figure of the messages of a configuration over all turns.
    pub(crate) fn message(
        &self,
        peer: &str,
        metric: impl Fn(&MessageMeasurement) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::of(self.messages.iter().filter(|it| it.peer == peer).filter_map(metric))
    }

    /// A figure of the crowds of a set over one kind of link, of so many sessions, so many of them
    /// busy.
    pub(crate) fn crowd(
        &self,
        (set, peer): (&str, &str),
        [sessions, busy]: [u32; 2],
        metric: fn(&CrowdMeasurement) -> f64,
    ) -> Option<Spread> {
        let of_set = self.crowds.iter().filter(|it| it.set == set && it.peer == peer);
        Spread::of(of_set.filter(|it| [it.sessions, it.busy] == [sessions, busy]).map(metric))
    }

    /// The jobs of a set, in order.
    pub(crate) fn jobs(&self, set: &str) -> Vec<Job> {
        let mut jobs: Vec<_> =
            self.measurements.iter().filter(|it| it.set == set).map(|it| it.job).collect();
        jobs.sort_unstable_by_key(|job| {
            (job.bundle, job.block_bytes, job.large_percent, job.rw, job.depth, job.threads)
        });
        jobs.dedup();
        jobs
    }

    /// The peers of a set that ran with the usual offloads, in the order of appearance.
    pub(crate) fn peers(&self, set: &str) -> Vec<&str> {
        let mut peers = Vec::new();
        for measurement in self.measurements.iter().filter(|it| it.set == set) {
            if !peers.contains(&measurement.peer.as_str()) {
                peers.push(&measurement.peer);
            }
        }
        // Tyche first and its variants next, whatever the order of turns was.
        let of_double = |peer: &str| DOUBLES.iter().position(|it| it.0 == peer);
        peers.sort_by_key(|peer| match *peer {
            "tyche" => 0,
            "udp" => 2,
            "tsockets" => 3,
            "nbd" => 4,
            "nbd-mptcp" => 5,
            other => of_double(other).map_or(1, |number| 10 + number),
        });
        peers
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Made-up results for tests.

    use super::*;
    use crate::job::Pattern;
    use crate::stages::Stage;

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
        Results::new(Suite::Main, machine, "cargo xtask bench".to_owned(), 1, 2000)
    }

    /// A measurement of random reads of 4 KiB at depth 32.
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
            host_switches: 0,
            target_switches: 0,
            host_counters: None,
            target_counters: None,
            requests_by_thread: Vec::new(),
            cores_ns: 0.0,
        }
    }

    /// A crowd of so many sessions, so many of them busy, at a target with 64 MiB.
    pub(crate) fn crowd(
        set: &str,
        peer: &str,
        [sessions, busy]: [u32; 2],
        iops: f64,
    ) -> CrowdMeasurement {
        CrowdMeasurement {
            set: set.to_owned(),
            turn: 1,
            peer: peer.to_owned(),
            sessions,
            busy,
            connect_ms: [1.0, 2.0],
            connect_cpu_ms: 0.5,
            cores: 0.05,
            memory_before: 16 << 20,
            memory: 64 << 20,
            iops,
            range: [0.0, iops],
        }
    }

    /// A request's time in two stages, one of which takes a microsecond.
    pub(crate) fn staged(set: &str, peer: &str, spin_us: u32, wake: f64) -> StagedMeasurement {
        let stage = |name: &str, mean| Stage { name: name.to_owned(), mean, p50: 0, p99: 0 };
        StagedMeasurement {
            set: set.to_owned(),
            turn: 1,
            peer: peer.to_owned(),
            spin_us,
            job: Job::new(Pattern::Randread, 4096, 1),
            iops: 1.0,
            stages: vec![stage("submit", 1000.0), stage("wake", wake)],
            cores_ns: 0.0,
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
