//! Keys: the fourth suite, what it costs that frames are sealed.
//!
//! | set | network | what for |
//! |---|---|---|
//! | `keys` | MTU 9000 | frames and UDP with keys and without; NBD with TLS and without |

use std::time::Duration;

use super::{KIB, MIB, SPIN_US, Set, jobs};
use crate::job::Pattern;
use crate::network::Link;
use crate::peer::{Peer, Protocol};

use Pattern::{Randread, Randwrite, Read, Write};

pub(super) fn sets(runtime: Duration) -> Vec<Set> {
    let [tyche, udp, nbd, nbd_tls] =
        [Protocol::Tyche, Protocol::Udp, Protocol::Nbd, Protocol::NbdTls]
            .map(|protocol| Peer::new(protocol, SPIN_US));
    let peers = vec![tyche.clone(), tyche.keyed(), udp.clone(), udp.keyed(), nbd, nbd_tls];
    let mut set = Set::new("keys", Link::unshaped(9000), runtime, peers);
    set.export_mib = super::SMALL_MIB;
    set.add_for_all(jobs(&[Randread, Randwrite], 4 * KIB, &[1, 32, 128]));
    set.add_for_all(jobs(&[Read, Write], MIB, &[16]));
    vec![set]
}
