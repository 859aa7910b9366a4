//! `README.md` and the plots beside it, all made from `results.json`.

mod fcoe;
mod keys;
mod links;
mod papers;
mod rdma;
mod scale;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::cores;
use crate::floor::{Kind, Outcome};
use crate::job::{Job, Pattern, size};
use crate::machine::Machine;
use crate::plan::Suite;
use crate::plot::{Panel, Plot, Series, Shape};
use crate::process::{Doing, Result};
use crate::result::{Metric, Results, Spread, Who};
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

const CHAPTERS: [Chapter; 5] = [
    Chapter {
        set: "mtu-9000",
        heading: "MTU 9000",
        about: "Jumbo frames; both sides of Tyche, over frames (`tyche`), UDP and TCP \
                (`tsockets`), may spin for a millisecond.",
        plots: &[("latency.svg", latency), ("throughput.svg", throughput)],
    },
    Chapter {
        set: "no-spin",
        heading: "MTU 9000, nobody spins",
        about: "Everybody sleeps until something comes; waking up is most of what is measured.",
        plots: &[],
    },
    Chapter {
        set: "mtu-1500",
        heading: "MTU 1500",
        about: "Frames go through the kernel one by one, segments of TCP and trains of UDP in one \
                piece, whatever the MTU.",
        plots: &[("mtu.svg", mtu)],
    },
    Chapter {
        set: "mtu-65535",
        heading: "MTU 65535",
        about: "The longest frames, between containers or virtual machines on one host.",
        plots: &[],
    },
    Chapter {
        set: "default",
        heading: "A block device, without options",
        about: "`tyche serve` with an export and a link, `tyche connect` with a link, and fio on \
                the block device, which is the best that the kernel has; beside it fio's own \
                engine on nbdkit's socket. Nobody spins, and the threads of both sides share two \
                cores. The CPU of the device is that of its daemon, without the kernel's threads.",
        plots: &[("default.svg", default_path)],
    },
];

/// Writes README.md and the plots into `out`.
pub(crate) fn write(results: &Results, out: &Path) -> Result<()> {
    let mut text = preface(results);
    let headline = Path::new("iops.svg");
    if results.suite == Suite::Links {
        links::explain(&mut text);
    } else if results.suite == Suite::Scale {
        scale::explain(&mut text, results);
    } else if results.suite == Suite::Main && headline_plot(results).write(&out.join(headline))? {
        let _ = writeln!(text, "\n![4 KiB random reads by depth](iops.svg)");
    }
    let _ = writeln!(text, "\n## Bars\n\nEach is a ratio of medians of this run.\n");
    text.push_str(&table::bars(results));
    if let Some(paper) = table::paper(results) {
        let _ = write!(text, "\n## The paper's figures and these\n\n{paper}");
    }
    let floors = table::floors(results);
    if !floors.is_empty() {
        let _ = writeln!(text, "\n## Bare frames\n\n{floors}");
    }
    let chapters = CHAPTERS.iter().chain(&papers::CHAPTERS).chain(&links::CHAPTERS);
    let chapters = chapters.chain(&fcoe::CHAPTERS).chain(&keys::CHAPTERS);
    for chapter in chapters.chain(&rdma::CHAPTERS).chain(&scale::CHAPTERS) {
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
    let distance = cores::in_words(results.distances());
    let distance = distance.map_or(String::new(), |it| format!("| between the cores | {it} |\n"));
    format!(
        "# Tyche, compared\n\n\
         Made by `{command}`, not by hand; [bench/README.md](../README.md) says how. Figures are \
         medians of {turns} turn(s), with the least and the most in parentheses; ratios are those \
         of medians, and above 1 in Tyche's favour unless they say otherwise. `floor` is what bare \
         frames do, without a protocol.\n\n\
         | | |\n|---|---|\n\
         | machine | {cpu}, {cores} cores, {gib:.0} GiB |\n\
         {distance}\
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

/// A panel of the peers, bare frames and bare trains, without variants.
fn main_panel(
    results: &Results,
    set: &str,
    caption: &str,
    jobs: &[(String, Job)],
    unit: Unit,
) -> Panel {
    let mut panel = panel(results, set, caption, jobs, unit.metric);
    panel.series.retain(|series| PEERS.contains(&series.name.as_str()));
    for (name, udp) in FLOORS {
        let values: Vec<_> =
            jobs.iter().map(|(_, job)| (unit.floor)(results, set, job, udp)).collect();
        if !udp || values.iter().any(Option::is_some) {
            panel.series.push(Series { name: name.to_owned(), values });
        }
    }
    panel
}

/// Peers of the main plots.
const PEERS: [&str; 4] = ["tyche", "udp", "tsockets", "nbd"];
/// Names of the floors, and whether they are over UDP.
const FLOORS: [(&str, bool); 2] = [("bare frames", false), ("bare trains", true)];

/// A metric of peers, and its counterpart for bare frames.
#[derive(Clone, Copy)]
struct Unit {
    metric: Metric,
    floor: fn(&Results, &str, &Job, bool) -> Option<Spread>,
}

fn exchange(
    results: &Results,
    set: &str,
    job: &Job,
    udp: bool,
    metric: fn(&Outcome) -> f64,
) -> Option<Spread> {
    let kind = if udp { Kind::UdpExchange } else { Kind::Exchange };
    results.floor(set, kind, job.depth, metric)
}

const KIOPS: Unit = Unit {
    metric: |it| it.iops / 1e3,
    floor: |results, set, job, udp| exchange(results, set, job, udp, |it| it.per_s / 1e3),
};

const MEAN_US: Unit = Unit {
    metric: |it| it.lat_ns.mean / 1e3,
    floor: |results, set, job, udp| exchange(results, set, job, udp, |it| it.mean_ns / 1e3),
};

const GB_PER_S: Unit = Unit {
    metric: |it| it.bytes_per_s / 1e9,
    floor: |results, set, _, udp| {
        let kind = if udp { Kind::UdpStream } else { Kind::Stream };
        results.floor(set, kind, 1, |it| it.bytes_per_s / 1e9)
    },
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
        let peers = PEERS.into_iter().map(|peer| {
            let value =
                |(_, set): &(&str, &str)| results.spread(Who::new(set, peer), &job, KIOPS.metric);
            Series { name: peer.to_owned(), values: sets.iter().map(value).collect() }
        });
        let floors = FLOORS.into_iter().map(|(name, udp)| {
            let value = |(_, set): &(&str, &str)| (KIOPS.floor)(results, set, &job, udp);
            Series { name: name.to_owned(), values: sets.iter().map(value).collect() }
        });
        let places = sets.map(|(place, _)| place.to_owned()).into();
        Panel { caption: caption.to_owned(), places, series: peers.chain(floors).collect() }
    };
    let panels = vec![panel(Randread, "random reads"), panel(Randwrite, "random writes")];
    let axes = ["MTU", "thousand requests per second"];
    plot(results, "4 KiB at depth 128 by MTU", axes, Shape::Columns, panels)
}

fn default_path(results: &Results) -> Plot {
    let set = "default";
    let panels = [(Randread, "random reads"), (Randwrite, "random writes")].map(|(rw, caption)| {
        let jobs = by_depth(results, set, rw, 4 * KIB);
        panel(results, set, caption, &jobs, KIOPS.metric)
    });
    let axes = ["requests in flight", "thousand requests per second"];
    let title = "4 KiB requests, a block device without options";
    plot(results, title, axes, Shape::Columns, panels.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;
    use crate::result::{Measurement, testing};

    #[test]
    fn chapters_have_their_plots() {
        let mut results = testing::empty();
        let counters =
            Counters { batches: 1, batch_entries: 4, batch_sizes: 8, ..Counters::default() };
        for set in ["mtu-9000", "10g-batching", "10g-threads"] {
            let measurement = testing::measurement(set, "tyche", 1, 100_000.0);
            results.measurements.push(Measurement {
                link_rate: (set != "mtu-9000").then_some(10_000_000_000),
                host_counters: Some(counters),
                target_counters: Some(counters),
                ..measurement
            });
        }
        results.stages.push(testing::staged("stages", "tyche-hand-over-store", 1000, 500.0));
        let dir = tempfile::tempdir().unwrap();
        write(&results, dir.path()).unwrap();
        let text = fs::read_to_string(dir.path().join("README.md")).unwrap();
        for part in ["batching", "who sends", "Where the time of a request goes", "; N 8, 8"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        let plot = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        assert!(plot("batch-level.svg").contains("tuned N"));
        assert!(
            plot("stages.svg").contains("microseconds") && plot("stages-no-spin.svg").is_empty()
        );
        assert!(!text.contains("nobody spins") && !text.contains("default.svg"), "{text}");
    }
}
