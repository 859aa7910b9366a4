//! Tyche next to others on one link at the machine's full speed.
//!
//! | set | network | what for |
//! |---|---|---|
//! | `mtu-9000` | jumbo frames | everything; TCP also without offloads |
//! | `no-spin` | the same | depth 1 with both sides sleeping rather than spinning |
//! | `mtu-1500` | short frames | everything over UDP; the others 4 KiB and 1 MiB |
//! | `mtu-65535` | longest frames | 4 KiB and 1 MiB |
//! | `default` | jumbo frames | a block device without any option, next to NBD |

use std::time::Duration;

use super::{Contest, Entry, KIB, MIB, SPIN_US, Set, jobs};
use crate::floor::{Floor, Kind};
use crate::job::{Job, Pattern};
use crate::network::Link;
use crate::peer::{Peer, Protocol};

use Pattern::{Randread, Randrw, Randwrite, Read, Write};

/// Peers of the sets in which UDP takes part.
const FOUR: [Protocol; 4] = [Protocol::Tyche, Protocol::Udp, Protocol::Tsockets, Protocol::Nbd];

pub(super) fn sets(runtime: Duration) -> Vec<Set> {
    vec![main(runtime), no_spin(runtime), short(runtime), longest(runtime), default_path(runtime)]
}

fn peers(protocols: &[Protocol], spin_us: u32) -> Vec<Peer> {
    protocols.iter().map(|protocol| Peer::new(*protocol, spin_us)).collect()
}

/// The jobs of the main set.
fn everything() -> Vec<Job> {
    let mut all = jobs(&[Randread, Randwrite], 4 * KIB, &[1, 8, 32, 128]);
    all.push(Job::new(Randrw, 4 * KIB, 32));
    all.extend(jobs(&[Read, Write], 64 * KIB, &[16]));
    all.extend(jobs(&[Read, Write], MIB, &[16]));
    all
}

/// Bare frames, and bare trains where UDP takes part, next to a job. Those next to reads serve for
/// writes as well: they are the same frames in the other direction.
fn floors(job: &Job, mtu: u32, udp: bool) -> Vec<Floor> {
    let floor = |kind| Floor { depth: job.depth, ..Floor::new(kind, mtu) };
    let mut floors = match (job.rw, job.block_bytes) {
        (Randread, _) if job.depth == 1 && mtu > 4 * KIB => {
            vec![floor(Kind::Exchange), floor(Kind::Echo), floor(Kind::UdpExchange)]
        }
        (Randread, _) => vec![floor(Kind::Exchange), floor(Kind::UdpExchange)],
        (Read, MIB) => vec![Floor::new(Kind::Stream, mtu), Floor::new(Kind::UdpStream, mtu)],
        _ => Vec::new(),
    };
    floors.retain(|floor| udp || !floor.kind.is_udp());
    floors
}

fn add_floors(set: &mut Set) {
    let (mtu, udp) = (set.link.mtu, set.peer("udp"));
    for Contest { job, entries, floors: own } in &mut set.contests {
        *own = floors(job, mtu, entries.iter().any(|entry| Some(entry.peer) == udp));
    }
}

fn main(runtime: Duration) -> Set {
    let mut set = Set::new("mtu-9000", Link::unshaped(9000), runtime, peers(&FOUR, SPIN_US));
    set.add_for_all(everything());
    add_floors(&mut set);
    let tcp: Vec<_> = ["tsockets", "nbd"].iter().filter_map(|name| set.peer(name)).collect();
    let without_offloads = |job: &Job| {
        job.block_bytes == MIB || (job.rw == Randread && [32, 128].contains(&job.depth))
    };
    for contest in set.contests.iter_mut().filter(|contest| without_offloads(&contest.job)) {
        contest.entries.extend(tcp.iter().map(|&peer| Entry { peer, offloads: false }));
    }
    set
}

fn no_spin(runtime: Duration) -> Set {
    let mut set = Set::new("no-spin", Link::unshaped(9000), runtime, peers(&FOUR, 0));
    set.add_for_all(jobs(&[Randread, Randwrite], 4 * KIB, &[1]));
    set
}

/// The jobs of all peers at other MTUs.
fn is_small_or_large(job: &Job) -> bool {
    job.rw != Randrw && job.block_bytes != 64 * KIB && job.depth != 8
}

fn short(runtime: Duration) -> Set {
    let mut set = Set::new("mtu-1500", Link::unshaped(1500), runtime, peers(&FOUR, SPIN_US));
    for job in everything() {
        let names: &[&str] =
            if is_small_or_large(&job) { &["tyche", "udp", "tsockets", "nbd"] } else { &["udp"] };
        set.add_for(job, names);
    }
    add_floors(&mut set);
    set
}

/// Depth 32 shows nothing between 1 and 128 that it does not at other MTUs.
fn longest(runtime: Duration) -> Set {
    let three = [Protocol::Tyche, Protocol::Tsockets, Protocol::Nbd];
    let mut set = Set::new("mtu-65535", Link::unshaped(65535), runtime, peers(&three, SPIN_US));
    let all = everything().into_iter();
    set.add_for_all(all.filter(|job| is_small_or_large(job) && job.depth != 32));
    add_floors(&mut set);
    set
}

/// The way of a user who sets nothing: `tyche serve` with an export and a link, `tyche connect`
/// with a link, and fio on the block device. Nobody spins, and nobody is pinned.
fn default_path(runtime: Duration) -> Set {
    let two = [Protocol::Default, Protocol::Nbd];
    let mut set = Set::new("default", Link::unshaped(9000), runtime, peers(&two, 0));
    set.cores = None;
    set.add_for_all(jobs(&[Randread, Randwrite], 4 * KIB, &[1, 32]));
    set.add_for_all(jobs(&[Read, Write], MIB, &[16]));
    set
}
