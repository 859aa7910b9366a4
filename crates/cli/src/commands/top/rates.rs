//! Rates from two looks at the counters of a session or a target.

use std::time::{Duration, Instant};

use tyche_engine::PortStats;
use tyche_native::UseCounts;

use crate::shared::report::{
    ExportRates, ExportReport, Figures, HostRates, HostUse, Latency, LinkRates, OperationRates,
    RequestRates, SessionLink, SessionRates, SessionReport, SessionState, StateName, TargetLink,
    TargetPort, TargetRates, TargetReport, TrafficRates,
};

/// A report, and when it was made.
#[derive(Clone, Debug)]
pub(super) struct Look<T> {
    pub(super) at: Instant,
    pub(super) report: T,
}

/// The shortest time between two looks that rates are made of.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Two reports of one daemon, and the seconds between them.
struct Between<'a, T> {
    now: &'a T,
    before: &'a T,
    seconds: f64,
}

impl<'a, T> Between<'a, T> {
    fn new(now: &'a Look<T>, before: &'a Look<T>) -> Option<Self> {
        let time = now.at.checked_duration_since(before.at)?;
        let seconds = time.as_secs_f64();
        (time >= INTERVAL_MIN).then_some(Self { now: &now.report, before: &before.report, seconds })
    }

    /// The same of a part of both reports.
    fn of<U>(&self, now: &'a U, before: &'a U) -> Between<'a, U> {
        Between { now, before, seconds: self.seconds }
    }

    /// The growth of a counter per second. One that has begun anew has grown by nothing.
    fn rate(&self, counter: impl Fn(&T) -> u64) -> f64 {
        counter(self.now).saturating_sub(counter(self.before)) as f64 / self.seconds
    }
}

/// A session with its rates since an earlier look.
pub(super) fn session(
    now: &Look<SessionReport>,
    before: Option<&Look<SessionReport>>,
) -> SessionRates {
    let report = &now.report;
    let record = &report.record;
    let figures = report.figures();
    let named = record.export.split_once('/');
    let uuid = || Some(figures?.disk.as_ref()?.target.to_string());
    let rates = SessionRates {
        session: record.session,
        export: named.map_or(&*record.export, |it| it.1).to_owned(),
        target: named.map(|it| it.0.to_owned()).or_else(uuid),
        device: report.device(),
        state: state(&report.state),
        problem: problem(report),
        ..SessionRates::default()
    };
    let Some(figures) = figures else { return rates };
    let between = before.and_then(|before| {
        // Another daemon of the session counts anew.
        let is_same = before.report.record.pid == record.pid;
        let both = Between::new(now, before).filter(|_| is_same)?;
        Some(both.of(figures, before.report.figures()?))
    });
    let between = between.as_ref();
    let links = figures.links.iter().map(|link| session_link(link, between));
    SessionRates {
        requests: between.map(session_requests),
        in_flight: figures.operations,
        longest_s: figures.waiting.longest_s,
        retransmitted_per_s: between.map(|it| it.rate(|it| it.channel.counters.retransmitted)),
        lost_per_s: between.map(|it| it.rate(|it| it.links.iter().map(|it| lost(&it.port)).sum())),
        lost_for_s: figures.lost_for_s,
        time_left_s: figures.time_left_s,
        links: links.collect(),
        queues: between.map(queues).unwrap_or_default(),
        ..rates
    }
}

fn state(state: &SessionState) -> StateName {
    match state {
        SessionState::Live(_) => StateName::Live,
        SessionState::Lost(_) => StateName::Lost,
        SessionState::Failed(_) => StateName::Failed,
        SessionState::Gone(_) => StateName::Gone,
        SessionState::Ending => StateName::Ending,
        SessionState::Starting => StateName::Starting,
        SessionState::Silent { .. } => StateName::Silent,
        SessionState::Dead { .. } => StateName::Dead,
        SessionState::Unknown => StateName::Unknown,
    }
}

/// The problem of a session, in words.
fn problem(report: &SessionReport) -> Option<String> {
    if let SessionState::Dead { clear, .. } = &report.state {
        let clear: Vec<_> = clear.iter().map(|command| format!("`{command}`")).collect();
        return Some(match &clear[..] {
            [] => "its daemon died".to_owned(),
            commands => format!("its daemon died; to clear it: {}", commands.join(", ")),
        });
    }
    report.problem().map(str::to_owned)
}

/// Frames that were lost in this machine.
fn lost(port: &PortStats) -> u64 {
    port.overruns + port.tx_refused
}

fn session_requests(between: &Between<'_, Figures>) -> RequestRates {
    let latency = |of: fn(&Figures) -> &Latency| Gained::new(of(between.now), of(between.before));
    let reads = latency(|it| &it.latency.reads.all);
    let writes = latency(|it| &it.latency.writes.all);
    let operation = |count: f64, bytes: f64, gained: &Gained| OperationRates {
        per_s: count,
        bytes_per_s: bytes,
        mean_us: gained.mean_us(),
        p99_us: gained.p99_us(),
    };
    let rate = |counter: fn(&Figures) -> u64| between.rate(counter);
    let done = |it: &Figures| it.requests.succeeded.flushes + it.requests.succeeded.others;
    let both = reads.clone().and(&writes);
    RequestRates {
        interval_s: between.seconds,
        reads: operation(
            rate(|it| it.requests.succeeded.reads),
            rate(|it| it.requests.succeeded.read_bytes),
            &reads,
        ),
        writes: operation(
            rate(|it| it.requests.succeeded.writes),
            rate(|it| it.requests.succeeded.written_bytes),
            &writes,
        ),
        others_per_s: rate(done),
        errors_per_s: rate(|it| it.requests.errors),
        mean_us: both.mean_us(),
        p99_us: both.p99_us(),
    }
}

/// The latency of the requests that a histogram has gained.
#[derive(Clone, Default)]
struct Gained {
    sum_ns: u64,
    /// Number of requests by the longest time of their class in nanoseconds, ascending.
    classes: Vec<(u64, u64)>,
}

impl Gained {
    fn new(now: &Latency, before: &Latency) -> Self {
        let had = |class: u64| {
            let index = before.buckets.binary_search_by_key(&class, |bucket| bucket.0);
            index.map_or(0, |index| before.buckets[index].1)
        };
        let gained = |&(class, count): &(u64, u64)| (class, count.saturating_sub(had(class)));
        let classes = now.buckets.iter().map(gained).filter(|class| class.1 > 0).collect();
        Self { sum_ns: now.sum_ns.saturating_sub(before.sum_ns), classes }
    }

    /// These and others.
    fn and(mut self, others: &Self) -> Self {
        self.sum_ns += others.sum_ns;
        self.classes.extend(&others.classes);
        self.classes.sort_unstable();
        self
    }

    fn count(&self) -> u64 {
        self.classes.iter().map(|class| class.1).sum()
    }

    fn mean_us(&self) -> Option<f64> {
        mean_us(self.sum_ns, self.count())
    }

    fn p99_us(&self) -> Option<f64> {
        let rank = (self.count() as f64 * 0.99).ceil() as u64;
        let mut seen = 0;
        let found = self.classes.iter().find(|class| {
            seen += class.1;
            seen >= rank
        });
        found.map(|class| tenths(class.0 as f64 / 1000.0))
    }
}

/// The mean of `count` requests that took `time` nanoseconds together; none if no time was
/// measured.
fn mean_us(time: u64, count: u64) -> Option<f64> {
    (count > 0 && time > 0).then(|| tenths(time as f64 / count as f64 / 1000.0))
}

/// Rounded to tenths, which say enough of microseconds.
fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

fn queues(between: &Between<'_, Figures>) -> Vec<f64> {
    let [now, before] = [between.now, between.before].map(|it| &it.requests.by_queue);
    let gained = now.iter().zip(before).map(|(now, before)| now.saturating_sub(*before));
    gained.map(|count| count as f64 / between.seconds).collect()
}

fn session_link(link: &SessionLink, between: Option<&Between<'_, Figures>>) -> LinkRates {
    let traffic = between.and_then(|between| {
        let before = between.before.links.iter().find(|it| it.interface == link.interface)?;
        // Channels come and go: each is compared with itself.
        let channel = |number| before.channels.iter().find(|it| it.channel == number);
        let again = link.channels.iter().map(|it| {
            it.retransmitted.saturating_sub(channel(it.channel).map_or(0, |it| it.retransmitted))
        });
        let again = again.sum::<u64>() as f64 / between.seconds;
        Some(traffic(&between.of(&*link.port, &*before.port), again))
    });
    LinkRates {
        link: link.interface.clone(),
        live: link.live,
        problem: link.problem.clone(),
        traffic,
        rtt_us: Some(link.rtt_us).filter(|&rtt| rtt > 0),
        frame_len: Some(link.frame_len).filter(|&len| len > 0),
        congestion_window: link.congestion_window.into(),
        in_flight: link.channels.iter().map(|it| it.requests).sum(),
    }
}

fn traffic(between: &Between<'_, PortStats>, retransmitted_per_s: f64) -> TrafficRates {
    TrafficRates {
        received_frames_per_s: between.rate(|it| it.rx_frames),
        received_bytes_per_s: between.rate(|it| it.rx_bytes),
        sent_frames_per_s: between.rate(|it| it.tx_frames),
        sent_bytes_per_s: between.rate(|it| it.tx_bytes),
        retransmitted_per_s,
        lost_per_s: between.rate(lost),
    }
}

/// A target with its rates since an earlier look.
pub(super) fn target(now: &Look<TargetReport>, before: Option<&Look<TargetReport>>) -> TargetRates {
    let report = &now.report;
    // Another process counts anew, and one that did not answer has told nothing.
    let before = before.filter(|it| it.report.pid == report.pid && it.report.problem.is_none());
    let between = before.and_then(|before| Between::new(now, before));
    let between = between.as_ref();
    let links = report.links.iter().map(|link| target_link(link, between));
    let ports = report.fcoe.iter().map(|port| fcoe_port(port, between));
    TargetRates {
        target: report.name.clone(),
        problem: report.problem.clone(),
        links: links.chain(ports).collect(),
        exports: report.exports.iter().map(|it| export(it, between)).collect(),
    }
}

fn target_link(link: &TargetLink, between: Option<&Between<'_, TargetReport>>) -> LinkRates {
    let traffic = between.and_then(|between| {
        let before = between.before.links.iter().find(|it| it.interface == link.interface)?;
        let both = between.of(link, before);
        let again = both.rate(|it| it.channel.counters.retransmitted);
        Some(traffic(&between.of(&*link.port, &*before.port), again))
    });
    let measured = link.channels.iter().map(|it| it.rtt_us).filter(|&rtt| rtt > 0);
    LinkRates {
        link: link.interface.clone(),
        live: !link.channels.is_empty(),
        problem: link.problem.clone(),
        traffic,
        rtt_us: measured.min(),
        frame_len: link.channels.iter().map(|it| it.frame_len.into()).max(),
        congestion_window: link.channels.iter().map(|it| u64::from(it.congestion_window)).sum(),
        in_flight: link.channels.iter().map(|it| it.executing).sum(),
    }
}

fn fcoe_port(port: &TargetPort, between: Option<&Between<'_, TargetReport>>) -> LinkRates {
    let traffic = between.and_then(|between| {
        let before = between.before.fcoe.iter().find(|it| it.interface == port.interface)?;
        Some(traffic(&between.of(&*port.port, &*before.port), 0.0))
    });
    LinkRates {
        link: format!("fcoe {}", port.interface),
        live: !port.initiators.is_empty(),
        problem: port.problem.clone(),
        traffic,
        ..LinkRates::default()
    }
}

fn export(export: &ExportReport, between: Option<&Between<'_, TargetReport>>) -> ExportRates {
    let before = between.and_then(|between| {
        let found = between.before.exports.iter().find(|it| it.uuid == export.uuid)?;
        Some(between.of(export, found))
    });
    let before = before.as_ref();
    let present = export.hosts.iter().filter_map(|used| {
        let sessions = || {
            export.sessions.iter().filter(|it| match it.key {
                Some(_) => it.host_name == used.host,
                None => it.host.to_string() == used.host,
            })
        };
        let name = sessions().next()?.host_name.clone();
        Some(HostRates {
            host: if name.is_empty() { used.host.clone() } else { name },
            writer: sessions().any(|it| it.writer),
            requests: before.map(|between| {
                let had = between.before.hosts.iter().find(|it| it.host == used.host);
                let none = HostUse::default();
                uses(&between.of(&*used.requests, &*had.unwrap_or(&none).requests))
            }),
        })
    });
    ExportRates {
        export: export.export.clone(),
        problem: export.problem.clone(),
        sessions: export.sessions.len() as u64,
        requests: before
            .map(|between| uses(&between.of(&*between.now.requests, &*between.before.requests))),
        hosts: present.collect(),
    }
}

/// The rates of requests at a target.
fn uses(between: &Between<'_, UseCounts>) -> RequestRates {
    let gained = |counter: fn(&UseCounts) -> u64| {
        counter(between.now).saturating_sub(counter(between.before))
    };
    let operation = |count: u64, bytes: u64, time: u64| OperationRates {
        per_s: count as f64 / between.seconds,
        bytes_per_s: bytes as f64 / between.seconds,
        mean_us: mean_us(time, count),
        p99_us: None,
    };
    let [reads, writes] = [gained(|it| it.reads), gained(|it| it.writes)];
    let [read_ns, write_ns] = [gained(|it| it.read_ns), gained(|it| it.write_ns)];
    RequestRates {
        interval_s: between.seconds,
        reads: operation(reads, gained(|it| it.read_bytes), read_ns),
        writes: operation(writes, gained(|it| it.written_bytes), write_ns),
        others_per_s: between.rate(|it| it.flushes + it.others),
        errors_per_s: between.rate(|it| it.failed),
        mean_us: mean_us(read_ns + write_ns, reads + writes),
        p99_us: None,
    }
}

#[cfg(test)]
mod tests;
