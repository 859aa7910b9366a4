//! The bars of the suite `rdma`: what the paper's mechanisms gain.

use super::{Bar, Figures, Good, ratio};
use crate::job::{Job, Pattern};
use crate::messages::{MessageMeasurement, MessageSize};
use crate::plan::rdma::{DEEP, readers};
use crate::result::Measurement;

use Pattern::{Read, Write};

const QUEUES: &str = "rdma-queues";
/// The sets in which interrupts are silenced, and are not.
const SILENCED: [&str; 3] = [QUEUES, "rdma-queues-bare", "rdma-disks"];

pub(super) fn all(figures: &Figures<'_>) -> Vec<Bar> {
    let mut bars = Vec::new();
    for job in figures.results.jobs(QUEUES) {
        let figure = figures.against(QUEUES, ["ELIM", "BASE1"], &job, Measurement::iops);
        let what = format!("{job}, the paper's card: IOPS, small messages eliminated / not");
        bars.push(Bar::new(what, figure, Good::AtLeast, 1.05));
    }
    bars.push(silenced_messages(figures));
    bars.push(silencing(figures));
    let deep = [Read, Write].map(|rw| ("rdma-disks-deep", Job::new(rw, super::MIB, DEEP)));
    let streams = readers().map(|job| ("rdma-streams", job));
    for (set, job) in deep.into_iter().chain(streams) {
        let figure = figures.against(set, ["BASE16", "BASE1"], &job, Measurement::bytes_per_s);
        let what = format!("{job}, modelled disks: bytes, batch factor 16 / 1");
        bars.push(Bar::new(what, figure, Good::AtLeast, 1.4));
    }
    bars
}

/// Small messages, each of which interrupts: interrupts limit these.
fn silenced_messages(figures: &Figures<'_>) -> Bar {
    const BYTES: u32 = 8;
    let [silenced, each] = ["ELIM", "ELIM0"].map(|peer| {
        let one_way = |it: &MessageMeasurement| it.size(BYTES, MessageSize::one_way_mb_per_s);
        figures.results.message(peer, one_way).map(|it| it.median)
    });
    let what = format!("messages of {BYTES} bytes, one way, silenced / each interrupts");
    Bar::new(what, ratio(silenced, each), Good::AtLeast, 3.0)
}

/// The best job counts: where interrupts limit most.
fn silencing(figures: &Figures<'_>) -> Bar {
    let jobs = SILENCED.iter().flat_map(|set| {
        let figure = move |job: Job| {
            let figure = figures.against(set, ["BASE1", "BASE"], &job, Measurement::iops)?;
            Some((figure, format!(" ({set} {job})")))
        };
        figures.results.jobs(set).into_iter().filter_map(figure)
    });
    let (figure, job) = jobs.max_by(|a, b| a.0.total_cmp(&b.0)).unzip();
    let what = format!("IOPS, silenced / each interrupts, best job{}", job.unwrap_or_default());
    Bar::new(what, figure, Good::AtLeast, 3.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing;

    #[test]
    fn elimination_is_held_against_its_absence_and_silencing_where_it_gains_most() {
        let mut results = testing::empty();
        for (set, peer, iops) in [
            (QUEUES, "BASE", 100.0),
            (QUEUES, "BASE1", 110.0),
            (QUEUES, "ELIM", 121.0),
            ("rdma-disks", "BASE", 100.0),
            ("rdma-disks", "BASE1", 310.0),
        ] {
            results.measurements.push(testing::measurement(set, peer, 1, iops));
        }
        let bars = all(&Figures { results: &results });
        assert_eq!((bars[0].figure(), bars[0].held()), ("1.10".to_owned(), Some(true)));
        assert_eq!(bars[1].held(), None, "no messages were measured");
        assert_eq!((bars[2].figure(), bars[2].held()), ("3.10".to_owned(), Some(true)));
        assert!(bars[2].what.contains("rdma-disks randread-4k-32"), "{}", bars[2].what);
        assert_eq!(bars.last().unwrap().held(), None);
    }
}
