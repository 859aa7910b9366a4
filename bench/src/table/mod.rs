//! Tables in Markdown: the results of each set's peers, as medians and ratios of medians.

mod fcoe;
mod links;
mod rdma;
mod scale;
mod stages;

use std::fmt::Write;

use crate::bars;
use crate::floor::{Floor, Kind, Outcome};
use crate::job::{Job, Pattern};
use crate::plan::Suite;
use crate::result::{Measurement, Metric, Results, Spread, Who};

/// Placeholder where nothing was measured.
const NOTHING: &str = "—";

/// A table under construction.
struct Table {
    text: String,
}

impl Table {
    fn new(head: &[String]) -> Self {
        let mut table = Self { text: String::new() };
        table.row(head);
        let rule: Vec<_> = (0..head.len()).map(|it| if it == 0 { "---" } else { "--:" }).collect();
        let _ = writeln!(table.text, "|{}|", rule.join("|"));
        table
    }

    fn row(&mut self, cells: &[String]) {
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }
}

/// A table of every bar, its figure, and whether it held.
pub(crate) fn bars(results: &Results) -> String {
    let head = ["what", "bar", "figure", "held"].map(str::to_owned);
    let mut table = Table::new(&head);
    for bar in bars::all(results) {
        let held = match bar.held() {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => NOTHING,
        };
        table.row(&[bar.what.clone(), bar.bar(), bar.figure(), held.to_owned()]);
    }
    table.text
}

/// The figures of the paper that the suite is after, beside ours.
pub(crate) fn paper(results: &Results) -> Option<String> {
    (results.suite == Suite::Rdma).then(|| rdma::paper(results))
}

/// A column of a table: a unit of a metric.
#[derive(Clone, Copy)]
struct Unit {
    metric: Metric,
    /// Size of one unit, in the metric's unit.
    divisor: f64,
    digits: usize,
}

impl Unit {
    const fn new(metric: Metric, divisor: f64, digits: usize) -> Self {
        Self { metric, divisor, digits }
    }

    fn show(&self, spread: Option<Spread>) -> String {
        show(spread, self.divisor, self.digits)
    }
}

fn show(spread: Option<Spread>, divisor: f64, digits: usize) -> String {
    let Some(Spread { median, min, max }) = spread else { return NOTHING.to_owned() };
    let number = |value: f64| format!("{:.digits$}", value / divisor);
    let (median, min, max) = (number(median), number(min), number(max));
    if min == max { median } else { format!("{median} ({min}–{max})") }
}

const KIOPS: Unit = Unit::new(Measurement::iops, 1e3, 1);
const GB_PER_S: Unit = Unit::new(Measurement::bytes_per_s, 1e9, 2);
const MB_PER_S: Unit = Unit::new(Measurement::bytes_per_s, 1e6, 1);
const MEAN_US: Unit = Unit::new(Measurement::mean_ns, 1e3, 1);
const FRAMES: Unit = Unit::new(Measurement::frames_per_io, 1.0, 2);
const PERCENT: Unit = Unit::new(Measurement::utilization, 0.01, 1);

/// All tables of a set; empty if it was not measured.
pub(crate) fn set(results: &Results, name: &str) -> String {
    let jobs = results.jobs(name);
    match results.suite {
        Suite::Main | Suite::Keys => {}
        Suite::Links => return links::set(results, name, &jobs),
        Suite::Fcoe => return fcoe::set(results, name, &jobs),
        Suite::Rdma => return rdma::set(results, name, &jobs),
        Suite::Scale => return scale::set(results, name, &jobs),
    }
    let mut text = String::new();
    section(&mut text, "Mean time of a request in microseconds, by stage", || {
        stages::means(results, name)
    });
    let Some(first) = results.measurements.iter().find(|it| it.set == name) else {
        return text;
    };
    let asleep = |text: &mut String| {
        if SLEEPING.contains(&name) {
            section(text, "Voluntary context switches for each request", || {
                switches(results, name, &jobs)
            });
        }
    };
    if first.link_rate.is_some() {
        section(&mut text, "Payload in percent of the link's capacity", || {
            by_peer(results, name, &jobs, PERCENT)
        });
        section(&mut text, "CPU", || cpu(results, name, &jobs));
        section(&mut text, "Frames per request", || by_peer(results, name, &jobs, FRAMES));
        section(&mut text, "Entries in a frame, and tuned batch size", || {
            batches(results, name, &jobs)
        });
        asleep(&mut text);
        return text;
    }
    let (one, many): (Vec<_>, Vec<_>) =
        jobs.iter().filter(|job| job.block_bytes == 4096).partition(|job| job.depth == 1);
    let large: Vec<_> = jobs.iter().filter(|job| job.block_bytes > 4096).copied().collect();
    section(&mut text, "4 KiB at depth 1: mean latency in microseconds", || {
        compared(results, name, &one, MEAN_US)
    });
    section(&mut text, "4 KiB: thousand requests per second", || {
        compared(results, name, &many, KIOPS)
    });
    section(&mut text, "Large requests: GB/s", || compared(results, name, &large, GB_PER_S));
    section(&mut text, "4 KiB at depth 1: latency of 99 % and of 99.9 %, in microseconds", || {
        tails(results, name, &one)
    });
    section(&mut text, "Frames per request", || by_peer(results, name, &jobs, FRAMES));
    section(&mut text, "Entries in a frame, and tuned batch size", || {
        batches(results, name, &jobs)
    });
    section(&mut text, "Frames in a train over UDP", || trains(results, name, &jobs));
    section(&mut text, "CPU", || cpu(results, name, &jobs));
    asleep(&mut text);
    section(&mut text, "Without offloads", || offloads(results, name, &jobs));
    text
}

/// A table under its heading, if it has rows.
fn section(text: &mut String, heading: &str, table: impl FnOnce() -> String) {
    let table = table();
    if table.lines().count() > 2 {
        let _ = write!(text, "\n**{heading}**\n\n{table}");
    }
}

fn head(first: &str, columns: &[&str], more: &[&str]) -> Vec<String> {
    let all = [first].into_iter().chain(columns.iter().copied()).chain(more.iter().copied());
    all.map(str::to_owned).collect()
}

fn by_peer(results: &Results, set: &str, jobs: &[Job], unit: Unit) -> String {
    cells(results, set, jobs, |peer, job| {
        Some(unit.show(results.spread(results.who(set, peer), job, unit.metric)))
    })
}

/// A table with a cell for each job and peer; jobs for which no peer has one are left out.
fn cells(
    results: &Results,
    set: &str,
    jobs: &[Job],
    cell: impl Fn(&str, &Job) -> Option<String>,
) -> String {
    let peers = results.peers(set);
    let mut table = Table::new(&head("job", &peers, &[]));
    for job in jobs {
        let cells: Vec<_> = peers.iter().map(|peer| cell(peer, job)).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| NOTHING.to_owned()));
            table.row(&[job.to_string()].into_iter().chain(cells).collect::<Vec<_>>());
        }
    }
    table.text
}

/// The table of bare frames; empty if they were not measured.
pub(crate) fn floors(results: &Results) -> String {
    let mut seen: Vec<(&str, Floor)> = Vec::new();
    for measurement in &results.floors {
        let this = (measurement.set.as_str(), measurement.floor);
        if !seen.contains(&this) {
            seen.push(this);
        }
    }
    if seen.is_empty() {
        return String::new();
    }
    let columns = ["thousand answers/s", "GB/s", "microseconds", "frames per answer"];
    let mut table = Table::new(&head("what", &columns, &[]));
    for (set, floor) in seen {
        let Floor { kind, mtu, depth, links, .. } = floor;
        let of = |metric: fn(&Outcome) -> f64, digits: usize| {
            let spread = results.floor_of(set, metric, |it| *it == floor);
            spread.map_or_else(|| NOTHING.to_owned(), |it| format!("{:.digits$}", it.median))
        };
        let name = match kind {
            Kind::Echo => format!("echo, MTU {mtu}"),
            Kind::Exchange => format!("exchange at depth {depth}, MTU {mtu}"),
            Kind::Stream if links > 1 => format!("stream over {links} links, MTU {mtu}"),
            Kind::Stream => format!("stream, MTU {mtu}"),
            Kind::UdpExchange => format!("UDP exchange at depth {depth}, MTU {mtu}"),
            Kind::UdpStream => format!("UDP stream, MTU {mtu}"),
        };
        let round_trip = match kind {
            Kind::Stream | Kind::UdpStream => NOTHING.to_owned(),
            _ => of(|it| it.mean_ns / 1e3, 1),
        };
        let (rate, bytes) = (of(|it| it.per_s / 1e3, 1), of(|it| it.bytes_per_s / 1e9, 2));
        table.row(&[name, rate, bytes, round_trip, of(|it| it.frames_per_answer, 2)]);
    }
    table.text
}

/// Peers, bare frames and bare trains, and Tyche's links as ratios to others. A ratio above 1 is in
/// favour of the first.
fn compared(results: &Results, set: &str, jobs: &[Job], unit: Unit) -> String {
    let peers = results.peers(set);
    let all = [
        ("tyche", "tsockets"),
        ("tyche", "nbd"),
        ("tyche", "floor"),
        ("udp", "tsockets"),
        ("udp", "nbd"),
        ("udp", "UDP floor"),
        ("default", "nbd"),
    ];
    let is_there = |name: &str| name.ends_with("floor") || peers.contains(&name);
    let pairs: Vec<_> = all.into_iter().filter(|(a, b)| is_there(a) && is_there(b)).collect();
    let is_udp = peers.contains(&"udp");
    let floors: &[&str] = if is_udp { &["floor", "UDP floor"] } else { &["floor"] };
    let ratios: Vec<_> = pairs.iter().map(|(a, b)| format!("{a} : {b}")).collect();
    let ratios: Vec<_> = ratios.iter().map(String::as_str).collect();
    let mut table = Table::new(&head("job", &peers, &[floors, &ratios[..]].concat()));
    let smaller_is_better = std::ptr::fn_addr_eq(unit.metric, MEAN_US.metric);
    for job in jobs {
        let spread = |name: &str| match name {
            "floor" => floor(results, set, job, false),
            "UDP floor" => floor(results, set, job, true),
            peer => results.spread(Who::new(set, peer), job, unit.metric),
        };
        let ratio = |(ours, other): &(&str, &str)| match (spread(ours), spread(other)) {
            (Some(ours), Some(other)) if smaller_is_better => {
                format!("{:.2}", other.median / ours.median)
            }
            (Some(ours), Some(other)) => format!("{:.2}", ours.median / other.median),
            _ => NOTHING.to_owned(),
        };
        let mut cells = vec![job.to_string()];
        cells.extend(peers.iter().chain(floors).map(|name| unit.show(spread(name))));
        cells.extend(pairs.iter().map(ratio));
        table.row(&cells);
    }
    table.text
}

/// Bare frames, or bare trains, that carry the job's data, in the job's own unit.
pub(crate) fn floor(results: &Results, set: &str, job: &Job, udp: bool) -> Option<Spread> {
    let [exchange, stream] =
        if udp { [Kind::UdpExchange, Kind::UdpStream] } else { [Kind::Exchange, Kind::Stream] };
    match (job.rw, job.block_bytes) {
        (Pattern::Randread | Pattern::Randwrite, 4096) => {
            let metric: fn(&Outcome) -> f64 =
                if job.depth == 1 { |it| it.mean_ns } else { |it| it.per_s };
            results.floor(set, exchange, job.depth, metric)
        }
        (Pattern::Read | Pattern::Write, _) => results.floor(set, stream, 1, |it| it.bytes_per_s),
        _ => None,
    }
}

/// Entries in a frame of each side, and the size that the tuner has found.
fn batches(results: &Results, set: &str, jobs: &[Job]) -> String {
    let entries: [Metric; 2] = [Measurement::host_entries, Measurement::target_entries];
    let sizes: [Metric; 2] = [Measurement::host_batch_size, Measurement::target_batch_size];
    let show = |who: Who<'_>, job: &Job| {
        let [host, target] = entries.map(|metric| results.median(who, job, metric));
        let (host, target) = host.zip(target)?;
        let mut cell = format!("{host:.1}, {target:.1}");
        let [host, target] = sizes.map(|metric| results.median(who, job, metric));
        if let (Some(host), Some(target)) = (host, target) {
            cell.push_str(&format!("; N {host:.0}, {target:.0}"));
        }
        Some(cell)
    };
    pairs(results, set, jobs, show)
}

/// Sets in which nobody spins, and some threads wait for others.
const SLEEPING: [&str; 4] = ["no-spin", "default", "10g-threads", "10g-links"];

fn switches(results: &Results, set: &str, jobs: &[Job]) -> String {
    let show = |who: Who<'_>, job: &Job| {
        let host = results.median(who, job, Measurement::host_switches_per_io)?;
        let target = results.median(who, job, Measurement::target_switches_per_io)?;
        Some(format!("{host:.2}, {target:.2}"))
    };
    pairs(results, set, jobs, show)
}

fn trains(results: &Results, set: &str, jobs: &[Job]) -> String {
    let show = |who: Who<'_>, job: &Job| {
        let host = results.median(who, job, Measurement::host_train)?;
        let target = results.median(who, job, Measurement::target_train)?;
        Some(format!("{host:.1}, {target:.1}"))
    };
    pairs(results, set, jobs, show)
}

/// A table of figures of host and target, for the peers and jobs that have any.
fn pairs(
    results: &Results,
    set: &str,
    jobs: &[Job],
    show: impl Fn(Who<'_>, &Job) -> Option<String>,
) -> String {
    let peers = results.peers(set).into_iter();
    let cell = |peer: &str, job: &Job| show(results.who(set, peer), job);
    let peers: Vec<_> =
        peers.filter(|peer| jobs.iter().any(|job| cell(peer, job).is_some())).collect();
    let names: Vec<_> = peers.iter().map(|peer| format!("{peer}: host, target")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut table = Table::new(&head("job", &names, &[]));
    for job in jobs {
        let cells: Vec<_> = peers.iter().map(|peer| cell(peer, job)).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| NOTHING.to_owned()));
        table.row(&[job.to_string()].into_iter().chain(cells).collect::<Vec<_>>());
    }
    table.text
}

fn tails(results: &Results, set: &str, jobs: &[Job]) -> String {
    let peers = results.peers(set);
    let mut table = Table::new(&head("job", &peers, &[]));
    for job in jobs {
        let mut cells = vec![job.to_string()];
        for peer in &peers {
            let of = |metric: Metric| results.median(Who::new(set, peer), job, metric);
            let tails = of(|it| it.lat_ns.p99).zip(of(|it| it.lat_ns.p999));
            cells.push(tails.map_or_else(
                || NOTHING.to_owned(),
                |(p99, p999)| format!("{:.1}, {:.1}", p99 / 1e3, p999 / 1e3),
            ));
        }
        table.row(&cells);
    }
    table.text
}

/// CPU time of host and target, by data and by requests, and the number of busy cores.
fn cpu(results: &Results, set: &str, jobs: &[Job]) -> String {
    let peers = results.peers(set);
    let names: Vec<_> = peers.iter().map(|peer| format!("{peer}: host, target")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut table = Table::new(&head("job (seconds of CPU)", &names, &[]));
    for job in jobs {
        let small = job.block_bytes == 4096;
        let [host, target]: [Metric; 2] = if small {
            [Measurement::host_cpu_per_million, Measurement::target_cpu_per_million]
        } else {
            [Measurement::host_cpu_per_gib, Measurement::target_cpu_per_gib]
        };
        let per = if small { "per million requests" } else { "per GiB" };
        let mut cells = vec![format!("{job}, {per}")];
        for peer in &peers {
            let of = |metric: Metric| results.median(results.who(set, peer), job, metric);
            let both = of(host).zip(of(target));
            cells.push(both.map_or_else(
                || NOTHING.to_owned(),
                |(host, target)| format!("{host:.2}, {target:.2}"),
            ));
        }
        table.row(&cells);
    }
    table.text
}

/// TCP with and without the interfaces' offloads, next to Tyche, which has none.
fn offloads(results: &Results, set: &str, jobs: &[Job]) -> String {
    let columns =
        ["tyche", "tsockets, on", "tsockets, off", "nbd, on", "nbd, off", "tyche : best, off"];
    let mut table = Table::new(&head("job", &columns, &[]));
    for job in jobs {
        let unit = if job.block_bytes == 4096 { KIOPS } else { GB_PER_S };
        let of = |who: Who<'_>| results.spread(who, job, unit.metric);
        let off = ["tsockets", "nbd"].map(|peer| of(Who::new(set, peer).without_offloads()));
        if off.iter().all(Option::is_none) {
            continue;
        }
        let on = ["tsockets", "nbd"].map(|peer| of(Who::new(set, peer)));
        let tyche = of(Who::new(set, "tyche"));
        let best = off.iter().flatten().map(|it| it.median).reduce(f64::max);
        let ratio = tyche.zip(best).map(|(tyche, best)| format!("{:.2}", tyche.median / best));
        let name = if job.block_bytes == 4096 { "thousand/s" } else { "GB/s" };
        let cells = [tyche, on[0], off[0], on[1], off[1]].map(|spread| unit.show(spread));
        let first = [format!("{job}, {name}")].into_iter();
        let last = ratio.unwrap_or_else(|| NOTHING.to_owned());
        table.row(&first.chain(cells).chain([last]).collect::<Vec<_>>());
    }
    table.text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;
    use crate::result::testing;

    #[test]
    fn a_set_is_shown_with_ratios() {
        let mut results = testing::empty();
        results.measurements.push(testing::measurement("mtu-9000", "nbd", 1, 100_000.0));
        results.measurements.push(testing::measurement("mtu-9000", "tyche", 1, 400_000.0));
        let text = set(&results, "mtu-9000");
        assert!(
            text.contains("| job | tyche | nbd | floor | tyche : nbd | tyche : floor |"),
            "{text}"
        );
        assert!(!text.contains("Entries in a frame"), "{text}");
        assert!(text.contains("| randread-4k-32 | 400.0 | 100.0 | — | 4.00 | — |"), "{text}");
        assert!(!text.contains("offloads") && set(&results, "no-spin").is_empty());
    }

    #[test]
    fn batches_and_trains_are_those_of_both_sides() {
        let mut results = testing::empty();
        let counters = Counters {
            batches: 10,
            batch_entries: 45,
            batch_sizes: 70,
            udp_trains_sent: 2,
            udp_train_frames_sent: 10,
            ..Counters::default()
        };
        let counters = Some(counters);
        let measurement = testing::measurement("mtu-9000", "udp", 1, 400_000.0);
        results.measurements.push(Measurement {
            host_counters: counters,
            target_counters: counters.map(|it| Counters { batch_entries: 90, ..it }),
            ..measurement
        });
        let text = set(&results, "mtu-9000");
        assert!(text.contains("| randread-4k-32 | 4.5, 9.0; N 7, 7 |"), "{text}");
        assert!(text.contains("| randread-4k-32 | 5.0, 5.0 |"), "{text}");
    }
}
