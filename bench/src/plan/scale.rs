//! Cores and hosts: the sixth suite, what more of them add.
//!
//! | set | network | what for |
//! |---|---|---|
//! | `scale-cores` | MTU 9000 | 1, 2, 4, 7, .. queues, each with threads of its own on both sides |
//! | `scale-hosts` | the same | a thousand sessions, idle and with some busy ones among them |
//!
//! Half of the cores are for each side. One of them is left for everything else where there are
//! enough: so seven queues for sixteen cores.

use std::time::Duration;

use super::{Contest, Entry, KIB, MIB, Offered, Pattern, SMALL_MIB, SPIN_US, Set, jobs};
use crate::crowd::Crowd;
use crate::network::Link;
use crate::peer::{Peer, Protocol};

use Pattern::{Randread, Randwrite, Read, Write};

pub(crate) const CORES: &str = "scale-cores";
pub(crate) const HOSTS: &str = "scale-hosts";
/// The links of crowds, under their peers' names. Over Ethernet the kernel offers each frame to the
/// sockets of all sessions of an interface; over TCP a target takes 128 connections at most.
pub(crate) const CROWDED: [&str; 1] = ["udp"];
/// Requests in flight of each queue: small ones, and large ones.
pub(crate) const SMALL_DEPTH: u16 = 32;
pub(crate) const LARGE_DEPTH: u16 = 16;
/// Numbers of queues that are measured, as far as there are cores.
const QUEUES: [u16; 6] = [1, 2, 4, 7, 15, 31];
/// The most lanes of an interface of FCoE.
const LANES_MAX: u16 = 16;
/// Cores of a side of which none is left for anything else.
const FEW_CORES: u16 = 3;
/// Sessions at one target, and those of them that are busy.
pub(crate) const SESSIONS: u32 = 1000;
pub(crate) const BUSY: u32 = 50;
const BUSY_DEPTH: u16 = 4;
const CROWD_MIB: u32 = 64;

pub(super) fn sets(runtime: Duration, offered: Offered) -> Vec<Set> {
    vec![cores(runtime, offered), hosts(runtime, offered)]
}

/// Cores of each side on a machine with so many.
pub(crate) fn cores_each(cores: usize) -> u16 {
    u16::try_from(cores / 2).unwrap_or(u16::MAX).max(1)
}

/// Numbers of queues for so many cores of each side, or up to a wanted one.
fn queues(each: u16, wanted_max: Option<u16>) -> Vec<u16> {
    let most = wanted_max.unwrap_or(if each > FEW_CORES { each - 1 } else { each });
    let mut queues: Vec<_> = QUEUES.into_iter().filter(|it| *it < most).collect();
    queues.push(most);
    queues
}

/// The sentence about machines whose cores do not suffice for more than one queue.
pub(crate) fn cannot_tell(cores: usize) -> Option<String> {
    (cores_each(cores) == 1).then(|| {
        format!(
            "This machine has {cores} cores, one for each side: one queue is measured, and how \
             speed scales with cores cannot be told here."
        )
    })
}

fn set(name: &'static str, runtime: Duration, offered: Offered, peers: Vec<Peer>) -> Set {
    let set = Set::new(name, Link::unshaped(9000), runtime, peers);
    Set { export_mib: SMALL_MIB, cores: Some(cores_each(offered.cores.into()).into()), ..set }
}

/// A target with as many threads for each number of queues; one nbdkit, which has threads for each
/// connection.
fn cores(runtime: Duration, offered: Offered) -> Set {
    let queues = queues(cores_each(offered.cores.into()), offered.queues_max);
    let mut peers = vec![Peer::new(Protocol::Nbd, SPIN_US)];
    for protocol in [Protocol::Tyche, Protocol::Udp, Protocol::Tsockets, Protocol::FcoeInline] {
        let is_fcoe = protocol == Protocol::FcoeInline;
        let fits = |it: &&u16| !is_fcoe || it.is_power_of_two() && **it <= LANES_MAX;
        let threaded = |threads: &u16| Peer::new(protocol, SPIN_US).with_threads(*threads);
        peers.extend(queues.iter().filter(fits).map(threaded));
    }
    let mut set = set(CORES, runtime, offered, peers);
    let kinds = [
        jobs(&[Randread, Randwrite], 4 * KIB, &[SMALL_DEPTH]),
        jobs(&[Read, Write], 64 * KIB, &[LARGE_DEPTH]),
        jobs(&[Read, Write], MIB, &[LARGE_DEPTH]),
    ];
    for kind in kinds.concat() {
        // Next to each other: what is divided by each other is measured within a minute.
        for &threads in &queues {
            let peers = set.peers.iter().enumerate();
            let alike = peers.filter(|(_, it)| it.threads.is_none_or(|it| it == threads));
            let entries = alike.map(|(peer, _)| Entry { peer, offloads: true }).collect();
            let job = kind.with_threads(threads);
            set.contests.push(Contest { job, entries, floors: Vec::new() });
        }
    }
    set
}

fn hosts(runtime: Duration, offered: Offered) -> Set {
    let peers = vec![Peer::new(Protocol::Udp, 0)];
    let mut set = set(HOSTS, runtime, offered, peers);
    set.export_mib = CROWD_MIB;
    let crowd =
        |peer| move |[sessions, busy]: [u32; 2]| Crowd { sessions, busy, depth: BUSY_DEPTH, peer };
    set.crowds = (0..set.peers.len())
        .flat_map(|peer| [[SESSIONS, 0], [BUSY, BUSY], [SESSIONS, BUSY]].map(crowd(peer)))
        .collect();
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(cores: u16, queues_max: Option<u16>) -> Offered {
        Offered { cores, queues_max, ..Offered::default() }
    }

    #[test]
    fn queues_are_as_many_as_there_are_cores_for() {
        for (cores, expected) in [
            (2, &[1][..]),
            (3, &[1]),
            (4, &[1, 2]),
            (6, &[1, 2, 3]),
            (8, &[1, 2, 3]),
            (16, &[1, 2, 4, 7]),
            (32, &[1, 2, 4, 7, 15]),
            (64, &[1, 2, 4, 7, 15, 31]),
        ] {
            assert_eq!(queues(cores_each(cores), None), expected, "{cores} cores");
            assert_eq!(cannot_tell(cores).is_some(), expected == [1], "{cores} cores");
        }
        assert_eq!(queues(1, Some(4)), [1, 2, 4]);
        assert_eq!(queues(8, Some(1)), [1]);
    }

    #[test]
    fn each_queue_has_a_thread_of_the_target_and_a_connection_of_nbd() {
        let set = cores(Duration::from_secs(2), offered(16, None));
        assert_eq!(set.cores, Some(8));
        assert_eq!(set.contests.len(), 6 * 4);
        for contest in &set.contests {
            let threads = contest.job.threads;
            let peers: Vec<_> = contest.entries.iter().map(|it| &set.peers[it.peer]).collect();
            let names: Vec<_> = peers.iter().map(|it| it.name.as_str()).collect();
            // FCoE divides commands by bits of their numbers.
            let expected = ["nbd", "tyche", "udp", "tsockets", "fcoe"];
            assert_eq!(names, &expected[..if threads == 7 { 4 } else { 5 }]);
            assert!(peers[1..].iter().all(|it| it.threads == Some(threads)));
        }
    }

    #[test]
    fn crowds_are_idle_or_busy_over_each_link() {
        let set = hosts(Duration::from_secs(2), offered(2, None));
        assert_eq!(set.crowds.len(), 3 * CROWDED.len());
        let names: Vec<_> = set.peers.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, CROWDED);
    }
}
