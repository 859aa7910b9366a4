//! The plan: sets of jobs, each on a network of its own, with the peers that run them.
//!
//! The sets of the main suite are those of [`single`], which hold Tyche against others on one link,
//! and those of [`papers`], which are figures of the papers. [`links`], [`fcoe`], [`keys`],
//! [`rdma`] and [`scale`] are the other suites.

pub(crate) mod fcoe;
mod keys;
pub(crate) mod links;
mod papers;
pub(crate) mod rdma;
pub(crate) mod scale;
mod single;

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::crowd::Crowd;
use crate::double::Double;
use crate::floor::Floor;
use crate::job::{Job, Pattern};
use crate::network::{Cut, Link};
use crate::peer::Peer;

/// How long either side may spin, in microseconds, where spinning is allowed.
const SPIN_US: u32 = 1000;
/// Size of each peer's export in MiB, and of smaller ones where only link or threads matter.
const EXPORT_MIB: u32 = 1024;
const SMALL_MIB: u32 = 256;
const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;
/// Turns of sets that draw a figure of the papers rather than hold a bar of single runs.
const PAPER_TURNS: u32 = 3;
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
    /// Index of the peer among the set's.
    pub(crate) peer: usize,
}

/// Contests on one network, between servers that run at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) link: Link,
    /// Size of each peer's export, in MiB.
    pub(crate) export_mib: u32,
    pub(crate) runtime: Duration,
    /// Turns at most, however many there are.
    pub(crate) turns_max: Option<u32>,
    /// Cores that each side has to itself; `None`: the threads of both may run on any.
    pub(crate) cores: Option<usize>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) contests: Vec<Contest>,
    /// Jobs whose time is cut into stages, by `tyche-lab bench`.
    pub(crate) staged: Vec<Contest>,
    /// Configurations in which messages are measured, with their names.
    pub(crate) messages: Vec<(&'static str, Double)>,
    /// Outages, after the contests.
    pub(crate) outages: Vec<Outage>,
    /// Crowds of sessions, each at a target of its own.
    pub(crate) crowds: Vec<Crowd>,
}

impl Set {
    /// A set without contests, in which each side has a core.
    fn new(name: &'static str, link: Link, runtime: Duration, peers: Vec<Peer>) -> Self {
        let export_mib = if link.rate.is_some() { SMALL_MIB } else { EXPORT_MIB };
        Self {
            name,
            link,
            export_mib,
            runtime,
            turns_max: None,
            cores: Some(1),
            peers,
            contests: Vec::new(),
            staged: Vec::new(),
            messages: Vec::new(),
            outages: Vec::new(),
            crowds: Vec::new(),
        }
    }

    /// The turns of this set in a run with so many.
    pub(crate) fn turns(&self, turns: u32) -> u32 {
        self.turns_max.map_or(turns, |most| most.min(turns))
    }

    /// Adds a job for every peer, with the usual offloads for TCP.
    fn add_for_all(&mut self, jobs: impl IntoIterator<Item = Job>) {
        let contests = jobs.into_iter().map(|job| contest(job, &self.peers)).collect::<Vec<_>>();
        self.contests.extend(contests);
    }

    /// Adds a job for those of the named peers that the set has.
    fn add_for(&mut self, job: Job, names: &[&str]) {
        let peers = names.iter().filter_map(|name| self.peer(name));
        let entries = peers.map(|peer| Entry { peer, offloads: true }).collect();
        self.contests.push(Contest { job, entries, floors: Vec::new() });
    }

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
    /// Fibre Channel over Ethernet: the initiator of Tyche, and one in layers.
    Fcoe,
    /// Frames that are sealed, and such that are not.
    Keys,
    /// Rings in the peer's memory, without network cards.
    Rdma,
    /// More cores, and more hosts.
    Scale,
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

/// The name by which the measurement of messages is selected, as jobs are.
pub(crate) const MESSAGES: &str = "messages";

/// The name by which crowds are selected, as jobs are.
pub(crate) const CROWDS: &str = "crowds";

/// Optional features, compared only if Tyche and the system offer them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offered {
    pub(crate) batch: bool,
    pub(crate) hand_over: bool,
    pub(crate) channels: bool,
    /// Whether the kernel and the system let NBD use several links.
    pub(crate) mptcp: bool,
    /// Cores of the machine.
    pub(crate) cores: u16,
    /// The most queues that the user wants; `None`: as many as there are cores for.
    pub(crate) queues_max: Option<u16>,
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

/// All sets of a suite, with `runtime` for each job; longer where batch sizes are tuned.
pub(crate) fn sets(suite: Suite, runtime: Duration, offered: Offered) -> Vec<Set> {
    match suite {
        Suite::Main => [single::sets(runtime), papers::sets(runtime, offered)].concat(),
        Suite::Links => links::sets(runtime, offered),
        Suite::Fcoe => fcoe::sets(runtime),
        Suite::Keys => keys::sets(runtime),
        Suite::Rdma => rdma::sets(runtime),
        Suite::Scale => scale::sets(runtime, offered),
    }
}

/// Leaves out everything that is not selected.
pub(crate) fn narrow(sets: Vec<Set>, wanted: &Wanted) -> Vec<Set> {
    let among = |list: &[String], name: &str| list.is_empty() || list.iter().any(|it| it == name);
    let is_job = |job: &Job| wanted.jobs.is_empty() || wanted.jobs.iter().any(|it| job.is_a(it));
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
            is_job(&contest.job) && !(contest.entries.is_empty() && contest.floors.is_empty())
        });
        set.staged.retain_mut(|contest| {
            contest.entries.retain(|entry| peers[entry.peer]);
            is_job(&contest.job) && !contest.entries.is_empty()
        });
        set.outages.retain(|outage| is_job(&outage.job) && peers[outage.peer]);
        set.messages
            .retain(|(name, _)| among(&wanted.peers, name) && among(&wanted.jobs, MESSAGES));
        set.crowds.retain(|crowd| peers[crowd.peer] && among(&wanted.jobs, CROWDS));
        let has_jobs = !(set.contests.is_empty() && set.staged.is_empty());
        let has_more = !(set.outages.is_empty() && set.messages.is_empty());
        if has_jobs || has_more || !set.crowds.is_empty() {
            left.push(set);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: Offered = Offered {
        batch: true,
        hand_over: true,
        channels: true,
        mptcp: true,
        cores: 16,
        queues_max: None,
    };

    fn all() -> Vec<Set> {
        sets(Suite::Main, Duration::from_secs(2), EVERYTHING)
    }

    #[test]
    fn entries_name_peers_of_their_set() {
        let others = [Suite::Links, Suite::Fcoe, Suite::Keys, Suite::Rdma, Suite::Scale]
            .map(|suite| sets(suite, Duration::from_secs(2), EVERYTHING));
        for set in all().into_iter().chain(others.into_iter().flatten()) {
            for contest in &set.contests {
                assert!(contest.entries.iter().all(|it| it.peer < set.peers.len()), "{}", set.name);
            }
        }
        let nothing_offered = sets(Suite::Main, Duration::from_secs(2), Offered::default());
        let peers = nothing_offered.iter().flat_map(|set| &set.peers);
        assert!(peers.clone().all(|peer| peer.batch.is_none() && peer.hand_over.is_none()));
    }

    #[test]
    fn each_suite_takes_as_long_as_its_readme_says() {
        let suites = [
            (Suite::Main, 60),
            (Suite::Links, 45),
            (Suite::Fcoe, 20),
            (Suite::Keys, 15),
            (Suite::Rdma, 25),
            (Suite::Scale, 45),
        ];
        for (suite, minutes) in suites {
            let sets = sets(suite, Duration::from_secs(2), EVERYTHING);
            let time = |set: &Set| crate::measure::estimate(set, 5);
            let whole: Duration = sets.iter().map(time).sum();
            let each: Vec<_> = sets.iter().map(|set| (set.name, time(set))).collect();
            assert!(whole < Duration::from_secs(minutes * 60), "{whole:?}: {each:?}");
        }
    }

    #[test]
    fn a_tuner_has_time() {
        let tuned =
            all().into_iter().filter(|set| set.peers.iter().any(|peer| peer.batch.is_some()));
        for set in tuned {
            assert!(set.runtime >= Duration::from_secs(15), "{}", set.name);
        }
    }

    #[test]
    fn what_is_not_wanted_is_left_out() {
        let wanted = Wanted {
            mtus: vec![9000],
            peers: vec!["nbd".to_owned()],
            jobs: vec!["randread-4k-32".to_owned()],
            ..Wanted::default()
        };
        let left = narrow(all(), &wanted);
        let names: Vec<_> = left.iter().map(|set| set.name).collect();
        assert_eq!(names, ["mtu-9000", "default"]);
        let contests = left.iter().flat_map(|set| &set.contests);
        for contest in contests.clone() {
            assert_eq!(contest.job.to_string(), "randread-4k-32");
            assert!(contest.floors.is_empty());
        }
        // The first has entries with and without offloads.
        assert_eq!(contests.map(|contest| contest.entries.len()).sum::<usize>(), 2 + 1);
    }
}
