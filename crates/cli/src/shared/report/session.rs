//! The report on a session.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tyche_block::Geometry;
use tyche_engine::{Histogram, LATENCY, PortStats, SuccessCounts};
use tyche_proto::{ExportState, NodeCounts, PathReport};
use tyche_remote::HostReport;
use uuid::Uuid;

use super::Table;
use super::link::{
    Counters, LinkNuma, ProtocolCounters, by_name, cpu_seconds, errors, numbers, own, own_frames,
    ratio, read_own,
};
use crate::shared::state::State;

/// A session, as its daemon reports it, or as a dead daemon has recorded it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SessionReport {
    #[serde(flatten)]
    pub(crate) record: State,
    /// The state, with what is known in it.
    #[serde(flatten)]
    pub state: SessionState,
}

impl SessionReport {
    /// The figures of a living session.
    pub(crate) fn figures(&self) -> Option<&Figures> {
        use SessionState::{Dead, Ending, Failed, Gone, Live, Lost, Silent, Starting, Unknown};
        match &self.state {
            Live(figures) | Lost(figures) | Failed(figures) | Gone(figures) => Some(figures),
            Ending | Starting | Silent { .. } | Dead { .. } | Unknown => None,
        }
    }

    /// The links of a living session.
    pub(crate) fn links(&self) -> &[SessionLink] {
        self.figures().map_or(&[], |figures| &figures.links)
    }

    /// The problem of a session whose daemon lives, in words for people.
    pub(crate) fn problem(&self) -> Option<&str> {
        match &self.state {
            SessionState::Silent { problem } => Some(problem),
            _ => self.figures()?.problem.as_deref(),
        }
    }

    /// The device's path.
    pub(crate) fn device(&self) -> String {
        self.record.device.display().to_string()
    }
}

/// The state of a session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SessionState {
    /// The target answers.
    Live(Box<Figures>),
    /// The target does not answer: requests wait, or fail if `fails_fast`.
    Lost(Box<Figures>),
    /// All requests fail, for good unless `trying`.
    Failed(Box<Figures>),
    /// The device is not there any more, though the daemon lives.
    Gone(Box<Figures>),
    /// The session is about to end.
    Ending,
    /// The next daemon of its device takes that over: requests wait until it has.
    Starting,
    /// The daemon lives, but does not answer.
    Silent {
        /// Why the daemon could not be asked.
        problem: String,
    },
    /// The daemon is dead.
    Dead {
        /// Whether the device waits for another `tyche connect`.
        waits: bool,
        /// The commands that remove what is left, in this order.
        clear: Vec<String>,
        /// The last attempt of a process that is to be its next daemon and tries again and again,
        /// in words; null if there is none.
        #[serde(default)]
        attempt: Option<String>,
    },
    /// A state that only another version of the program has.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl SessionState {
    /// The figures of a living session.
    pub(crate) fn figures_mut(&mut self) -> Option<&mut Figures> {
        use SessionState::{Dead, Ending, Failed, Gone, Live, Lost, Silent, Starting, Unknown};
        match self {
            Live(figures) | Lost(figures) | Failed(figures) | Gone(figures) => Some(figures),
            Ending | Starting | Silent { .. } | Dead { .. } | Unknown => None,
        }
    }
}

/// The figures of a session, since it was connected.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// Queues of the session, each with a thread, 1 to 64.
    #[serde(default)]
    pub queues: u64,
    /// Seconds since the target was lost; null if it is not.
    pub lost_for_s: Option<f64>,
    /// Seconds until all requests fail; null if the target is not lost, or there is no limit.
    pub time_left_s: Option<f64>,
    /// Whether requests fail at once, though the session still tries to reach its target:
    /// `--fast-io-fail-tmo` has passed.
    #[serde(default)]
    pub fails_fast: bool,
    /// Seconds until that; null if the target is not lost, or requests fail already or wait until
    /// all fail.
    #[serde(default)]
    pub fails_fast_in_s: Option<f64>,
    /// Whether the session has failed, and the daemon tries from time to time to begin anew.
    #[serde(default)]
    pub trying: bool,
    /// Why the session is not live, in words; null if it is.
    pub problem: Option<String>,
    /// The cipher that its frames are sealed with, `aes-128-gcm` or `chacha20-poly1305`; null if
    /// they are in the clear, or the session is not live.
    #[serde(default)]
    pub cipher: Option<String>,
    /// Requests in progress.
    #[serde(default)]
    pub operations: u64,
    /// What the requests in progress wait for.
    #[serde(default)]
    pub waiting: WaitingReport,
    /// The export, as the target describes it; null before the first connection.
    pub disk: Option<DiskReport>,
    /// Size of the block device in bytes, as the kernel has it; null if it is none.
    #[serde(default)]
    pub device_size: Option<u64>,
    /// Requests that were answered.
    #[serde(default)]
    pub requests: RequestCounters,
    /// [`LATENCY`] of reads and writes.
    #[serde(default)]
    #[schemars(description = LATENCY.help)]
    pub latency: LatencyPair,
    /// Counters of the protocol.
    #[serde(default)]
    pub channel: ProtocolCounters,
    /// Frames dropped, by reason.
    #[serde(default)]
    pub rejects: Counters,
    /// Number of queues by the links that their backlog takes: those of the kind `ethernet`, `udp`
    /// or `tcp`, `all` together, or all because none has been tried alone yet (`untried`). Empty
    /// unless links of several kinds are live.
    #[serde(default)]
    pub favoured: Counters,
    /// The links, one for each local interface.
    #[serde(default)]
    pub links: Vec<SessionLink>,
    /// NUMA nodes of the session.
    #[serde(default)]
    pub numa: SessionNuma,
    /// CPU time that the daemon has used, in seconds.
    #[serde(default)]
    pub cpu_s: f64,
}

/// What the requests in progress wait for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WaitingReport {
    /// The longest time in seconds that one of them has waited, since it was submitted or last made
    /// progress.
    pub longest_s: f64,
    /// Lost channels that the target has not confirmed to be closed.
    pub fences: u64,
}

/// The export, as the target describes it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DiskReport {
    /// UUID of the target.
    pub target: Uuid,
    /// UUID of the export.
    pub uuid: Uuid,
    /// Size in bytes.
    pub size: u64,
    /// Size of a block in bytes: 512 or 4096.
    pub block_size: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether completed writes may be volatile until the next flush.
    pub write_cache: bool,
    /// Whether discard is supported.
    pub discard: bool,
    /// Whether the data are on rotational disks.
    pub rotational: bool,
}

impl From<ExportState> for DiskReport {
    fn from(export: ExportState) -> Self {
        let ExportState { target, uuid, geometry, generation: _ } = export;
        // Each field is named, so that none is forgotten.
        let Geometry { size, block_size, read_only, write_cache, discard, rotational } = geometry;
        let block_size = block_size.into();
        Self { target, uuid, size, block_size, read_only, write_cache, discard, rotational }
    }
}

/// Requests that were answered.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RequestCounters {
    #[serde(flatten)]
    pub(crate) succeeded: Table<SuccessCounts>,
    /// Requests that ended with an error.
    pub errors: u64,
    /// Requests that ended with an error, by operation and by kind of error; without those that
    /// are 0.
    pub errors_by_kind: BTreeMap<String, Counters>,
    /// Seconds since the last of these; null if there are none.
    pub last_error_s: Option<f64>,
    /// Requests that ended, with an error or without, by queue.
    pub by_queue: Vec<u64>,
    /// Frames in both directions for each request; null before the first request.
    pub frames_per_io: Option<f64>,
}

/// Latency of reads and of writes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LatencyPair {
    /// Of reads.
    pub reads: LatencyReport,
    /// Of writes.
    pub writes: LatencyReport,
}

/// Latency of requests.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LatencyReport {
    /// Of all requests.
    pub all: Latency,
    /// Of those of the last 5 to 10 seconds.
    pub recent: Latency,
}

impl From<&tyche_engine::Latency> for LatencyReport {
    fn from(latency: &tyche_engine::Latency) -> Self {
        Self { all: latency.all().into(), recent: (&latency.recent()).into() }
    }
}

/// Latency of a set of requests; zeroes if it is empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Latency {
    /// Number of requests.
    pub count: u64,
    /// Mean in microseconds.
    pub mean_us: f64,
    /// Median in microseconds, to 3 %.
    pub p50_us: f64,
    /// 99th percentile in microseconds, to 3 %.
    pub p99_us: f64,
    /// Sum in nanoseconds.
    pub sum_ns: u64,
    /// The requests by their latency, in ascending order, without classes that are empty: the
    /// longest time of the class in nanoseconds, and the number of requests. The classes are the
    /// same in all reports, so that they can be added up.
    pub buckets: Vec<(u64, u64)>,
}

impl From<&Histogram> for Latency {
    fn from(nanoseconds: &Histogram) -> Self {
        // Tenths of a microsecond say enough.
        let microseconds = |time: u64| (time / 100) as f64 / 10.0;
        Self {
            count: nanoseconds.count(),
            mean_us: microseconds(nanoseconds.mean() as u64),
            p50_us: microseconds(nanoseconds.quantile(0.5)),
            p99_us: microseconds(nanoseconds.quantile(0.99)),
            sum_ns: nanoseconds.sum(),
            buckets: nanoseconds.buckets().collect(),
        }
    }
}

/// A link of a session. It has further error counters, which depend on its kind, such as
/// `malformed_short`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SessionLink {
    /// Name of the interface, or `udp:HOST:PORT`, `tcp:HOST:PORT`, `rdma:HOST:PORT`.
    pub interface: String,
    /// Its Ethernet address.
    pub mac: String,
    /// Whether a channel is live on it.
    pub live: bool,
    /// Longest frame in bytes that has reached the target; 0 if not known yet.
    pub frame_len: u64,
    /// Longest frame in bytes that the interface takes.
    pub frame_len_max: u64,
    /// Round-trip time in microseconds, smoothed; the shortest of all channels.
    pub rtt_us: u64,
    /// Frames that may be in flight.
    pub congestion_window: u32,
    /// The fault of the link, or of the last attempt to connect; null if there is none.
    pub problem: Option<String>,
    /// Whether the session has it because it was up, not because it was named. It may lead
    /// elsewhere.
    pub unnamed: bool,
    /// The channels on it.
    pub channels: Vec<ChannelReport>,
    /// NUMA nodes of its parts.
    pub numa: LinkNuma,
    /// Frames and bytes.
    #[serde(flatten)]
    pub port: Table<PortStats>,
    /// Further error counters, as this kind of link has them.
    #[serde(flatten, deserialize_with = "read_own")]
    pub counters: Counters,
}

impl From<&tyche_remote::LinkReport> for SessionLink {
    fn from(link: &tyche_remote::LinkReport) -> Self {
        Self {
            interface: link.link.clone(),
            mac: link.mac.to_string(),
            live: link.live,
            frame_len: link.frame_len as u64,
            frame_len_max: link.frame_len_max as u64,
            rtt_us: link.rtt.as_micros() as u64,
            congestion_window: link.congestion_window,
            problem: link.problem.clone(),
            unnamed: false,
            channels: link.channels.iter().map(ChannelReport::from).collect(),
            numa: (&link.nodes).into(),
            port: Table(link.port),
            counters: own(&link.link_counters),
        }
    }
}

/// A channel of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ChannelReport {
    /// The host's number of the channel, 0 to 65535.
    pub channel: u16,
    /// The target's Ethernet address.
    pub peer: String,
    /// Whether it is live.
    pub live: bool,
    /// Longest frame in bytes that gets through; 0 if not known yet.
    pub frame_len: u64,
    /// Round-trip time in microseconds, smoothed.
    pub rtt_us: u64,
    /// Frames that may be in flight.
    pub congestion_window: u32,
    /// Requests in flight.
    pub requests: u64,
    /// Measured rate in bytes per second; 0 if it never was busy.
    pub rate: u64,
    /// Why it was lost, or its last attempt failed; null if it is live.
    pub problem: Option<String>,
    /// Frames sent again.
    pub retransmitted: u64,
}

impl From<&PathReport> for ChannelReport {
    fn from(path: &PathReport) -> Self {
        Self {
            channel: path.channel.0,
            peer: path.peer.to_string(),
            live: path.live,
            frame_len: path.frame_len as u64,
            rtt_us: path.rtt.as_micros() as u64,
            congestion_window: path.congestion_window,
            requests: path.requests as u64,
            rate: path.rate,
            problem: path.problem.map(|it| it.to_string()),
            retransmitted: path.stats.retransmitted,
        }
    }
}

/// NUMA nodes of a session. Lists are empty where the kernel does not tell.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SessionNuma {
    /// By queue, the node that its thread is bound to; null if it is not bound.
    pub thread_nodes: Vec<Option<u16>>,
    /// The CPUs that the threads may run on, such as `0-3,8`.
    pub thread_cpus: String,
    /// The nodes of the memory for requests.
    pub buffer_nodes: Vec<u16>,
    /// Requests by their locality.
    #[serde(flatten)]
    pub(crate) requests: Table<NodeCounts>,
}

impl From<&HostReport> for SessionNuma {
    fn from(report: &HostReport) -> Self {
        Self {
            thread_nodes: report.nodes.threads.iter().map(|node| node.map(|it| it.0)).collect(),
            thread_cpus: report.nodes.cpus.to_string(),
            buffer_nodes: numbers(&report.nodes.buffers),
            requests: Table(report.node_counts),
        }
    }
}

impl SessionState {
    /// The state of a living session with that problem, if any.
    pub(crate) fn new(report: &HostReport, problem: Option<String>) -> Self {
        let figures = Box::new(Figures { problem, ..report.into() });
        match report {
            HostReport { over: true, .. } => Self::Failed(figures),
            HostReport { live: true, fails_fast: false, .. } => Self::Live(figures),
            _ => Self::Lost(figures),
        }
    }
}

impl From<&HostReport> for Figures {
    fn from(report: &HostReport) -> Self {
        let seconds = |duration: Option<Duration>| duration.map(|it| it.as_secs_f64());
        let sent = report.links.iter().map(|link| link.port.tx_frames).sum();
        Self {
            queues: report.queues as u64,
            lost_for_s: seconds(report.lost_for),
            time_left_s: seconds(report.time_left),
            fails_fast: report.fails_fast,
            trying: false,
            fails_fast_in_s: seconds(report.fails_fast_in),
            problem: None,
            cipher: report.cipher.map(|it| it.to_string()),
            operations: report.waiting.operations as u64,
            waiting: WaitingReport {
                longest_s: report.waiting.longest.as_secs_f64(),
                fences: report.waiting.fences as u64,
            },
            disk: report.export.map(DiskReport::from),
            device_size: None,
            requests: report.into(),
            latency: LatencyPair {
                reads: (&report.requests.reads).into(),
                writes: (&report.requests.writes).into(),
            },
            channel: ProtocolCounters::new(report.channel, sent),
            rejects: by_name(report.rejects.iter()),
            favoured: favoured(&report.favoured),
            links: report.links.iter().map(SessionLink::from).collect(),
            numa: report.into(),
            cpu_s: cpu_seconds(),
        }
    }
}

/// The number of each, by name.
fn favoured(by_queue: &[&str]) -> Counters {
    let mut counters = Counters::new();
    for name in by_queue {
        *counters.entry((*name).to_owned()).or_default() += 1;
    }
    counters
}

impl From<&HostReport> for RequestCounters {
    fn from(report: &HostReport) -> Self {
        let requests = &report.requests;
        Self {
            succeeded: Table(requests.succeeded),
            errors: requests.errors.total(),
            errors_by_kind: errors(&requests.errors),
            last_error_s: requests.errors.since_last().map(|since| since.as_secs_f64()),
            by_queue: report.by_queue.clone(),
            frames_per_io: ratio(frames(report), requests.total()),
        }
    }
}

/// Frames of a session in both directions.
pub(crate) fn frames(report: &HostReport) -> u64 {
    own_frames(report.links.iter().map(|link| &link.port), &report.rejects)
}
