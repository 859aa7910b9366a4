//! The bars of the suite `scale`: what more cores must add, and what more hosts may cost.
//!
//! A bar about cores is judged only where the machine has them.

use super::{Bar, Figures, Good, Randread, Randwrite, ratio};
use crate::crowd::CrowdMeasurement;
use crate::job::{Job, Pattern};
use crate::plan::scale::{BUSY, CORES, CROWDED, HOSTS, SESSIONS, SMALL_DEPTH, cores_each};
use crate::result::Measurement;

/// Queues of the bars, and lanes of FCoE.
const MANY: u16 = 7;
const LANES: u16 = 4;
/// Bars: peer, number of queues, and the multiple of one queue's requests that they must reach.
const GAINS: [(&str, u16, f64); 4] =
    [("tyche", MANY, 5.5), ("udp", MANY, 5.0), ("tsockets", MANY, 5.0), ("fcoe", LANES, 3.0)];

pub(super) fn all(figures: &Figures<'_>) -> Vec<Bar> {
    let mut bars = Vec::new();
    for (peer, queues, gain) in GAINS {
        for rw in [Randread, Randwrite] {
            let figure = gained(figures, peer, rw, queues);
            let what = format!("{}: IOPS, {peer}, {queues} queues / 1", small(rw, 1));
            bars.push(Bar::new(what, figure, Good::AtLeast, gain));
        }
    }
    for rw in [Randread, Randwrite] {
        let job = small(rw, MANY);
        let of = |peer| figures.against(CORES, [peer, "nbd"], &job, Measurement::iops);
        let better = of("tyche").into_iter().chain(of("udp")).reduce(f64::max);
        let figure = better.filter(|_| has_cores(figures, MANY));
        let what = format!("{job}: IOPS, Tyche's better link / NBD with {MANY} connections");
        bars.push(Bar::new(what, figure, Good::AtLeast, 5.0));
    }
    bars.push(distinct(figures));
    CROWDED.iter().for_each(|peer| bars.extend(crowd(figures, peer)));
    bars
}

fn small(rw: Pattern, queues: u16) -> Job {
    super::small(rw, SMALL_DEPTH).with_threads(queues)
}

fn has_cores(figures: &Figures<'_>, queues: u16) -> bool {
    cores_each(figures.results.machine.cores) >= queues
}

fn gained(figures: &Figures<'_>, peer: &str, rw: Pattern, queues: u16) -> Option<f64> {
    let of = |queues| figures.median(CORES, peer, &small(rw, queues), Measurement::iops);
    ratio(of(queues), of(1)).filter(|_| has_cores(figures, queues))
}

/// The worst figure counts, of all links, jobs and turns.
fn distinct(figures: &Figures<'_>) -> Bar {
    let of_set = figures.results.measurements.iter().filter(|it| it.set == CORES);
    let shares = of_set.map(|it| (it.busy_threads() / f64::from(it.job.threads), it));
    let shares = shares.filter(|(share, _)| !share.is_nan());
    let (figure, job) = shares
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(share, it)| (share, format!(" ({} {})", it.peer, it.job)))
        .unzip();
    let job = job.unwrap_or_default();
    let what = format!("busy threads of the target / queues, worst job{job}");
    Bar::new(what, figure, Good::AtLeast, 1.0)
}

fn crowd(figures: &Figures<'_>, peer: &str) -> [Bar; 4] {
    let of = |sessions, busy, metric: fn(&CrowdMeasurement) -> f64| {
        let spread = figures.results.crowd((HOSTS, peer), [sessions, busy], metric);
        spread.map(|it| it.median)
    };
    let idle = |metric| of(SESSIONS, 0, metric);
    let busy = ratio(of(SESSIONS, BUSY, |it| it.iops), of(BUSY, BUSY, |it| it.iops));
    let name = |what: &str| format!("{SESSIONS} sessions, {peer}: {what}");
    [
        Bar::new(
            name("memory of the target, MiB"),
            idle(CrowdMeasurement::memory_mib),
            Good::AtMost,
            512.0,
        ),
        Bar::new(
            name("CPU of the target while all are idle, % of a core"),
            idle(CrowdMeasurement::percent_of_core),
            Good::AtMost,
            10.0,
        ),
        Bar::new(
            name("CPU of the target to connect one, ms"),
            idle(|it| it.connect_cpu_ms),
            Good::AtMost,
            30.0,
        ),
        Bar::new(
            name(&format!("IOPS, {BUSY} of them busy / {BUSY} alone")),
            busy,
            Good::AtLeast,
            0.9,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Results, testing};

    fn results(cores: usize) -> Results {
        let mut results = testing::empty();
        results.machine.cores = cores;
        for (peer, queues, iops) in [
            ("udp", 1, 100.0),
            ("udp", 7, 490.0),
            ("nbd", 7, 70.0),
            ("fcoe", 1, 100.0),
            ("fcoe", 4, 310.0),
        ] {
            let measurement = testing::measurement(CORES, peer, 1, iops);
            let requests_by_thread = match peer {
                "udp" => vec![100; queues.into()],
                _ => Vec::new(),
            };
            let job = measurement.job.with_threads(queues);
            results.measurements.push(Measurement { job, requests_by_thread, ..measurement });
        }
        results
    }

    fn find<'a>(bars: &'a [Bar], what: &str) -> &'a Bar {
        bars.iter().find(|bar| bar.what.contains(what)).unwrap()
    }

    #[test]
    fn cores_are_judged_only_where_they_are() {
        for (cores, gain, nbd) in [(16, Some(false), Some(true)), (12, None, None)] {
            let results = results(cores);
            let bars = all(&Figures { results: &results });
            assert_eq!(find(&bars, "udp, 7 queues").held(), gain, "{cores} cores");
            assert_eq!(find(&bars, "randread-4k-32-7threads").held(), nbd, "{cores} cores");
            assert_eq!(find(&bars, "fcoe, 4 queues").held(), Some(true), "{cores} cores");
            assert_eq!(find(&bars, "tyche, 7 queues").held(), None, "not measured");
        }
    }

    #[test]
    fn two_queues_on_one_thread_are_found_in_any_turn() {
        let mut results = results(2);
        assert_eq!(find(&all(&Figures { results: &results }), "busy threads").held(), Some(true));
        // A few requests of a session that connects do not make a thread busy.
        results.measurements[1].requests_by_thread[3] = 5;
        let bars = all(&Figures { results: &results });
        let bar = find(&bars, "busy threads");
        assert_eq!((bar.held(), bar.figure()), (Some(false), "0.86".to_owned()));
        assert!(bar.what.contains("udp randread-4k-32-7threads"), "{}", bar.what);
    }

    #[test]
    fn a_crowd_is_judged_on_any_machine() {
        let mut results = results(2);
        let crowd = |sessions, busy, iops| testing::crowd(HOSTS, "udp", [sessions, busy], iops);
        results.crowds =
            vec![crowd(SESSIONS, 0, 0.0), crowd(BUSY, BUSY, 100.0), crowd(SESSIONS, BUSY, 80.0)];
        let bars = all(&Figures { results: &results });
        assert_eq!(find(&bars, "udp: memory").figure(), "64.00");
        assert_eq!(find(&bars, "udp: CPU of the target while").held(), Some(true));
        assert_eq!(find(&bars, "udp: IOPS").held(), Some(false));
    }
}
