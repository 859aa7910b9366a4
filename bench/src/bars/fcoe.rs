//! The bars of the suite `fcoe`: what the layers cost.

use super::{Bar, Figures, Good, KIB, Randread, Randwrite, small};
use crate::job::Job;
use crate::plan::fcoe::DEEP;
use crate::result::{Measurement, Metric};

const SET: &str = "fcoe";
const CONTEXTS: &str = "fcoe-contexts";
const PEERS: [&str; 2] = ["fcoe", "fcoe-layered"];

pub(super) fn all(figures: &Figures<'_>) -> Vec<Bar> {
    let of = |set, job: Job, metric: Metric| figures.against(set, PEERS, &job, metric);
    let mut bars = Vec::new();
    for rw in [Randread, Randwrite] {
        for bytes in [512, 4 * KIB, 8 * KIB] {
            let job = Job::new(rw, bytes, DEEP);
            let what = format!("{job}: IOPS, direct / in layers");
            bars.push(Bar::new(what, of(SET, job, Measurement::iops), Good::AtLeast, 1.3));
        }
        let job = small(rw, DEEP);
        let what = format!("{job}, nobody spins: IOPS, direct / in layers");
        bars.push(Bar::new(what, of(CONTEXTS, job, Measurement::iops), Good::AtLeast, 1.3));
        let job = small(rw, 1);
        let what = format!("{job}: mean latency, direct / in layers");
        bars.push(Bar::new(what, of(SET, job, Measurement::mean_ns), Good::Below, 1.0));
        let figure = figures.median(SET, "fcoe", &job, Measurement::host_switches_per_io);
        let what = format!("{job}: context switches per request while spinning");
        bars.push(Bar::new(what, figure, Good::AtMost, 0.01));
        let figure = of(CONTEXTS, job, Measurement::host_switches_per_io);
        let what = format!("{job}, nobody spins: context switches, direct / in layers");
        bars.push(Bar::new(what, figure, Good::AtMost, 0.5));
    }
    bars
}
