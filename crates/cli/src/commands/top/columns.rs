//! The columns of the tables: titles, widths, values, and what sessions are sorted by.

use std::cmp::Ordering;

use crate::shared::report::{
    ExportRates, LinkRates, RequestRates, SessionRates, TargetRates, TrafficRates,
};

use super::figures::{NONE, count, left, megabytes, some, time, whole};

/// A column of a table whose rows are of `T`.
pub(super) struct Column<T> {
    pub(super) title: &'static str,
    /// Characters; the first column of a table takes what is left.
    pub(super) width: u16,
    /// Width of the terminal from which on it is shown.
    pub(super) from: u16,
    value: Value<T>,
}

/// The values of a column.
enum Value<T> {
    /// A text, at the left.
    Text(fn(&T) -> String),
    /// A number, at the right; `None` if it is not known.
    Number(fn(&T) -> Option<f64>, fn(f64) -> String),
}

impl<T> Column<T> {
    /// The text in a row.
    pub(super) fn text(&self, row: &T) -> String {
        match self.value {
            Value::Text(text) => text(row),
            Value::Number(number, show) => some(number(row), show),
        }
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self.value, Value::Number(..))
    }

    /// The order of two rows: texts ascending, numbers descending, unknown ones last.
    pub(super) fn order(&self, a: &T, b: &T) -> Ordering {
        match self.value {
            Value::Text(text) => text(a).cmp(&text(b)),
            Value::Number(number, _) => {
                let known = |row: &T| number(row).unwrap_or(f64::NEG_INFINITY);
                known(b).total_cmp(&known(a))
            }
        }
    }
}

const fn text<T>(title: &'static str, width: u16, text: fn(&T) -> String) -> Column<T> {
    Column { title, width, from: 0, value: Value::Text(text) }
}

const fn number<T>(
    title: &'static str,
    width: u16,
    number: fn(&T) -> Option<f64>,
    show: fn(f64) -> String,
) -> Column<T> {
    Column { title, width, from: 0, value: Value::Number(number, show) }
}

/// A column that is shown on wide terminals only.
const fn wide<T>(column: Column<T>) -> Column<T> {
    Column { from: WIDE, ..column }
}

/// Width of a terminal on which all columns are shown.
pub(super) const WIDE: u16 = 132;

/// The columns of sessions.
pub(super) const SESSIONS: &[Column<SessionRates>; 15] = &[
    text("EXPORT", 12, |it| it.export.clone()),
    wide(text("TARGET", 14, |it| it.target.clone().unwrap_or_else(|| NONE.to_owned()))),
    wide(text("DEVICE", 22, |it| it.device.clone())),
    text("STATE", 6, |it| it.state.name().to_owned()),
    number("R/S", 6, |it| Some(requests(it)?.reads.per_s), count),
    number("W/S", 6, |it| Some(requests(it)?.writes.per_s), count),
    number("RMB/S", 6, |it| Some(requests(it)?.reads.bytes_per_s), megabytes),
    number("WMB/S", 6, |it| Some(requests(it)?.writes.bytes_per_s), megabytes),
    number("AVG", 7, |it| requests(it)?.mean_us, time),
    number("P99", 7, |it| requests(it)?.p99_us, time),
    number("FLY", 4, |it| Some(it.in_flight as f64), whole),
    wide(number("ERR/S", 6, |it| Some(requests(it)?.errors_per_s), count)),
    number("RETX", 5, |it| it.retransmitted_per_s, count),
    wide(number("LOST", 6, |it| it.lost_per_s, count)),
    number("LEFT", 5, |it| it.time_left_s, left),
];

fn requests(session: &SessionRates) -> Option<&RequestRates> {
    session.requests.as_ref()
}

/// The columns of links.
pub(super) const LINKS: &[Column<LinkRates>; 12] = &[
    text("LINK", 12, |it| it.link.clone()),
    text("STATE", 6, |it| link_state(it).to_owned()),
    number("RX/S", 6, |it| Some(traffic(it)?.received_frames_per_s), count),
    number("TX/S", 6, |it| Some(traffic(it)?.sent_frames_per_s), count),
    number("RXMB/S", 6, |it| Some(traffic(it)?.received_bytes_per_s), megabytes),
    number("TXMB/S", 6, |it| Some(traffic(it)?.sent_bytes_per_s), megabytes),
    number("RTT", 7, |it| it.rtt_us.map(|rtt| rtt as f64), time),
    number("WINDOW", 7, |it| Some(it.congestion_window as f64), whole),
    number("FLY", 4, |it| Some(it.in_flight as f64), whole),
    wide(number("FRAME", 6, |it| it.frame_len.map(|len| len as f64), whole)),
    number("RETX", 5, |it| Some(traffic(it)?.retransmitted_per_s), count),
    number("LOST", 5, |it| Some(traffic(it)?.lost_per_s), count),
];

fn traffic(link: &LinkRates) -> Option<&TrafficRates> {
    link.traffic.as_ref()
}

fn link_state(link: &LinkRates) -> &'static str {
    match (&link.problem, link.live) {
        (Some(_), _) => "fault",
        (None, true) => "live",
        (None, false) => "idle",
    }
}

/// A row of the targets: a target, an export of it, or a host at that.
#[derive(Clone, Debug, Default)]
pub(super) struct ServedRow {
    /// Indented by what it belongs to.
    pub(super) name: String,
    pub(super) state: String,
    /// The problem, in words.
    pub(super) problem: Option<String>,
    requests: Option<RequestRates>,
}

/// The columns of targets.
pub(super) const SERVED: &[Column<ServedRow>; 11] = &[
    text("TARGET", 20, |it| it.name.clone()),
    text("STATE", 11, |it| it.state.clone()),
    number("R/S", 6, |it| Some(it.requests?.reads.per_s), count),
    number("W/S", 6, |it| Some(it.requests?.writes.per_s), count),
    number("RMB/S", 6, |it| Some(it.requests?.reads.bytes_per_s), megabytes),
    number("WMB/S", 6, |it| Some(it.requests?.writes.bytes_per_s), megabytes),
    wide(number("OTHER/S", 7, |it| Some(it.requests?.others_per_s), count)),
    number("ERR/S", 5, |it| Some(it.requests?.errors_per_s), count),
    wide(number("AVG R", 7, |it| it.requests?.reads.mean_us, time)),
    wide(number("AVG W", 7, |it| it.requests?.writes.mean_us, time)),
    number("AVG", 7, |it| it.requests?.mean_us, time),
];

/// The rows of the targets, with hosts if they are wanted.
pub(super) fn served(targets: &[TargetRates], with_hosts: bool) -> Vec<ServedRow> {
    let mut rows = Vec::new();
    for target in targets {
        rows.push(ServedRow {
            name: target.target.clone(),
            state: if target.problem.is_some() { "silent" } else { "serves" }.to_owned(),
            problem: target.problem.clone(),
            requests: sum(&target.exports),
        });
        for export in &target.exports {
            rows.push(ServedRow {
                name: format!("  {}", export.export),
                state: match &export.problem {
                    Some(_) => "fault".to_owned(),
                    None => counted(export.sessions as usize, "session"),
                },
                problem: export.problem.clone(),
                requests: export.requests,
            });
            let hosts = export.hosts.iter().filter(|_| with_hosts);
            rows.extend(hosts.map(|host| ServedRow {
                name: format!("    {}", host.host),
                state: if host.writer { "writes" } else { "reads" }.to_owned(),
                problem: None,
                requests: host.requests,
            }));
        }
    }
    rows
}

/// The rates of all exports together; none if those of one are not known.
fn sum(exports: &[ExportRates]) -> Option<RequestRates> {
    let mut sum = RequestRates::default();
    for export in exports {
        let rates = export.requests?;
        let done = |rates: &RequestRates| rates.reads.per_s + rates.writes.per_s;
        sum.mean_us = mean((done(&sum), sum.mean_us), (done(&rates), rates.mean_us));
        for (to, from) in [(&mut sum.reads, rates.reads), (&mut sum.writes, rates.writes)] {
            to.mean_us = mean((to.per_s, to.mean_us), (from.per_s, from.mean_us));
            to.per_s += from.per_s;
            to.bytes_per_s += from.bytes_per_s;
        }
        sum.others_per_s += rates.others_per_s;
        sum.errors_per_s += rates.errors_per_s;
    }
    (!exports.is_empty()).then_some(sum)
}

/// The mean of two means, each with the number of its requests.
fn mean(one: (f64, Option<f64>), other: (f64, Option<f64>)) -> Option<f64> {
    match (one, other) {
        ((a, Some(one)), (b, Some(other))) => Some((a * one + b * other) / (a + b)),
        ((_, known), (_, None)) | ((_, None), (_, known)) => known,
    }
}

/// A number of things.
pub(super) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
