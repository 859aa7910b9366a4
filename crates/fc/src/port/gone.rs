//! N_Port_IDs that a former neighbour may still hold.
//!
//! Without a fabric nobody assigns N_Port_IDs. While a network is in parts, a port of one part may
//! claim what a port of the other has. When the parts are joined, both get what is sent there,
//! until one of them notices and gives way, and a port that is logged in with both would have its
//! commands executed by both. So nobody is logged in with before the port that had the N_Port_ID
//! has no login with us any more: it has accepted LOGO, which goes to its interface and so to
//! nobody else, or has claimed another N_Port_ID, or must have missed our beacons for too long.

use std::collections::VecDeque;

use tyche_fc_wire::{Mac, PortId, Wwn, Xid};
use tyche_time::Instant;

use super::PEERS_MAX;
use crate::neighbour::Neighbour;
use crate::vn2vn::FORGOTTEN_AFTER;

/// A neighbour that has gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct GoneNeighbour {
    pub(super) neighbour: Neighbour,
    /// When it has forgotten us, if it does not hear us.
    pub(super) until: Instant,
    /// The exchange of our LOGO, and when to send another.
    pub(super) logo: Option<(Xid, Instant)>,
}

/// Those that have gone lately, in that order. Memory is taken once.
pub(super) struct GoneNeighbours(VecDeque<GoneNeighbour>);

impl GoneNeighbours {
    pub(super) fn new() -> Self {
        Self(VecDeque::with_capacity(PEERS_MAX))
    }

    /// Notes that a neighbour has gone. Of too many, the one of the longest ago is forgotten.
    pub(super) fn note(&mut self, now: Instant, neighbour: Neighbour) {
        self.forget(neighbour.wwpn);
        if self.0.len() == PEERS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(GoneNeighbour { neighbour, until: now + FORGOTTEN_AFTER, logo: None });
    }

    /// A port is known to have its logins elsewhere, or none.
    pub(super) fn forget(&mut self, wwpn: Wwn) {
        self.0.retain(|it| it.neighbour.wwpn != wwpn);
    }

    /// Another port that may still hold an N_Port_ID.
    pub(super) fn holder(
        &mut self,
        now: Instant,
        id: PortId,
        wwpn: Wwn,
    ) -> Option<&mut GoneNeighbour> {
        let is_other = |it: &GoneNeighbour| it.neighbour.id == id && it.neighbour.wwpn != wwpn;
        self.0.iter_mut().find(|it| is_other(it) && now < it.until)
    }

    /// The port on that interface that we have sent LOGO in that exchange.
    pub(super) fn asked(&self, enode: Mac, ox_id: Xid) -> Option<Wwn> {
        let is_it = |it: &&GoneNeighbour| it.logo.is_some_and(|logo| logo.0 == ox_id);
        let found = self.0.iter().find(is_it).filter(|it| it.neighbour.enode == enode);
        found.map(|it| it.neighbour.wwpn)
    }
}
