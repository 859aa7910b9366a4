//! The plan: sets of jobs, each on a network of its own, with the peers that run them.
//!
//! | set | network | what for |
//! |---|---|---|
//! | `mtu-9000` | jumbo frames | everything; TCP also without offloads; batching against none |
//! | `no-spin` | the same | depth 1 with both sides of Tyche sleeping rather than spinning |
//! | `mtu-1500`, `mtu-65535` | short and longest frames | 4 KiB and 1 MiB |
//! | `1g-batching` | shaped to 1 Gbit/s | batching of requests and data: MSST 2015 |
//! | `1g-one-page` | the same, a frame holds one page | batching of requests alone: MSST 2015 |
//! | `1g-mixed` | shaped to 1 Gbit/s | small and large requests in one session: MSST 2015 |
//! | `10g-threads` | shaped to 10 Gbit/s | who drives the session, CPU at both sides: MSST 2014 |
//! | `10g-links` | two of those, a session on each | one receiving thread or several: MSST 2014 |
//!
//! These are the sets of the main suite; [`links`] is the other suite.

pub(crate) mod links;

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::floor::{Floor, Kind};
use crate::job::{Job, Pattern};
use crate::network::{Cut, Link};
use crate::peer::{Exports, Peer, Protocol};

use Pattern::{Randread, Randrw, Randwrite, Read, Write};

/// How long either side may spin, in microseconds, where spinning is allowed.
const SPIN_US: u32 = 1000;
/// Exports of each peer, and smaller ones for sets in which only the link matters.
const EXPORTS: Exports = Exports { count: 1, mib: 1024 };
const EXPORTS_SHAPED: Exports = Exports { mib: 256, ..EXPORTS };
const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;
/// An MTU that lets a frame carry one page and the entries of a batch, but not a second page.
const ONE_PAGE_MTU: u32 = 4600;
pub(crate) const GBIT: u64 = 1_000_000_000;

/// One peer in one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Index among the set's peers.
    pub(crate) peer: usize,
    pub(crate) offloads: bool,
}

/// A job, the peers that run it in turn, and the bare frames next to it.
#[derive(Clone, Debug)]
pub(crate) struct Contest {
    pub(crate) job: Job,
    pub(crate) entries: Vec<Entry>,
    pub(crate) floors: Vec<Floor>,
}

/// A job during which links are cut, and come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    pub(crate) job: Job,
    pub(crate) how: Cut,
    /// Number of the job's links that are cut: the last ones.
    pub(crate) links: u16,
}

/// Contests on one network, between servers that run at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) link: Link,
    pub(crate) exports: Exports,
    pub(crate) runtime: Duration,
    pub(crate) peers: Vec<Peer>,
    pub(crate) contests: Vec<Contest>,
    /// Outages of the first peer alone, after the contests.
    pub(crate) outages: Vec<Outage>,
}

impl Set {
    /// The number of the peer of that name.
    fn peer(&self, name: &str) -> Option<usize> {
        self.peers.iter().position(|peer| peer.name == name)
    }
}

/// A comparison of its own, with results of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Suite {
    /// Tyche, TCP, NBD and bare frames over one link.
    #[default]
    Main,
    /// Many links as one.
    Links,
}

/// Optional features, compared only if Tyche and the system offer them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offered {
    pub(crate) batch: bool,
    pub(crate) hand_over: bool,
    pub(crate) channels: bool,
    /// Whether the kernel and the system let NBD use several links.
    pub(crate) mptcp: bool,
}

/// The user's selection; an empty list means all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) sets: Vec<String>,
    pub(crate) mtus: Vec<u32>,
    pub(crate) peers: Vec<String>,
    /// Prefixes of job names.
    pub(crate) jobs: Vec<String>,
}

/// All sets of a suite, with `runtime` for each job of the main set and half of it in the others.
pub(crate) fn sets(suite: Suite, runtime: Duration, offered: Offered) -> Vec<Set> {
    if suite == Suite::Links {
        return links::sets(runtime, offered);
    }
    let mut sets = vec![main(runtime, offered), no_spin(runtime / 2)];
    sets.extend([("mtu-1500", 1500), ("mtu-65535", 65535)].map(|it| other_mtu(it, runtime / 2)));
    sets.extend(shaped(runtime / 2, offered));
    sets.push(threads(runtime / 2, offered));
    sets.extend(offered.hand_over.then(|| receivers(runtime / 2)));
    sets
}

/// Leaves out everything that is not selected.
pub(crate) fn narrow(sets: Vec<Set>, wanted: &Wanted) -> Vec<Set> {
    let among = |list: &[String], name: &str| list.is_empty() || list.iter().any(|it| it == name);
    let mut left = Vec::new();
    for mut set in sets {
        let mtu = wanted.mtus.is_empty() || wanted.mtus.contains(&set.link.mtu);
        if !mtu || !among(&wanted.sets, set.name) {
            continue;
        }
        let peers: Vec<_> = set.peers.iter().map(|it| among(&wanted.peers, &it.name)).collect();
        set.contests.retain_mut(|contest| {
            contest.entries.retain(|entry| peers[entry.peer]);
            if !among(&wanted.peers, "floor") {
                contest.floors.clear();
            }
            let job = wanted.jobs.is_empty() || wanted.jobs.iter().any(|it| contest.job.is_a(it));
            job && !(contest.entries.is_empty() && contest.floors.is_empty())
        });
        set.outages.retain(|outage| {
            let job = wanted.jobs.is_empty() || wanted.jobs.iter().any(|it| outage.job.is_a(it));
            job && peers.first() == Some(&true)
        });
        if !(set.contests.is_empty() && set.outages.is_empty()) {
            left.push(set);
        }
    }
    left
}

fn three(spin_us: u32) -> Vec<Peer> {
    [Protocol::Tyche, Protocol::Tsockets, Protocol::Nbd]
        .map(|protocol| Peer::new(protocol, spin_us))
        .into()
}

/// A job that every peer runs, with the usual offloads for TCP.
fn contest(job: Job, peers: &[Peer]) -> Contest {
    let entries = (0..peers.len()).map(|peer| Entry { peer, offloads: true }).collect();
    Contest { job, entries, floors: Vec::new() }
}

fn jobs(patterns: &[Pattern], block_bytes: u32, depths: &[u16]) -> Vec<Job> {
    let of = |depth: &u16| patterns.iter().map(|rw| Job::new(*rw, block_bytes, *depth)).collect();
    depths.iter().flat_map(|depth| -> Vec<_> { of(depth) }).collect()
}

/// The bare frames next to a job. Those next to reads serve for writes as well: they are the same
/// frames in the other direction.
fn floors(job: &Job, mtu: u32) -> Vec<Floor> {
    let floor = |kind| Floor { depth: job.depth, ..Floor::new(kind, mtu) };
    match (job.rw, job.block_bytes) {
        (Randread, _) if job.depth == 1 && mtu > 4 * KIB => {
            vec![floor(Kind::Exchange), floor(Kind::Echo)]
        }
        (Randread, _) => vec![floor(Kind::Exchange)],
        (Read, MIB) => vec![Floor::new(Kind::Stream, mtu)],
        _ => Vec::new(),
    }
}

fn main(runtime: Duration, offered: Offered) -> Set {
    let link = Link::unshaped(9000);
    let mut peers = three(SPIN_US);
    let everybody = peers.clone();
    let mut all = jobs(&[Randread, Randwrite], 4 * KIB, &[1, 8, 32, 128]);
    all.push(Job::new(Randrw, 4 * KIB, 32));
    all.extend(jobs(&[Read, Write], 64 * KIB, &[16]));
    all.extend(jobs(&[Read, Write], MIB, &[16]));
    let mut contests: Vec<_> = all.iter().map(|job| contest(*job, &everybody)).collect();
    let without_offloads = |job: &Job| {
        job.block_bytes == MIB || (job.rw == Randread && [1, 32, 128].contains(&job.depth))
    };
    for contest in &mut contests {
        contest.floors = floors(&contest.job, link.mtu);
        if without_offloads(&contest.job) {
            let over_tcp = everybody.iter().map(|peer| peer.protocol != Protocol::Tyche);
            let bare = over_tcp.enumerate().filter(|(_, tcp)| *tcp);
            contest.entries.extend(bare.map(|(peer, _)| Entry { peer, offloads: false }));
        }
        if offered.batch && contest.job.block_bytes == 4 * KIB && contest.job.depth == 128 {
            contest.entries.push(Entry { peer: everybody.len(), offloads: true });
        }
    }
    if offered.batch {
        peers.push(Peer::new(Protocol::Tyche, SPIN_US).batching("none"));
    }
    Set { name: "mtu-9000", link, exports: EXPORTS, runtime, peers, contests, outages: Vec::new() }
}

fn no_spin(runtime: Duration) -> Set {
    let (link, peers) = (Link::unshaped(9000), three(0));
    let jobs = jobs(&[Randread, Randwrite], 4 * KIB, &[1]);
    let contests = jobs.into_iter().map(|job| contest(job, &peers)).collect();
    Set { name: "no-spin", link, exports: EXPORTS, runtime, peers, contests, outages: Vec::new() }
}

fn other_mtu((name, mtu): (&'static str, u32), runtime: Duration) -> Set {
    let (link, peers) = (Link::unshaped(mtu), three(SPIN_US));
    let mut all = jobs(&[Randread, Randwrite], 4 * KIB, &[1, 32, 128]);
    all.extend(jobs(&[Read, Write], MIB, &[16]));
    let with_floor = |job: Job| Contest { floors: floors(&job, mtu), ..contest(job, &peers) };
    let contests = all.into_iter().map(with_floor).collect();
    Set { name, link, exports: EXPORTS, runtime, peers, contests, outages: Vec::new() }
}

/// Utilization of the link, MSST 2015.
fn shaped(runtime: Duration, offered: Offered) -> Vec<Set> {
    let tyche = || Peer::new(Protocol::Tyche, SPIN_US);
    let mut ours = vec![tyche()];
    if offered.batch {
        ours.push(tyche().batching("none"));
    }
    let with_nbd = [&ours[..], &[Peer::new(Protocol::Nbd, 0)]].concat();
    let patterns = [Randread, Randwrite];
    let shares = [1, 10, 50];
    let mixed = shares.iter().flat_map(|share| patterns.map(|rw| Job::mixed(rw, 32, *share)));
    let set = |name, mtu, peers: &[Peer], jobs: Vec<Job>| Set {
        name,
        link: Link::shaped(mtu, GBIT),
        exports: EXPORTS_SHAPED,
        runtime,
        peers: peers.to_vec(),
        contests: jobs.into_iter().map(|job| contest(job, peers)).collect(),
        outages: Vec::new(),
    };
    vec![
        set("1g-batching", 9000, &with_nbd, jobs(&patterns, 4 * KIB, &[1, 32, 128])),
        set("1g-one-page", ONE_PAGE_MTU, &ours, jobs(&patterns, 4 * KIB, &[32, 128])),
        set("1g-mixed", 9000, &ours, mixed.collect()),
    ]
}

/// The threads that drive the session and receive, and their costs, MSST 2014. No peer spins:
/// threads that share a core would spin at each other's expense.
fn threads(runtime: Duration, offered: Offered) -> Set {
    let tyche = || Peer::new(Protocol::Tyche, 0);
    let mut peers = vec![tyche(), tyche().queueing()];
    if offered.hand_over {
        peers.push(tyche().handing_over("each"));
    }
    let mut all = jobs(&[Read, Write], 4 * KIB, &[1, 32]);
    all.extend(jobs(&[Read, Write], 512 * KIB, &[1, 32]));
    let contests = all.into_iter().map(|job| contest(job, &peers)).collect();
    let link = Link::shaped(9000, 10 * GBIT);
    let exports = EXPORTS_SHAPED;
    Set { name: "10g-threads", link, exports, runtime, peers, contests, outages: Vec::new() }
}

/// Receiving threads for two links, MSST 2014. No peer spins, as above.
fn receivers(runtime: Duration) -> Set {
    let tyche = || Peer::new(Protocol::Tyche, 0);
    let peers = vec![tyche(), tyche().handing_over("one"), tyche().handing_over("each")];
    let mut all = jobs(&[Read, Write], 4 * KIB, &[32]);
    all.extend(jobs(&[Read, Write], MIB, &[8]));
    let contests = all.into_iter().map(|job| contest(job.on_two_links(), &peers)).collect();
    let link = Link { cables: 2, ..Link::shaped(9000, 10 * GBIT) };
    let exports = Exports { count: 2, ..EXPORTS_SHAPED };
    Set { name: "10g-links", link, exports, runtime, peers, contests, outages: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: Offered =
        Offered { batch: true, hand_over: true, channels: true, mptcp: true };

    fn all() -> Vec<Set> {
        sets(Suite::Main, Duration::from_secs(2), EVERYTHING)
    }

    #[test]
    fn entries_name_peers_of_their_set() {
        let links = sets(Suite::Links, Duration::from_secs(2), EVERYTHING);
        for set in all().into_iter().chain(links) {
            for contest in &set.contests {
                assert!(contest.entries.iter().all(|it| it.peer < set.peers.len()), "{}", set.name);
            }
        }
        let nothing_offered = sets(Suite::Main, Duration::from_secs(2), Offered::default());
        let peers = nothing_offered.iter().flat_map(|set| &set.peers);
        assert!(peers.clone().all(|peer| peer.batch.is_none() && peer.hand_over.is_none()));
    }

    #[test]
    fn the_links_take_less_than_twelve_minutes() {
        let sets = sets(Suite::Links, Duration::from_secs(2), EVERYTHING);
        let time: Duration = sets.iter().map(|set| crate::measure::estimate(set, 3)).sum();
        assert!(time < Duration::from_secs(12 * 60), "{time:?}");
    }

    #[test]
    fn the_whole_takes_less_than_half_an_hour() {
        let time: Duration = all().iter().map(|set| crate::measure::estimate(set, 5)).sum();
        assert!(time < Duration::from_secs(30 * 60), "{time:?}");
    }

    #[test]
    fn what_is_not_wanted_is_left_out() {
        let wanted = Wanted {
            mtus: vec![9000],
            peers: vec!["nbd".to_owned()],
            jobs: vec!["randread-4k-1".to_owned()],
            ..Wanted::default()
        };
        let left = narrow(all(), &wanted);
        let names: Vec<_> = left.iter().map(|set| set.name).collect();
        assert_eq!(names, ["mtu-9000", "no-spin", "1g-batching"]);
        let contests = left.iter().flat_map(|set| &set.contests);
        for contest in contests.clone() {
            assert_eq!(contest.job.to_string(), "randread-4k-1");
            assert!(contest.floors.is_empty());
        }
        // The first has entries with and without offloads.
        assert_eq!(contests.map(|contest| contest.entries.len()).sum::<usize>(), 2 + 1 + 1);
    }
}
