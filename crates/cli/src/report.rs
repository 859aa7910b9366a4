//! Reports of daemons as JSON: the one place that knows the names of the fields.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tyche_engine::{
    ErrorCounts, HostReport, LatencyFigures, LatencyReport, LinkNodes, PortStats, TargetReport,
};
use tyche_numa::Node;
use tyche_proto::wire::Reject;
use tyche_proto::{ChannelStats, PathReport};

/// A session.
pub(crate) fn session(report: &HostReport) -> Value {
    let seconds = |duration: Option<Duration>| duration.map(|it| it.as_secs_f64());
    let links = report.links.iter().map(|it| {
        let mut link = json!({
            "interface": it.link,
            "mac": it.mac.to_string(),
            "live": it.live,
            "frame_len": it.frame_len,
            "frame_len_max": it.frame_len_max,
            "rtt_us": it.rtt.as_micros() as u64,
            "congestion_window": it.congestion_window,
            "problem": it.problem,
            "channels": it.channels.iter().map(path).collect::<Vec<_>>(),
        });
        add(&mut link, json!({ "numa": numa(&it.nodes) }));
        add(&mut link, port(&it.port));
        add(&mut link, it.link_counters.iter().copied().collect::<Value>());
        link
    });
    let state = match report {
        HostReport { over: true, .. } => "failed",
        HostReport { live: true, .. } => "live",
        _ => "lost",
    };
    let export = report.export.map(|export| {
        json!({
            "target": export.target,
            "uuid": export.uuid,
            "size": export.size,
            "block_size": export.block_size,
            "read_only": export.read_only,
            "write_cache": export.write_cache,
            "discard": export.discard,
            "rotational": export.rotational,
        })
    });
    let threads = report.nodes.threads.iter().map(|node| node.map(|node| node.0));
    let requests = &report.requests;
    let answered = requests.reads + requests.writes + requests.flushes + requests.others;
    let sent = report.links.iter().map(|link| link.port.tx_frames).sum();
    json!({
        "state": state,
        "queues": report.queues,
        "lost_for_s": seconds(report.lost_for),
        "time_left_s": seconds(report.time_left),
        "operations": report.waiting.operations,
        "waiting": {
            "longest_s": report.waiting.longest.as_secs_f64(),
            "fences": report.waiting.fences,
        },
        "disk": export,
        "requests": {
            "reads": requests.reads,
            "read_bytes": requests.read_bytes,
            "writes": requests.writes,
            "written_bytes": requests.written_bytes,
            "flushes": requests.flushes,
            "others": requests.others,
            "errors": requests.errors.total(),
            "errors_by_kind": errors(&requests.errors),
            "frames_per_io": ratio(frames(report), answered + requests.errors.total()),
        },
        "latency": { "reads": latency(&report.reads), "writes": latency(&report.writes) },
        "channel": channel(&report.channel, sent),
        "rejects": rejects(&report.rejects),
        "links": links.collect::<Vec<_>>(),
        "numa": {
            "thread_nodes": threads.collect::<Vec<_>>(),
            "thread_cpus": report.nodes.cpus.to_string(),
            "buffer_nodes": numbers(&report.nodes.buffers),
            "requests_stayed": report.node_counts.stayed,
            "requests_crossed": report.node_counts.crossed,
        },
        "cpu_s": cpu_seconds(),
    })
}

/// Latency figures of requests, in microseconds.
fn latency(report: &LatencyReport) -> Value {
    let microseconds = |time: Duration| (time.as_nanos() / 100) as f64 / 10.0;
    let figures = |figures: &LatencyFigures| {
        json!({
            "count": figures.count,
            "mean_us": microseconds(figures.mean),
            "p50_us": microseconds(figures.p50),
            "p99_us": microseconds(figures.p99),
        })
    };
    json!({ "all": figures(&report.all), "recent": figures(&report.recent) })
}

/// A channel of a session.
fn path(path: &PathReport) -> Value {
    json!({
        "channel": path.channel.0,
        "peer": path.peer.to_string(),
        "live": path.live,
        "frame_len": path.frame_len,
        "rtt_us": path.rtt.as_micros() as u64,
        "congestion_window": path.congestion_window,
        "requests": path.requests,
        "rate": path.rate,
        "problem": path.problem.map(|it| it.to_string()),
        "retransmitted": path.stats.retransmitted,
    })
}

/// A target.
pub(crate) fn target(report: &TargetReport) -> Value {
    let exports = report.exports.iter().map(|it| {
        let export = &it.config;
        let sessions = report.sessions.iter().filter(|it| it.export == export.name.as_str());
        let sessions = sessions.map(|session| {
            json!({
                "session": session.session,
                "host": session.host,
                "host_name": session.host_name,
                "writer": session.writer,
            })
        });
        json!({
            "export": export.name.as_str(),
            "uuid": export.uuid,
            "size": export.size,
            "block_size": export.block_size,
            "read_only": export.read_only,
            "write_cache": export.write_cache,
            "shared": export.shared,
            "problem": it.problem,
            "errors": it.errors.total(),
            "errors_by_kind": errors(&it.errors),
            "sessions": sessions.collect::<Vec<_>>(),
        })
    });
    let links = report.links.iter().map(|link| {
        let channels = link.channels.iter().map(|it| {
            json!({
                "host": it.host.to_string(),
                "frame_len": it.frame_len,
                "executing": it.executing,
                "rtt_us": it.rtt.as_micros() as u64,
                "congestion_window": it.congestion_window,
            })
        });
        let mut value = json!({
            "interface": link.link,
            "mac": link.mac.to_string(),
            "problem": link.problem,
            "channels": channels.collect::<Vec<_>>(),
            "requests": link.requests,
            "frames_per_io": ratio(
                own_frames(std::iter::once(&link.port), &link.rejects),
                link.requests,
            ),
            "channel": channel(&link.channel, link.port.tx_frames),
            "rejects": rejects(&link.rejects),
        });
        add(&mut value, json!({ "numa": numa(&link.nodes) }));
        add(&mut value, port(&link.port));
        add(&mut value, link.link_counters.iter().copied().collect::<Value>());
        value
    });
    json!({
        "exports": exports.collect::<Vec<_>>(),
        "links": links.collect::<Vec<_>>(),
        "cpu_s": cpu_seconds(),
    })
}

/// Counters of failed requests, by operation and by kind of error.
fn errors(counts: &ErrorCounts) -> Value {
    let mut operations = Map::new();
    for (operation, class, count) in counts.iter() {
        let classes = operations.entry(operation.name()).or_insert_with(|| json!({}));
        add(classes, json!({ class.name(): count }));
    }
    operations.into()
}

/// Frames of a session in both directions.
pub(crate) fn frames(report: &HostReport) -> u64 {
    own_frames(report.links.iter().map(|link| &link.port), &report.rejects)
}

/// Frames in both directions, without those of other sessions and targets on the same interface,
/// which are dropped because of their channel or cookie.
fn own_frames<'a>(ports: impl Iterator<Item = &'a PortStats>, rejects: &[(Reject, u64)]) -> u64 {
    let is_foreign = |reject: &Reject| matches!(reject, Reject::Channel | Reject::Cookie);
    let foreign = rejects.iter().filter(|(reject, _)| is_foreign(reject));
    let foreign: u64 = foreign.map(|(_, count)| count).sum();
    let all: u64 = ports.map(|port| port.rx_frames + port.tx_frames).sum();
    all.saturating_sub(foreign)
}

/// A share; `None` if `whole` is 0.
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Adds the fields of one object to another.
pub(crate) fn add(to: &mut Value, fields: Value) {
    if let (Value::Object(to), Value::Object(fields)) = (to, fields) {
        to.extend(fields);
    }
}

/// The NUMA nodes of a link and its threads and memory.
fn numa(nodes: &LinkNodes) -> Value {
    json!({
        "nic_node": nodes.nic.map(|node| node.0),
        "ring_nodes": numbers(&nodes.ring),
        "channel_nodes": numbers(&nodes.channels),
        "thread_cpus": nodes.cpus.to_string(),
    })
}

fn numbers(nodes: &[Node]) -> Vec<u16> {
    nodes.iter().map(|node| node.0).collect()
}

fn port(stats: &PortStats) -> Value {
    json!({
        "rx_frames": stats.rx_frames,
        "rx_bytes": stats.rx_bytes,
        "tx_frames": stats.tx_frames,
        "tx_bytes": stats.tx_bytes,
        "tx_refused": stats.tx_refused,
        "overruns": stats.overruns,
    })
}

/// Counters of the protocol; `sent` is the number of frames that the links sent.
fn channel(stats: &ChannelStats, sent: u64) -> Value {
    json!({
        "retransmitted": stats.retransmitted,
        "retransmitted_share": ratio(stats.retransmitted, sent),
        "nacked": stats.nacked,
        "duplicates": stats.duplicates,
        "nacks_sent": stats.nacks_sent,
        "acks_sent": stats.acks_sent,
        "timeouts": stats.timeouts,
    })
}

fn rejects(counts: &[(Reject, u64)]) -> Map<String, Value> {
    counts.iter().map(|(reject, count)| (reject.name().to_owned(), (*count).into())).collect()
}

/// CPU time that this process has used, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command in parentheses may contain anything; what follows is fixed.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|it| it.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}
