//! `tyche stats`: the counters of sessions and targets.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use tyche_engine::PortStats;

use crate::commands::list::state;
use crate::output::{Format, bytes, show, shows_on_terminal};
use crate::shared::complete;
use crate::shared::error::Result;
use crate::shared::health;
use crate::shared::rates::Totals;
use crate::shared::report::{
    Counters, ExportReport, Figures, Latency, LatencyReport, MachineReport, Output,
    ProtocolCounters, SessionLink, SessionReport, TargetLink, TargetPort, TargetReport,
};
use crate::shared::sessions::{named_sessions, not_found};
use crate::shared::target_control::AtArgs;

/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";
/// Interval of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Show counters of sessions and targets of this machine, or with --at of a target elsewhere:
/// requests, errors, latency, losses.
#[derive(Args, Debug)]
pub(crate) struct StatsArgs {
    /// Only this one: an export, a session, a device or a target.
    #[arg(add = complete::connected_or_served())]
    name: Option<String>,

    /// Show all counters, one a line, rather than those that matter most.
    #[arg(short, long)]
    verbose: bool,

    /// Show them again every second until interrupted, with the rates since the last time.
    #[arg(short, long)]
    watch: bool,

    #[command(flatten)]
    at: AtArgs,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

pub(crate) fn stats(args: &StatsArgs) -> Result<()> {
    let name = args.name.as_deref();
    let on_terminal = shows_on_terminal();
    let mut before: Option<(Instant, Totals)> = None;
    loop {
        let found = args.at.targets()?;
        let sessions = if args.at.is_elsewhere() { Vec::new() } else { named_sessions(name)? };
        let targets: Vec<_> = found
            .into_iter()
            .map(|it| it.report)
            .filter(|it| name.is_none_or(|name| it.name == name))
            .collect();
        if let Some(name) = name.filter(|_| sessions.is_empty() && targets.is_empty()) {
            return Err(not_found(name));
        }
        let mut text = text(&sessions, &targets, args);
        if args.watch {
            let now = (Instant::now(), Totals::of(&sessions, &targets));
            let rates =
                before.as_ref().map_or_else(String::new, |before| now.1.since(before, now.0));
            let clear = if on_terminal { CLEAR } else { "" };
            text = format!("{clear}{rates}{text}{}", if on_terminal { "" } else { "\n" });
            before = Some(now);
        }
        let report = MachineReport { sessions, targets, ..MachineReport::default() };
        show(args.output, || Output::Stats(report), || text)?;
        if !args.watch {
            return Ok(());
        }
        std::thread::sleep(WATCH_INTERVAL);
    }
}

fn text(sessions: &[SessionReport], targets: &[TargetReport], args: &StatsArgs) -> String {
    let blocks: Vec<_> = if args.verbose {
        sessions.iter().map(all_of_session).chain(targets.iter().map(all_of_target)).collect()
    } else {
        let sessions = sessions.iter().map(session_summary);
        sessions.chain(targets.iter().map(target_summary)).collect()
    };
    blocks.join("\n")
}

/// The first line: the name of a session, and its state.
fn title(report: &SessionReport) -> String {
    format!("{} {}\n", report.record.export, state(report))
}

type Line = (String, String);

/// The main counters of a session, one line for each topic; none for a dead daemon's record.
fn session_summary(report: &SessionReport) -> String {
    let mut lines = Vec::new();
    if let Some(figures) = report.figures() {
        let sealed = |cipher: &String| ("sealed".to_owned(), format!("with {cipher}"));
        lines.extend(figures.cipher.as_ref().map(sealed));
        lines.extend(request_lines(figures));
        lines.extend(
            shares("requests", &figures.requests.by_queue).map(|line| ("queues".into(), line)),
        );
        let ports = figures.links.iter().map(|link| &*link.port);
        lines.extend(frame_lines(ports, [(&figures.channel, &figures.rejects)]));
        lines.extend(favoured_line(&figures.favoured));
        lines.extend(figures.links.iter().map(session_link_line));
        lines.push(cpu_line(figures.cpu_s));
    }
    block(title(report), lines)
}

/// The main counters of a target, one line for each topic.
fn target_summary(report: &TargetReport) -> String {
    if let Some(problem) = &report.problem {
        return block(
            format!("{} silent\n", report.name),
            vec![("problem".into(), problem.clone())],
        );
    }
    let links = &report.links;
    let requests: u64 = links.iter().map(|link| link.requests).sum();
    let mut lines: Vec<_> = report.exports.iter().map(export_line).collect();
    if !links.is_empty() {
        lines.push(("requests".into(), requests.to_string()));
        let counters = links.iter().map(|link| (&link.channel, &link.rejects));
        lines.extend(frame_lines(links.iter().map(|link| &*link.port), counters));
    }
    lines.extend(links.iter().map(target_link_line));
    lines.extend(report.fcoe.iter().flat_map(port_lines));
    lines.push(cpu_line(report.cpu_s));
    block(format!("{}\n", report.name), lines)
}

/// The lines of a port of FCoE.
fn port_lines(port: &TargetPort) -> [Line; 2] {
    let sum = |counters: &Counters| counters.values().sum::<u64>();
    let mut line = format!(
        "{}; {} commands of {} initiators; {} frames rejected, {} ignored",
        port.wwpn,
        port.commands,
        port.initiators.len(),
        sum(&port.rejects),
        sum(&port.ignored)
    );
    if let Some(shares) = shares("commands", &port.commands_by_thread) {
        let _ = write!(line, "; {shares}");
    }
    let link = link_line(&port.interface, &port.port, None, port.problem.as_deref());
    [(format!("fcoe {}", port.interface), line), link]
}

fn block(title: String, lines: Vec<Line>) -> String {
    lines.into_iter().fold(title, |mut text, (label, line)| {
        let _ = writeln!(text, "  {label:12} {line}");
        text
    })
}

fn cpu_line(seconds: f64) -> Line {
    ("cpu".into(), format!("{seconds:.2} s"))
}

/// The lines of a session's requests.
fn request_lines(figures: &Figures) -> [Line; 4] {
    let (requests, succeeded) = (&figures.requests, &figures.requests.succeeded);
    let moved = |kind: &str, count: u64, moved: u64, latency: &LatencyReport| {
        let figures = |Latency { count, mean_us, p99_us, .. }: &Latency| {
            (*count > 0).then(|| format!("{mean_us:.0} µs mean, {p99_us:.0} µs p99"))
        };
        let mut line = format!("{count}, {}", bytes(moved));
        if let Some(figures) = figures(&latency.all) {
            let _ = write!(line, "; {figures}");
        }
        if let Some(figures) = figures(&latency.recent) {
            let _ = write!(line, "; in the last seconds {figures}");
        }
        (kind.to_owned(), line)
    };
    let others = format!(
        "{} flushes, {} discards and zeroes; {} in progress",
        succeeded.flushes, succeeded.others, figures.operations
    );
    [
        moved("reads", succeeded.reads, succeeded.read_bytes, &figures.latency.reads),
        moved("writes", succeeded.writes, succeeded.written_bytes, &figures.latency.writes),
        ("others".into(), others),
        ("errors".into(), errors(&requests.errors_by_kind, requests.last_error_s)),
    ]
}

fn errors(by_kind: &BTreeMap<String, Counters>, last_s: Option<f64>) -> String {
    health::errors(by_kind, last_s).unwrap_or_else(|| "none".into())
}

/// The line of a target's export.
fn export_line(export: &ExportReport) -> Line {
    let (size, sessions) = (bytes(export.size), export.sessions.len());
    let errors = errors(&export.errors_by_kind, export.last_error_s);
    let mut line = format!("{size}; sessions: {sessions}; errors: {errors}");
    if let Some(problem) = &export.problem {
        let _ = write!(line, "; {problem}");
    }
    if let Some(access) = health::access(export) {
        let _ = write!(line, "; {access}");
    }
    (format!("export {}", export.export), line)
}

/// Retransmitted and dropped frames. A session counts them in total, a target by link.
fn frame_lines<'a>(
    ports: impl Iterator<Item = &'a PortStats>,
    counters: impl IntoIterator<Item = (&'a ProtocolCounters, &'a Counters)>,
) -> [Line; 2] {
    let (mut received, mut sent, mut overruns, mut refused) = (0, 0, 0, 0);
    for port in ports {
        received += port.rx_frames;
        sent += port.tx_frames;
        overruns += port.overruns;
        refused += port.tx_refused;
    }
    let (mut again, mut rejected) = (0, 0);
    for (channel, rejects) in counters {
        again += channel.counters.retransmitted;
        rejected += rejects.values().sum::<u64>();
    }
    let share = if sent > 0 { 100.0 * again as f64 / sent as f64 } else { 0.0 };
    let frames = format!("{received} received, {sent} sent; {again} sent again ({share:.2} %)");
    let dropped = format!(
        "{overruns} not fetched in time, {refused} not taken by the interface, {rejected} rejected"
    );
    [("frames".into(), frames), ("dropped".into(), dropped)]
}

/// The line of the links that a backlog takes, if the session has several kinds of links.
fn favoured_line(favoured: &Counters) -> Option<Line> {
    let part = |(name, queues): (&String, &u64)| {
        let what = match name.as_str() {
            "untried" => "none yet, all are used (a backlog tries each)",
            "all" => "all links together",
            kind => kind,
        };
        match (favoured.len(), queues) {
            (1, _) => what.to_owned(),
            (_, 1) => format!("{what} in 1 queue"),
            _ => format!("{what} in {queues} queues"),
        }
    };
    let parts: Vec<_> = favoured.iter().map(part).collect();
    (!parts.is_empty()).then(|| ("favoured".into(), parts.join("; ")))
}

fn session_link_line(link: &SessionLink) -> Line {
    let round_trip = link.live.then_some(link.rtt_us);
    link_line(&link.interface, &link.port, round_trip, link.problem.as_deref())
}

fn target_link_line(link: &TargetLink) -> Line {
    let (label, mut line) = link_line(&link.interface, &link.port, None, link.problem.as_deref());
    if let Some(shares) = shares("requests", &link.requests_by_thread) {
        let _ = write!(line, "; {shares}");
    }
    (label, line)
}

/// The requests, or commands, of each of several threads.
fn shares(what: &str, by_thread: &[u64]) -> Option<String> {
    let shares: Vec<_> = by_thread.iter().map(u64::to_string).collect();
    (shares.len() > 1).then(|| format!("{what} by thread: {}", shares.join(", ")))
}

/// The line of a link; with the round-trip time in microseconds if it is live.
fn link_line(
    interface: &str,
    port: &PortStats,
    round_trip: Option<u64>,
    problem: Option<&str>,
) -> Line {
    let mut line = format!("{} received, {} sent", bytes(port.rx_bytes), bytes(port.tx_bytes));
    if let Some(round_trip) = round_trip {
        line += "; live";
        // None was measured yet, otherwise.
        if round_trip > 0 {
            let _ = write!(line, ", {round_trip} µs round trip");
        }
    }
    if let Some(problem) = problem {
        let _ = write!(line, "; {problem}");
    }
    (format!("link {interface}"), line)
}

/// All counters of a session, one a line.
fn all_of_session(report: &SessionReport) -> String {
    let mut text = title(report);
    let Some(figures) = report.figures() else { return text };
    text += &counters("requests", &figures.requests);
    text += &error_counters("requests errors", &figures.requests.errors_by_kind);
    text += &by_thread("requests queue", &figures.requests.by_queue);
    let latency = &figures.latency;
    for (kind, latency) in [("reads", &latency.reads), ("writes", &latency.writes)] {
        text += &counters(&format!("latency {kind} all"), &latency.all);
        text += &counters(&format!("latency {kind} recent"), &latency.recent);
    }
    text += &counters("channel", &figures.channel);
    text += &counters("rejects", &figures.rejects);
    text += &counters("favoured by queues", &figures.favoured);
    for link in &figures.links {
        text += &counters(&format!("link {}", link.interface), link);
        text += &places(&format!("link {}", link.interface), &link.numa);
    }
    text += &places("numa", &figures.numa);
    text + &cpu_seconds(figures.cpu_s)
}

/// All counters of a target, one a line.
fn all_of_target(report: &TargetReport) -> String {
    if report.problem.is_some() {
        return target_summary(report);
    }
    let mut text = format!("{}\n", report.name);
    for export in &report.exports {
        let name = format!("export {}", export.export);
        text += &counters(&name, export);
        text += &error_counters(&format!("{name} errors"), &export.errors_by_kind);
    }
    for link in &report.links {
        let name = format!("link {}", link.interface);
        text += &counters(&name, link);
        text += &by_thread(&format!("{name} requests thread"), &link.requests_by_thread);
        text += &counters(&format!("{name} channel"), &link.channel);
        text += &counters(&format!("{name} rejects"), &link.rejects);
        text += &places(&name, &link.numa);
    }
    for port in &report.fcoe {
        let name = format!("fcoe {}", port.interface);
        text += &counters(&name, port);
        text += &by_thread(&format!("{name} commands thread"), &port.commands_by_thread);
        text += &counters(&format!("{name} rejects"), &port.rejects);
        text += &counters(&format!("{name} ignored"), &port.ignored);
    }
    text + &cpu_seconds(report.cpu_s)
}

fn cpu_seconds(seconds: f64) -> String {
    format!("  {:32} {seconds:?}\n", "cpu seconds")
}

fn error_counters(part: &str, by_kind: &BTreeMap<String, Counters>) -> String {
    by_kind.iter().map(|(name, classes)| counters(&format!("{part} {name}"), classes)).collect()
}

/// The requests of each thread, one a line.
fn by_thread(part: &str, requests: &[u64]) -> String {
    let line = |(index, count)| format!("  {:32} {count}\n", format!("{part} {index}"));
    requests.iter().enumerate().map(line).collect()
}

/// The fields of a report by name, in alphabetical order.
fn fields(report: &impl Serialize) -> impl Iterator<Item = (String, Value)> {
    let Ok(Value::Object(fields)) = serde_json::to_value(report) else {
        unreachable!("reports are objects that JSON can express")
    };
    fields.into_iter().map(|(name, value)| (name.replace('_', " "), value))
}

/// The fields of a report that are numbers, one a line.
fn counters(part: &str, report: &impl Serialize) -> String {
    fields(report)
        .filter(|(_, value)| value.is_number())
        .map(|(name, value)| {
            let value = match value.as_f64().filter(|_| value.is_f64()) {
                Some(share) => format!("{share:.4}"),
                None => value.to_string(),
            };
            format!("  {:32} {value}\n", format!("{part} {name}"))
        })
        .collect()
}

/// NUMA nodes, one a line; unknown ones are left out.
fn places(part: &str, places: &impl Serialize) -> String {
    let said = fields(places).filter_map(|(name, value)| {
        let one = |value: &Value| match value {
            Value::Null => "none".to_owned(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let value = match &value {
            Value::Array(values) => values.iter().map(one).collect::<Vec<_>>().join(","),
            value => one(value),
        };
        let name = format!("{part} {name}");
        (!value.is_empty()).then(|| format!("  {name:32} {value}\n"))
    });
    said.collect()
}
