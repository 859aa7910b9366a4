//! The chapters of the papers' figures.

use super::{Chapter, KIB, Pattern, by_depth, panel, plot};
use crate::job::{Job, size};
use crate::plot::{Panel, Plot, Series, Shape};
use crate::result::{Measurement, Metric, Results, Spread};
use crate::stages::StagedMeasurement;

use Pattern::{Randread, Randwrite, Read, Write};

pub(super) const CHAPTERS: [Chapter; 6] = [
    Chapter {
        set: "10g-batching",
        heading: "A link of 10 Gbit/s: batching",
        about: "How requests share frames: adaptively, which is the default, those that are ready \
                together (*natural*), or never; runs are long enough for the tuner, which looks at \
                the rate once a second. Requests, completions and data share a frame \
                (MSST 2015, *Batching Data + Requests/Responses*, and its *Batch Level*: entries \
                in a frame, and the tuned number N of requests or answers that a frame waits for). \
                Two cores do not fill this link with small requests, unlike one of 1 Gbit/s, so \
                utilization tells what a request costs.",
        plots: &[("utilization.svg", utilization), ("batch-level.svg", level)],
    },
    Chapter {
        set: "10g-one-page",
        heading: "A link of 10 Gbit/s: one page a frame",
        about: "Frames have room for one page, so that only requests and completions are batched \
                (MSST 2015, *Batching Requests/Responses (no data)*).",
        plots: &[("utilization-one-page.svg", one_page)],
    },
    Chapter {
        set: "10g-mixed",
        heading: "A link of 10 Gbit/s: mixed sizes",
        about: "4 KiB requests with some of 128 KiB among them, in one session (MSST 2015, *Mixed \
                Request Sizes*).",
        plots: &[("utilization-mixed.svg", mixed)],
    },
    Chapter {
        set: "stages",
        heading: "Where the time of a request goes",
        about: "MSST 2015, *4kB Read Requests At Low Concurrency* and its two steps: one thread on \
                each side does everything; the store has a thread of its own at the target (the \
                work queue, CS-WQ); a thread of its own receives on each side (CS-Rec); and both, \
                as in the first Tyche. Measured by `tyche-lab bench --stages` \
                (crates/lab/README.md says what each stage is), which costs half a microsecond \
                a request.",
        plots: &[("stages.svg", stages), ("stages-no-spin.svg", stages_no_spin)],
    },
    Chapter {
        set: "10g-threads",
        heading: "A link of 10 Gbit/s: who sends",
        about: "1 to 8 threads submit, each with 4 requests in flight and a queue of the session: \
                they send themselves (inline), or hand over to a thread of the session's (queue) \
                (MSST 2014, Figures 12 and 13). The threads of both sides run on any of the two \
                cores: two busy cores are all there is, so more threads cannot add throughput as \
                they did on the papers' eight, and what is seen is what they cost each other.",
        plots: &[("threads.svg", threads), ("threads-cpu.svg", threads_cpu)],
    },
    Chapter {
        set: "10g-links",
        heading: "Two links of 10 Gbit/s: who receives",
        about: "One receiving thread at the target for both links, or one for each, which hand \
                over to the others (MSST 2014, Figure 11); 1 to 8 threads submit over both links, \
                and each receives for itself. The threads of both sides run on either core.",
        plots: &[("links.svg", receivers)],
    },
];

const BOTH: [(Pattern, &str); 2] = [(Randread, "random reads"), (Randwrite, "random writes")];

fn percent(measurement: &Measurement) -> f64 {
    measurement.utilization() * 100.0
}

fn of_link(results: &Results, set: &str, title: &str) -> Plot {
    let panels = BOTH.map(|(rw, caption)| {
        panel(results, set, caption, &by_depth(results, set, rw, 4 * KIB), percent)
    });
    let axes = ["requests in flight", "payload, % of the link"];
    plot(results, title, axes, Shape::Columns, panels.into())
}

fn utilization(results: &Results) -> Plot {
    of_link(results, "10g-batching", "4 KiB at 10 Gbit/s: requests and data are batched")
}

fn one_page(results: &Results) -> Plot {
    of_link(results, "10g-one-page", "4 KiB at 10 Gbit/s: only requests are batched")
}

fn mixed(results: &Results) -> Plot {
    let set = "10g-mixed";
    let panels = BOTH.map(|(rw, caption)| {
        let jobs = results.jobs(set).into_iter().filter(|job| job.rw == rw);
        let jobs: Vec<_> = jobs.map(|job| (format!("{} %", job.large_percent), job)).collect();
        panel(results, set, caption, &jobs, percent)
    });
    let axes = ["requests of 128 KiB", "payload, % of the link"];
    plot(results, "4 KiB and 128 KiB at 10 Gbit/s", axes, Shape::Columns, panels.into())
}

/// Entries in a frame by policy, and the tuned batch size, of each side.
fn level(results: &Results) -> Plot {
    let set = "10g-batching";
    let sides: [(&str, Metric, Metric); 2] = [
        ("host", Measurement::host_entries, Measurement::host_batch_size),
        ("target", Measurement::target_entries, Measurement::target_batch_size),
    ];
    let mut panels = Vec::new();
    for (rw, caption) in BOTH {
        let jobs = by_depth(results, set, rw, 4 * KIB);
        for (side, entries, size) in sides {
            let mut panel = panel(results, set, &format!("{caption}, {side}"), &jobs, entries);
            let tuned =
                |(_, job): &(String, Job)| results.spread(results.who(set, "tyche"), job, size);
            let values = jobs.iter().map(tuned).collect();
            panel.series.push(Series { name: "tuned N".to_owned(), values });
            panels.push(panel);
        }
    }
    let axes = ["requests in flight", "entries in a frame"];
    plot(results, "Batch level at 10 Gbit/s", axes, Shape::Columns, panels)
}

/// Parts of the peers' names, and what they are called in the plot.
const HANDED: [(&str, &str); 4] = [
    ("", "one thread"),
    ("-hand-over-store", "store"),
    ("-hand-over-receive", "receive"),
    ("-hand-over-receive-store", "both"),
];

fn stages(results: &Results) -> Plot {
    staged(results, "tyche", "Stages of a 4 KiB request at depth 1, both sides spin")
}

fn stages_no_spin(results: &Results) -> Plot {
    staged(results, "tyche-no-spin", "Stages of a 4 KiB request at depth 1, nobody spins")
}

fn staged(results: &Results, first: &str, title: &str) -> Plot {
    let set = "stages";
    let panels = results.staged_jobs(set).into_iter().map(|job| {
        let of = |suffix: &str| results.staged(set, &format!("{first}{suffix}"), &job);
        let turns = HANDED.map(|(suffix, _)| of(suffix));
        let stages = turns.iter().flatten().next().map(|it| &it.stages);
        let names = stages.into_iter().flatten().map(|stage| &stage.name);
        let series = names.map(|name| {
            let us = |it: &&StagedMeasurement| it.mean(name).map(|ns| ns / 1e3);
            let value = |turns: &Vec<_>| Spread::of(turns.iter().filter_map(us));
            Series { name: name.clone(), values: turns.iter().map(value).collect() }
        });
        let places = HANDED.map(|(_, place)| place.to_owned()).into();
        Panel { caption: job.to_string(), places, series: series.collect() }
    });
    let axes = ["handed over to threads of their own", "microseconds, mean"];
    plot(results, title, axes, Shape::Stack, panels.collect())
}

/// The jobs of a set that differ only in the number of threads.
fn by_threads(results: &Results, set: &str, rw: Pattern, bytes: u32) -> Vec<(String, Job)> {
    let jobs = results.jobs(set).into_iter();
    let jobs = jobs.filter(|job| job.rw == rw && job.block_bytes == bytes);
    jobs.map(|job| (job.threads.to_string(), job)).collect()
}

/// One panel for each size and direction.
fn thread_panels(
    results: &Results,
    set: &str,
    sizes: [u32; 2],
    metrics: &[(&str, Metric)],
) -> Vec<Panel> {
    let mut panels = Vec::new();
    for bytes in sizes {
        for (rw, name) in [(Read, "reads"), (Write, "writes")] {
            let jobs = by_threads(results, set, rw, bytes);
            for (what, metric) in metrics {
                let caption = format!("{} {name}{what}", size(bytes));
                panels.push(panel(results, set, &caption, &jobs, *metric));
            }
        }
    }
    panels
}

const GB_PER_S: (&str, Metric) = ("", |it| it.bytes_per_s / 1e9);
const SENDING: [u32; 2] = [4 * KIB, 512 * KIB];

fn threads(results: &Results) -> Plot {
    let panels = thread_panels(results, "10g-threads", SENDING, &[GB_PER_S]);
    let axes = ["threads", "GB/s"];
    plot(results, "Throughput by who sends, 10 Gbit/s", axes, Shape::Lines, panels)
}

fn threads_cpu(results: &Results) -> Plot {
    let metrics: [(&str, Metric); 2] =
        [(", host", Measurement::host_cores), (", target", Measurement::target_cores)];
    let panels = thread_panels(results, "10g-threads", SENDING, &metrics);
    let axes = ["threads", "cores busy"];
    plot(results, "CPU by who sends, 10 Gbit/s", axes, Shape::Lines, panels)
}

fn receivers(results: &Results) -> Plot {
    let panels = thread_panels(results, "10g-links", [4 * KIB, 1024 * KIB], &[GB_PER_S]);
    let axes = ["threads", "GB/s"];
    plot(results, "Two links by who receives", axes, Shape::Lines, panels)
}
