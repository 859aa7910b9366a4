//! The bars of the suite `links`.

use super::{Bar, Figures, Good, MIB, Randread, Randwrite, Read, Write, ratio, small};
use crate::job::{Bundle, Job};
use crate::plan::links::{BAD, LINKS_MAX};
use crate::result::{Measurement, Metric};
use crate::timeline::Timeline;

/// Time limit in milliseconds for restored links to be used again.
const RETURN_MS: f64 = 5000.0;
/// The longest time of a request.
const STALL_MS: f64 = 1000.0;

const BYTES: Metric = Measurement::bytes_per_s;

pub(super) fn all(figures: &Figures<'_>) -> Vec<Bar> {
    let bars = [Read, Write]
        .map(|rw| Job::new(rw, MIB, 16))
        .map(|job| [by_number(figures, job), unequal(figures, job), lossy(figures, job)].concat());
    let small = [Randread, Randwrite].map(|rw| by_number(figures, small(rw, 128)));
    [bars.concat(), small.concat(), recovery(figures)].concat()
}

fn by_number(figures: &Figures<'_>, job: Job) -> Vec<Bar> {
    let six = job.over(Bundle::of(LINKS_MAX));
    let share = figures.median("links", "tyche", &six, Measurement::payload_utilization);
    vec![Bar::new(format!("{job}: six links: payload / capacity"), share, Good::AtLeast, 0.9)]
}

fn unequal(figures: &Figures<'_>, job: Job) -> Vec<Bar> {
    let over = job.over(Bundle::of(3));
    let metric: Metric = Measurement::payload_utilization;
    let share = figures.median("links-unequal", "tyche", &over, metric);
    let what = format!("{job}: 1 + 1 + 0.2 Gbit/s: payload / capacity");
    vec![Bar::new(what, share, Good::AtLeast, 0.9)]
}

fn lossy(figures: &Figures<'_>, job: Job) -> Vec<Bar> {
    let of = |bundle| figures.median("links-lossy", "tyche", &job.over(bundle), BYTES);
    let good = of(Bundle::of(BAD.cable));
    let sum = good.zip(of(Bundle::only(BAD.cable))).map(|(good, bad)| good + bad);
    let share = ratio(of(Bundle::of(BAD.cable + 1)), sum);
    let what = format!("{job}: four links, one bad / three good + the bad one alone");
    vec![Bar::new(what, share, Good::AtLeast, 0.9)]
}

/// The worst turn counts.
fn recovery(figures: &Figures<'_>) -> Vec<Bar> {
    let mut bars = Vec::new();
    for turns in figures.results.outages("links-recovery") {
        let worst = |of: fn(&Timeline) -> f64| turns.iter().map(|it| of(it)).reduce(f64::max);
        let stall = worst(|it| it.slowest_ms as f64);
        let back = worst(|it| it.returned_ms().map_or(f64::INFINITY, |ms| ms as f64));
        let what = turns[0].outage();
        bars.push(Bar::new(format!("{what}: slowest request, ms"), stall, Good::Below, STALL_MS));
        let what = format!("{what}: time until they are used again, ms");
        bars.push(Bar::new(what, back, Good::AtMost, RETURN_MS));
    }
    bars
}
