//! Fibre Channel over Ethernet: the third suite, after the figures of FastFCoE.
//!
//! | set | network | what for |
//! |---|---|---|
//! | `fcoe` | MTU 2158 | requests a second by size and depth: Figures 5b and 15 at one core |
//! | `fcoe-contexts` | the same, nobody spins | switches and CPU of a request: Tables 1 to 4 |
//!
//! The initiator of `tyche` is held against one in layers, as Open-FCoE has them, and both against
//! Tyche and NBD on the same network.

use std::time::Duration;

use super::{KIB, SMALL_MIB, SPIN_US, Set, jobs};
use crate::floor::{Floor, Kind};
use crate::job::{Job, Pattern};
use crate::network::Link;
use crate::peer::{Peer, Protocol};

use Pattern::{Randread, Randwrite};

/// The MTU that the longest frames need.
pub(crate) const MTU: u32 = 2158;
/// Requests in flight where the paper has 64.
pub(crate) const DEEP: u16 = 64;

const PEERS: [Protocol; 4] =
    [Protocol::Fcoe, Protocol::FcoeLayered, Protocol::Tyche, Protocol::Nbd];

pub(super) fn sets(runtime: Duration) -> Vec<Set> {
    vec![main(runtime), contexts(runtime)]
}

fn set(name: &'static str, runtime: Duration, spin_us: u32) -> Set {
    let peers = PEERS.map(|protocol| Peer::new(protocol, spin_us)).into();
    let set = Set::new(name, Link::unshaped(MTU), runtime, peers);
    Set { export_mib: SMALL_MIB, ..set }
}

fn main(runtime: Duration) -> Set {
    let mut set = set("fcoe", runtime, SPIN_US);
    let both = [Randread, Randwrite];
    set.add_for_all(jobs(&both, 512, &[1, DEEP]));
    set.add_for_all(jobs(&both, 4 * KIB, &[1, 8, DEEP]));
    set.add_for_all(jobs(&both, 8 * KIB, &[DEEP]));
    set.add_for_all(jobs(&both, 64 * KIB, &[16]));
    for contest in &mut set.contests {
        let Job { rw, block_bytes, depth, .. } = contest.job;
        if rw == Randread && block_bytes == 4 * KIB {
            contest.floors.push(Floor { depth, ..Floor::new(Kind::Exchange, MTU) });
        }
    }
    set
}

fn contexts(runtime: Duration) -> Set {
    let mut set = set("fcoe-contexts", runtime, 0);
    set.add_for_all(jobs(&[Randread, Randwrite], 4 * KIB, &[1, DEEP]));
    set
}
