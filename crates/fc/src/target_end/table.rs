//! The exchanges of a target, each in a slot. The lane and its user name an exchange by its slot;
//! its RX_ID is another number, which changes with each exchange.
//!
//! A command has no RX_ID yet: it is found by its login and OX_ID. An N_Port_ID would not do:
//! another port may have it while commands of the former one are still at the store.
//!
//! An exchange that has ended well is remembered until its slot is needed, so that questions about
//! it can be answered. All others are [shared](Share) by initiators, those included that wait for
//! late frames: one that has many commands, and lets them end badly, takes its own.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::ops::{Index, IndexMut};

use tyche_fc_wire::{PortId, Xid};
use tyche_time::Instant;

use super::exchange::{Exchange, State};
use super::rx_ids::RxIds;
use super::share::Share;
use crate::exchange::{Table, Xids};

/// Slots that only task management gets, so that a full target can be managed.
const RESERVED: usize = 4;
/// Places for initiators before memory is taken for more.
pub(super) const INITIATORS: usize = 512;
/// The most slots: far fewer than RX_IDs.
const SLOTS_MAX: u16 = 1 << 14;

/// The exchange table of a lane: slots, RX_IDs, timers, and the number of exchanges that each
/// initiator holds. It is allocated at the start, with a few slots for task management only.
pub(super) struct Exchanges {
    slots: Xids,
    table: Table<Exchange>,
    rx_ids: RxIds,
    /// Exchanges that are done and whose slots others may have, in this order.
    done: VecDeque<Xid>,
    /// The newest exchange of each nexus with each OX_ID.
    known: HashMap<(u16, Xid), Xid>,
    share: Share,
    /// The exchanges that each nexus holds, by its place.
    held: Vec<u32>,
}

impl Exchanges {
    /// So many slots. `seed` sets the first RX_IDs.
    ///
    /// # Panics
    /// If there are too few or too many.
    pub(super) fn new(count: u16, seed: u64) -> Self {
        assert!(usize::from(count) > RESERVED && count <= SLOTS_MAX, "{count} exchanges");
        let slots = Xids::new((0, count - 1), 0, 0);
        let table = Table::new(slots);
        let count = table.capacity();
        Self {
            slots,
            table,
            rx_ids: RxIds::new(seed),
            done: VecDeque::with_capacity(count),
            // Twice as many, so that it never grows.
            known: HashMap::with_capacity(2 * count),
            share: Share::new((count - RESERVED) as u32),
            held: Vec::with_capacity(INITIATORS),
        }
    }

    /// The number of slots.
    pub(super) fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// The index of an exchange, for the user.
    pub(super) fn index_of(&self, xid: Xid) -> u16 {
        self.slots.find(xid).expect("an exchange of the table")
    }

    /// The exchange with an index of the user.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn at(&self, index: u16) -> Xid {
        self.slots.at(index)
    }

    /// The newest exchange that a nexus has given that number, and that is not forgotten.
    pub(super) fn find(&self, nexus: u16, ox_id: Xid) -> Option<Xid> {
        self.known.get(&(nexus, ox_id)).copied()
    }

    /// The exchange in a slot, if it is not forgotten.
    pub(super) fn get(&self, xid: Xid) -> Option<&Exchange> {
        self.table.get(xid)
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, xid: Xid) -> Option<&mut Exchange> {
        self.table.get_mut(xid)
    }

    /// The exchange with an RX_ID from a frame, which may be done or aborted.
    pub(super) fn of_rx_id(&self, rx_id: Xid) -> Option<Xid> {
        self.rx_ids.find(rx_id).map(|slot| self.slots.at(slot))
    }

    /// The next RX_ID for an OX_ID of a port.
    pub(super) fn next_rx_id(&mut self, initiator: PortId, ox_id: Xid) -> Xid {
        self.rx_ids.next(initiator, ox_id)
    }

    /// Opens an exchange, if there is room for another of its initiator: the one that was done
    /// first is forgotten. One that is urgent is taken beyond that, if its initiator has no other
    /// function under way.
    pub(super) fn open(&mut self, exchange: Exchange, is_urgent: bool) -> Option<Xid> {
        let has_room = self.table.free() + self.done.len() > RESERVED;
        let has_share = has_room && self.has_room(exchange.nexus);
        if !has_share && (!is_urgent || self.is_managing(exchange.nexus)) {
            return None;
        }
        if self.table.free() == 0 {
            let oldest = self.done.pop_front()?;
            self.close(oldest);
        }
        let (key, rx_id) = ((exchange.nexus, exchange.ox_id), exchange.rx_id);
        let xid = self.table.open(exchange)?;
        if rx_id == Xid::NONE {
            // As before RX_IDs were renewed: the number of the slot.
            self[xid].rx_id = xid;
        }
        self.rx_ids.assign(self[xid].rx_id, self.index_of(xid));
        self.known.insert(key, xid);
        self.hold(xid);
        Some(xid)
    }

    /// Whether a nexus may hold another exchange.
    pub(super) fn has_room(&self, nexus: u16) -> bool {
        let own = self.held.get(usize::from(nexus)).copied().unwrap_or(0);
        self.share.room(own) > 0
    }

    fn is_managing(&self, nexus: u16) -> bool {
        let is_it = |it: &Exchange| it.nexus == nexus && matches!(it.state, State::Managing(..));
        self.iter().any(|(_, it)| is_it(it))
    }

    /// Counts an exchange among those that its nexus holds.
    fn hold(&mut self, xid: Xid) {
        let exchange = &mut self[xid];
        if std::mem::replace(&mut exchange.is_held, true) {
            return;
        }
        let place = usize::from(exchange.nexus);
        if self.held.len() <= place {
            self.held.resize(place + 1, 0);
        }
        self.held[place] += 1;
        self.share.take(1);
    }

    fn unhold(&mut self, xid: Xid) {
        let exchange = &mut self[xid];
        if std::mem::replace(&mut exchange.is_held, false) {
            let place = usize::from(exchange.nexus);
            self.held[place] -= 1;
            self.share.give(1);
        }
    }

    /// Ends an exchange whose initiator has its answer, or wants none.
    pub(super) fn retire(&mut self, xid: Xid) {
        self[xid].state = State::Done;
        match self[xid].late_until {
            None => self.spare(xid),
            until => self.table.set_timer(xid, until),
        }
    }

    /// Lets others have the slot of an exchange that is done.
    pub(super) fn spare(&mut self, xid: Xid) {
        self.table.set_timer(xid, None);
        self.unhold(xid);
        self.done.push_back(xid);
    }

    /// Ends an exchange whose frames may still be on the way until then.
    pub(super) fn abort(&mut self, xid: Xid, until: Instant) {
        self.done.retain(|it| *it != xid);
        self.hold(xid);
        self[xid].state = State::Aborted;
        self.table.set_timer(xid, Some(until));
    }

    /// Ends an exchange of which nothing is to be known any more.
    pub(super) fn forget(&mut self, xid: Xid) {
        self.done.retain(|it| *it != xid);
        self.close(xid);
    }

    fn close(&mut self, xid: Xid) {
        self.unhold(xid);
        let Exchange { nexus, ox_id, rx_id, .. } = self.table.close(xid);
        self.rx_ids.free(rx_id);
        // The initiator may have used the OX_ID again.
        match self.known.entry((nexus, ox_id)) {
            Entry::Occupied(known) if *known.get() == xid => _ = known.remove(),
            _ => {}
        }
    }

    /// All that are not forgotten.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Xid, &Exchange)> {
        self.table.iter()
    }

    pub(super) fn set_timer(&mut self, xid: Xid, at: Option<Instant>) {
        self.table.set_timer(xid, at);
    }

    pub(super) fn poll_expired(&mut self, now: Instant) -> Option<Xid> {
        self.table.poll_expired(now)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.table.poll_timeout()
    }
}

impl Index<Xid> for Exchanges {
    type Output = Exchange;

    fn index(&self, xid: Xid) -> &Exchange {
        self.table.get(xid).expect("an open exchange")
    }
}

impl IndexMut<Xid> for Exchanges {
    fn index_mut(&mut self, xid: Xid) -> &mut Exchange {
        self.table.get_mut(xid).expect("an open exchange")
    }
}
