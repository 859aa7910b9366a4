//! `tyche stats`: the counters of sessions and targets.

use std::fmt::Write;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::complete;
use crate::error::Result;
use crate::health;
use crate::list::state;
use crate::output::{Format, bytes, show};
use crate::sessions::{named_sessions, not_found, targets};

/// Interval of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Show counters of sessions and targets of this machine: requests, errors, latency, losses.
#[derive(Args, Debug)]
pub(crate) struct StatsArgs {
    /// Only this one: an export, a session, a device or a target.
    #[arg(add = complete::connected_or_served())]
    name: Option<String>,

    /// Show all counters, one a line, rather than those that matter most.
    #[arg(short, long)]
    verbose: bool,

    /// Show them again every second until interrupted.
    #[arg(short, long)]
    watch: bool,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

pub(crate) fn stats(args: &StatsArgs) -> Result<()> {
    let name = args.name.as_deref();
    loop {
        let sessions = named_sessions(name)?;
        let targets: Vec<_> = targets()?
            .into_iter()
            .map(|(_, report)| report)
            .filter(|it| name.is_none_or(|name| it["name"] == name))
            .collect();
        if let Some(name) = name.filter(|_| sessions.is_empty() && targets.is_empty()) {
            return Err(not_found(name));
        }
        show(
            args.output,
            || json!({ "schema": "tyche.stats/1", "sessions": sessions, "targets": targets }),
            || {
                let clear = if args.watch { "\x1b[H\x1b[2J" } else { "" };
                let block = if args.verbose { all } else { summary };
                let blocks: Vec<_> = sessions.iter().chain(&targets).map(block).collect();
                clear.to_owned() + &blocks.join("\n")
            },
        );
        if !args.watch {
            return Ok(());
        }
        std::thread::sleep(WATCH_INTERVAL);
    }
}

/// The name of a session or target, and its state.
fn title(report: &Value) -> String {
    let name = report["export"].as_str().or(report["name"].as_str()).unwrap_or_default();
    format!("{name} {}", state(report)).trim_end().to_owned() + "\n"
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// The main counters, one line for each topic.
fn summary(report: &Value) -> String {
    let mut lines = Vec::new();
    if report["export"].is_string() {
        lines.extend(session_lines(report));
    } else {
        lines.extend(items(&report["exports"]).iter().map(export_line));
        lines.push(requests_line(items(&report["links"])));
    }
    lines.extend(frame_lines(report));
    lines.extend(items(&report["links"]).iter().map(link_line));
    if let Some(seconds) = report["cpu_s"].as_f64() {
        lines.push(("cpu".into(), format!("{seconds:.2} s")));
    }
    let mut text = title(report);
    for (label, line) in lines {
        let _ = writeln!(text, "  {label:12} {line}");
    }
    text
}

type Line = (String, String);

/// Lines of a session; empty for a dead daemon's record.
fn session_lines(report: &Value) -> Vec<Line> {
    let requests = &report["requests"];
    if requests.is_null() {
        return Vec::new();
    }
    let moved = |kind: &str, moved: &str| {
        let (count, moved) = (number(&requests[kind]), bytes(number(&requests[moved])));
        let latency = &report["latency"][kind];
        let figures = |when: &str| {
            let figures = &latency[when];
            let text = |name: &str| format!("{:.0}", figures[name].as_f64().unwrap_or_default());
            let [mean, p99] = [text("mean_us"), text("p99_us")];
            (number(&figures["count"]) > 0).then(|| format!("{mean} µs mean, {p99} µs p99"))
        };
        let mut line = format!("{count}, {moved}");
        if let Some(figures) = figures("all") {
            let _ = write!(line, "; {figures}");
        }
        if let Some(figures) = figures("recent") {
            let _ = write!(line, "; in the last seconds {figures}");
        }
        (kind.to_owned(), line)
    };
    let [flushes, others] = [&requests["flushes"], &requests["others"]].map(number);
    let in_progress = number(&report["operations"]);
    let others =
        format!("{flushes} flushes, {others} discards and zeroes; {in_progress} in progress");
    vec![
        moved("reads", "read_bytes"),
        moved("writes", "written_bytes"),
        ("others".into(), others),
        ("errors".into(), errors(requests)),
    ]
}

fn errors(counters: &Value) -> String {
    health::errors(&counters["errors_by_kind"]).unwrap_or_else(|| "none".into())
}

/// The line of a target's export.
fn export_line(export: &Value) -> Line {
    let name = export["export"].as_str().unwrap_or_default();
    let (size, sessions) = (bytes(number(&export["size"])), items(&export["sessions"]).len());
    let mut line = format!("{size}; sessions: {sessions}; errors: {}", errors(export));
    if let Some(problem) = export["problem"].as_str() {
        let _ = write!(line, "; {problem}");
    }
    (format!("export {name}"), line)
}

/// The line of a target's requests.
fn requests_line(links: &[Value]) -> Line {
    let requests: u64 = links.iter().map(|link| number(&link["requests"])).sum();
    ("requests".into(), requests.to_string())
}

/// Retransmitted and dropped frames. A session counts them in total, a target by link.
fn frame_lines(report: &Value) -> Vec<Line> {
    let links = items(&report["links"]);
    let parts: Vec<_> = if report["channel"].is_object() {
        vec![report]
    } else {
        links.iter().filter(|it| it["channel"].is_object()).collect()
    };
    if parts.is_empty() {
        return Vec::new();
    }
    let of_links = |name: &str| links.iter().map(|link| number(&link[name])).sum::<u64>();
    let again: u64 = parts.iter().map(|part| number(&part["channel"]["retransmitted"])).sum();
    let rejects = parts.iter().filter_map(|part| part["rejects"].as_object());
    let rejects: u64 = rejects.flat_map(|it| it.values()).map(number).sum();
    let (received, sent) = (of_links("rx_frames"), of_links("tx_frames"));
    let share = if sent > 0 { 100.0 * again as f64 / sent as f64 } else { 0.0 };
    let frames = format!("{received} received, {sent} sent; {again} sent again ({share:.2} %)");
    let [overruns, refused] = ["overruns", "tx_refused"].map(of_links);
    let dropped = format!(
        "{overruns} not fetched in time, {refused} not taken by the interface, {rejects} rejected"
    );
    vec![("frames".into(), frames), ("dropped".into(), dropped)]
}

fn link_line(link: &Value) -> Line {
    let [received, sent] =
        ["rx_bytes", "tx_bytes"].map(|direction| bytes(number(&link[direction])));
    let mut line = format!("{received} received, {sent} sent");
    if let Some(round_trip) = link["rtt_us"].as_u64().filter(|_| link["live"] == true) {
        let _ = write!(line, "; live, {round_trip} µs round trip");
    }
    if let Some(problem) = link["problem"].as_str() {
        let _ = write!(line, "; {problem}");
    }
    (format!("link {}", link["interface"].as_str().unwrap_or_default()), line)
}

/// All counters, one a line.
fn all(report: &Value) -> String {
    let mut text = title(report);
    text += &counters("requests", &report["requests"]);
    text += &error_counters("requests errors", &report["requests"]);
    for kind in ["reads", "writes"] {
        for when in ["all", "recent"] {
            text += &counters(&format!("latency {kind} {when}"), &report["latency"][kind][when]);
        }
    }
    for part in ["channel", "rejects"] {
        text += &counters(part, &report[part]);
    }
    for export in items(&report["exports"]) {
        let name = export["export"].as_str().unwrap_or_default();
        text += &counters(&format!("export {name}"), export);
        text += &error_counters(&format!("export {name} errors"), export);
    }
    for link in items(&report["links"]) {
        let name = link["interface"].as_str().unwrap_or_default();
        text += &counters(&format!("link {name}"), link);
        for part in ["channel", "rejects"] {
            text += &counters(&format!("link {name} {part}"), &link[part]);
        }
        text += &places(&format!("link {name}"), &link["numa"]);
    }
    text += &places("numa", &report["numa"]);
    text + &format!("  {:32} {}\n", "cpu seconds", report["cpu_s"])
}

fn error_counters(part: &str, report: &Value) -> String {
    let operations = report["errors_by_kind"].as_object().into_iter().flatten();
    operations.map(|(name, classes)| counters(&format!("{part} {name}"), classes)).collect()
}

fn counters(part: &str, counters: &Value) -> String {
    let Some(counters) = counters.as_object() else { return String::new() };
    counters
        .iter()
        .filter(|(_, value)| value.is_number())
        .map(|(name, value)| {
            let value = match value.as_f64().filter(|_| value.is_f64()) {
                Some(share) => format!("{share:.4}"),
                None => value.to_string(),
            };
            format!("  {:32} {value}\n", format!("{part} {}", name.replace('_', " ")))
        })
        .collect()
}

/// NUMA nodes, one a line; unknown ones are left out.
fn places(part: &str, places: &Value) -> String {
    let Some(places) = places.as_object() else { return String::new() };
    let said = places.iter().filter_map(|(name, value)| {
        let one = |value: &Value| match value {
            Value::Null => "none".to_owned(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let value = match value {
            Value::Array(values) => values.iter().map(one).collect::<Vec<_>>().join(","),
            value => one(value),
        };
        let name = format!("{part} {}", name.replace('_', " "));
        (!value.is_empty()).then(|| format!("  {name:32} {value}\n"))
    });
    said.collect()
}
