//! The chapters of the suite `fcoe`.

use super::{Chapter, KIB, Pattern, Plot, panel, plot};
use crate::job::{Job, size};
use crate::plan::fcoe::DEEP;
use crate::plot::Shape;
use crate::result::Results;

use Pattern::{Randread, Randwrite};

const SET: &str = "fcoe";
const CONTEXTS: &str = "fcoe-contexts";

pub(super) const CHAPTERS: [Chapter; 2] = [
    Chapter {
        set: SET,
        heading: "Requests by size and depth",
        about: "FastFCoE, Figures 5b and 15 and the text, at one core: the initiator of `tyche` \
                (`fcoe`), and one in layers as Open-FCoE has them (`fcoe-layered`), with the same \
                target; beside them Tyche's own protocol and NBD on the same network. Two cores \
                carry both ends, so nothing is said about more cores. Our own load runs in the \
                thread that completes requests; fio drives the others.",
        plots: &[("fcoe.svg", by_size), ("fcoe-latency.svg", latency)],
    },
    Chapter {
        set: CONTEXTS,
        heading: "Contexts, nobody spins",
        about: "FastFCoE, Figure 8 and Tables 1 to 4: one context from frame to completion, or \
                three that hand over to each other.",
        plots: &[("fcoe-switches.svg", switches)],
    },
];

fn by_size(results: &Results) -> Plot {
    let panel = |rw: Pattern, caption: &str| {
        let jobs = [512, 4 * KIB, 8 * KIB].map(|bytes| (size(bytes), Job::new(rw, bytes, DEEP)));
        panel(results, SET, caption, &jobs, |it| it.iops / 1e3)
    };
    let panels = vec![panel(Randread, "random reads"), panel(Randwrite, "random writes")];
    let axes = ["bytes of a request", "thousand requests per second"];
    plot(results, "64 requests in flight at MTU 2158", axes, Shape::Columns, panels)
}

/// Random reads and writes at depth 1.
fn alone(bytes: u32) -> [(String, Job); 2] {
    [("random read", Randread), ("random write", Randwrite)]
        .map(|(name, rw)| (name.to_owned(), Job::new(rw, bytes, 1)))
}

fn latency(results: &Results) -> Plot {
    let panels = [512, 4 * KIB]
        .map(|bytes| panel(results, SET, &size(bytes), &alone(bytes), |it| it.mean_ns() / 1e3));
    let axes = ["", "microseconds, mean"];
    plot(results, "One request in flight at MTU 2158", axes, Shape::Columns, panels.into())
}

fn switches(results: &Results) -> Plot {
    let jobs = alone(4 * KIB);
    let panel = panel(results, CONTEXTS, "4 KiB at depth 1", &jobs, |it| it.host_switches_per_io());
    let axes = ["", "context switches of the host per request"];
    plot(results, "Context switches, nobody spins", axes, Shape::Columns, vec![panel])
}
