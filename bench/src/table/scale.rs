//! Tables of the suite `scale`.

use super::{GB_PER_S, KIOPS, Table, by_peer, cells, cpu, head, section, show};
use crate::crowd::CrowdMeasurement;
use crate::job::Job;
use crate::result::{Measurement, Results};

/// All tables of a set; empty if it was not measured.
pub(super) fn set(results: &Results, name: &str, jobs: &[Job]) -> String {
    let mut text = String::new();
    let (small, large): (Vec<_>, Vec<_>) = jobs.iter().partition(|job| job.block_bytes == 4096);
    section(&mut text, "4 KiB: thousand requests per second", || {
        by_peer(results, name, &small, KIOPS)
    });
    section(&mut text, "Large requests: GB/s", || by_peer(results, name, &large, GB_PER_S));
    section(&mut text, "Bytes per second, as a multiple of those of one queue", || {
        multiples(results, name, jobs, |peer, job| (peer.to_owned(), job.with_threads(1)))
    });
    section(&mut text, "Bytes per second, as a multiple of NBD's with as many connections", || {
        multiples(results, name, jobs, |_, job| ("nbd".to_owned(), job))
    });
    section(&mut text, "CPU", || cpu(results, name, jobs));
    section(&mut text, "Busy threads of the target, and requests of each in percent", || {
        threads(results, name, jobs)
    });
    section(&mut text, "Sessions at one target", || crowds(results, name));
    text
}

/// Every job of every peer divided by another, which `by` names.
fn multiples(
    results: &Results,
    set: &str,
    jobs: &[Job],
    by: impl Fn(&str, Job) -> (String, Job),
) -> String {
    cells(results, set, jobs, |peer, &job| {
        let (other, base) = by(peer, job);
        if (other.as_str(), base) == (peer, job) {
            return None;
        }
        let of = |peer: &str, job: &Job| {
            results.median(results.who(set, peer), job, Measurement::bytes_per_s)
        };
        let (ours, base) = of(peer, &job).zip(of(&other, &base))?;
        Some(format!("{:.2}", ours / base))
    })
}

/// The turn with the fewest busy threads counts.
fn threads(results: &Results, set: &str, jobs: &[Job]) -> String {
    cells(results, set, jobs, |peer, job| {
        let turns = results.measurements.iter().filter(|it| it.set == set);
        let turns = turns.filter(|it| it.peer == peer && it.job == *job);
        let turns = turns.filter(|it| !it.requests_by_thread.is_empty());
        turns.min_by(|a, b| a.busy_threads().total_cmp(&b.busy_threads())).map(shares)
    })
}

fn shares(measurement: &Measurement) -> String {
    let counts = &measurement.requests_by_thread;
    let all = counts.iter().sum::<u64>().max(1) as f64;
    let shares = counts.iter().map(|count| format!("{:.0}", *count as f64 / all * 100.0));
    format!("{}: {}", measurement.busy_threads(), shares.collect::<Vec<_>>().join(" "))
}

fn crowds(results: &Results, set: &str) -> String {
    let columns = [
        "connect, ms of the target's CPU",
        "connect, ms (slowest)",
        "% of a core, then",
        "MiB before",
        "MiB",
        "thousand requests/s",
        "of the slowest session",
    ];
    let mut seen: Vec<(&str, [u32; 2])> = Vec::new();
    for it in results.crowds.iter().filter(|it| it.set == set) {
        let this = (it.peer.as_str(), [it.sessions, it.busy]);
        if !seen.contains(&this) {
            seen.push(this);
        }
    }
    seen.sort_unstable();
    let mut table = Table::new(&head("sessions", &columns, &[]));
    for (peer, [sessions, busy]) in seen {
        let of = |metric: fn(&CrowdMeasurement) -> f64, divisor: f64, digits: usize| {
            show(results.crowd((set, peer), [sessions, busy], metric), divisor, digits)
        };
        table.row(&[
            format!("{peer}: {sessions}, {busy} busy"),
            of(|it| it.connect_cpu_ms, 1.0, 2),
            of(|it| it.connect_ms[1], 1.0, 1),
            of(CrowdMeasurement::percent_of_core, 1.0, 1),
            of(|it| it.memory_before as f64, f64::from(1 << 20), 0),
            of(CrowdMeasurement::memory_mib, 1.0, 0),
            of(|it| it.iops, 1e3, 1),
            of(|it| it.range[0], 1e3, 2),
        ]);
    }
    table.text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::scale::{CORES, HOSTS};
    use crate::result::testing;

    #[test]
    fn queues_are_held_against_one_and_against_as_many_connections() {
        let mut results = testing::empty();
        for (peer, queues, iops) in
            [("udp", 1, 100.0), ("nbd", 1, 50.0), ("udp", 2, 180.0), ("nbd", 2, 90.0)]
        {
            let measurement = testing::measurement(CORES, peer, 1, iops);
            let requests_by_thread = vec![75, 25].into_iter().take(queues.into()).collect();
            let job = measurement.job.with_threads(queues);
            results.measurements.push(Measurement { job, requests_by_thread, ..measurement });
        }
        let text = set(&results, CORES, &results.jobs(CORES));
        assert!(text.contains("| randread-4k-32-2threads | 1.80 | 1.80 |"), "{text}");
        assert!(text.contains("| randread-4k-32-2threads | 2.00 | — |"), "{text}");
        assert!(text.contains("| randread-4k-32-2threads | 2: 75 25 |"), "{text}");
        assert!(!text.contains("Sessions"), "{text}");
    }

    #[test]
    fn crowds_are_in_one_table() {
        let mut results = testing::empty();
        results.crowds =
            [[1000, 0], [50, 50]].map(|it| testing::crowd(HOSTS, "udp", it, 2000.0)).into();
        let text = set(&results, HOSTS, &[]);
        assert!(
            text.contains("| udp: 1000, 0 busy | 0.50 | 2.0 | 5.0 | 16 | 64 | 2.0 |"),
            "{text}"
        );
    }
}
