//! Tables of the suite `links`.

use std::collections::BTreeSet;

use super::{MB_PER_S, NOTHING, Table, Unit, by_peer, cpu, head, section};
use crate::job::{Bundle, Job};
use crate::result::{Measurement, Results, Spread};
use crate::timeline::Timeline;

const PERCENT: Unit = Unit::new(Measurement::payload_utilization, 0.01, 1);

/// All tables of a set; empty if it was not measured.
pub(super) fn set(results: &Results, name: &str, jobs: &[Job]) -> String {
    let mut text = String::new();
    if name == "links-channels" {
        matrices(&mut text, results, name, jobs);
        return text;
    }
    section(&mut text, "MB/s", || by_peer(results, name, jobs, MB_PER_S));
    section(&mut text, "Data in percent of the payload capacity of the links asked", || {
        by_peer(results, name, jobs, PERCENT)
    });
    section(&mut text, "CPU", || cpu(results, name, jobs));
    section(&mut text, "Cut and return", || outages(results, name));
    text
}

/// Matrices of channels (down) and links with queues (across), one for each kind of request.
fn matrices(text: &mut String, results: &Results, set: &str, jobs: &[Job]) {
    let kind = |job: &Job| {
        let depth = job.depth * job.threads;
        Job { bundle: None, threads: 1, depth, ..*job }
    };
    let kinds: BTreeSet<_> = jobs.iter().map(kind).collect();
    let channels: BTreeSet<_> = jobs.iter().map(|it| it.bundle().channels).collect();
    let places: BTreeSet<_> = jobs.iter().map(|it| (it.bundle().links, it.threads)).collect();
    let names: Vec<_> =
        places.iter().map(|(links, queues)| format!("{links} links, {queues} queues")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for kind in kinds {
        section(text, &format!("{kind}: MB/s by number of links and queues"), || {
            let mut table = Table::new(&head("channels on each link", &names, &[]));
            for &channels in &channels {
                let cells = places.iter().map(|&(links, queues)| {
                    let bundle = Bundle { channels, ..Bundle::of(links) };
                    let job = kind.over(bundle).shared_by(queues);
                    MB_PER_S.show(results.spread(results.who(set, "tyche"), &job, MB_PER_S.metric))
                });
                let first = [channels.to_string()].into_iter();
                table.row(&first.chain(cells).collect::<Vec<_>>());
            }
            table.text
        });
    }
}

fn outages(results: &Results, set: &str) -> String {
    let columns =
        ["MB/s before", "while cut", "longest gap, ms", "slowest request, ms", "back after, ms"];
    let mut table = Table::new(&head("what", &columns, &[]));
    for timelines in results.outages(set) {
        let show = |digits: usize, of: &dyn Fn(&Timeline) -> f64| {
            let spread = Spread::of(timelines.iter().map(|it| of(it)));
            spread.map_or_else(
                || NOTHING.to_owned(),
                |Spread { median, min, max }| {
                    format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
                },
            )
        };
        let never = timelines.iter().any(|it| it.returned_ms().is_none());
        let back = |it: &Timeline| it.returned_ms().unwrap_or_default() as f64;
        table.row(&[
            timelines[0].outage(),
            show(1, &|it| it.usual() / 1e6),
            show(1, &|it| it.during() / 1e6),
            show(0, &|it| it.gap_ms as f64),
            show(0, &|it| it.slowest_ms as f64),
            if never { "never".to_owned() } else { show(0, &back) },
        ]);
    }
    table.text
}
