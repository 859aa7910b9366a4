//! The report on a target.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tyche_engine::PortStats;
use tyche_fcoe::FcoeTargetReport;
use tyche_native::{TargetLinkReport, Use, UseCounts};
use uuid::Uuid;

use super::Table;
use super::link::{
    Counters, LinkNuma, ProtocolCounters, by_name, cpu_seconds, errors, own, own_frames, ratio,
    read_own,
};

/// A target that runs on this machine. Counters begin at its start. Of one that does not answer
/// only the name, the process and the problem are known.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TargetReport {
    /// Its name.
    pub name: String,
    /// Its process; 0 if it is not known.
    pub pid: u32,
    /// Why it does not answer, in words; null if it does.
    pub problem: Option<String>,
    /// The exports.
    pub exports: Vec<ExportReport>,
    /// The links, one for each interface.
    pub links: Vec<TargetLink>,
    /// The ports of Fibre Channel over Ethernet, one for each interface with it.
    pub fcoe: Vec<TargetPort>,
    /// The pools.
    pub pools: Vec<PoolReport>,
    /// CPU time that the process has used, in seconds.
    pub cpu_s: f64,
}

impl TargetReport {
    /// The report on the target of that name, which this process is.
    pub(crate) fn new(name: &str, report: &tyche_native::TargetReport) -> Self {
        let exports = report.exports.iter().map(|it| {
            let sessions = report.sessions.iter();
            let sessions = sessions.filter(|session| session.export == it.config.name.as_str());
            ExportReport { sessions: sessions.map(ExportSession::from).collect(), ..it.into() }
        });
        Self {
            name: name.to_owned(),
            pid: std::process::id(),
            problem: None,
            exports: exports.collect(),
            links: report.links.iter().map(TargetLink::from).collect(),
            fcoe: Vec::new(),
            pools: Vec::new(),
            cpu_s: cpu_seconds(),
        }
    }
}

/// An export of a target.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ExportReport {
    /// Its name, 1 to 63 bytes.
    pub export: String,
    /// Its UUID, the same as long as it is the same disk.
    pub uuid: Uuid,
    /// Its file or device, or `mem:`, `sparse:` or `null:` and a size.
    pub path: String,
    /// What says that it is exported.
    pub defined_by: DefinedBy,
    /// The pool that has its file or volume; null if none has.
    pub pool: Option<String>,
    /// The disk that it was cloned from; null if it was not. One that is read-only is a snapshot.
    pub origin: Option<Origin>,
    /// Bytes that its file has on its file system, or its volume in its pool, those that it shares
    /// with clones included; null if it is neither.
    pub allocated: Option<u64>,
    /// Size in bytes.
    pub size: u64,
    /// Size of a block in bytes: 512 or 4096.
    pub block_size: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether completed writes may be volatile until the next flush.
    pub write_cache: bool,
    /// Whether several hosts may write at once.
    pub shared: bool,
    /// The fault of its file or device, in words; null if there is none.
    pub problem: Option<String>,
    /// Requests that its file or device has failed.
    pub errors: u64,
    /// Requests that its file or device has failed, by operation and by kind of error; without
    /// those that are 0.
    pub errors_by_kind: BTreeMap<String, Counters>,
    /// Seconds since the last of these; null if there are none.
    pub last_error_s: Option<f64>,
    /// Its logical unit number over FCoE; null if it is not served by that.
    pub lun: Option<u8>,
    /// The hosts and ports that may connect it, by the configuration and by commands; null: the
    /// target is of an earlier version, and does not say.
    pub may_connect: Option<MayConnect>,
    /// The hosts that `tyche export allow` lets have it though the configuration does not.
    pub allowed: Vec<String>,
    /// The hosts that `tyche export deny` or `evict` keeps out, whatever the configuration says.
    pub denied: Vec<String>,
    /// The sessions that have it connected.
    pub sessions: Vec<ExportSession>,
    /// The most requests of its hosts in a second; null: any number.
    pub iops: Option<u64>,
    /// The most bytes that its hosts read and write in a second; null: any number.
    pub bytes_per_second: Option<u64>,
    /// Requests of its hosts that wait at a limit now, without those over FCoE.
    pub waiting: u64,
    /// Requests of its hosts since the target started, without those over FCoE.
    pub requests: Table<UseCounts>,
    /// The same by host, also of those that have left.
    pub hosts: Vec<HostUse>,
}

/// The hosts and ports that may connect an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MayConnect {
    /// The hosts: the names of those with a key, the UUIDs of those without; null: all that the
    /// target lets in, but of those that `tyche host add` has added only the ones in `also`.
    pub hosts: Option<Vec<String>>,
    /// Hosts that `tyche host add` has added and that it is also for, if `hosts` is null or names
    /// those without a key.
    pub also: Vec<String>,
    /// Those of all that may not.
    pub except: Vec<String>,
    /// WWPNs of the ports of FCoE; null: all ports that reach the target. Empty also if the target
    /// is not served over FCoE.
    pub ports: Option<Vec<String>>,
    /// Those of all ports that may not.
    pub ports_except: Vec<String>,
}

/// The disk that an export was cloned from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Origin {
    /// Name of the export, then.
    pub export: String,
    /// UUID of the export.
    pub uuid: Uuid,
    /// The moment of the clone, in seconds since the beginning of 1970 (UTC).
    pub time: u64,
}

/// A pool of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PoolReport {
    /// Its name.
    pub pool: String,
    /// Its kind and its place, as in `dir:/srv/vols` or `lvm-thin:vg0/pool0`.
    pub path: String,
    /// Bytes that it has, or its file system; null if that is not known.
    pub size: Option<u64>,
    /// Those of them that have data, whoever has written them; null if that is not known.
    pub used: Option<u64>,
    /// Bytes that a thin pool has to keep track of its blocks: it fails when they are full; null
    /// for a directory, and if that is not known.
    pub metadata_size: Option<u64>,
    /// Those of them that are used; null likewise.
    pub metadata_used: Option<u64>,
    /// Sizes of the exports in it, all together, in bytes: the bytes that they would have if all
    /// were written and nothing shared.
    pub provisioned: u64,
    /// Why it can't be looked at, or what is wrong with it, in words; null if all is well.
    pub problem: Option<String>,
}

/// What a host has had done at an export, over all links but FCoE.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostUse {
    /// The host: its name if it has a key, else its UUID; empty: several that have left, or were
    /// too many to be told apart.
    pub host: String,
    /// Its requests that wait at a limit now.
    pub waiting: u64,
    /// Its requests.
    #[serde(flatten)]
    pub requests: Table<UseCounts>,
}

impl From<&tyche_native::ExportReport> for ExportReport {
    fn from(report: &tyche_native::ExportReport) -> Self {
        let export = &report.config;
        Self {
            export: export.name.to_string(),
            uuid: export.uuid,
            path: String::new(),
            defined_by: DefinedBy::default(),
            pool: None,
            origin: None,
            allocated: None,
            size: export.geometry.size,
            block_size: export.geometry.block_size.into(),
            read_only: export.geometry.read_only,
            write_cache: export.geometry.write_cache,
            shared: export.shared,
            problem: report.problem.clone(),
            errors: report.errors.total(),
            errors_by_kind: errors(&report.errors),
            last_error_s: report.errors.since_last().map(|since| since.as_secs_f64()),
            lun: None,
            may_connect: None,
            allowed: Vec::new(),
            denied: Vec::new(),
            sessions: Vec::new(),
            iops: report.limit.iops.map(NonZeroU64::get),
            bytes_per_second: report.limit.bytes_per_second.map(NonZeroU64::get),
            waiting: report.uses.iter().map(|it| it.waiting as u64).sum(),
            requests: Table(report.uses.iter().fold(UseCounts::default(), |mut sum, it| {
                sum += it.counts;
                sum
            })),
            hosts: report.uses.iter().map(HostUse::from).collect(),
        }
    }
}

impl From<&Use> for HostUse {
    fn from(used: &Use) -> Self {
        let host = used.host.map_or_else(String::new, |host| host.to_string());
        Self { host, waiting: used.waiting as u64, requests: Table(used.counts) }
    }
}

/// The place that says that a disk is exported, that a link is served, or that a host is let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DefinedBy {
    /// The configuration file.
    File,
    /// The command line of the target.
    CommandLine,
    /// `tyche export add`, `tyche link add`, `tyche host add`.
    Command,
    /// It is not known: the target is of an earlier version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A session that has an export connected.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ExportSession {
    /// UUID of the session.
    pub session: Uuid,
    /// UUID of the host, as it says itself. A host with a key is told apart by its name first, and
    /// is never taken for one without.
    pub host: Uuid,
    /// Name of the host: with a key the one that the target has for it, else as it says itself.
    pub host_name: String,
    /// The key with which the host has proved who it is; null if it has none.
    pub key: Option<String>,
    /// Whether it may write.
    pub writer: bool,
    /// Seconds since it came.
    pub connected_s: f64,
    /// The links that it has channels on.
    pub links: Vec<String>,
}

impl From<&tyche_native::TargetSessionReport> for ExportSession {
    fn from(report: &tyche_native::TargetSessionReport) -> Self {
        Self {
            session: report.session,
            host: report.host,
            host_name: report.host_name.clone(),
            key: report.key.map(|key| key.to_string()),
            writer: report.writer,
            connected_s: report.age.as_secs_f64(),
            links: report.links.iter().cloned().collect(),
        }
    }
}

/// A link of a target. It has further error counters, which depend on its kind, such as
/// `malformed_short`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TargetLink {
    /// Name of the interface, or `udp:ADDRESS:PORT`, `tcp:ADDRESS:PORT`, `rdma:ADDRESS:PORT`.
    pub interface: String,
    /// Its Ethernet address.
    pub mac: String,
    /// Its fault, in words; null if there is none.
    pub problem: Option<String>,
    /// The open channels.
    pub channels: Vec<TargetChannel>,
    /// Requests that were answered.
    pub requests: u64,
    /// The same by thread.
    pub requests_by_thread: Vec<u64>,
    /// Frames in both directions for each request; null before the first request.
    pub frames_per_io: Option<f64>,
    /// Counters of the protocol.
    pub channel: ProtocolCounters,
    /// Frames dropped, by reason.
    pub rejects: Counters,
    /// Attempts to connect that were refused, by reason.
    pub refusals: Counters,
    /// NUMA nodes of its parts.
    pub numa: LinkNuma,
    /// Frames and bytes.
    #[serde(flatten)]
    pub port: Table<PortStats>,
    /// Further error counters, as this kind of link has them.
    #[serde(flatten, deserialize_with = "read_own")]
    pub counters: Counters,
}

impl From<&TargetLinkReport> for TargetLink {
    fn from(link: &TargetLinkReport) -> Self {
        let frames = own_frames(std::iter::once(&link.port), &link.rejects);
        Self {
            interface: link.link.clone(),
            mac: link.mac.to_string(),
            problem: link.problem.clone(),
            channels: link.channels.iter().map(TargetChannel::from).collect(),
            requests: link.requests,
            requests_by_thread: link.by_thread.clone(),
            frames_per_io: ratio(frames, link.requests),
            channel: ProtocolCounters::new(link.channel, link.port.tx_frames),
            rejects: by_name(link.rejects.iter()),
            refusals: by_name(link.refusals.iter()),
            numa: (&link.nodes).into(),
            port: Table(link.port),
            counters: own(&link.link_counters),
        }
    }
}

/// An open channel of a target.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TargetChannel {
    /// The host's Ethernet address.
    pub host: String,
    /// Longest frame in bytes.
    pub frame_len: u32,
    /// Requests at the disk.
    pub executing: u64,
    /// Round-trip time in microseconds, smoothed.
    pub rtt_us: u64,
    /// Frames that may be in flight.
    pub congestion_window: u32,
}

impl From<&tyche_proto::ChannelReport> for TargetChannel {
    fn from(channel: &tyche_proto::ChannelReport) -> Self {
        Self {
            host: channel.host.to_string(),
            frame_len: channel.frame_len,
            executing: channel.executing as u64,
            rtt_us: channel.rtt.as_micros() as u64,
            congestion_window: channel.congestion_window,
        }
    }
}

/// A port of a target for Fibre Channel over Ethernet.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TargetPort {
    /// Name of the interface.
    pub interface: String,
    /// Name of the port.
    pub wwpn: String,
    /// The N_Port_ID that it has, in hexadecimal; null if it has none.
    pub n_port_id: Option<String>,
    /// The fault of the interface, in words; null if there is none.
    pub problem: Option<String>,
    /// WWPNs of the initiators that are logged in.
    pub initiators: Vec<String>,
    /// Commands that were executed at disks.
    pub commands: u64,
    /// The same by thread.
    pub commands_by_thread: Vec<u64>,
    /// Frames dropped, by reason.
    pub rejects: Counters,
    /// Frames without effect, and commands that failed on their way, by reason.
    pub ignored: Counters,
    /// Frames and bytes.
    #[serde(flatten)]
    pub port: Table<PortStats>,
}

impl From<&FcoeTargetReport> for TargetPort {
    fn from(report: &FcoeTargetReport) -> Self {
        Self {
            interface: report.link.clone(),
            wwpn: report.wwpn.to_string(),
            n_port_id: report.id.map(|id| id.to_string()),
            problem: report.problem.clone(),
            initiators: report.initiators.iter().map(ToString::to_string).collect(),
            commands: report.commands,
            commands_by_thread: report.by_thread.clone(),
            rejects: by_name(report.rejects.all()),
            ignored: own(&report.ignored),
            port: Table(report.port),
        }
    }
}
