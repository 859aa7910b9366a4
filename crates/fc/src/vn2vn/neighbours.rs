//! The other ports of the network, as their claims and beacons show them.

use tyche_fc_wire::{Mac, PortId, Wwn};
use tyche_time::{Instant, earliest};

use crate::neighbour::{Event, NEIGHBOURS_MAX, Neighbour};

/// A neighbour, and how alive it is.
#[derive(Clone, Copy, Debug)]
struct KnownNeighbour {
    neighbour: Neighbour,
    /// The time of the last claim or beacon.
    heard: Instant,
    /// Whether it has sent a beacon, or a login to us, since it claimed.
    is_present: bool,
}

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// The neighbour is known like that now.
    Known,
    /// Another port has that N_Port_ID, and keeps it.
    Conflict,
    /// There is no room for more.
    Full,
}

/// The table of other ports that have claimed an N_Port_ID, with the time of their last sign of
/// life. It holds [`NEIGHBOURS_MAX`] at most, in memory that is taken once.
pub(super) struct Neighbours {
    known: Vec<KnownNeighbour>,
    /// No neighbour is silent for too long before.
    silent_at: Option<Instant>,
}

impl Neighbours {
    pub(super) fn new() -> Self {
        Self { known: Vec::with_capacity(NEIGHBOURS_MAX), silent_at: None }
    }

    /// The neighbours that are present.
    pub(super) fn present(&self) -> impl Iterator<Item = &Neighbour> {
        self.known.iter().filter(|it| it.is_present).map(|it| &it.neighbour)
    }

    /// All that have claimed an N_Port_ID.
    pub(super) fn all(&self) -> impl Iterator<Item = &Neighbour> {
        self.known.iter().map(|it| &it.neighbour)
    }

    /// The neighbour with that N_Port_ID, present or not.
    pub(super) fn find(&self, id: PortId) -> Option<&Neighbour> {
        self.all().find(|it| it.id == id)
    }

    /// Whether there is no room for another.
    pub(super) fn is_full(&self) -> bool {
        self.known.len() == NEIGHBOURS_MAX
    }

    /// Takes a claim. Those are removed that it proves to be outdated: the same port with another
    /// N_Port_ID or other properties, and another port with this N_Port_ID and a lower name.
    pub(super) fn claim(
        &mut self,
        now: Instant,
        claimed: Neighbour,
        mut report: impl FnMut(Event),
    ) -> Noted {
        if let Some(known) = self.known.iter_mut().find(|it| it.neighbour == claimed) {
            known.heard = now;
            return Noted::Known;
        }
        let rivals = self.known.iter().filter(|it| it.neighbour.id == claimed.id && it.is_present);
        if rivals.map(|it| it.neighbour.wwpn).any(|wwpn| wwpn > claimed.wwpn) {
            return Noted::Conflict;
        }
        self.remove_if(
            |it| it.neighbour.id == claimed.id || it.neighbour.wwpn == claimed.wwpn,
            &mut report,
        );
        if self.is_full() {
            return Noted::Full;
        }
        self.known.push(KnownNeighbour { neighbour: claimed, heard: now, is_present: false });
        self.silent_at = earliest(self.silent_at, Some(now + super::SILENCE_MAX));
        Noted::Known
    }

    /// Takes a beacon; false if its sender has not claimed that N_Port_ID.
    pub(super) fn beacon(
        &mut self,
        now: Instant,
        (wwpn, wwnn, id): (Wwn, Wwn, PortId),
        mut report: impl FnMut(Event),
    ) -> bool {
        self.show(now, |it| it.id == id && it.wwpn == wwpn && it.wwnn == Some(wwnn), &mut report)
    }

    /// Takes a login of a node to us: its port is present if it has claimed that N_Port_ID.
    pub(super) fn login(
        &mut self,
        now: Instant,
        (enode, id): (Mac, PortId),
        mut report: impl FnMut(Event),
    ) {
        self.show(now, |it| it.id == id && it.enode == enode, &mut report);
    }

    /// Notes that a neighbour is present; false if there is none like that.
    fn show(
        &mut self,
        now: Instant,
        which: impl Fn(&Neighbour) -> bool,
        report: &mut impl FnMut(Event),
    ) -> bool {
        let Some(known) = self.known.iter_mut().find(|it| which(&it.neighbour)) else {
            return false;
        };
        known.heard = now;
        if !known.is_present {
            known.is_present = true;
            report(Event::Appeared(known.neighbour));
        }
        true
    }

    /// Removes those that have been silent for too long.
    pub(super) fn expire(&mut self, now: Instant, mut report: impl FnMut(Event)) {
        if self.silent_at.is_none_or(|at| now < at) {
            return;
        }
        self.remove_if(|it| it.heard + super::SILENCE_MAX <= now, &mut report);
        let heard = self.known.iter().map(|it| it.heard);
        self.silent_at = heard.min().map(|first| first + super::SILENCE_MAX);
    }

    /// When to call [`expire`](Self::expire).
    pub(super) fn silent_at(&self) -> Option<Instant> {
        self.silent_at
    }

    /// Removes all, without a report.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.silent_at = None;
    }

    fn remove_if(
        &mut self,
        which: impl Fn(&KnownNeighbour) -> bool,
        report: &mut impl FnMut(Event),
    ) {
        self.known.retain(|it| {
            let goes = which(it);
            if goes && it.is_present {
                report(Event::Gone(it.neighbour));
            }
            !goes
        });
    }
}
