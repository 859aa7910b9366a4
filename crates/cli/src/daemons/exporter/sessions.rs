//! Metrics of sessions.

use std::collections::BTreeMap;

use tyche_block::OperationKind;
use tyche_counters::CounterGroup;
use tyche_engine::ErrorClass;

use super::definitions::{
    CPU, DAEMON_UP, DURATION, FENCES, IN_PROGRESS, LINKS, LINKS_LIVE, LONGEST_WAIT, REQUEST_ERRORS,
    REQUESTS, SESSION_INFO, SESSION_LOST, SESSION_QUEUES, SESSION_SIZE, SESSION_STATE,
    SESSION_TIME_LEFT,
};
use super::derived::{self, seconds};
use super::families::{Definition, Families, Labels, Value};
use super::links;
use crate::shared::report::{Counters, Figures, Latency, SessionReport, SessionState};

/// Binary logarithms of the bounds of buckets, in nanoseconds: 8 µs to 17 s. The classes of the
/// reports end at powers of two as well, so nothing is estimated.
const BUCKETS: std::ops::RangeInclusive<u32> = 13..=34;

/// The states, as JSON has them.
const STATES: [&str; 9] =
    ["live", "lost", "failed", "gone", "ending", "starting", "silent", "dead", "unknown"];

/// The name of a state in JSON.
pub(super) fn state(report: &SessionReport) -> &'static str {
    match &report.state {
        SessionState::Live(_) => "live",
        SessionState::Lost(_) => "lost",
        SessionState::Failed(_) => "failed",
        SessionState::Gone(_) => "gone",
        SessionState::Ending => "ending",
        SessionState::Starting => "starting",
        SessionState::Silent { .. } => "silent",
        SessionState::Dead { .. } => "dead",
        SessionState::Unknown => "unknown",
    }
}

/// Adds the metrics of a session.
pub(super) fn add(families: &mut Families, report: &SessionReport) {
    let record = &report.record;
    let labels =
        Labels::default().with("export", &record.export).with("uuid", record.session.to_string());
    let with_side = Labels::default().with("side", "host");
    let with_side =
        with_side.with("export", &record.export).with("uuid", record.session.to_string());
    let figures = report.figures();
    let is_up = !matches!(
        report.state,
        SessionState::Silent { .. } | SessionState::Starting | SessionState::Dead { .. }
    );
    families.add(&DAEMON_UP, &with_side, is_up);
    let info = labels
        .with("target", target(report))
        .with("device", report.device())
        .with("attachment", record.kind.name());
    families.add(&SESSION_INFO, &info, true);
    for name in STATES {
        families.add(&SESSION_STATE, &labels.with("state", name), name == state(report));
    }
    if let Some(figures) = figures {
        add_state(families, &labels, figures);
        add_requests(families, &labels, figures);
        add_links(families, &labels, &with_side, figures);
        families.add(&CPU, &with_side, figures.cpu_s);
    }
}

/// The name of the target if the session was connected by that, else its UUID if that is known.
fn target(report: &SessionReport) -> String {
    let named = report.record.export.split_once('/').map(|(target, _)| target.to_owned());
    let known = || {
        let disk = report.figures()?.disk.as_ref().map(|disk| disk.target);
        Some(disk.or(report.record.known.map(|known| known.0.target))?.to_string())
    };
    named.or_else(known).unwrap_or_default()
}

fn add_state(families: &mut Families, labels: &Labels, figures: &Figures) {
    families.add(&SESSION_LOST, labels, figures.lost_for_s.unwrap_or(0.0));
    if let Some(left) = figures.time_left_s {
        families.add(&SESSION_TIME_LEFT, labels, left);
    }
    families.add(&SESSION_QUEUES, labels, figures.queues);
    if let Some(disk) = &figures.disk {
        families.add(&SESSION_SIZE, labels, disk.size);
    }
    families.add(&IN_PROGRESS, labels, figures.operations);
    families.add(&LONGEST_WAIT, labels, figures.waiting.longest_s);
    families.add(&FENCES, labels, figures.waiting.fences);
}

fn add_requests(families: &mut Families, labels: &Labels, figures: &Figures) {
    let requests = &figures.requests;
    derived::add(families, REQUESTS, labels, requests.succeeded.iter());
    derived::add(families, REQUESTS, labels, figures.numa.requests.iter());
    add_errors(families, &REQUEST_ERRORS, labels, &requests.errors_by_kind);
    for (operation, latency) in
        [("read", &figures.latency.reads), ("write", &figures.latency.writes)]
    {
        families.add(&DURATION, &labels.with("op", operation), histogram(&latency.all));
    }
}

fn add_links(families: &mut Families, labels: &Labels, with_side: &Labels, figures: &Figures) {
    let missed = || figures.links.iter().filter(|link| !links::may_lead_elsewhere(link));
    families.add(&LINKS, labels, missed().count() as u64);
    families.add(&LINKS_LIVE, labels, missed().filter(|link| link.live).count() as u64);
    missed().for_each(|link| links::add_of_session(families, with_side, link));
    links::add_protocol(families, with_side, &figures.channel, &figures.rejects);
}

/// Adds failed requests. Those that are 0 as well: Prometheus sees a counter grow only if it has
/// seen it before.
pub(super) fn add_errors(
    families: &mut Families,
    definition: &Definition,
    labels: &Labels,
    errors: &BTreeMap<String, Counters>,
) {
    let mut errors = errors.clone();
    for operation in OperationKind::ALL {
        let classes = errors.entry(operation.name().to_owned()).or_default();
        for class in ErrorClass::ALL {
            classes.entry(class.name().to_owned()).or_default();
        }
    }
    for (operation, classes) in errors {
        let labels = labels.with("op", operation);
        for (class, count) in classes {
            families.add(definition, &labels.with("errno", class), count);
        }
    }
}

/// A histogram of seconds.
fn histogram(latency: &Latency) -> Value {
    let mut buckets: Vec<_> = BUCKETS.map(|power| (seconds(1 << power), 0)).collect();
    buckets.push((f64::INFINITY, 0));
    for (longest, count) in &latency.buckets {
        let is_within = |power: &u32| *longest <= 1 << power;
        let index = BUCKETS.take_while(|power| !is_within(power)).count();
        buckets[index].1 += count;
    }
    Value::Sizes { sum: seconds(latency.sum_ns), count: latency.count, buckets }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_all_requests() {
        let buckets = vec![(100, 1), ((1 << 13) - 1, 2), (1 << 14, 4), (1 << 34, 8), (1 << 40, 16)];
        let latency = Latency { count: 31, sum_ns: 1_500_000_000, buckets, ..Latency::default() };
        let Value::Sizes { sum, count, buckets } = histogram(&latency) else { panic!("sizes") };
        assert_eq!((sum, count, buckets.len()), (1.5, 31, BUCKETS.count() + 1));
        let filled: Vec<_> = buckets.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(
            filled,
            [&(8.192e-6, 3), &(16.384e-6, 4), &(17.179_869_184, 8), &(f64::INFINITY, 16)]
        );
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), count);
    }
}
