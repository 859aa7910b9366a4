//! `README.md` and the plots beside it, all made from `results.json`.

mod links;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::floor::{Kind, Outcome};
use crate::job::{Job, Pattern, size};
use crate::machine::Machine;
use crate::plan::Suite;
use crate::plot::{Panel, Plot, Series, Shape};
use crate::process::{Doing, Result};
use crate::result::{Measurement, Metric, Results, Spread, Who};
use crate::table;

use Pattern::{Randread, Randwrite, Read, Write as SequentialWrite};

const KIB: u32 = 1 << 10;

/// The name of a file, and the function that makes its plot.
type Drawing = (&'static str, fn(&Results) -> Plot);

/// A chapter of the report about a set: heading, description, and plots.
struct Chapter {
    set: &'static str,
    heading: &'static str,
    about: &'static str,
    plots: &'static [Drawing],
}

const CHAPTERS: [Chapter; 9] = [
    Chapter {
        set: "mtu-9000",
        heading: "MTU 9000",
        about: "Jumbo frames, both sides of Tyche and TSockets allowed to spin for a millisecond.",
        plots: &[("latency.svg", latency), ("throughput.svg", throughput)],
    },
    Chapter {
        set: "no-spin",
        heading: "MTU 9000, nobody spins",
        about: "Everybody sleeps until something comes; waking up is most of what is measured.",
        plots: &[],
    },
    Chapter { set: "mtu-1500", heading: "MTU 1500", about: "", plots: &[("mtu.svg", mtu)] },
    Chapter {
        set: "mtu-65535",
        heading: "MTU 65535",
        about: "The longest frames, between containers or virtual machines on one host.",
        plots: &[],
    },
    Chapter {
        set: "1g-batching",
        heading: "A link of 1 Gbit/s: batching",
        about: "Requests, completions and data of several requests in a frame, or each in its own \
                (MSST 2015, *Batching Data + Requests/Responses*).",
        plots: &[("utilization.svg", batching)],
    },
    Chapter {
        set: "1g-one-page",
        heading: "A link of 1 Gbit/s: one page a frame",
        about: "Frames have room for one page, so that only requests and completions are batched \
                (MSST 2015, *Batching Requests/Responses (no data)*).",
        plots: &[("utilization-one-page.svg", one_page)],
    },
    Chapter {
        set: "1g-mixed",
        heading: "A link of 1 Gbit/s: mixed sizes",
        about: "4 KiB requests with some of 128 KiB among them, in one session (MSST 2015, *Mixed \
                Request Sizes*).",
        plots: &[("utilization-mixed.svg", mixed)],
    },
    Chapter {
        set: "10g-threads",
        heading: "A link of 10 Gbit/s: who does the work",
        about: "The caller's thread drives the session, or a thread of the session's own does \
                (MSST 2014, Figures 12 and 13), or several hand over to each other. The papers \
                vary the number of threads that ask; here one asks, with as many requests in \
                flight.",
        plots: &[("threads.svg", threads), ("threads-cpu.svg", threads_cpu)],
    },
    Chapter {
        set: "10g-links",
        heading: "Two links of 10 Gbit/s: who receives",
        about: "A session on each. One thread for each link does everything, or work is handed \
                over by one receiving thread for both links, or by one for each (MSST 2014, Figure \
                11). All of a side's threads share its one core.",
        plots: &[("links.svg", links)],
    },
];

/// Writes README.md and the plots into `out`.
pub(crate) fn write(results: &Results, out: &Path) -> Result<()> {
    let mut text = preface(results);
    let headline = Path::new("iops.svg");
    if results.suite == Suite::Links {
        links::explain(&mut text);
    } else if headline_plot(results).write(&out.join(headline))? {
        let _ = writeln!(text, "\n![4 KiB random reads by depth](iops.svg)");
    }
    let _ = writeln!(text, "\n## Bars\n\nEach is a ratio of medians of this run.\n");
    text.push_str(&table::bars(results));
    let floors = table::floors(results);
    if !floors.is_empty() {
        let _ = writeln!(text, "\n## Bare frames\n\n{floors}");
    }
    for chapter in CHAPTERS.iter().chain(&links::CHAPTERS) {
        let tables = table::set(results, chapter.set);
        if tables.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n## {}\n\n{}", chapter.heading, chapter.about);
        for (file, plot) in chapter.plots {
            let plot = plot(results);
            if plot.write(&out.join(file))? {
                let _ = writeln!(text, "\n![{}]({file})", plot.title);
            }
        }
        if chapter.set == links::RECOVERY {
            links::draw_recovery(&mut text, results, out)?;
        }
        text.push_str(&tables);
    }
    if !results.failures.is_empty() {
        let _ = writeln!(text, "\n## What did not work\n");
        for failure in &results.failures {
            let error = failure.error.replace('\n', " / ");
            let _ = writeln!(
                text,
                "- {}, turn {}: {}: {error}",
                failure.set, failure.turn, failure.what
            );
        }
    }
    let path = out.join("README.md");
    fs::write(&path, text).doing(path.display())
}

fn preface(results: &Results) -> String {
    let machine = &results.machine;
    let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
    format!(
        "# Tyche, compared\n\n\
         Made by `{command}`, not by hand; [bench/README.md](../README.md) says how. Figures are \
         medians of {turns} turn(s), with the least and the most in parentheses; ratios are those \
         of medians, and above 1 in Tyche's favour unless they say otherwise. `floor` is what bare \
         frames do, without a protocol.\n\n\
         | | |\n|---|---|\n\
         | machine | {cpu}, {cores} cores, {gib:.0} GiB |\n\
         | kernel | {kernel} |\n\
         | commit | {commit} |\n\
         | date | {date} UTC |\n\
         | fio, nbdkit | {fio}, {nbdkit} |\n",
        command = results.command,
        turns = results.turns,
        cpu = machine.cpu,
        cores = machine.cores,
        kernel = machine.kernel,
        commit = machine.commit,
        date = machine.date,
        fio = machine.fio,
        nbdkit = machine.nbdkit,
    )
}

/// A panel about a set: a series for each peer, a place for each job.
fn panel(
    results: &Results,
    set: &str,
    caption: &str,
    jobs: &[(String, Job)],
    metric: Metric,
) -> Panel {
    let series = results.peers(set).into_iter().map(|peer| {
        let value = |(_, job): &(String, Job)| results.spread(results.who(set, peer), job, metric);
        Series { name: peer.to_owned(), values: jobs.iter().map(value).collect() }
    });
    let places = jobs.iter().map(|(place, _)| place.clone()).collect();
    Panel { caption: caption.to_owned(), places, series: series.collect() }
}

/// The jobs of a set that differ only in depth.
fn by_depth(results: &Results, set: &str, rw: Pattern, block_bytes: u32) -> Vec<(String, Job)> {
    let jobs = results.jobs(set).into_iter();
    let jobs = jobs.filter(|job| job.rw == rw && job.block_bytes == block_bytes);
    let jobs = jobs.filter(|job| job.large_percent == 0);
    let by_depth: BTreeMap<_, _> = jobs.map(|job| (job.depth, job)).collect();
    by_depth.into_iter().map(|(depth, job)| (depth.to_string(), job)).collect()
}

fn plot(
    results: &Results,
    title: &str,
    [x, y]: [&str; 2],
    shape: Shape,
    panels: Vec<Panel>,
) -> Plot {
    let [title, x, y] = [title, x, y].map(str::to_owned);
    Plot { title, x, y, shape, panels, note: note(results) }
}

/// The note below a plot: the source of its values.
fn note(results: &Results) -> String {
    let Machine { cpu, cores, kernel, commit, date, .. } = &results.machine;
    let commit = commit.get(..12).unwrap_or(commit);
    let day = date.split(' ').next().unwrap_or_default();
    format!("{cpu}, {cores} cores; Linux {kernel}; commit {commit}; {day}")
}

/// A panel of three peers and bare frames, without variants.
fn main_panel(
    results: &Results,
    set: &str,
    caption: &str,
    jobs: &[(String, Job)],
    unit: Unit,
) -> Panel {
    let mut panel = panel(results, set, caption, jobs, unit.metric);
    panel.series.retain(|series| ["tyche", "tsockets", "nbd"].contains(&series.name.as_str()));
    let floors = jobs.iter().map(|(_, job)| (unit.floor)(results, set, job)).collect();
    panel.series.push(Series { name: "bare frames".to_owned(), values: floors });
    panel
}

/// A metric of peers, and its counterpart for bare frames.
#[derive(Clone, Copy)]
struct Unit {
    metric: Metric,
    floor: fn(&Results, &str, &Job) -> Option<Spread>,
}

fn exchange(
    results: &Results,
    set: &str,
    job: &Job,
    metric: fn(&Outcome) -> f64,
) -> Option<Spread> {
    results.floor(set, Kind::Exchange, job.depth, metric)
}

const KIOPS: Unit = Unit {
    metric: |it| it.iops / 1e3,
    floor: |results, set, job| exchange(results, set, job, |it| it.per_s / 1e3),
};

const MEAN_US: Unit = Unit {
    metric: |it| it.lat_ns.mean / 1e3,
    floor: |results, set, job| exchange(results, set, job, |it| it.mean_ns / 1e3),
};

const GB_PER_S: Unit = Unit {
    metric: |it| it.bytes_per_s / 1e9,
    floor: |results, set, _| results.floor(set, Kind::Stream, 1, |it| it.bytes_per_s / 1e9),
};

fn headline_plot(results: &Results) -> Plot {
    let set = "mtu-9000";
    let panel = |rw: Pattern, caption: &str| {
        let jobs = by_depth(results, set, rw, 4 * KIB);
        main_panel(results, set, caption, &jobs, KIOPS)
    };
    let panels = vec![panel(Randread, "random reads"), panel(Randwrite, "random writes")];
    let axes = ["requests in flight", "thousand requests per second"];
    plot(results, "4 KiB requests at MTU 9000, one core each side", axes, Shape::Lines, panels)
}

fn latency(results: &Results) -> Plot {
    let jobs = [("random read", Randread), ("random write", Randwrite)]
        .map(|(name, rw)| (name.to_owned(), Job::new(rw, 4 * KIB, 1)));
    let panels = [("mtu-9000", "spinning"), ("no-spin", "nobody spins")]
        .map(|(set, caption)| main_panel(results, set, caption, &jobs, MEAN_US));
    let axes = ["", "microseconds, mean"];
    plot(results, "4 KiB at depth 1: latency", axes, Shape::Columns, panels.into())
}

fn throughput(results: &Results) -> Plot {
    let set = "mtu-9000";
    let panel = |rw: Pattern, caption: &str| {
        let jobs = [64 * KIB, 1024 * KIB].map(|bytes| (size(bytes), Job::new(rw, bytes, 16)));
        main_panel(results, set, caption, &jobs, GB_PER_S)
    };
    let panels = vec![panel(Read, "sequential reads"), panel(SequentialWrite, "sequential writes")];
    let axes = ["bytes of a request", "GB/s"];
    plot(results, "Large requests at depth 16, MTU 9000", axes, Shape::Columns, panels)
}

fn mtu(results: &Results) -> Plot {
    let sets = [("1500", "mtu-1500"), ("9000", "mtu-9000"), ("65535", "mtu-65535")];
    let panel = |rw: Pattern, caption: &str| {
        let job = Job::new(rw, 4 * KIB, 128);
        let series = ["tyche", "tsockets", "nbd", "bare frames"].map(|name| {
            let value = |(_, set): &(&str, &str)| match name {
                "bare frames" => (KIOPS.floor)(results, set, &job),
                peer => results.spread(Who::new(set, peer), &job, KIOPS.metric),
            };
            Series { name: name.to_owned(), values: sets.iter().map(value).collect() }
        });
        let places = sets.map(|(place, _)| place.to_owned()).into();
        Panel { caption: caption.to_owned(), places, series: series.into() }
    };
    let panels = vec![panel(Randread, "random reads"), panel(Randwrite, "random writes")];
    let axes = ["MTU", "thousand requests per second"];
    plot(results, "4 KiB at depth 128 by MTU", axes, Shape::Columns, panels)
}

fn utilization(results: &Results, set: &str, title: &str) -> Plot {
    let percent: Metric = |it| it.utilization() * 100.0;
    let panels = [(Randread, "reads"), (Randwrite, "writes")].map(|(rw, caption)| {
        panel(results, set, caption, &by_depth(results, set, rw, 4 * KIB), percent)
    });
    let axes = ["requests in flight", "payload, % of the link"];
    plot(results, title, axes, Shape::Lines, panels.into())
}

fn batching(results: &Results) -> Plot {
    utilization(results, "1g-batching", "4 KiB at 1 Gbit/s: requests and data are batched")
}

fn one_page(results: &Results) -> Plot {
    utilization(results, "1g-one-page", "4 KiB at 1 Gbit/s: only requests are batched")
}

fn mixed(results: &Results) -> Plot {
    let set = "1g-mixed";
    let percent: Metric = |it| it.utilization() * 100.0;
    let panels = [(Randread, "reads"), (Randwrite, "writes")].map(|(rw, caption)| {
        let jobs = results.jobs(set).into_iter().filter(|job| job.rw == rw);
        let jobs: Vec<_> = jobs.map(|job| (format!("{} %", job.large_percent), job)).collect();
        panel(results, set, caption, &jobs, percent)
    });
    let axes = ["requests of 128 KiB", "payload, % of the link"];
    plot(results, "4 KiB and 128 KiB at 1 Gbit/s", axes, Shape::Columns, panels.into())
}

/// One panel for each size and direction.
fn thread_panels(results: &Results, metrics: &[(&str, Metric)]) -> Vec<Panel> {
    let set = "10g-threads";
    let mut panels = Vec::new();
    for bytes in [4 * KIB, 512 * KIB] {
        for (rw, name) in [(Read, "reads"), (SequentialWrite, "writes")] {
            for (what, metric) in metrics {
                let caption = format!("{} {name}{what}", size(bytes));
                let jobs = by_depth(results, set, rw, bytes);
                panels.push(panel(results, set, &caption, &jobs, *metric));
            }
        }
    }
    panels
}

fn threads(results: &Results) -> Plot {
    let panels = thread_panels(results, &[("", |it| it.bytes_per_s / 1e9)]);
    let axes = ["requests in flight", "GB/s"];
    plot(results, "Throughput by who drives the session, 10 Gbit/s", axes, Shape::Lines, panels)
}

fn threads_cpu(results: &Results) -> Plot {
    let metrics: [(&str, Metric); 2] =
        [(", host", Measurement::host_cores), (", target", Measurement::target_cores)];
    let panels = thread_panels(results, &metrics);
    let axes = ["requests in flight", "cores busy"];
    plot(results, "CPU by who drives the session, 10 Gbit/s", axes, Shape::Lines, panels)
}

fn links(results: &Results) -> Plot {
    let set = "10g-links";
    let panels = [(Read, "reads"), (SequentialWrite, "writes")].map(|(rw, caption)| {
        let jobs = results.jobs(set).into_iter().filter(|job| job.rw == rw);
        let jobs: Vec<_> = jobs.map(|job| (size(job.block_bytes), job)).collect();
        panel(results, set, caption, &jobs, |it| it.bytes_per_s / 1e9)
    });
    let axes = ["bytes of a request", "GB/s"];
    plot(results, "Two links by who receives", axes, Shape::Columns, panels.into())
}
