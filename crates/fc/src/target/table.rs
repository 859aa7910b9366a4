//! The exchanges of a target.
//!
//! A command has no RX_ID yet: it is found by its login and OX_ID. An N_Port_ID would not do:
//! another port may have it while commands of the former one are still at the store.
//!
//! An exchange that has ended well is remembered until its slot is needed, so that questions about
//! it can be answered.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::ops::{Index, IndexMut};

use tyche_fc_wire::Xid;
use tyche_time::Instant;

use super::exchange::{Exchange, State};
use crate::exchange::{Table, Xids};

/// Slots that only task management gets, so that a full target can be managed.
const RESERVED: usize = 4;

/// See the module.
pub(super) struct Exchanges {
    xids: Xids,
    table: Table<Exchange>,
    /// Exchanges that are done and whose slots others may have, in this order.
    done: VecDeque<Xid>,
    /// The newest exchange of each nexus with each OX_ID.
    known: HashMap<(u16, Xid), Xid>,
}

impl Exchanges {
    /// # Panics
    /// If there are too few.
    pub(super) fn new(xids: Xids) -> Self {
        let table = Table::new(xids);
        let count = table.capacity();
        assert!(count > RESERVED, "{count} exchanges");
        Self {
            xids,
            table,
            done: VecDeque::with_capacity(count),
            // Twice as many, so that it never grows.
            known: HashMap::with_capacity(2 * count),
        }
    }

    /// The number of slots.
    pub(super) fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// The index of an exchange, for the user.
    pub(super) fn index_of(&self, xid: Xid) -> u16 {
        self.xids.find(xid).expect("an exchange of the table")
    }

    /// The exchange with an index of the user.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn at(&self, index: u16) -> Xid {
        self.xids.at(index)
    }

    /// The newest exchange that a nexus has given that number, and that is not forgotten.
    pub(super) fn find(&self, nexus: u16, ox_id: Xid) -> Option<Xid> {
        self.known.get(&(nexus, ox_id)).copied()
    }

    /// The exchange with that RX_ID, which may be done or aborted.
    pub(super) fn get_mut(&mut self, rx_id: Xid) -> Option<&mut Exchange> {
        self.table.get_mut(rx_id)
    }

    /// Opens an exchange, if there is room for another: the one that was done first is forgotten.
    pub(super) fn open(&mut self, exchange: Exchange, is_urgent: bool) -> Option<Xid> {
        if !is_urgent && self.table.free() + self.done.len() <= RESERVED {
            return None;
        }
        if self.table.free() == 0 {
            let oldest = self.done.pop_front()?;
            self.close(oldest);
        }
        let key = (exchange.nexus, exchange.ox_id);
        let xid = self.table.open(exchange)?;
        self.known.insert(key, xid);
        Some(xid)
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
        self.done.push_back(xid);
    }

    /// Ends an exchange whose frames may still be on the way until then.
    pub(super) fn abort(&mut self, xid: Xid, until: Instant) {
        self.done.retain(|it| *it != xid);
        self[xid].state = State::Aborted;
        self.table.set_timer(xid, Some(until));
    }

    /// Ends an exchange of which nothing is to be known any more.
    pub(super) fn forget(&mut self, xid: Xid) {
        self.done.retain(|it| *it != xid);
        self.close(xid);
    }

    fn close(&mut self, xid: Xid) {
        let Exchange { nexus, ox_id, .. } = self.table.close(xid);
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
