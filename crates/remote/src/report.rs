//! Reports on a session, merged from those of its queues.

use std::time::Duration;

use tyche_counters::Reading;
use tyche_engine::{LinkNodes, PortStats, RequestCounts, SessionNodes};
use tyche_proto::wire::{CipherSuite, Mac};
use tyche_proto::{
    ChannelStats, ExportState, NodeCounts, PathReport, Problem, RejectCounts, Waiting,
};

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
    /// The fault of the link itself, with the remedy.
    pub fault: Option<String>,
    /// The fault of the link, or the error of the last attempt to connect.
    pub problem: Option<String>,
    /// Counters.
    pub port: PortStats,
    /// Error counters of the link.
    pub link_counters: Vec<Reading>,
    /// The channels on it.
    pub channels: Vec<PathReport>,
    /// NUMA nodes of its parts.
    pub nodes: LinkNodes,
}

/// A report on a session, or on one of its queues.
#[derive(Clone, Debug, Default)]
pub struct HostReport {
    /// Number of queues.
    pub queues: usize,
    /// Whether each queue has a live channel.
    pub live: bool,
    /// Time since the target was lost.
    pub lost_for: Option<Duration>,
    /// Time left before all requests fail.
    pub time_left: Option<Duration>,
    /// Whether requests fail though the session goes on: the target was away for too long.
    pub fails_fast: bool,
    /// Time left before that.
    pub fails_fast_in: Option<Duration>,
    /// Whether all requests fail.
    pub over: bool,
    /// The export, once connected.
    pub export: Option<ExportState>,
    /// Requests in progress, and their age.
    pub waiting: Waiting,
    /// Counters of the protocol.
    pub channel: ChannelStats,
    /// Dropped frames by reason.
    pub rejects: RejectCounts,
    /// Requests answered, bytes moved by them, and their latency.
    pub requests: RequestCounts,
    /// Requests that ended, by queue.
    pub by_queue: Vec<u64>,
    /// NUMA nodes of the session.
    pub nodes: SessionNodes,
    /// Counters of requests by their locality to NUMA nodes.
    pub node_counts: NodeCounts,
    /// The cipher of its frames, if they are sealed, and a channel is live.
    pub cipher: Option<CipherSuite>,
    /// The problem of the most recent failed attempts to reach the target.
    pub problem: Option<Problem>,
    /// By queue, the links that its backlog takes: `all`, or those of one transport by its name;
    /// `untried`: there was no backlog yet to try them with. Without the queues whose live links
    /// are of one transport.
    pub favoured: Vec<&'static str>,
    /// The links.
    pub links: Vec<LinkReport>,
}

impl HostReport {
    /// The report on a session with these queues; `None` without any.
    pub fn all(queues: impl IntoIterator<Item = Self>) -> Option<Self> {
        queues.into_iter().reduce(|mut all, queue| {
            all.add(queue);
            all
        })
    }

    /// Adds the report of another queue.
    fn add(&mut self, other: Self) {
        self.queues += other.queues;
        self.live &= other.live;
        self.lost_for = self.lost_for.max(other.lost_for);
        self.time_left = [self.time_left, other.time_left].into_iter().flatten().min();
        self.fails_fast |= other.fails_fast;
        let times = [self.fails_fast_in, other.fails_fast_in];
        self.fails_fast_in = times.into_iter().flatten().min();
        self.over |= other.over;
        self.waiting.operations += other.waiting.operations;
        self.waiting.longest = self.waiting.longest.max(other.waiting.longest);
        self.waiting.fences += other.waiting.fences;
        self.channel += other.channel;
        self.rejects += other.rejects;
        self.cipher = self.cipher.or(other.cipher);
        self.requests.add(&other.requests);
        self.by_queue.extend(other.by_queue);
        self.nodes.threads.extend(other.nodes.threads);
        self.nodes.cpus = self.nodes.cpus.union(&other.nodes.cpus);
        self.nodes.buffers.extend(other.nodes.buffers);
        self.nodes.buffers.sort_unstable();
        self.nodes.buffers.dedup();
        self.node_counts += other.node_counts;
        self.problem = self.problem.max(other.problem);
        self.favoured.extend(other.favoured);
        for link in other.links {
            match self.links.iter_mut().find(|it| it.link == link.link) {
                Some(mine) => mine.add(link),
                None => self.links.push(link),
            }
        }
    }
}

impl LinkReport {
    /// Adds the report of another queue on the same interface.
    fn add(&mut self, other: Self) {
        // Zero is not measured yet.
        let measured = [self.rtt, other.rtt].into_iter().filter(|rtt| !rtt.is_zero());
        self.rtt = measured.min().unwrap_or_default();
        self.live |= other.live;
        self.frame_len = self.frame_len.max(other.frame_len);
        self.congestion_window += other.congestion_window;
        self.fault = self.fault.take().or(other.fault);
        self.problem = self.problem.take().or(other.problem);
        self.port += other.port;
        for (mine, theirs) in self.link_counters.iter_mut().zip(other.link_counters) {
            mine.1 += theirs.1;
        }
        self.channels.extend(other.channels);
    }
}
