//! The chapters of the suite `rdma`.

use super::{Chapter, Pattern, Plot, panel, plot};
use crate::job::size;
use crate::messages::{MessageMeasurement, MessageSize, SizeMetric};
use crate::plan::rdma::{BARE, MESSAGES};
use crate::plot::{Panel, Series, Shape};
use crate::result::{Metric, Results};

use Pattern::{Randread, Randrw, Randwrite, Read, Rw, Write};

pub(super) const CHAPTERS: [Chapter; 6] = [
    Chapter {
        set: "rdma-messages",
        heading: "Messages by size, without the protocol",
        about: "The paper's Figures 6 and 7. Two threads poll the ends of a link. A message is a \
                frame with a head of 64 bytes, or several of two pages each. *Initiation* and \
                *start of DMA* are 400 and 500 ns a write, the *wire* has 596 MB/s, and an \
                *interrupt* takes 5 µs, a guess. *Software* is what is left: staging, copies, and \
                two cores that tell each other. BASE and ELIM0 have an interrupt for each \
                announcement.",
        plots: &[("messages.svg", by_size), ("message-stages.svg", stages)],
    },
    Chapter {
        set: "rdma-queues",
        heading: "Small messages eliminated, the paper's card",
        about: "The paper's Table 1 without its disks: an export in memory, 32 requests in flight. \
                BASE1 silences interrupts, ELIM0 eliminates small messages, ELIM does both.",
        plots: &[("queues.svg", queues)],
    },
    Chapter {
        set: "rdma-queues-bare",
        heading: "The same without the times of a card",
        about: "A write takes the time of a copy in memory, an interrupt that of a system call.",
        plots: &[("queues-bare.svg", queues_bare)],
    },
    Chapter {
        set: ALONE.0,
        heading: "Modelled disks, one request in flight",
        about: "The paper's Figures 8 and 9, and Table 2. One request of the application is in \
                flight, as it was there (in its Table 1, throughput by latency is 1 MB). LOCAL has \
                the same disks over the double without the times of a card: a session adds \
                microseconds to what it would be without a network, disks take 0.07 to 14 ms.",
        plots: &[
            ("disks.svg", disks),
            ("disks-latency.svg", disks_latency),
            ("disks-random.svg", disks_random),
            ("disks-random-latency.svg", disks_random_latency),
        ],
    },
    Chapter {
        set: DEEP.0,
        heading: "Modelled disks, 16 requests in flight",
        about: "The same by batch factor, which is the number of requests that the driver waits \
                for while a disk is busy. One request at a time has nothing to wait for.",
        plots: &[
            ("disks-deep.svg", deep),
            ("disks-deep-latency.svg", deep_latency),
            ("disks-deep-random.svg", deep_random),
        ],
    },
    Chapter {
        set: "rdma-streams",
        heading: "Modelled disks, four readers",
        about: "Four sessions read one after the other, each its own quarter, with eight requests \
                in flight. Requests of different readers move heads, unless a batch is sorted.",
        plots: &[("streams.svg", streams)],
    },
];

fn by_size(results: &Results) -> Plot {
    let sizes = results.messages.first().map(|it| &it.messages.sizes);
    let sizes: Vec<_> = sizes.into_iter().flatten().map(|it| it.bytes).collect();
    let metrics: [(&str, SizeMetric); 2] = [
        ("one way", MessageSize::one_way_mb_per_s),
        ("to and fro, one after the other", MessageSize::ping_pong_mb_per_s),
    ];
    let panels = metrics.map(|(caption, metric)| {
        let series = with_card().map(|peer| {
            let value = |bytes: &u32| results.message(peer, |it| it.size(*bytes, metric));
            Series { name: peer.to_owned(), values: sizes.iter().map(value).collect() }
        });
        let places = sizes.iter().map(|bytes| size(*bytes)).collect();
        Panel { caption: caption.to_owned(), places, series: series.collect() }
    });
    let axes = ["bytes of a message", "MB/s"];
    plot(results, "Messages over the paper's card", axes, Shape::Lines, panels.into())
}

/// The configurations with the times of a card.
fn with_card() -> impl Iterator<Item = &'static str> {
    MESSAGES.into_iter().filter(|name| *name != BARE)
}

fn stages(results: &Results) -> Plot {
    let stages = results.messages.first().map(|it| &it.messages.stages);
    let series = stages.into_iter().flatten().map(|it| {
        let us = |message: &MessageMeasurement| message.stage_us(&it.stage);
        let values = MESSAGES.map(|peer| results.message(peer, us)).into();
        Series { name: it.stage.clone(), values }
    });
    let panel = Panel {
        caption: "8 bytes, one way".to_owned(),
        places: MESSAGES.map(str::to_owned).into(),
        series: series.collect(),
    };
    let axes = ["", "microseconds"];
    plot(results, "Stages of a small message", axes, Shape::Stack, vec![panel])
}

const SEQUENTIAL: [(Pattern, &str); 3] = [
    (Read, "sequential reads"),
    (Write, "sequential writes"),
    (Rw, "sequential, 70 reads to 30 writes"),
];
const RANDOM: [(Pattern, &str); 1] = [(Randrw, "random, 70 reads to 30 writes")];
const MEMORY: [(Pattern, &str); 2] = [(Randread, "random reads"), (Randwrite, "random writes")];

const MB_PER_S: (&str, Metric) = ("MB/s", |it| it.bytes_per_s / 1e6);
const MEAN_MS: (&str, Metric) = ("milliseconds, mean", |it| it.lat_ns.mean / 1e6);

/// A panel for each workload, by the size of requests.
fn workloads(
    results: &Results,
    (set, title): (&str, &str),
    patterns: &[(Pattern, &str)],
    (y, metric): (&str, Metric),
) -> Plot {
    let panels = patterns.iter().map(|(rw, caption)| {
        let jobs = results.jobs(set).into_iter().filter(|job| job.rw == *rw);
        let jobs: Vec<_> = jobs.map(|job| (size(job.block_bytes), job)).collect();
        panel(results, set, caption, &jobs, metric)
    });
    let axes = ["bytes of a request", y];
    plot(results, title, axes, Shape::Lines, panels.collect())
}

const ALONE: (&str, &str) = ("rdma-disks", "Modelled disks, one request in flight");
const DEEP: (&str, &str) = ("rdma-disks-deep", "Modelled disks, 16 requests in flight");

fn disks(results: &Results) -> Plot {
    workloads(results, ALONE, &SEQUENTIAL, MB_PER_S)
}

fn disks_latency(results: &Results) -> Plot {
    workloads(results, ALONE, &SEQUENTIAL, MEAN_MS)
}

fn disks_random(results: &Results) -> Plot {
    workloads(results, ALONE, &RANDOM, MB_PER_S)
}

fn disks_random_latency(results: &Results) -> Plot {
    workloads(results, ALONE, &RANDOM, MEAN_MS)
}

fn deep(results: &Results) -> Plot {
    workloads(results, DEEP, &SEQUENTIAL, MB_PER_S)
}

fn deep_latency(results: &Results) -> Plot {
    workloads(results, DEEP, &SEQUENTIAL, MEAN_MS)
}

fn deep_random(results: &Results) -> Plot {
    workloads(results, DEEP, &RANDOM, MB_PER_S)
}

fn queues(results: &Results) -> Plot {
    let set = ("rdma-queues", "An export in memory, 32 requests in flight, the paper's card");
    columns(workloads(results, set, &MEMORY, MB_PER_S))
}

fn queues_bare(results: &Results) -> Plot {
    let set = ("rdma-queues-bare", "An export in memory, 32 requests in flight, no card");
    columns(workloads(results, set, &MEMORY, MB_PER_S))
}

fn streams(results: &Results) -> Plot {
    let set = ("rdma-streams", "Modelled disks, four readers with 8 requests in flight each");
    columns(workloads(results, set, &[(Read, "sequential reads")], MB_PER_S))
}

/// The same as columns.
fn columns(plot: Plot) -> Plot {
    Plot { shape: Shape::Columns, ..plot }
}
