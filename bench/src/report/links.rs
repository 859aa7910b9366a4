//! The chapters of the suite `links`.

use std::fmt::Write as _;
use std::path::Path;

use super::{Chapter, KIB, Pattern, note, panel, plot};
use crate::floor::Kind;
use crate::job::{Bundle, Job};
use crate::network::payload_share;
use crate::plan::GBIT;
use crate::plan::links::{BAD, LINKS_MAX, MTU};
use crate::plot::{Course, CoursePanel, Plot, Series, Shape};
use crate::process::Result;
use crate::result::{Results, Spread};
use crate::timeline::{BUCKET_MS, Timeline};

use Pattern::{Randread, Randwrite, Read, Write};

pub(super) const RECOVERY: &str = "links-recovery";

pub(super) const CHAPTERS: [Chapter; 5] = [
    Chapter {
        set: "links",
        heading: "Throughput by number of links",
        about: "MSST 2014, Figure 9, on links of 1 Gbit/s. Tyche, over frames, UDP and TCP, uses \
                as many links as the job's name says, NBD has one connection, and `nbd-mptcp` one \
                that the kernel spreads over as many.",
        plots: &[("links.svg", by_number)],
    },
    Chapter {
        set: "links-channels",
        heading: "Channels, links and queues",
        about: "MSST 2014, Table II: several channels on each link, and several threads that \
                submit, each with a queue of the session and channels of its own; they share 16 \
                requests in flight. There it is about NUMA; here it is what they cost where there \
                is one node and a core for each side.",
        plots: &[],
    },
    Chapter {
        set: "links-unequal",
        heading: "Unequal links: 1, 1 and 0.2 Gbit/s",
        about: "What is measured is how much of all three together is used.",
        plots: &[],
    },
    Chapter {
        set: "links-lossy",
        heading: "Four links, one of them bad",
        about: "`veth3` loses one frame in 200, each way, at random (nftables). To Tyche it is \
                late as well, by 5 ms each way (the fault wrapper at the target). To TCP it is \
                not, for that needs netem: `tyche-undelayed` has the same link as TCP. TCP makes \
                single frames here (no TSO), so that a loss is one frame for everybody.",
        plots: &[("lossy.svg", lossy)],
    },
    Chapter {
        set: RECOVERY,
        heading: "Links are cut and come back",
        about: "64 KiB requests at depth 128. Interfaces are set down, which both sides are told, \
                or frames vanish on their way, which nobody is told. *Back after* is the time from \
                the links' return until 90 % of the throughput from before.",
        plots: &[],
    },
];

/// Explains the capacity of a link.
pub(super) fn explain(text: &mut String) {
    let share = payload_share(MTU);
    let _ = writeln!(
        text,
        "\nThe *payload capacity* of a link is its rate by the part of the longest frame that is \
         data: at MTU {MTU} a frame has 2 pages, a header of 64 bytes (Ethernet's 14 included) and \
         an entry of 24 bytes, so 8192 of 8280 bytes: {:.1} MB/s at 1 Gbit/s. A job's name ends \
         with the links that it runs over, `veth0..5` being all six.",
        GBIT as f64 / 8e6 * share,
    );
}

fn megabytes(spread: Spread) -> Spread {
    let Spread { median, min, max } = spread;
    Spread { median: median / 1e6, min: min / 1e6, max: max / 1e6 }
}

fn by_number(results: &Results) -> Plot {
    let set = "links";
    let kinds = [
        (Read, 1024 * KIB, 16, "1 MiB reads"),
        (Write, 1024 * KIB, 16, "1 MiB writes"),
        (Randread, 4 * KIB, 128, "4 KiB random reads"),
        (Randwrite, 4 * KIB, 128, "4 KiB random writes"),
    ];
    let panels = kinds.map(|(rw, bytes, depth, caption)| {
        let job = |links| Job::new(rw, bytes, depth).over(Bundle::of(links));
        let jobs: Vec<_> = (1..=LINKS_MAX).map(|it| (it.to_string(), job(it))).collect();
        let mut panel = panel(results, set, caption, &jobs, |it| it.bytes_per_s / 1e6);
        if rw == Read {
            let floor = |links: u16| {
                let of = |it: &crate::floor::Floor| it.kind == Kind::Stream && it.links == links;
                results.floor_of(set, |it| it.bytes_per_s, of).map(megabytes)
            };
            let values = (1..=LINKS_MAX).map(floor).collect();
            panel.series.push(Series { name: "bare frames".to_owned(), values });
        }
        let capacity = |links: u16| {
            let median = GBIT as f64 / 8e6 * payload_share(MTU) * f64::from(links);
            Some(Spread { median, min: median, max: median })
        };
        let is_known = panel.series.iter().any(|it| it.values.iter().any(Option::is_some));
        let values = (1..=LINKS_MAX).filter(|_| is_known).map(capacity).collect();
        panel.series.push(Series { name: "payload capacity".to_owned(), values });
        panel
    });
    let axes = ["links of 1 Gbit/s", "MB/s"];
    plot(results, "Throughput by number of links", axes, Shape::Lines, panels.into())
}

fn lossy(results: &Results) -> Plot {
    let bundles = [
        ("one good", Bundle::of(1)),
        ("the bad one", Bundle::only(BAD.cable)),
        ("three good", Bundle::of(BAD.cable)),
        ("all four", Bundle::of(BAD.cable + 1)),
    ];
    let panels = [(Read, "1 MiB reads"), (Write, "1 MiB writes")].map(|(rw, caption)| {
        let job = |bundle| Job::new(rw, 1024 * KIB, 16).over(bundle);
        let jobs = bundles.map(|(place, bundle)| (place.to_owned(), job(bundle)));
        panel(results, "links-lossy", caption, &jobs, |it| it.bytes_per_s / 1e6)
    });
    let axes = ["links", "MB/s"];
    plot(results, "Four links, one of them bad", axes, Shape::Columns, panels.into())
}

/// Draws the bytes in each tenth of a second, with marks at the cut and the return.
pub(super) fn draw_recovery(text: &mut String, results: &Results, out: &Path) -> Result<()> {
    let panels = results.outages(RECOVERY).into_iter().map(|turns| {
        let seconds = BUCKET_MS as f64 / 1e3;
        let turn = |timeline: &&Timeline| {
            let points = timeline.bytes.iter().enumerate();
            points.map(|(at, bytes)| (at as f64 * seconds, *bytes as f64 / seconds / 1e6)).collect()
        };
        let first = turns[0];
        let marks = [(first.cut_ms, "cut"), (first.back_ms, "back")];
        CoursePanel {
            caption: first.outage(),
            turns: turns.iter().map(turn).collect(),
            marks: marks.map(|(ms, what)| (ms as f64 / 1e3, what)).into(),
        }
    });
    let title = "Links are cut and come back".to_owned();
    let course =
        Course { title, y: "MB/s".to_owned(), panels: panels.collect(), note: note(results) };
    if course.write(&out.join("recovery.svg"))? {
        let _ = writeln!(text, "\n![{}](recovery.svg)", course.title);
    }
    Ok(())
}
