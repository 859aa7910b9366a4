//! The exchanges of a target: a table of fixed size.
//!
//! An RX_ID is the index of a slot, with the number of the lane in its lowest bits, so that it is
//! found by array access, and the network's hardware can sort frames by lanes. A command has no
//! RX_ID yet; it is found by its originator and OX_ID.
//!
//! Slots are taken in rotation, those that are free for the longest time first. What has ended well
//! is remembered until its slot is needed, so that questions about it can be answered.

use std::collections::{HashMap, VecDeque};
use std::ops::{Index, IndexMut};

use tyche_fc_wire::{PortId, Xid};

use super::exchange::{Exchange, State};

/// Slots that only task management gets, so that a full target can be managed.
const RESERVED: usize = 4;

/// See the module.
pub(super) struct Table {
    slots: Box<[Exchange]>,
    /// Slots that may be taken, free or done.
    free: VecDeque<u16>,
    /// The newest exchange of each originator with each OX_ID.
    known: HashMap<(PortId, Xid), u16>,
    lane: u16,
    lane_bits: u32,
}

impl Table {
    /// A table of so many exchanges, whose RX_IDs end with these bits.
    ///
    /// # Panics
    /// If there are no exchanges, or more than RX_IDs, or if the lane has more bits.
    pub(super) fn new(exchanges: u16, (lane, lane_bits): (u16, u32)) -> Self {
        let ids = u32::from(exchanges) << lane_bits;
        assert!(usize::from(exchanges) > RESERVED, "{exchanges} exchanges");
        assert!(ids < u32::from(Xid::NONE.0), "more exchanges than numbers for them");
        assert!(u32::from(lane) < 1 << lane_bits, "lane {lane} of {lane_bits} bits");
        Self {
            slots: (0..exchanges).map(|_| Exchange::default()).collect(),
            free: (0..exchanges).collect(),
            // Twice as many, so that it never grows.
            known: HashMap::with_capacity(2 * usize::from(exchanges)),
            lane,
            lane_bits,
        }
    }

    /// The RX_ID of an exchange.
    pub(super) fn rx_id(&self, index: u16) -> Xid {
        Xid(index << self.lane_bits | self.lane)
    }

    /// The exchange with that RX_ID, which may have ended.
    pub(super) fn at(&self, rx_id: Xid) -> Option<u16> {
        let index = rx_id.0 >> self.lane_bits;
        let is_ours = usize::from(index) < self.slots.len() && self.rx_id(index) == rx_id;
        is_ours.then_some(index)
    }

    /// The newest exchange that an originator has given that number, and that is not forgotten.
    pub(super) fn find(&self, originator: PortId, ox_id: Xid) -> Option<u16> {
        self.known.get(&(originator, ox_id)).copied()
    }

    /// Takes a slot for another exchange.
    pub(super) fn take(&mut self, originator: PortId, ox_id: Xid, urgent: bool) -> Option<u16> {
        if !urgent && self.free.len() <= RESERVED {
            return None;
        }
        let index = self.free.pop_front()?;
        self.unlink(index);
        self.known.insert((originator, ox_id), index);
        self[index].begin(originator, ox_id);
        Some(index)
    }

    /// Ends an exchange well: its slot may be taken, and tells of it until then.
    pub(super) fn retire(&mut self, index: u16) {
        self[index].state = State::Done;
        self.free.push_back(index);
    }

    /// Keeps a slot that was [retired](Self::retire).
    pub(super) fn reclaim(&mut self, index: u16) {
        self.free.retain(|it| *it != index);
    }

    /// Ends an exchange of which nothing is to be known any more.
    pub(super) fn forget(&mut self, index: u16) {
        self.unlink(index);
        if self[index].state != State::Done {
            self.free.push_back(index);
        }
        self[index].state = State::Free;
    }

    fn unlink(&mut self, index: u16) {
        let exchange = &self.slots[usize::from(index)];
        let key = (exchange.originator, exchange.ox_id);
        if exchange.state != State::Free && self.known.get(&key) == Some(&index) {
            self.known.remove(&key);
        }
    }

    /// All slots, free ones included.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Exchange)> {
        (0..).zip(&self.slots)
    }

    /// The number of slots.
    pub(super) fn len(&self) -> u16 {
        self.slots.len() as u16
    }
}

impl Index<u16> for Table {
    type Output = Exchange;

    fn index(&self, index: u16) -> &Exchange {
        &self.slots[usize::from(index)]
    }
}

impl IndexMut<u16> for Table {
    fn index_mut(&mut self, index: u16) -> &mut Exchange {
        &mut self.slots[usize::from(index)]
    }
}
