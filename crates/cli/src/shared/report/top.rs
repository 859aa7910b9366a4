//! Rates of sessions and targets between two looks at their counters, for `tyche top`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The sessions and targets of this machine, with their rates.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TopReport {
    /// The sessions.
    pub sessions: Vec<SessionRates>,
    /// The targets that run on this machine.
    pub targets: Vec<TargetRates>,
}

/// A session with its rates.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SessionRates {
    /// UUID of the session.
    pub session: Uuid,
    /// The export, as it was named when it was connected, without the target.
    pub export: String,
    /// Name of the target if it was named, else its UUID; null before the first connection.
    pub target: Option<String>,
    /// Path of the device, file or socket.
    pub device: String,
    /// The state.
    pub state: StateName,
    /// Its problem, in words; null if there is none.
    pub problem: Option<String>,
    /// Rates of its requests; null without two looks at the counters of one daemon.
    pub requests: Option<RequestRates>,
    /// Requests in progress.
    pub in_flight: u64,
    /// The longest time in seconds that one of them has waited.
    pub longest_s: f64,
    /// Frames sent again per second; null without two looks.
    pub retransmitted_per_s: Option<f64>,
    /// Frames per second that were lost in this machine: not fetched in time, or not taken by the
    /// interface; null without two looks.
    pub lost_per_s: Option<f64>,
    /// Seconds since the target was lost; null if it is not.
    pub lost_for_s: Option<f64>,
    /// Seconds until all requests fail; null if the target is not lost, or there is no limit.
    pub time_left_s: Option<f64>,
    /// The links.
    pub links: Vec<LinkRates>,
    /// Requests that ended per second, by queue; empty without two looks.
    pub queues: Vec<f64>,
}

/// The state of a session, by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    /// The target answers.
    Live,
    /// The target does not answer: requests wait.
    Lost,
    /// All requests fail, for good.
    Failed,
    /// The device is not there any more.
    Gone,
    /// The session is about to end.
    Ending,
    /// The next daemon of its device takes that over: requests wait.
    Starting,
    /// The daemon lives, but does not answer.
    Silent,
    /// The daemon is dead.
    Dead,
    /// A state that only another version of the program has.
    #[default]
    #[serde(other)]
    Unknown,
}

impl StateName {
    /// The name, as in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Lost => "lost",
            Self::Failed => "failed",
            Self::Gone => "gone",
            Self::Ending => "ending",
            Self::Starting => "starting",
            Self::Silent => "silent",
            Self::Dead => "dead",
            Self::Unknown => "unknown",
        }
    }
}

/// Requests that ended between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestRates {
    /// Seconds between the two looks.
    pub interval_s: f64,
    /// Successful reads.
    pub reads: OperationRates,
    /// Successful writes.
    pub writes: OperationRates,
    /// Flushes, discards and zeroes per second.
    pub others_per_s: f64,
    /// Failed requests per second.
    pub errors_per_s: f64,
    /// Mean latency of reads and writes in microseconds; null if none ended.
    pub mean_us: Option<f64>,
    /// 99th percentile of the latency of reads and writes in microseconds, to 3 %; null if none
    /// ended, and at a target, which does not count it.
    pub p99_us: Option<f64>,
}

impl RequestRates {
    /// Bytes read and written per second.
    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.reads.bytes_per_s + self.writes.bytes_per_s
    }
}

/// Successful requests of one kind between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OperationRates {
    /// Requests per second.
    pub per_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Mean latency in microseconds; null if none ended.
    pub mean_us: Option<f64>,
    /// 99th percentile of the latency in microseconds, to 3 %; null if none ended, and at a target.
    pub p99_us: Option<f64>,
}

/// A link of a session or of a target, with its rates.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LinkRates {
    /// Name of the interface, or `udp:HOST:PORT`, `tcp:HOST:PORT`, `rdma:HOST:PORT`.
    pub link: String,
    /// Whether a channel is open on it.
    pub live: bool,
    /// Its fault, in words; null if there is none.
    pub problem: Option<String>,
    /// Rates of its frames; null without two looks.
    pub traffic: Option<TrafficRates>,
    /// Shortest round-trip time of its channels in microseconds; null if there is none.
    pub rtt_us: Option<u64>,
    /// Longest frame in bytes that gets through; null if it is not known.
    pub frame_len: Option<u64>,
    /// Frames that may be in flight on its channels.
    pub congestion_window: u64,
    /// Requests in flight on its channels.
    pub in_flight: u64,
}

/// Frames of a link between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficRates {
    /// Frames received per second.
    pub received_frames_per_s: f64,
    /// Bytes received per second, headers included.
    pub received_bytes_per_s: f64,
    /// Frames sent per second.
    pub sent_frames_per_s: f64,
    /// Bytes sent per second, headers included.
    pub sent_bytes_per_s: f64,
    /// Frames sent again per second.
    pub retransmitted_per_s: f64,
    /// Frames per second that were not fetched in time, or not taken by the interface.
    pub lost_per_s: f64,
}

/// A target with its rates.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TargetRates {
    /// Its name.
    pub target: String,
    /// Why it does not answer, in words; null if it does.
    pub problem: Option<String>,
    /// The links, and the interfaces with Fibre Channel over Ethernet.
    pub links: Vec<LinkRates>,
    /// The exports.
    pub exports: Vec<ExportRates>,
}

/// An export of a target with its rates.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ExportRates {
    /// Its name.
    pub export: String,
    /// The fault of its file or device, in words; null if there is none.
    pub problem: Option<String>,
    /// Sessions that have it connected.
    pub sessions: u64,
    /// Rates of its requests, without those over FCoE; null without two looks.
    pub requests: Option<RequestRates>,
    /// The same by host, without those that have left.
    pub hosts: Vec<HostRates>,
}

/// A host at an export, with its rates.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostRates {
    /// The host's name if it is known, else its UUID.
    pub host: String,
    /// Whether a session of it may write.
    pub writer: bool,
    /// Rates of its requests; null without two looks.
    pub requests: Option<RequestRates>,
}
