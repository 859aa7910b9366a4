//! Output of commands that succeed, with `-o json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tyche_block::Geometry;
use tyche_console::error::Code;
use tyche_fcoe::fc::neighbour::Functions;
use tyche_fcoe::scsi::initiator::Disk;
use tyche_fcoe::scsi::vpd::Identity;
use tyche_fcoe::{FoundNeighbour, FoundVlan};
use tyche_native::UseCounts;
use tyche_session::KnownTarget;
use uuid::Uuid;

use super::{
    BenchReport, CheckReport, DoctorReport, ExportReport, HostChanged, KnownHosts, Origin,
    PoolReport, SessionReport, Table, TargetLinkChanged, TargetReport, TopReport,
};

/// The output of a command. Its name in `schema` has a version: fields are added to a version, but
/// neither removed nor changed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "schema")]
pub enum Output {
    /// `tyche connect`: the session.
    #[serde(rename = "tyche.connect/1")]
    Connect(Box<ConnectReport>),
    /// `tyche connect-all`: the result for each line of tychetab.
    #[serde(rename = "tyche.connect-all/1")]
    ConnectAll {
        /// The lines that were not connected already.
        exports: Vec<TabOutcome>,
        /// The exports that were connected already.
        connected_already: Vec<String>,
    },
    /// `tyche disconnect`.
    #[serde(rename = "tyche.disconnect/1")]
    Disconnect {
        /// UUIDs of the sessions that have ended.
        sessions: Vec<Uuid>,
    },
    /// `tyche reload`.
    #[serde(rename = "tyche.reload/1")]
    Reload {
        /// UUIDs of the sessions that the daemons have now.
        sessions: Vec<Uuid>,
    },
    /// `tyche discover`.
    #[serde(rename = "tyche.discover/1")]
    Discover {
        /// The exports that targets offer, once for each link on which they do.
        exports: Vec<DiscoveredExport>,
        /// The ports of Fibre Channel over Ethernet, with `--fcoe`.
        #[serde(default)]
        ports: Vec<DiscoveredPort>,
        /// The VLANs on which FCoE is spoken, with `--fcoe`.
        #[serde(default)]
        vlans: Vec<DiscoveredVlan>,
    },
    /// `tyche export resize`.
    #[serde(rename = "tyche.export/1")]
    Export {
        /// Bytes before.
        size_before: u64,
        /// The size now.
        #[serde(flatten)]
        now: ExportResized,
    },
    /// `tyche export add`, `remove`, `rename` and `set`.
    #[serde(rename = "tyche.export-changed/1")]
    ExportChanged(ExportChanged),
    /// `tyche export snapshot` and `clone`.
    #[serde(rename = "tyche.export-cloned/1")]
    ExportCloned(ExportCloned),
    /// `tyche export list`.
    #[serde(rename = "tyche.export-list/1")]
    ExportList {
        /// The targets of this machine, each with its exports.
        targets: Vec<ExportedBy>,
    },
    /// `tyche export allow`, `deny`, `evict` and `revert`.
    #[serde(rename = "tyche.access/1")]
    Access(AccessChanged),
    /// `tyche host add` and `remove`.
    #[serde(rename = "tyche.host-changed/1")]
    HostChanged(HostChanged),
    /// `tyche host list`.
    #[serde(rename = "tyche.host-list/1")]
    HostList {
        /// The targets, each with the hosts that it knows by their keys.
        targets: Vec<KnownHosts>,
    },
    /// `tyche key known`.
    #[serde(rename = "tyche.key-known/1")]
    KnownTargets {
        /// The file that lists them.
        file: String,
        /// The targets whose keys this machine knows.
        targets: Vec<KnownTargetReport>,
    },
    /// `tyche serve --check`.
    #[serde(rename = "tyche.check/1")]
    Check(CheckReport),
    /// `tyche link add`, `tyche link del` at a target.
    #[serde(rename = "tyche.target-link/1")]
    TargetLink(TargetLinkChanged),
    /// `tyche link add`, `tyche link del` at a session.
    #[serde(rename = "tyche.link/2")]
    Link {
        /// UUID of the session.
        session: Uuid,
        /// Its export, as it was named when it was connected.
        export: String,
        /// The interface, or `udp:HOST:PORT`, `tcp:HOST:PORT`, `rdma:HOST:PORT`.
        link: String,
    },
    /// `tyche list`.
    #[serde(rename = "tyche.list/1")]
    List(MachineReport),
    /// `tyche hosts`.
    #[serde(rename = "tyche.hosts/1")]
    Hosts {
        /// The hosts, once for each export that they have, or had.
        hosts: Vec<HostReport>,
    },
    /// `tyche stats`.
    #[serde(rename = "tyche.stats/1")]
    Stats(MachineReport),
    /// `tyche top`.
    #[serde(rename = "tyche.top/1")]
    Top(TopReport),
    /// `tyche doctor`.
    #[serde(rename = "tyche.doctor/1")]
    Doctor(DoctorReport),
    /// `tyche bench`.
    #[serde(rename = "tyche.bench/1")]
    Bench(BenchReport),
}

/// The sessions and targets of this machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct MachineReport {
    /// The sessions.
    pub sessions: Vec<SessionReport>,
    /// The targets.
    pub targets: Vec<TargetReport>,
    /// Exports that tychetab lists, without `noauto`, and that are not connected; `list` only.
    #[serde(default)]
    pub not_connected: Vec<String>,
}

/// A session that was connected.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ConnectReport {
    /// The session.
    #[serde(flatten)]
    pub session: SessionReport,
    /// Warnings about its links and its device, in words.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The result for a line of tychetab.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "schema")]
pub enum TabOutcome {
    /// Its export is connected.
    #[serde(rename = "tyche.connect/1")]
    Connected(Box<ConnectReport>),
    /// Its export could not be connected.
    #[serde(rename = "tyche.error/1")]
    Failed {
        /// The export.
        export: String,
        /// The fault and its remedy, in one line.
        error: String,
        /// The kind of the error.
        code: Code,
    },
}

/// An export that a target offers on a link.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DiscoveredExport {
    /// Its name, 1 to 63 bytes.
    pub export: String,
    /// Its UUID, the same as long as it is the same disk.
    pub uuid: Uuid,
    /// Size in bytes.
    pub size: u64,
    /// Size of a block in bytes: 512 or 4096.
    pub block_size: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether completed writes may be volatile until the next flush.
    pub write_cache: bool,
    /// Whether several hosts may write at once.
    pub shared: bool,
    /// Whether a host has it connected for writing.
    pub held: bool,
    /// Whether its disk is missing at the target.
    #[serde(default)]
    pub offline: bool,
    /// UUID of the target.
    pub target: Uuid,
    /// Name of the target.
    pub target_name: String,
    /// The target's Ethernet address.
    pub mac: String,
    /// The local interface on which it was found, or `udp:HOST:PORT`, `tcp:HOST:PORT`,
    /// `rdma:HOST:PORT`.
    pub interface: String,
    /// Public key that the target says, which nothing proves yet; null if it says none.
    #[serde(default)]
    pub target_key: Option<String>,
    /// Fingerprint of that key; null if there is none.
    #[serde(default)]
    pub target_fingerprint: Option<String>,
}

/// A target whose key this machine knows.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct KnownTargetReport {
    /// Name of the target.
    pub target: String,
    /// UUID of the target.
    pub uuid: Uuid,
    /// Its public key.
    pub key: String,
    /// Fingerprint of the key.
    pub fingerprint: String,
    /// The line of the file, from 1 on.
    pub line: u64,
}

impl From<&KnownTarget> for KnownTargetReport {
    fn from(known: &KnownTarget) -> Self {
        let KnownTarget { key, uuid, name, line } = known;
        Self {
            target: name.to_string(),
            uuid: *uuid,
            key: key.to_string(),
            fingerprint: key.fingerprint(),
            line: *line as u64,
        }
    }
}

/// A port of Fibre Channel over Ethernet, on a network without a fabric.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DiscoveredPort {
    /// Name of the port.
    pub wwpn: String,
    /// Name of its node; null if it is not known, as in a fabric.
    pub wwnn: Option<String>,
    /// The N_Port_ID that it has, in hexadecimal.
    pub n_port_id: String,
    /// Whether it says that it serves disks.
    pub target: bool,
    /// Whether it says that it uses disks of others.
    pub initiator: bool,
    /// The longest FCoE frame in bytes that it takes, without the Ethernet header; 2158 with the
    /// longest payload.
    pub size: u64,
    /// Ethernet address of its interface; in a fabric that of the forwarder.
    pub mac: String,
    /// The local interface on which it was found.
    pub interface: String,
    /// The disks of a target that this machine may see.
    #[serde(default)]
    pub luns: Vec<DiscoveredLun>,
    /// The reason why a target does not show them, or not all, in words; null if it does.
    #[serde(default)]
    pub problem: Option<String>,
}

impl From<&FoundNeighbour> for DiscoveredPort {
    /// The port, without its disks.
    fn from(found: &FoundNeighbour) -> Self {
        let FoundNeighbour { link, neighbour } = found;
        let Functions { initiator, target } = neighbour.functions;
        Self {
            wwpn: neighbour.wwpn.to_string(),
            wwnn: neighbour.wwnn.map(|it| it.to_string()),
            n_port_id: neighbour.id.to_string(),
            target,
            initiator,
            size: neighbour.fcoe_len_max.into(),
            mac: neighbour.enode.to_string(),
            interface: link.clone(),
            luns: Vec::new(),
            problem: None,
        }
    }
}

/// A disk of a port of Fibre Channel over Ethernet.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DiscoveredLun {
    /// WWPN and LUN, as `tyche connect --fcoe` takes them.
    pub disk: String,
    /// Its properties; null if it does not tell them.
    pub properties: Option<LunProperties>,
    /// The reason for that, in words; null if there is none.
    pub problem: Option<String>,
}

/// The properties of a disk of a port of Fibre Channel over Ethernet.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LunProperties {
    /// UUID of the export, if the target is one of Tyche; otherwise null.
    pub uuid: Option<Uuid>,
    /// Its serial number; empty if it has none.
    pub serial: String,
    /// Vendor of the target.
    pub vendor: String,
    /// Product of the target.
    pub product: String,
    /// Size in bytes.
    pub size: u64,
    /// Size of a block in bytes: 512 or 4096.
    pub block_size: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether completed writes may be volatile until the next flush.
    pub write_cache: bool,
}

impl From<&Disk> for LunProperties {
    fn from(disk: &Disk) -> Self {
        let Geometry { size, block_size, read_only, write_cache, .. } = disk.geometry;
        let uuid = match disk.identity {
            Some(Identity::Uuid(uuid)) => Some(uuid),
            _ => None,
        };
        Self {
            uuid,
            serial: disk.serial.to_string(),
            vendor: disk.vendor.to_string(),
            product: disk.product.to_string(),
            size,
            block_size,
            read_only,
            write_cache,
        }
    }
}

/// A VLAN on which FCoE is spoken, according to another machine.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DiscoveredVlan {
    /// Its number; 0 stands for the network without a tag.
    pub vid: u16,
    /// Ethernet address of that machine.
    pub mac: String,
    /// The local interface on which it was found.
    pub interface: String,
}

impl From<&FoundVlan> for DiscoveredVlan {
    fn from(found: &FoundVlan) -> Self {
        let FoundVlan { link, vid, mac } = found;
        Self { vid: *vid, mac: mac.to_string(), interface: link.clone() }
    }
}

/// A change of the hosts that may have an export.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AccessChanged {
    /// Name of the target.
    pub target: String,
    /// Name of the export.
    pub export: String,
    /// The host: its name at the target, or the UUID of one without a key. Over FCoE a WWPN. Null:
    /// all.
    pub host: Option<String>,
    /// Sessions that this has ended.
    pub sessions_ended: u64,
}

/// A change of the exports of a target.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExportChanged {
    /// Name of the target.
    pub target: String,
    /// Name of the export.
    pub export: String,
    /// Its size in bytes; null if it is removed.
    pub size: Option<u64>,
    /// Whether anything has changed: false if it was so already.
    pub changed: bool,
    /// Sessions that end.
    pub sessions_ended: u64,
    /// Warnings about it, such as that the exports in its pool are larger together than the pool;
    /// one text for each.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// A clone of an export of a target.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExportCloned {
    /// Name of the target.
    pub target: String,
    /// Name of the clone.
    pub export: String,
    /// The disk that it was cloned from.
    pub origin: Origin,
    /// Whether it is a snapshot: nobody may write it.
    pub read_only: bool,
    /// Its size in bytes.
    pub size: u64,
    /// Whether anything has changed: false if it was there already.
    pub changed: bool,
    /// The seconds for which writes of the original had to wait; null if nothing has changed.
    pub pause_s: Option<f64>,
    /// Warnings about it, such as that the exports in its pool are larger together than the pool;
    /// one text for each.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The exports of a target.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExportedBy {
    /// Name of the target.
    pub target: String,
    /// Why it does not answer, in words; null if it does.
    pub problem: Option<String>,
    /// Its exports.
    pub exports: Vec<ExportReport>,
    /// Its pools.
    #[serde(default)]
    pub pools: Vec<PoolReport>,
}

/// A host at an export of a target.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostReport {
    /// Name of the target.
    pub target: String,
    /// Name of the export; null for a port of Fibre Channel over Ethernet, which may see several.
    pub export: Option<String>,
    /// The host's name, if it is known: with a key the one that the target has for it, else as it
    /// says itself. Otherwise its id.
    pub host: String,
    /// The host as `tyche export allow` takes it: its name if it has a key, else its UUID.
    pub id: String,
    /// Whether a session of it is connected.
    pub connected: bool,
    /// Whether a session of it may write.
    pub writer: bool,
    /// Seconds since the first of its sessions came; null if none is connected.
    pub connected_s: Option<f64>,
    /// The links that its sessions have channels on.
    pub links: Vec<String>,
    /// WWPN of a port of Fibre Channel over Ethernet; null if it is none.
    pub port: Option<String>,
    /// Its requests that wait at a limit now.
    pub waiting: u64,
    /// Its requests since the target started.
    pub requests: Table<UseCounts>,
}

/// The new size of an export.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExportResized {
    /// Name of the target.
    pub target: String,
    /// Name of the export.
    pub export: String,
    /// Bytes.
    pub size: u64,
    /// Warnings about it, such as that the exports in its pool are larger together than the pool;
    /// one text for each.
    #[serde(default)]
    pub warnings: Vec<String>,
}
