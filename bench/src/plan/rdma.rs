//! Rings in the peer's memory: the fifth suite, after the figures of *Efficient Remote Block-level
//! I/O over an RDMA-capable NIC* (ICS 2006).
//!
//! | set | with | what for |
//! |---|---|---|
//! | `rdma-messages` | no protocol | messages by size, and the stages of one: Figures 6 and 7 |
//! | `rdma-queues` | memory | the elimination of small messages, and silencing: Table 1 |
//! | `rdma-queues-bare` | memory, no times of a card | the same for the processors alone |
//! | `rdma-disks` | modelled disks, a request at a time | Figures 8 and 9, Table 2 |
//! | `rdma-disks-deep` | the same, 16 at a time | the same by batch factor |
//! | `rdma-streams` | the same, four readers | what sorting a batch can gain |
//!
//! There are no network cards: the ends are those of the double of `tyche-lab`. The network of the
//! sets carries nothing.

use std::time::Duration;

use super::{KIB, MIB, SMALL_MIB, SPIN_US, Set, jobs};
use crate::double::Double;
use crate::job::{Job, Pattern};
use crate::network::Link;
use crate::peer::{Peer, Protocol};

use Pattern::{Randread, Randrw, Randwrite, Read, Rw, Write};

/// Sizes of requests.
const SIZES: [u32; 5] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB];
/// Those that show what a batch factor does.
pub(crate) const FEW_SIZES: [u32; 3] = [4 * KIB, 64 * KIB, MIB];
/// Workloads of Figures 8 and 9.
const WORKLOADS: [Pattern; 4] = [Read, Write, Rw, Randrw];
/// The configurations in which messages are measured, and the last of them without the times of a
/// card.
pub(crate) const MESSAGES: [&str; 4] = ["BASE", "ELIM0", "ELIM", BARE];
pub(crate) const BARE: &str = "no card";
/// Requests in flight: on memory, and on disks for a batch factor.
const BUSY: u16 = 32;
pub(crate) const DEEP: u16 = 16;
/// Sessions that read one after the other, each a part of its own, and share the requests.
const READERS: u16 = 4;
/// A job takes this part of the usual time, since modelled times vary little.
const PART: u32 = 5;

pub(super) fn sets(runtime: Duration) -> Vec<Set> {
    let runtime = runtime / PART;
    let kinds = ["BASE", "BASE1", "ELIM0", "ELIM"];
    let queues = |name, change: fn(Double) -> Double| {
        let mut set = set(name, runtime, &kinds, change);
        SIZES.iter().for_each(|size| set.add_for_all(jobs(&[Randread], *size, &[BUSY])));
        [4 * KIB, MIB].iter().for_each(|size| set.add_for_all(jobs(&[Randwrite], *size, &[BUSY])));
        set
    };
    let disks = |name, kinds: &[&str], sizes: &[u32], depth| {
        let mut set = set(name, runtime, kinds, |it| it);
        sizes.iter().for_each(|size| set.add_for_all(jobs(&WORKLOADS, *size, &[depth])));
        set
    };
    let alone = ["LOCAL", "BASE", "BASE1", "ELIM"];
    let batching = ["LOCAL", "BASE1", "BASE4", "BASE16", "ELIM", "ELIM16"];
    let mut streams = set("rdma-streams", runtime, &batching, |it| it);
    streams.add_for_all(readers());
    vec![
        messages(runtime),
        queues("rdma-queues", Double::on_memory),
        queues("rdma-queues-bare", |it| it.on_memory().without_card()),
        disks("rdma-disks", &alone, &SIZES, 1),
        disks("rdma-disks-deep", &batching, &FEW_SIZES, DEEP),
        streams,
    ]
}

/// The jobs of several readers.
pub(crate) fn readers() -> [Job; 2] {
    [4 * KIB, 64 * KIB].map(|size| Job::new(Read, size, BUSY).shared_by(READERS))
}

fn set(
    name: &'static str,
    runtime: Duration,
    kinds: &[&str],
    change: impl Fn(Double) -> Double,
) -> Set {
    let peer = |kind: &&str| {
        let double = change(Double::named(kind));
        Peer { name: (*kind).to_owned(), ..Peer::new(Protocol::Rdma(double), SPIN_US) }
    };
    let peers = kinds.iter().map(peer).collect();
    Set { export_mib: SMALL_MIB, ..Set::new(name, Link::unshaped(9000), runtime, peers) }
}

fn messages(runtime: Duration) -> Set {
    let mut set = set("rdma-messages", runtime, &[], |it| it);
    let double = |name: &str| match name {
        BARE => Double::named("ELIM").without_card(),
        _ => Double::named(name),
    };
    set.messages = MESSAGES.map(|name| (name, double(name))).into();
    set
}
