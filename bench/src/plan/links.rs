//! Many links as one: the second suite.
//!
//! | set | network | what for |
//! |---|---|---|
//! | `links` | six links of 1 Gbit/s | throughput by number of links: MSST 2014, Figure 9 |
//! | `links-channels` | the same | channels, links and queues: MSST 2014, Table II |
//! | `links-unequal` | 1, 1 and 0.2 Gbit/s | whether the slow one holds up the others |
//! | `links-lossy` | four, one of them loses and delays | the same for a bad one |
//! | `links-recovery` | six links | one, or all but one, is cut and comes back |
//!
//! No peer spins: two cores drive up to six links, the shaping included.

use std::time::Duration;

use super::{GBIT, KIB, MIB, Offered, Outage, Pattern, Set};
use crate::floor::{Floor, Kind};
use crate::job::{Bundle, Job};
use crate::network::{Cut, Link, Odd, Shaper};
use crate::peer::{Peer, Protocol};

use Pattern::{Randread, Randwrite, Read, Write};

pub(crate) const MTU: u32 = 9000;
/// Maximum number of links that two cores can fill, with their shaping.
pub(crate) const LINKS_MAX: u16 = 6;
/// Rate of the slow one of unequal links.
const SLOW: u64 = GBIT / 5;
/// The bad link among four, the last.
pub(crate) const BAD: Odd = Odd { cable: 3, rate: None, loss: 50, delay_ms: 5 };
const UNDELAYED: &str = "tyche-undelayed";
/// Selected numbers of links, where others would show nothing more.
const SOME: [u16; 4] = [1, 2, 4, 6];
/// Numbers of channels on a link, and of queues of a session.
const CHANNELS: [u16; 3] = [1, 2, 4];
const QUEUES: [u16; 3] = [1, 2, 4];

pub(super) fn sets(runtime: Duration, offered: Offered) -> Vec<Set> {
    let mut sets = vec![by_number(runtime, offered)];
    sets.extend(offered.channels.then(|| channels(runtime)));
    sets.extend([unequal(runtime, offered), lossy(runtime, offered), recovery(runtime)]);
    sets
}

fn set(name: &'static str, cables: u16, runtime: Duration, offered: Offered) -> Set {
    let link = Link { cables, shaper: Shaper::Bursts, ..Link::shaped(MTU, GBIT) };
    let all =
        [Protocol::Tyche, Protocol::Udp, Protocol::Tsockets, Protocol::Nbd, Protocol::NbdMptcp];
    let there = all.into_iter().filter(|it| offered.mptcp || *it != Protocol::NbdMptcp);
    Set::new(name, link, runtime, there.map(|protocol| Peer::new(protocol, 0)).collect())
}

fn sequential() -> [Job; 2] {
    [Read, Write].map(|rw| Job::new(rw, MIB, 16))
}

/// NBD has one connection, which more links do not help. Multipath TCP is known to work over one
/// link, and its runs are long: it is left out there.
fn by_number(runtime: Duration, offered: Offered) -> Set {
    let mut set = set("links", LINKS_MAX, runtime, offered);
    for links in 1..=LINKS_MAX {
        let small = [Randread, Randwrite].map(|rw| Job::new(rw, 4 * KIB, 128));
        let small = small.into_iter().filter(|_| SOME.contains(&links));
        for job in sequential().into_iter().chain(small) {
            let mut names = vec!["tyche", "udp", "tsockets"];
            names.extend((links == 1 || links == LINKS_MAX).then_some("nbd"));
            let multipath = match job.rw {
                Read | Write => links == 2 || links == LINKS_MAX,
                _ => job.rw == Randread && links == LINKS_MAX,
            };
            names.extend(multipath.then_some("nbd-mptcp"));
            set.add_for(job.over(Bundle::of(links)), &names);
        }
        let floor = Floor { links, qdisc: true, ..Floor::new(Kind::Stream, MTU) };
        let reads = set.contests.iter_mut().rev().find(|contest| contest.job.rw == Read);
        reads.expect("just added").floors.push(floor);
    }
    set
}

fn channels(runtime: Duration) -> Set {
    let mut set = set("links-channels", LINKS_MAX, runtime, Offered::default());
    for links in [1, LINKS_MAX] {
        for channels in CHANNELS {
            let bundle = Bundle { channels, ..Bundle::of(links) };
            for job in sequential().map(|job| job.over(bundle)) {
                for queues in QUEUES {
                    set.add_for(job.shared_by(queues), &["tyche"]);
                }
            }
        }
    }
    set
}

fn unequal(runtime: Duration, offered: Offered) -> Set {
    let mut set = set("links-unequal", 3, runtime, offered);
    set.link.odd = Some(Odd { cable: 2, rate: Some(SLOW), loss: 0, delay_ms: 0 });
    for job in sequential() {
        set.add_for(job.over(Bundle::of(3)), &["tyche", "udp", "tsockets", "nbd-mptcp"]);
    }
    set
}

/// All four links, the three good ones, and the bad one alone. TCP makes single frames here: a lost
/// frame has the same length for every peer.
fn lossy(runtime: Duration, offered: Offered) -> Set {
    let mut set = set("links-lossy", 4, runtime, offered);
    set.link.odd = Some(BAD);
    set.peers.push(Peer::new(Protocol::Tyche, 0).undelayed());
    for job in sequential() {
        set.add_for(job.over(Bundle::of(4)), &["tyche", UNDELAYED, "nbd-mptcp"]);
        set.add_for(job.over(Bundle::of(3)), &["tyche"]);
        set.add_for(job.over(Bundle::of(1)), &["nbd"]);
        set.add_for(job.over(Bundle::only(BAD.cable)), &["tyche", UNDELAYED, "nbd"]);
    }
    for contest in &mut set.contests {
        contest.entries.iter_mut().for_each(|entry| entry.offloads = false);
    }
    set
}

fn recovery(runtime: Duration) -> Set {
    let mut set = set("links-recovery", LINKS_MAX, runtime, Offered::default());
    let [three, six] = [3, LINKS_MAX].map(Bundle::of);
    let outage = |peer, rw, bundle, how, links| {
        let job = Job::new(rw, 64 * KIB, 128).over(bundle);
        Outage { job, how, links, peer }
    };
    // Frames, and the same over UDP.
    set.peers.truncate(2);
    set.outages = (0..set.peers.len())
        .flat_map(|peer| {
            [
                outage(peer, Read, three, Cut::Down, 1),
                outage(peer, Write, three, Cut::Silent, 1),
                outage(peer, Write, six, Cut::Down, LINKS_MAX - 1),
                outage(peer, Read, six, Cut::Silent, LINKS_MAX - 1),
            ]
        })
        .collect();
    set
}
