//! What a target is doing, for people.

use tyche_proto::wire::{Mac, Reject, Uuid};
use tyche_proto::{ChannelReport, ChannelStats, ExportConfig, Registry};

use crate::placed::LinkNodes;
use crate::port::PortStats;

/// A channel of the target, for people.
#[derive(Clone, Debug)]
pub struct SessionReport {
    /// Name of the export.
    pub export: String,
    /// The session.
    pub session: Uuid,
    /// Its host.
    pub host: Uuid,
    /// The host's name.
    pub host_name: String,
    /// Whether it may write.
    pub writer: bool,
}

/// A link of the target, for people.
#[derive(Clone, Debug)]
pub struct TargetLinkReport {
    /// Its name.
    pub link: String,
    /// Its address.
    pub mac: Mac,
    /// What is wrong with it, if anything.
    pub problem: Option<String>,
    /// Requests answered.
    pub requests: u64,
    /// Frames and bytes.
    pub port: PortStats,
    /// What went wrong on the link, by name.
    pub link_counters: Vec<(&'static str, u64)>,
    /// Counters of the protocol.
    pub channel: ChannelStats,
    /// Dropped frames by reason.
    pub rejects: Vec<(Reject, u64)>,
    /// The open channels.
    pub channels: Vec<ChannelReport>,
    /// Where all of that is.
    pub nodes: LinkNodes,
}

/// What a target is doing, for people.
#[derive(Clone, Debug)]
pub struct TargetReport {
    /// The exports.
    pub exports: Vec<ExportConfig>,
    /// Who is connected.
    pub sessions: Vec<SessionReport>,
    /// The links.
    pub links: Vec<TargetLinkReport>,
}

impl TargetReport {
    pub(super) fn new(registry: &Registry, links: Vec<TargetLinkReport>) -> Self {
        let sessions = registry.exports().enumerate().flat_map(|(index, export)| {
            registry.sessions(index).iter().map(|session| SessionReport {
                export: export.name.to_string(),
                session: session.session,
                host: session.host,
                host_name: session.host_name.to_string(),
                writer: session.writer,
            })
        });
        let sessions = sessions.collect();
        Self { exports: registry.exports().cloned().collect(), sessions, links }
    }
}
