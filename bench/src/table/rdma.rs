//! Tables of the suite `rdma`.

use super::{KIOPS, MB_PER_S, MEAN_US, NOTHING, Table, Unit, by_peer, head, pairs, section, tails};
use crate::bars::Figures;
use crate::job::{Job, Pattern, size};
use crate::messages::{MessageMeasurement, MessageSize, Messages, SizeMetric};
use crate::plan::rdma::{DEEP, FEW_SIZES, MESSAGES};
use crate::result::{Measurement, Metric, Results};

use Pattern::{Randrw, Read, Rw, Write};

const MIB: u32 = 1 << 20;
/// Requests of 1 MiB in the 4 GB of the paper's Table 2.
const REQUESTS: f64 = 4096.0;
const DISKS: &str = "rdma-disks";
const DEEP_DISKS: &str = "rdma-disks-deep";

/// Writes into the windows of both ends for each request.
const WRITES: Unit = Unit::new(
    |it| {
        let counters = [it.host_counters, it.target_counters];
        counters.map(|it| it.map_or(f64::NAN, |it| it.writes_per_request())).iter().sum()
    },
    1.0,
    2,
);

/// Interrupts for each request: of the host, and of the target.
const INTERRUPTS: [Metric; 2] = [
    |it| it.host_counters.map_or(f64::NAN, |it| it.interrupts_per_request()),
    |it| it.target_counters.map_or(f64::NAN, |it| it.interrupts_per_request()),
];

/// All tables of a set; empty if it was not measured.
pub(super) fn set(results: &Results, name: &str, jobs: &[Job]) -> String {
    let mut text = String::new();
    if name == "rdma-messages" {
        messages(&mut text, results);
        return text;
    }
    if !name.starts_with("rdma-queues") {
        section(&mut text, "MB/s", || by_peer(results, name, jobs, MB_PER_S));
        section(&mut text, "Mean latency in microseconds", || {
            by_peer(results, name, jobs, MEAN_US)
        });
    } else {
        section(&mut text, "Thousand requests per second", || by_peer(results, name, jobs, KIOPS));
        section(&mut text, "Ratio to BASE", || ratios(results, name, jobs));
        section(&mut text, "Latency of 99 % and of 99.9 %, in microseconds", || {
            tails(results, name, jobs)
        });
    }
    section(&mut text, "Writes of both ends for each request", || {
        by_peer(results, name, jobs, WRITES)
    });
    section(&mut text, "Interrupts for each request: host, target", || {
        both(results, name, jobs, INTERRUPTS, 1.0, 2)
    });
    if name.starts_with(DISKS) {
        let large: Vec<_> = jobs.iter().filter(|job| is_large_stream(job)).copied().collect();
        section(&mut text, "Interrupts for 4 GB, from those for each request", || {
            both(results, name, &large, INTERRUPTS, REQUESTS, 0)
        });
    }
    section(&mut text, "Cores busy: host, target", || {
        both(results, name, jobs, [Measurement::host_cores, Measurement::target_cores], 1.0, 2)
    });
    text
}

/// Whether it is a job of the paper's Table 2.
fn is_large_stream(job: &Job) -> bool {
    matches!(job.rw, Read | Write) && job.block_bytes == MIB
}

/// Two figures of each peer.
fn both(
    results: &Results,
    set: &str,
    jobs: &[Job],
    metrics: [Metric; 2],
    times: f64,
    digits: usize,
) -> String {
    pairs(results, set, jobs, |who, job| {
        let [host, target] = metrics.map(|metric| results.median(who, job, metric));
        let (host, target) = host.zip(target)?;
        Some(format!("{:.digits$}, {:.digits$}", host * times, target * times))
    })
}

fn ratios(results: &Results, set: &str, jobs: &[Job]) -> String {
    let peers: Vec<_> = results.peers(set).into_iter().filter(|peer| *peer != "BASE").collect();
    let figures = Figures { results };
    let mut table = Table::new(&head("job", &peers, &[]));
    for job in jobs {
        let cells = peers
            .iter()
            .map(|peer| show(figures.against(set, [peer, "BASE"], job, Measurement::iops)));
        table.row(&[job.to_string()].into_iter().chain(cells).collect::<Vec<_>>());
    }
    table.text
}

fn show(figure: Option<f64>) -> String {
    let digits = |figure: f64| if figure < 100.0 { 2 } else { 0 };
    figure.map_or_else(|| NOTHING.to_owned(), |it| format!("{it:.*}", digits(it)))
}

/// Messages by size, and the stages of the smallest.
fn messages(text: &mut String, results: &Results) {
    let Some(Messages { sizes, stages }) = results.messages.first().map(|it| &it.messages) else {
        return;
    };
    let metrics: [(&str, SizeMetric); 3] = [
        ("One way: MB/s", MessageSize::one_way_mb_per_s),
        ("To and fro, one after the other: MB/s", MessageSize::ping_pong_mb_per_s),
        ("The same: microseconds one way", MessageSize::us),
    ];
    for (heading, metric) in metrics {
        let row = |bytes: u32| (size(bytes), move |it: &MessageMeasurement| it.size(bytes, metric));
        section(text, heading, || {
            by_configuration(results, "bytes", sizes.iter().map(|it| row(it.bytes)))
        });
    }
    let row = |name: &String| {
        let (shown, name) = (name.clone(), name.clone());
        (shown, move |it: &MessageMeasurement| it.stage_us(&name))
    };
    section(text, "Stages of 8 bytes, one way, in microseconds", || {
        by_configuration(results, "stage", stages.iter().map(|it| row(&it.stage)))
    });
}

/// A table of messages with a column for each configuration.
fn by_configuration<M: Fn(&MessageMeasurement) -> Option<f64>>(
    results: &Results,
    corner: &str,
    rows: impl Iterator<Item = (String, M)>,
) -> String {
    let mut table = Table::new(&head(corner, &MESSAGES, &[]));
    for (name, metric) in rows {
        let cells = MESSAGES.map(|peer| super::show(results.message(peer, &metric), 1.0, 2));
        table.row(&[name].into_iter().chain(cells).collect::<Vec<_>>());
    }
    table.text
}

/// The figures of the paper's text and tables beside ours.
pub(super) fn paper(results: &Results) -> String {
    let large = |rw, depth| Job::new(rw, MIB, depth);
    let (figures, iops) = (Figures { results }, Measurement::iops);
    let deep = |rw, peers| figures.against(DEEP_DISKS, peers, &large(rw, DEEP), iops);
    let alone = |rw, peers| figures.against(DISKS, peers, &large(rw, 1), iops);
    let mut table =
        Table::new(&head("1 MiB, if nothing else is said", &["the paper", "here"], &[]));
    let mut add = |what: String, paper: &str, figure| {
        table.row(&[what, paper.to_owned(), show(figure)]);
    };
    for (rw, silencing, batching) in [(Read, "3", "1.71"), (Write, "4", "1.44")] {
        let name = rw.fio();
        let figure = alone(rw, ["BASE1", "BASE"]);
        add(format!("interrupts silenced, {name}, up to: ratio"), silencing, figure);
        let figure = deep(rw, ["BASE16", "BASE1"]);
        add(format!("batch factor 16 over 1, {name}: ratio"), batching, figure);
    }
    let workloads = [
        (Read, "sequential reads", "1.08"),
        (Write, "sequential writes", "1.10"),
        (Rw, "sequential 70:30", "1.02"),
        (Randrw, "random 70:30", "1.00"),
    ];
    for (rw, name, paper) in workloads {
        let what = format!("small messages eliminated, {name}");
        add(format!("{what}: ratio"), paper, alone(rw, ["ELIM", "BASE1"]));
        let figure = deep(rw, ["ELIM16", "BASE16"]);
        add(format!("{what}, {DEEP} in flight, batch factor 16: ratio"), NOTHING, figure);
    }
    for (peer, paper) in [("BASE1", "7"), ("ELIM", "3")] {
        let job = Job::new(Read, 4 << 10, 1);
        let writes = results.median(results.who(DISKS, peer), &job, WRITES.metric);
        add(format!("writes for a read of 4 KiB, {peer}"), paper, writes);
    }
    let of = |(set, depth), peer, rw, bytes, metric: Metric| {
        results.median(results.who(set, peer), &Job::new(rw, bytes, depth), metric)
    };
    let [_, of_target] = INTERRUPTS;
    for (rw, paper) in [(Read, "50193"), (Write, "193788")] {
        let figure = of((DEEP_DISKS, DEEP), "BASE16", rw, MIB, of_target);
        let what = format!("interrupts of the target for 4 GB, {}, BASE16", rw.fio());
        add(what, paper, figure.map(|it| it * REQUESTS));
    }
    for (place, remote) in [((DISKS, 1), "BASE1"), ((DEEP_DISKS, DEEP), "BASE16")] {
        for (peer, rw, paper) in [
            ("LOCAL", Read, "480"),
            (remote, Read, "162"),
            ("LOCAL", Write, "360"),
            (remote, Write, "184"),
        ] {
            let bytes_per_s = |size: &u32| of(place, peer, rw, *size, Measurement::bytes_per_s);
            let most = FEW_SIZES.iter().filter_map(bytes_per_s).reduce(f64::max);
            let what = format!("{peer}, {}, {} in flight, the best size: MB/s", rw.fio(), place.1);
            add(what, paper, most.map(|it| it / 1e6));
        }
    }
    table.text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;
    use crate::result::testing;

    #[test]
    fn the_writes_are_those_of_both_ends_and_the_paper_is_beside_ours() {
        let mut results = testing::empty();
        let counters = |writes| Counters {
            requests: 10,
            rdma_writes: writes,
            rdma_interrupts: 5,
            ..Counters::default()
        };
        for (peer, iops) in [("BASE", 300.0), ("BASE1", 360.0)] {
            let mut measurement = testing::measurement(DISKS, peer, 1, iops);
            measurement.job = Job::new(Read, MIB, 1);
            measurement.host_counters = Some(counters(40));
            measurement.target_counters = Some(counters(30));
            results.measurements.push(measurement);
        }
        let text = set(&results, DISKS, &results.jobs(DISKS));
        assert!(text.contains("| read-1m-1 | 7.00 | 7.00 |"), "{text}");
        assert!(text.contains("| read-1m-1 | 2048, 2048 | 2048, 2048 |"), "{text}");
        let text = paper(&results);
        let row = "| interrupts silenced, read, up to: ratio | 3 | 1.20 |";
        assert!(text.contains(row), "{text}");
    }
}
