//! Rates of requests and bytes between two looks at the counters, for `tyche stats --watch`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;

use crate::output::bytes;
use crate::shared::report::{SessionReport, TargetReport};

/// The counters of all sessions and targets at one time, by what they are of.
#[derive(Default)]
pub(crate) struct Totals(BTreeMap<String, Total>);

/// Counters that only grow.
#[derive(Clone, Copy, Default)]
struct Total {
    requests: u64,
    received: u64,
    sent: u64,
}

impl Totals {
    /// The present counters of these.
    pub(crate) fn of(sessions: &[SessionReport], targets: &[TargetReport]) -> Self {
        let sessions = sessions.iter().filter_map(|session| {
            let figures = session.figures()?;
            let requests = &figures.requests.succeeded;
            let total = Total {
                requests: requests.reads + requests.writes + requests.flushes + requests.others,
                received: figures.links.iter().map(|link| link.port.rx_bytes).sum(),
                sent: figures.links.iter().map(|link| link.port.tx_bytes).sum(),
            };
            Some((session.record.export.clone(), total))
        });
        let targets = targets.iter().map(|target| {
            let ports = target.links.iter().map(|link| &link.port);
            let ports: Vec<_> = ports.chain(target.fcoe.iter().map(|port| &port.port)).collect();
            let requests: u64 = target.links.iter().map(|link| link.requests).sum();
            let commands: u64 = target.fcoe.iter().map(|port| port.commands).sum();
            let total = Total {
                requests: requests + commands,
                received: ports.iter().map(|port| port.rx_bytes).sum(),
                sent: ports.iter().map(|port| port.tx_bytes).sum(),
            };
            (format!("target {}", target.name), total)
        });
        Self(sessions.chain(targets).collect())
    }

    /// The rates since an earlier time, one line for each; those that were not there then, or have
    /// begun anew, are left out.
    pub(crate) fn since(&self, (then, before): &(Instant, Self), now: Instant) -> String {
        let seconds = now.duration_since(*then).as_secs_f64().max(0.001);
        let mut text = String::new();
        for (name, total) in &self.0 {
            let Some(before) = before.0.get(name) else { continue };
            let rate = |now: u64, then: u64| Some(now.checked_sub(then)? as f64 / seconds);
            let (Some(requests), Some(received), Some(sent)) = (
                rate(total.requests, before.requests),
                rate(total.received, before.received),
                rate(total.sent, before.sent),
            ) else {
                continue;
            };
            let (received, sent) = (bytes(received as u64), bytes(sent as u64));
            let _ = writeln!(
                text,
                "{name}: {requests:.0} requests/s, {received}/s received, {sent}/s sent"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rates_are_of_the_time_between_and_what_has_begun_anew_has_none() {
        let totals = |requests, others| {
            let total = |requests| Total { requests, received: requests << 20, sent: 0 };
            let named = |name: &str, requests| (name.to_owned(), total(requests));
            Totals([named("vm1", requests), named("vm2", others)].into_iter().collect())
        };
        let then = (Instant::now(), totals(100, 100));
        let said = totals(300, 10).since(&then, then.0 + Duration::from_secs(2));
        assert_eq!(said, "vm1: 100 requests/s, 100.0 MiB/s received, 0 B/s sent\n");
    }
}
