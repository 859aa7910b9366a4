//! The host's side: a session and its links, driven either by a thread of its own that any number
//! of threads hand requests to ([`Host`], *queue* mode), or by the thread that makes the requests
//! ([`InlineHost`], *inline* mode, without any hand-over). MSST 2014, sections II.C and IV.D.

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

/// How to run a session.
pub struct HostOptions {
    /// What the session wants.
    pub session: SessionConfig,
    /// The links to use, at least one.
    pub links: Vec<HostLink>,
    /// What belongs to a link is placed near it, as far as this says. The session's thread, or
    /// the one that makes an [`InlineHost`], runs near the links if all are on one node.
    pub placement: Placement,
    /// EtherType of the frames.
    pub ethertype: u16,
    /// Pages of memory for the data of requests, of all nodes together.
    pub arena_pages: usize,
    /// The longest time to spin before sleeping; zero: never.
    pub spin: Duration,
    /// Answer through a thread of its own, as the first Tyche did: slower, for comparison. Only a
    /// [`Host`] has anybody to answer.
    pub hand_over: bool,
}

impl HostOptions {
    /// Where a thread that serves all links belongs.
    fn home(&self) -> Home {
        let homes = self.links.iter().map(|it| placed::home(&self.placement, &*it.link));
        Home::common(&homes.collect::<Vec<_>>())
    }
}

/// What a session tells its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A channel is live, for the first time or again.
    Connected(ExportState),
    /// The last live channel was lost; requests wait.
    Lost(Problem),
    /// A channel is live over that link to that address of the target.
    Joined(String, Mac),
    /// A channel was lost. If it was the last one, [`Notice::Lost`] follows.
    Parted(String, Mac, Problem),
    /// The target refused a channel.
    Rejected(Reason, String),
    /// A target on that link, at that address, speaks other versions of the protocol only.
    OtherVersion(String, Mac, Versions),
    /// The export has another size.
    Resized(u64),
    /// The target has lost completed writes: the next flush fails.
    CacheLost,
    /// What another session needs to take this one's place has changed. Comes before the first
    /// [`Notice::Connected`], and after the answers that it must not be kept before.
    Former(Former),
    /// Everything has failed, and will.
    Failed(Failure),
    /// The session has ended.
    Closed,
}

/// Why a link is not added or removed.
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

/// One of the session's links, for people.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// Name of the link.
    pub link: String,
    /// Its address.
    pub mac: Mac,
    /// Whether a channel is live on it.
    pub live: bool,
    /// Longest frame in bytes that was found to get through; zero if that is not known yet.
    pub frame_len: usize,
    /// Longest frame in bytes that the link itself takes.
    pub frame_len_max: usize,
    /// Smoothed round-trip time; the shortest of all channels.
    pub rtt: Duration,
    /// Frames that may be in flight.
    pub congestion_window: u32,
    /// What the last attempt to connect failed with, or what the link suffers from.
    pub problem: Option<String>,
    /// Counters.
    pub port: PortStats,
    /// What went wrong on the link, by name.
    pub link_counters: Vec<(&'static str, u64)>,
    /// The channels on it.
    pub channels: Vec<PathReport>,
    /// Where all of that is.
    pub nodes: LinkNodes,
}

/// What a session is doing, for people.
#[derive(Clone, Debug)]
pub struct HostReport {
    /// Whether a channel is live.
    pub live: bool,
    /// For how long the target has been lost.
    pub lost_for: Option<Duration>,
    /// How long it may stay lost before everything fails.
    pub time_left: Option<Duration>,
    /// Whether everything has failed.
    pub over: bool,
    /// The export, once connected.
    pub export: Option<ExportState>,
    /// What is in progress, and for how long it has been.
    pub waiting: Waiting,
    /// Counters of the protocol.
    pub channel: ChannelStats,
    /// Dropped frames by reason.
    pub rejects: Vec<(Reject, u64)>,
    /// Requests answered, and bytes moved by them: reads, writes, others.
    pub requests: RequestCounts,
    /// How long reads took that succeeded.
    pub reads: LatencyReport,
    /// How long writes took that succeeded.
    pub writes: LatencyReport,
    /// Where the session is.
    pub nodes: SessionNodes,
    /// How requests went with regard to NUMA nodes.
    pub node_counts: NodeCounts,
    /// How far the attempts to reach the target got that failed last.
    pub problem: Option<Problem>,
    /// The links.
    pub links: Vec<LinkReport>,
}

/// What was asked of the session.
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
