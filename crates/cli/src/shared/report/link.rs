//! The parts that links of sessions and of targets have in common.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use tyche_counters::{Label, Reading};
use tyche_engine::{ErrorCounts, LinkNodes, PortStats};
use tyche_numa::Node;
use tyche_proto::wire::Reject;
use tyche_proto::{ChannelStats, RejectCounts};

use super::Table;

/// Counters by name.
pub(crate) type Counters = BTreeMap<String, u64>;

/// Counters of the protocol.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProtocolCounters {
    #[serde(flatten)]
    pub(crate) counters: Table<ChannelStats>,
    /// Frames sent again, as a share of all frames sent, 0 to 1; null before the first frame.
    pub retransmitted_share: Option<f64>,
    /// Entries in each frame that has any, on average; null before the first one.
    pub entries_per_frame: Option<f64>,
    /// The batch size on average, in requests or answers: the number that frames wait for; null
    /// unless they wait.
    pub batch_size: Option<f64>,
}

impl ProtocolCounters {
    /// The counters of links that have `sent` that many frames.
    pub(super) fn new(stats: ChannelStats, sent: u64) -> Self {
        let ChannelStats { retransmitted, batches, batch_entries, batch_sizes, .. } = stats;
        Self {
            counters: Table(stats),
            retransmitted_share: ratio(retransmitted, sent),
            entries_per_frame: ratio(batch_entries, batches),
            batch_size: ratio(batch_sizes, batches).filter(|_| batch_sizes > 0),
        }
    }
}

/// NUMA nodes of a link, its thread and its memory. Lists are empty where the kernel does not tell.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LinkNuma {
    /// The node of the interface; null if unknown.
    pub nic_node: Option<u16>,
    /// The nodes of the memory that it shares with the kernel.
    pub ring_nodes: Vec<u16>,
    /// The nodes of its channels' memory: a target's data queues, a host's batches.
    pub channel_nodes: Vec<u16>,
    /// The CPUs that its thread may run on, such as `0-3,8`.
    pub thread_cpus: String,
}

impl From<&LinkNodes> for LinkNuma {
    fn from(nodes: &LinkNodes) -> Self {
        Self {
            nic_node: nodes.nic.map(|node| node.0),
            ring_nodes: numbers(&nodes.ring),
            channel_nodes: numbers(&nodes.channels),
            thread_cpus: nodes.cpus.to_string(),
        }
    }
}

pub(super) fn numbers(nodes: &[Node]) -> Vec<u16> {
    nodes.iter().map(|node| node.0).collect()
}

/// Counters by the names of their labels.
pub(super) fn by_name<L: Label>(counts: impl Iterator<Item = (L, u64)>) -> Counters {
    counts.map(|(label, count)| (label.name().to_owned(), count)).collect()
}

/// A link's own counters, by name.
pub(super) fn own(counters: &[Reading]) -> Counters {
    counters.iter().map(|(metric, count)| (metric.name.to_owned(), *count)).collect()
}

/// Reads a link's own counters: the numbers among the fields that the report does not define.
pub(super) fn read_own<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Counters, D::Error> {
    let fields = Map::<String, Value>::deserialize(deserializer)?;
    let number = |(name, value): (String, Value)| Some((name, value.as_u64()?));
    Ok(fields.into_iter().filter_map(number).collect())
}

/// Counters of failed requests, by operation and by kind of error.
pub(super) fn errors(counts: &ErrorCounts) -> BTreeMap<String, Counters> {
    let mut operations = BTreeMap::<_, Counters>::new();
    for (operation, class, count) in counts.iter() {
        let classes = operations.entry(operation.name().to_owned()).or_default();
        classes.insert(class.name().to_owned(), count);
    }
    operations
}

/// Frames in both directions, without those of other sessions and targets on the same interface,
/// which are dropped because of their channel or cookie.
pub(super) fn own_frames<'a>(
    ports: impl Iterator<Item = &'a PortStats>,
    rejects: &RejectCounts,
) -> u64 {
    let foreign = rejects.of(Reject::Channel) + rejects.of(Reject::Cookie);
    let all: u64 = ports.map(|port| port.rx_frames + port.tx_frames).sum();
    all.saturating_sub(foreign)
}

/// A share; `None` if `whole` is 0.
pub(super) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// CPU time that this process has used, in seconds.
pub(super) fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command in parentheses may contain anything; what follows is fixed.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|it| it.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}
