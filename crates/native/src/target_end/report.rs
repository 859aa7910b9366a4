//! Reports on a target, for people.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use slotmap::SecondaryMap;
use tyche_counters::Reading;
use tyche_engine::{ErrorCounts, Health, PortStats, RateLimit, placed::LinkNodes};
use tyche_proto::crypto::PublicKey;
use tyche_proto::wire::{Mac, Uuid};
use tyche_proto::{
    ChannelReport, ChannelStats, ExportConfig, ExportKey, Instant, RefusalCounts, Registry,
    RejectCounts,
};

use super::uses::{self, Use};

/// An export, for people.
#[derive(Clone, Debug)]
pub struct ExportReport {
    /// What each host has had done at it, over all links.
    pub uses: Vec<Use>,
    /// Its configuration.
    pub config: ExportConfig,
    /// Requests that its disk has failed.
    pub errors: ErrorCounts,
    /// The fault of its file or device, if any.
    pub problem: Option<String>,
    /// The limit of its requests.
    pub limit: RateLimit,
}

/// A session at the target, for people.
#[derive(Clone, Debug)]
pub struct TargetSessionReport {
    /// Name of the export.
    pub export: String,
    /// The session.
    pub session: Uuid,
    /// Its host.
    pub host: Uuid,
    /// The host's name.
    pub host_name: String,
    /// The key with which the host has proved its name.
    pub key: Option<PublicKey>,
    /// Whether it may write.
    pub writer: bool,
    /// How long it has been there.
    pub age: Duration,
    /// The links that it has channels on.
    pub links: BTreeSet<String>,
}

/// A link of the target, for people.
#[derive(Clone, Debug)]
pub struct TargetLinkReport {
    /// Its name.
    pub link: String,
    /// Its address.
    pub mac: Mac,
    /// Its fault, if any.
    pub problem: Option<String>,
    /// Requests answered.
    pub requests: u64,
    /// What hosts have had done, over this link.
    pub uses: Vec<Use>,
    /// Requests answered, by thread.
    pub by_thread: Vec<u64>,
    /// Frames and bytes.
    pub port: PortStats,
    /// Error counters of the link.
    pub link_counters: Vec<Reading>,
    /// Counters of the protocol.
    pub channel: ChannelStats,
    /// Dropped frames by reason.
    pub rejects: RejectCounts,
    /// Refused attempts to connect by reason.
    pub refusals: RefusalCounts,
    /// The open channels.
    pub channels: Vec<ChannelReport>,
    /// NUMA nodes of its parts.
    pub nodes: LinkNodes,
}

impl TargetLinkReport {
    /// The report on a thread that does not answer.
    pub(super) fn silent(link: String) -> Self {
        Self {
            link,
            mac: Mac([0; 6]),
            problem: Some("its thread does not answer".to_owned()),
            requests: 0,
            uses: Vec::new(),
            by_thread: vec![0],
            port: PortStats::default(),
            link_counters: Vec::new(),
            channel: ChannelStats::default(),
            rejects: RejectCounts::default(),
            refusals: RefusalCounts::default(),
            channels: Vec::new(),
            nodes: LinkNodes::default(),
        }
    }

    /// The report on a link that was removed and has not ended.
    pub(super) fn of_removed(mut self) -> Self {
        self.problem =
            Some("it is removed, and ends when its disk has finished requests".to_owned());
        self
    }

    /// Adds the report of another thread of the same link.
    pub(super) fn add(&mut self, other: Self) {
        self.problem = self.problem.take().or(other.problem);
        self.requests += other.requests;
        uses::merge(&mut self.uses, other.uses);
        self.by_thread.extend(other.by_thread);
        self.port += other.port;
        for (mine, theirs) in self.link_counters.iter_mut().zip(other.link_counters) {
            mine.1 += theirs.1;
        }
        self.channel += other.channel;
        self.rejects += other.rejects;
        self.refusals += other.refusals;
        self.channels.extend(other.channels);
    }
}

/// A report on a target.
#[derive(Clone, Debug)]
pub struct TargetReport {
    /// The exports.
    pub exports: Vec<ExportReport>,
    /// The connected sessions.
    pub sessions: Vec<TargetSessionReport>,
    /// The links.
    pub links: Vec<TargetLinkReport>,
}

impl TargetReport {
    pub(super) fn new(
        (registry, now): (&Registry, Instant),
        mut health: SecondaryMap<ExportKey, (Health, RateLimit)>,
        (links, past): (Vec<TargetLinkReport>, Vec<Use>),
        names: &BTreeMap<usize, String>,
    ) -> Self {
        let name = |link: usize| names.get(&link).cloned();
        let sessions = registry.exports().flat_map(|(key, export)| {
            registry.sessions(key).iter().map(|session| TargetSessionReport {
                export: export.name.to_string(),
                session: session.session,
                host: session.host.uuid(),
                host_name: session.host_name.to_string(),
                key: session.key,
                writer: session.writer,
                age: now.since(session.since),
                links: session.channels().filter_map(|(channel, _)| name(channel.link)).collect(),
            })
        });
        let sessions = sessions.collect();
        let mut uses = past;
        links.iter().for_each(|link| uses::merge(&mut uses, link.uses.clone()));
        let exports = registry.exports().filter_map(|(key, config)| {
            let (Health { errors, problem }, limit) = health.remove(key)?;
            let uses = uses.iter().filter(|it| it.export == key).cloned().collect();
            Some(ExportReport { uses, config: config.clone(), errors, problem, limit })
        });
        Self { exports: exports.collect(), sessions, links }
    }
}
