//! The bars of the suite `keys`: what sealing may cost.

use super::{Bar, Figures, Good, MIB, Randread, Randwrite, Read, Write, small};
use crate::job::Job;
use crate::result::{Measurement, Metric};

const SET: &str = "keys";

pub(super) fn all(figures: &Figures<'_>) -> Vec<Bar> {
    let mut bars = Vec::new();
    for (name, peers) in [("frames", ["tyche-keys", "tyche"]), ("UDP", ["udp-keys", "udp"])] {
        let mut add = |job: Job, what: &str, metric: Metric, good, bar| {
            let what = format!("{job}: {what}, {name} with keys / without");
            bars.push(Bar::new(what, figures.against(SET, peers, &job, metric), good, bar));
        };
        for rw in [Randread, Randwrite] {
            add(small(rw, 1), "mean latency", Measurement::mean_ns, Good::AtMost, 1.12);
        }
        for job in [32, 128].map(|depth| [small(Randread, depth), small(Randwrite, depth)]).concat()
        {
            add(job, "IOPS", Measurement::iops, Good::AtLeast, 0.88);
        }
        for rw in [Read, Write] {
            add(Job::new(rw, MIB, 16), "bytes", Measurement::bytes_per_s, Good::AtLeast, 0.85);
        }
    }
    for rw in [Randread, Randwrite] {
        let job = small(rw, 32);
        let figure = figures.against(SET, ["tyche-keys", "nbd-tls"], &job, Measurement::iops);
        let what = format!("{job}: IOPS, frames with keys / NBD with TLS");
        bars.push(Bar::new(what, figure, Good::AtLeast, 3.5));
    }
    bars
}
