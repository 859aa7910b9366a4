//! The bars of the link over UDP, and of the way without options.

use super::{Bar, Figures, Good, KIB, MAIN, MIB, Randread, Randwrite, Read, Write, ratio, small};
use crate::floor::Kind;
use crate::job::Job;
use crate::result::{Measurement, Metric};

const IOPS: Metric = Measurement::iops;
const BYTES: Metric = Measurement::bytes_per_s;
/// The least ratio to bare trains.
const OF_FLOOR: f64 = 0.7;
/// Thousand requests a second that are aimed at.
const AIM: f64 = 1000.0;

pub(super) fn all(figures: &Figures<'_>) -> Vec<Bar> {
    [
        against_tcp(figures),
        depth_one(figures),
        against_trains(figures),
        vec![short_frames(figures), best_rate(figures)],
        default_path(figures),
    ]
    .concat()
}

fn large(block_bytes: u32) -> [Job; 2] {
    [Read, Write].map(|rw| Job::new(rw, block_bytes, 16))
}

fn against_tcp(figures: &Figures<'_>) -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut bar = |job: &Job, (metric, unit), (peer, name), at_least| {
        let figure = figures.against(MAIN, ["udp", peer], job, metric);
        let what = format!("{job}: {unit}, UDP / {name}");
        bars.push(Bar::new(what, figure, Good::AtLeast, at_least));
    };
    let tsockets = ("tsockets", "TSockets");
    for (depth, at_least) in [(32, 1.1), (128, 1.15)] {
        for job in [Randread, Randwrite].map(|rw| small(rw, depth)) {
            bar(&job, (IOPS, "IOPS"), tsockets, at_least);
        }
    }
    for (size, at_least) in [(64 * KIB, 1.2), (MIB, 1.5)] {
        for job in large(size) {
            bar(&job, (BYTES, "bytes"), tsockets, at_least);
            bar(&job, (BYTES, "bytes"), ("nbd", "NBD"), 1.2);
        }
    }
    for job in [Randread, Randwrite].map(|rw| small(rw, 128)) {
        let cpu: Metric = Measurement::cpu_per_million;
        let figure = figures.against(MAIN, ["udp", "tsockets"], &job, cpu);
        let what = format!("{job}: CPU time per request on both sides, UDP / TSockets");
        bars.push(Bar::new(what, figure, Good::AtMost, 0.8));
    }
    bars
}

fn depth_one(figures: &Figures<'_>) -> Vec<Bar> {
    let bar = |job: Job| {
        let figure = figures.against(MAIN, ["udp", "tyche"], &job, Measurement::mean_ns);
        Bar::new(format!("{job}: mean latency, UDP / raw frames"), figure, Good::AtMost, 1.3)
    };
    [Randread, Randwrite].map(|rw| bar(small(rw, 1))).into()
}

fn against_trains(figures: &Figures<'_>) -> Vec<Bar> {
    let mut bars = Vec::new();
    for depth in [1, 8, 32, 128] {
        let bare = figures.floor(Kind::UdpExchange, depth, |outcome| outcome.per_s);
        for job in [Randread, Randwrite].map(|rw| small(rw, depth)) {
            let figure = ratio(figures.median(MAIN, "udp", &job, IOPS), bare);
            let what = format!("{job}: IOPS, UDP / bare UDP exchange");
            bars.push(Bar::new(what, figure, Good::AtLeast, OF_FLOOR));
        }
    }
    let bare = figures.floor(Kind::UdpStream, 1, |outcome| outcome.bytes_per_s);
    for job in [64 * KIB, MIB].into_iter().flat_map(large) {
        let figure = ratio(figures.median(MAIN, "udp", &job, BYTES), bare);
        let what = format!("{job}: bytes, UDP / bare UDP stream");
        bars.push(Bar::new(what, figure, Good::AtLeast, OF_FLOOR));
    }
    bars
}

/// The worst job counts.
fn short_frames(figures: &Figures<'_>) -> Bar {
    let short = "mtu-1500";
    let ratios = figures.results.jobs(short).into_iter().filter_map(|job| {
        let of = |set| figures.median(set, "udp", &job, IOPS);
        Some((ratio(of(short), of(MAIN))?, job))
    });
    let (figure, job) = ratios.min_by(|a, b| a.0.total_cmp(&b.0)).unzip();
    let job = job.map_or_else(String::new, |job| format!(" ({job})"));
    Bar::new(format!("IOPS, UDP at MTU 1500 / 9000, worst job{job}"), figure, Good::AtLeast, 0.8)
}

/// The best link at any MTU counts.
fn best_rate(figures: &Figures<'_>) -> Bar {
    let mut best: Option<(f64, String)> = None;
    for set in [MAIN, "mtu-1500", "mtu-65535"] {
        for peer in ["tyche", "udp"] {
            for job in [Randread, Randwrite].map(|rw| small(rw, 128)) {
                let Some(iops) = figures.median(set, peer, &job, IOPS) else { continue };
                if best.as_ref().is_none_or(|(best, _)| iops / 1e3 > *best) {
                    best = Some((iops / 1e3, format!(" ({peer}, {set}, {job})")));
                }
            }
        }
    }
    let (figure, who) = best.unzip();
    let what = format!("thousand requests of 4 KiB a second, best link{}", who.unwrap_or_default());
    Bar::new(what, figure, Good::AtLeast, AIM)
}

fn default_path(figures: &Figures<'_>) -> Vec<Bar> {
    let mut bars = Vec::new();
    for depth in [1, 32] {
        for job in [Randread, Randwrite].map(|rw| small(rw, depth)) {
            let figure = figures.against("default", ["default", "nbd"], &job, IOPS);
            let what = format!("{job}, block device without options: IOPS / NBD");
            bars.push(Bar::new(what, figure, Good::AtLeast, 1.0));
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing;

    #[test]
    fn the_worst_job_of_short_frames_and_the_best_link_count() {
        let mut results = testing::empty();
        for (set, iops) in [(MAIN, 1000.0), ("mtu-1500", 700.0)] {
            results.measurements.push(testing::measurement(set, "udp", 1, iops));
        }
        for (peer, iops) in [("tyche", 900e3), ("udp", 1100e3)] {
            let mut measurement = testing::measurement(MAIN, peer, 1, iops);
            measurement.job.depth = 128;
            results.measurements.push(measurement);
        }
        let figures = Figures { results: &results };
        let bar = short_frames(&figures);
        assert_eq!((bar.figure(), bar.held()), ("0.70".to_owned(), Some(false)));
        assert!(bar.what.contains("randread-4k-32"), "{}", bar.what);
        let bar = best_rate(&figures);
        assert_eq!((bar.figure(), bar.held()), ("1100.00".to_owned(), Some(true)));
        assert!(bar.what.contains("udp, mtu-9000, randread-4k-128"), "{}", bar.what);
    }

    #[test]
    fn udp_is_held_against_tcp_and_bare_trains() {
        let mut results = testing::empty();
        for (peer, iops) in [("udp", 230.0), ("tsockets", 200.0)] {
            results.measurements.push(testing::measurement(MAIN, peer, 1, iops));
        }
        let bars = all(&Figures { results: &results });
        let find = |what: &str| bars.iter().find(|bar| bar.what.contains(what)).unwrap();
        assert_eq!(find("randread-4k-32: IOPS, UDP / TSockets").held(), Some(true));
        assert_eq!(find("randread-4k-32: IOPS, UDP / bare UDP exchange").held(), None);
    }
}
