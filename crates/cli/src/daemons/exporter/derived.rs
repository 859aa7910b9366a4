//! Metrics that are made from the tables of counters: a counter that is added to its table is
//! exported by that alone.
//!
//! A name follows from that in the table. Received and sent are written out (`rx_frames`:
//! `receive_frames`), times are in seconds (`read_ns`: `read_seconds`), and a name that does not
//! say what is counted gets the unit (`nacked`: `nacked_frames`). Requests of all operations are
//! one family, with the operation as a label.

use std::borrow::Cow;

use tyche_counters::{Kind, Metric, Reading, Unit};

use super::families::{Definition, Families, Labels, Value};

/// The subject of a table of counters: a part of the metrics' names, and the labels of the samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    pub(super) prefix: &'static str,
    pub(super) labels: &'static [&'static str],
}

/// Counters of successful requests, and the value of their label `op`.
const OPERATIONS: [(&str, &str); 4] =
    [("reads", "read"), ("writes", "write"), ("flushes", "flush"), ("others", "other")];
/// The help of the family that they are.
const REQUESTS_HELP: &str =
    "Successful requests, by operation (`other`: discards and write-zeroes).";

/// Adds samples for readings of a table.
pub(super) fn add<'a>(
    families: &mut Families,
    scope: Scope,
    labels: &Labels,
    readings: impl IntoIterator<Item = (&'a Metric, u64)>,
) {
    for (metric, value) in readings {
        let definition = definition(scope, metric);
        let value = match metric.unit {
            Unit::Nanoseconds => Value::Real(seconds(value)),
            _ => Value::Whole(value),
        };
        match operation(metric) {
            Some(operation) => families.add(&definition, &labels.with("op", operation), value),
            None => families.add(&definition, labels, value),
        }
    }
}

/// Seconds of a number of nanoseconds.
pub(super) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The readings of counters that a report has by name, as far as a table has them, and the names
/// and values of the others: a daemon of another version may have more.
pub(super) fn known<'a>(
    counters: impl IntoIterator<Item = (&'a String, &'a u64)>,
    tables: &[&'static Metric],
) -> (Vec<Reading>, Vec<(&'a str, u64)>) {
    let (mut known, mut others) = (Vec::new(), Vec::new());
    for (name, value) in counters {
        match tables.iter().find(|metric| metric.name == name) {
            Some(metric) => known.push((*metric, *value)),
            None => others.push((name.as_str(), *value)),
        }
    }
    (known, others)
}

/// The family of a counter.
pub(super) fn definition(scope: Scope, metric: &Metric) -> Definition {
    let Scope { prefix, labels } = scope;
    let of_operation = operation(metric).is_some();
    let name = if of_operation { "requests".into() } else { name(metric) };
    let mut labels = Cow::Borrowed(labels);
    if of_operation {
        labels.to_mut().push("op");
    }
    let help = if of_operation { REQUESTS_HELP } else { metric.help };
    let name = format!("tyche_{prefix}{name}").into();
    Definition { name, kind: metric.kind, labels, help: help.into() }
}

/// The operation whose successful requests are counted, if any.
fn operation(metric: &Metric) -> Option<&'static str> {
    let found = OPERATIONS.iter().find(|(name, _)| *name == metric.name);
    found.filter(|_| metric.unit == Unit::Requests && metric.kind == Kind::Counter).map(|it| it.1)
}

/// The name of a metric, without its scope.
fn name(metric: &Metric) -> String {
    let name = match metric.name.split_once('_') {
        Some(("rx", rest)) => format!("receive_{rest}"),
        Some(("tx", rest)) => format!("transmit_{rest}"),
        _ => metric.name.to_owned(),
    };
    let unit = match metric.unit {
        Unit::Nanoseconds => {
            return format!("{}_seconds", name.strip_suffix("_ns").unwrap_or(&name));
        }
        Unit::Bytes if name.split('_').any(|word| word == "bytes") => return name,
        Unit::Bytes => return format!("{name}_bytes"),
        Unit::Events => return name,
        Unit::Connections => "connections",
        Unit::Entries => "entries",
        Unit::Frames => "frames",
        Unit::Requests => "requests",
        Unit::Trains => "trains",
    };
    // A noun says what is counted: `overruns`.
    let is_noun = |word: &str| word.ends_with('s') || unit.strip_suffix('s') == Some(word);
    let says_it = name.split('_').any(is_noun);
    if says_it { name } else { format!("{name}_{unit}") }
}

#[cfg(test)]
mod tests {
    use tyche_counters::{CounterGroup, counters};

    use super::*;

    counters! {
        /// Counters of several kinds.
        struct Several {
            /// Frames received.
            rx_frames: Counter in Frames,
            /// Frames sent again.
            retransmitted: Counter in Frames,
            /// Frames not fetched in time.
            overruns: Counter in Frames,
            /// Padding.
            udp_padding_sent: Counter in Bytes,
            /// Whether it is so.
            udp_uncut: Gauge in Events,
            /// Time.
            read_ns: Counter in Nanoseconds,
            /// Successful writes.
            writes: Counter in Requests,
            /// Requests that failed.
            failed: Counter in Requests,
        }
    }

    #[test]
    fn names_follow_from_the_table() {
        let scope = Scope { prefix: "link_", labels: &["link"] };
        let names = Several::METRICS.iter().map(|it| definition(scope, it).full_name());
        let names: Vec<_> = names.collect();
        assert_eq!(
            names,
            [
                "tyche_link_receive_frames_total",
                "tyche_link_retransmitted_frames_total",
                "tyche_link_overruns_total",
                "tyche_link_udp_padding_sent_bytes_total",
                "tyche_link_udp_uncut",
                "tyche_link_read_seconds_total",
                "tyche_link_requests_total",
                "tyche_link_failed_requests_total",
            ]
        );
        let requests = definition(scope, &Several::METRICS[6]);
        assert_eq!(*requests.labels, ["link", "op"]);
    }

    #[test]
    fn counters_of_other_versions_are_told_apart() {
        let counters = [("overruns".to_owned(), 3), ("new".to_owned(), 4)];
        let counters = counters.iter().map(|(name, value)| (name, value));
        let (known, others) = known(counters, &Several::METRICS.iter().collect::<Vec<_>>());
        assert_eq!((known[0].0.name, known[0].1), ("overruns", 3));
        assert_eq!(others, [("new", 4)]);
    }
}
