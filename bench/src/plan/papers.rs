//! Figures of the papers on one link, with the resources of this machine.
//!
//! | set | network | what for |
//! |---|---|---|
//! | `10g-batching` | shaped to 10 Gbit/s | how requests share frames: MSST 2015 |
//! | `10g-one-page` | the same, a frame holds one page | batching of requests alone: MSST 2015 |
//! | `10g-mixed` | shaped to 10 Gbit/s | small and large requests in one session: MSST 2015 |
//! | `stages` | jumbo frames | where the time of a request goes: MSST 2015 |
//! | `10g-threads` | shaped to 10 Gbit/s | who sends, by threads: MSST 2014, Figures 12 and 13 |
//! | `10g-links` | two of those | who receives, by threads: MSST 2014, Figure 11 |
//!
//! A link of 10 Gbit/s is more than two cores can fill with small requests, as it was for the
//! papers' machines: its utilization tells what a request costs. One of 1 Gbit/s is full whatever
//! the software does.

use std::time::Duration;

use super::{GBIT, KIB, MIB, Offered, PAPER_TURNS, SPIN_US, Set, contest, jobs};
use crate::job::{Bundle, Job, Pattern};
use crate::network::Link;
use crate::peer::{Peer, Protocol};

use Pattern::{Randread, Randwrite, Read, Write};

/// An MTU that lets a frame carry one page and the entries of a batch, but not a second page.
const ONE_PAGE_MTU: u32 = 4600;
/// Numbers of threads that submit.
const THREADS: [u16; 4] = [1, 2, 4, 8];
/// Requests in flight of each thread, as in MSST 2015.
const THREAD_DEPTH: u16 = 4;
/// Size of each export where many targets run at once, in MiB.
const STAGES_MIB: u32 = 64;

pub(super) fn sets(runtime: Duration, offered: Offered) -> Vec<Set> {
    // Seven and a half times as long: the tuner looks once a second, and takes several steps.
    let mut sets = if offered.batch { batching(runtime * 15 / 2) } else { Vec::new() };
    sets.extend(offered.hand_over.then(|| stages(runtime)));
    sets.push(threads(runtime));
    sets.extend(offered.hand_over.then(|| receivers(runtime)));
    for set in &mut sets {
        set.turns_max = Some(PAPER_TURNS);
    }
    sets
}

fn tyche(spin_us: u32) -> Peer {
    Peer::new(Protocol::Tyche, spin_us)
}

fn batching(runtime: Duration) -> Vec<Set> {
    let adaptive = || tyche(SPIN_US);
    let none = || adaptive().batching("none");
    let patterns = [Randread, Randwrite];
    let three = vec![adaptive(), adaptive().batching("natural"), none()];
    let set = |name, link, peers, jobs: Vec<Job>| {
        let mut set = Set::new(name, link, runtime, peers);
        set.add_for_all(jobs);
        set
    };
    let ten = |mtu| Link::shaped(mtu, 10 * GBIT);
    let of_depth = |depths: &[u16]| jobs(&patterns, 4 * KIB, depths);
    let mixed = patterns.map(|rw| Job::mixed(rw, 32, 10)).into();
    vec![
        set("10g-batching", ten(9000), three, of_depth(&[32, 128])),
        set("10g-one-page", ten(ONE_PAGE_MTU), vec![adaptive(), none()], of_depth(&[128])),
        set("10g-mixed", ten(9000), vec![adaptive(), none()], mixed),
    ]
}

/// One thread for everything on each side, a thread of its own for the store, for receiving on each
/// side, and for both; all with spinning and without.
fn stages(runtime: Duration) -> Set {
    let mut peers = Vec::new();
    for peer in [tyche(SPIN_US), tyche(SPIN_US).sleeping()] {
        let parts = ["store", "receive", "receive,store"];
        let handing = parts.map(|parts| peer.clone().handing_over(parts));
        peers.push(peer);
        peers.extend(handing);
    }
    let mut set = Set::new("stages", Link::unshaped(9000), runtime, peers);
    set.export_mib = STAGES_MIB;
    let jobs = jobs(&[Randread, Randwrite], 4 * KIB, &[1]);
    set.staged = jobs.into_iter().map(|job| contest(job, &set.peers)).collect();
    set
}

/// Jobs of each number of threads, over `links` links.
fn by_threads(sizes: [u32; 2], links: Option<u16>) -> Vec<Job> {
    let mut all = Vec::new();
    for size in sizes {
        for rw in [Read, Write] {
            let job = Job::new(rw, size, THREAD_DEPTH);
            let job = links.map_or(job, |links| job.over(Bundle::of(links)));
            all.extend(THREADS.map(|threads| job.with_threads(threads)));
        }
    }
    all
}

/// The threads that submit send their requests themselves, or hand them to the session's threads.
/// Threads neither spin nor are pinned: with more threads than cores, either would be at the
/// expense of others.
fn threads(runtime: Duration) -> Set {
    let peers = vec![tyche(0), tyche(0).queueing()];
    let mut set = Set::new("10g-threads", Link::shaped(9000, 10 * GBIT), runtime, peers);
    set.cores = None;
    set.add_for_all(by_threads([4 * KIB, 512 * KIB], None));
    set
}

/// One receiving thread for both links at the target, or one for each.
fn receivers(runtime: Duration) -> Set {
    let peers = ["receive-all,store", "receive,store"].map(|parts| tyche(0).handing_over(parts));
    let link = Link { cables: 2, ..Link::shaped(9000, 10 * GBIT) };
    let mut set = Set::new("10g-links", link, runtime, peers.into());
    set.cores = None;
    set.add_for_all(by_threads([4 * KIB, MIB], Some(link.cables)));
    set
}
