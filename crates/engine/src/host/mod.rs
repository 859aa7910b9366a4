//! The host's side: a session and its links. In *queue* mode a thread of its own drives it, to
//! which any number of threads submit requests ([`Host`]). In *inline* mode the submitting thread
//! drives it, without any hand-over ([`InlineHost`]). MSST 2014, sections II.C and IV.D.

mod driver;
mod inline;
mod latency;
mod thread;
mod workqueue;

use std::time::Duration;

use tyche_link::Link;
use tyche_numa::{Home, Placement};
use tyche_proto::wire::{Mac, Reason, Reject, Versions};
use tyche_proto::{
    ChannelStats, ExportState, Failure, Former, NodeCounts, PathReport, Problem, SessionConfig,
    Waiting,
};

pub use inline::{ConnectError, InlineHost};
pub use latency::{LatencyFigures, LatencyReport};
pub use thread::{Host, HostControl};

use crate::errors::ErrorCounts;
use crate::placed::{self, LinkNodes, SessionNodes};
use crate::port::PortStats;

/// A link that may reach the target.
pub struct HostLink {
    /// The link.
    pub link: Box<dyn Link>,
    /// The target's address, if it is known.
    pub target: Option<Mac>,
}

/// Options to run a session with.
pub struct HostOptions {
    /// Configuration of the session.
    pub session: SessionConfig,
    /// The links to use, at least one.
    pub links: Vec<HostLink>,
    /// Placement of the links' threads and memory. The session's thread, or the one that makes an
    /// [`InlineHost`], runs near the links if all are on one node.
    pub placement: Placement,
    /// EtherType of the frames.
    pub ethertype: u16,
    /// Pages of memory for the data of requests, over all nodes.
    pub arena_pages: usize,
    /// The longest spin before sleeping; zero: no spin.
    pub spin: Duration,
    /// Whether a thread of its own delivers answers, as in the first Tyche: slower, for comparison.
    /// For a [`Host`] only: an [`InlineHost`] has no recipients.
    pub hand_over: bool,
}

impl HostOptions {
    /// The placement of a thread that serves all links.
    fn home(&self) -> Home {
        let homes = self.links.iter().map(|it| placed::home(&self.placement, &*it.link));
        Home::common(&homes.collect::<Vec<_>>())
    }
}

/// Notices of a session to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A channel is live, for the first time or again.
    Connected(ExportState),
    /// The last live channel was lost; requests wait.
    Lost(Problem),
    /// A channel is live over this link to this address of the target.
    Joined(String, Mac),
    /// A channel was lost. If it was the last one, [`Notice::Lost`] follows.
    Parted(String, Mac, Problem),
    /// The target refused a channel.
    Rejected(Reason, String),
    /// A target on this link, at this address, speaks other versions of the protocol only.
    OtherVersion(String, Mac, Versions),
    /// The export has another size.
    Resized(u64),
    /// The target has lost completed writes: the next flush fails.
    CacheLost,
    /// The state that a successor of this session needs has changed. Comes before the first
    /// [`Notice::Connected`], and after the answers that it must not be stored before.
    Former(Former),
    /// All requests fail from now on.
    Failed(Failure),
    /// The session has ended.
    Closed,
}

/// Reasons why a link is not added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// The session uses it already.
    InUse,
    /// The session does not use it.
    Unknown,
    /// It is the session's last one.
    Last,
    /// The session has ended, or does not answer within a second.
    Gone,
}

/// A report on one of the session's links.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// Name of the link.
    pub link: String,
    /// Its address.
    pub mac: Mac,
    /// Whether a channel is live on it.
    pub live: bool,
    /// Longest frame in bytes that has reached the target; zero if not known yet.
    pub frame_len: usize,
    /// Longest frame in bytes that the link itself takes.
    pub frame_len_max: usize,
    /// Smoothed round-trip time; the shortest of all channels.
    pub rtt: Duration,
    /// The congestion window, in frames.
    pub congestion_window: u32,
    /// The error of the last attempt to connect, or the fault of the link.
    pub problem: Option<String>,
    /// Counters.
    pub port: PortStats,
    /// Error counters of the link, by name.
    pub link_counters: Vec<(&'static str, u64)>,
    /// The channels on it.
    pub channels: Vec<PathReport>,
    /// NUMA nodes of its parts.
    pub nodes: LinkNodes,
}

/// A report on a session.
#[derive(Clone, Debug)]
pub struct HostReport {
    /// Whether a channel is live.
    pub live: bool,
    /// Time since the target was lost.
    pub lost_for: Option<Duration>,
    /// Time left before all requests fail.
    pub time_left: Option<Duration>,
    /// Whether all requests fail.
    pub over: bool,
    /// The export, once connected.
    pub export: Option<ExportState>,
    /// Requests in progress, and their age.
    pub waiting: Waiting,
    /// Counters of the protocol.
    pub channel: ChannelStats,
    /// Dropped frames by reason.
    pub rejects: Vec<(Reject, u64)>,
    /// Requests answered, and bytes moved by them: reads, writes, others.
    pub requests: RequestCounts,
    /// Latency of successful reads.
    pub reads: LatencyReport,
    /// Latency of successful writes.
    pub writes: LatencyReport,
    /// NUMA nodes of the session.
    pub nodes: SessionNodes,
    /// Counters of requests by their locality to NUMA nodes.
    pub node_counts: NodeCounts,
    /// The problem of the most recent failed attempts to reach the target.
    pub problem: Option<Problem>,
    /// The links.
    pub links: Vec<LinkReport>,
}

/// Counters of the session's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Reads answered.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes answered.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes answered.
    pub flushes: u64,
    /// Discards and write-zeroes answered.
    pub others: u64,
    /// Requests that ended with an error.
    pub errors: ErrorCounts,
}
