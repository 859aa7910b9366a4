//! The exchanges of a lane (FC-FS-3): a table of slots, each with an XID and a timer.
//!
//! ```text
//!          open           close
//!  Free ─────────► Open ─────────► Free, behind all others
//!   ▲                │ quarantine
//!   └── its time ── Quarantined
//! ```
//!
//! An XID is at rest for as long as there are others: the one that has been free for longest is the
//! next. That of an exchange which ended abnormally is quarantined as well, until no frame of the
//! exchange can be on the way any more (R_A_TOV). So a late frame finds either no exchange, or one
//! that is quarantined.
//!
//! A slot is found by its XID without a search. Nothing is allocated after the start.

mod timers;
mod xids;

use std::collections::VecDeque;

use tyche_fc_wire::Xid;
use tyche_time::Instant;

pub use xids::Xids;

use timers::Timers;

/// A table of exchanges with a fixed number of XIDs, each free, open or quarantined. `T` is the
/// state that the owner keeps of an open exchange.
pub struct Table<T> {
    xids: Xids,
    slots: Box<[Slot<T>]>,
    /// The indices of free slots, longest free first.
    free: VecDeque<u16>,
    timers: Timers,
    quarantined: usize,
}

/// A slot of the table.
enum Slot<T> {
    Free,
    Open(T),
    Quarantined,
}

/// The exchange that an XID stands for.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// An open one.
    Open(T),
    /// One that has ended abnormally, some time ago: the frame is late.
    Quarantined,
    /// None: the XID is free, or not one of this lane.
    Nothing,
}

impl<T> Table<T> {
    /// A slot for each of the XIDs, all free.
    pub fn new(xids: Xids) -> Self {
        Self::beginning_with(xids, 0)
    }

    /// The same, of which the XID with this index, modulo their number, is the first to be used.
    pub fn beginning_with(xids: Xids, first: u64) -> Self {
        let count = xids.count();
        let first = (first % u64::from(count)) as u16;
        Self {
            xids,
            slots: (0..count).map(|_| Slot::Free).collect(),
            free: (first..count).chain(0..first).collect(),
            timers: Timers::new(count),
            quarantined: 0,
        }
    }

    /// The number of slots.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The number of free slots.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// The number of quarantined slots.
    pub fn quarantined(&self) -> usize {
        self.quarantined
    }

    /// The index of an XID, less than [`capacity`](Self::capacity); `None` if it is not one of this
    /// table.
    pub fn index(&self, xid: Xid) -> Option<u16> {
        self.xids.find(xid)
    }

    /// All XIDs of the table.
    pub fn xids(&self) -> impl Iterator<Item = Xid> + use<T> {
        let xids = self.xids;
        (0..xids.count()).map(move |index| xids.at(index))
    }

    /// Opens an exchange in the slot that has been free for longest. `None`, with the exchange
    /// dropped, if none is free.
    pub fn open(&mut self, exchange: T) -> Option<Xid> {
        let index = self.free.pop_front()?;
        self.slots[usize::from(index)] = Slot::Open(exchange);
        Some(self.xids.at(index))
    }

    /// The exchange of an XID from a frame.
    pub fn find(&mut self, xid: Xid) -> Found<&mut T> {
        match self.xids.find(xid).map(|index| &mut self.slots[usize::from(index)]) {
            Some(Slot::Open(exchange)) => Found::Open(exchange),
            Some(Slot::Quarantined) => Found::Quarantined,
            Some(Slot::Free) | None => Found::Nothing,
        }
    }

    /// An open exchange.
    pub fn get(&self, xid: Xid) -> Option<&T> {
        match &self.slots[usize::from(self.xids.find(xid)?)] {
            Slot::Open(exchange) => Some(exchange),
            _ => None,
        }
    }

    /// An open exchange, to be changed.
    pub fn get_mut(&mut self, xid: Xid) -> Option<&mut T> {
        match self.find(xid) {
            Found::Open(exchange) => Some(exchange),
            _ => None,
        }
    }

    /// All open exchanges.
    pub fn iter(&self) -> impl Iterator<Item = (Xid, &T)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| match slot {
            Slot::Open(exchange) => Some((self.xids.at(index), exchange)),
            _ => None,
        })
    }

    /// Ends an exchange as both ends have expected it.
    ///
    /// # Panics
    /// If it is not open.
    pub fn close(&mut self, xid: Xid) -> T {
        let (index, exchange) = self.take(xid, Slot::Free);
        self.timers.set(index, None);
        self.free.push_back(index);
        exchange
    }

    /// Ends an exchange whose frames may still be on the way until then.
    ///
    /// # Panics
    /// If it is not open.
    pub fn quarantine(&mut self, xid: Xid, until: Instant) -> T {
        let (index, exchange) = self.take(xid, Slot::Quarantined);
        self.timers.set(index, Some(until));
        self.quarantined += 1;
        exchange
    }

    /// Ends a quarantine before its time: the other end has asked for it (RRQ). False if there is
    /// none.
    pub fn release(&mut self, xid: Xid) -> bool {
        let Some(index) = self.xids.find(xid) else { return false };
        let is_quarantined = matches!(self.slots[usize::from(index)], Slot::Quarantined);
        if is_quarantined {
            self.timers.set(index, None);
            self.end_quarantine(index);
        }
        is_quarantined
    }

    /// Sets the timer of an open exchange, or stops it. Costs little if it is only moved back.
    ///
    /// # Panics
    /// If it is not open.
    pub fn set_timer(&mut self, xid: Xid, at: Option<Instant>) {
        let index = self.xids.find(xid).expect("an XID of the table");
        assert!(matches!(self.slots[usize::from(index)], Slot::Open(_)), "{xid} is open");
        self.timers.set(index, at);
    }

    /// An open exchange whose timer has expired, and is stopped by that. Ends the quarantines whose
    /// time has come.
    pub fn poll_expired(&mut self, now: Instant) -> Option<Xid> {
        loop {
            let index = self.timers.expired(now)?;
            match self.slots[usize::from(index)] {
                Slot::Open(_) => return Some(self.xids.at(index)),
                Slot::Quarantined => self.end_quarantine(index),
                Slot::Free => unreachable!("the timers of free slots are stopped"),
            }
        }
    }

    /// When to call [`poll_expired`](Self::poll_expired): not later than the next timer expires.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn take(&mut self, xid: Xid, after: Slot<T>) -> (u16, T) {
        let index = self.xids.find(xid).expect("an XID of the table");
        match std::mem::replace(&mut self.slots[usize::from(index)], after) {
            Slot::Open(exchange) => (index, exchange),
            _ => panic!("{xid} is open"),
        }
    }

    /// Frees a quarantined slot.
    fn end_quarantine(&mut self, index: u16) {
        self.slots[usize::from(index)] = Slot::Free;
        self.free.push_back(index);
        self.quarantined -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table<char> {
        Table::new(Xids::new((0x100, 0x107), 1, 1))
    }

    #[test]
    fn the_slot_that_is_free_for_longest_is_the_next() {
        let mut table = table();
        let opened = ['a', 'b', 'c', 'd'].map(|it| table.open(it).unwrap());
        assert_eq!(opened, [0x101, 0x103, 0x105, 0x107].map(Xid));
        assert_eq!(table.open('e'), None);
        assert_eq!((table.close(Xid(0x105)), table.close(Xid(0x101))), ('c', 'a'));
        assert_eq!([table.open('f'), table.open('g')], [Some(Xid(0x105)), Some(Xid(0x101))]);
        assert_eq!(table.find(Xid(0x105)), Found::Open(&mut 'f'));
        assert_eq!(table.find(Xid(0x104)), Found::Nothing, "of another lane");
        let open: String = table.iter().map(|(_, it)| *it).collect();
        assert_eq!(open, "gbfd");
    }

    #[test]
    fn a_quarantined_xid_is_found_and_not_used_before_its_time() {
        let mut table = table();
        let first = table.open('a').unwrap();
        table.set_timer(first, Some(Instant(5)));
        assert_eq!(table.quarantine(first, Instant(10)), 'a');
        assert_eq!((table.free(), table.quarantined()), (3, 1));
        assert_eq!(table.find(first), Found::Quarantined);
        assert_eq!(table.poll_expired(Instant(9)), None, "its timer is that of the quarantine");
        assert_eq!(table.find(first), Found::Quarantined);
        assert_eq!(table.poll_expired(Instant(10)), None);
        assert_eq!(table.find(first), Found::Nothing);
        assert_eq!((table.free(), table.quarantined(), table.poll_timeout()), (4, 0, None));
        for _ in 0..3 {
            assert_ne!(table.open('b'), Some(first));
        }
        assert_eq!(table.open('c'), Some(first), "behind the others");
    }

    #[test]
    fn a_quarantine_ends_when_the_other_end_asks_for_it() {
        let mut table = table();
        let xid = table.open('a').unwrap();
        assert!(!table.release(xid), "it is open");
        table.quarantine(xid, Instant(10));
        assert!(table.release(xid) && !table.release(xid) && !table.release(Xid(0)));
        assert_eq!((table.free(), table.poll_expired(Instant(10))), (4, None));
    }

    #[test]
    fn a_timer_expires_once_and_not_after_its_exchange() {
        let mut table = table();
        let [a, b] = ['a', 'b'].map(|it| table.open(it).unwrap());
        table.set_timer(a, Some(Instant(5)));
        table.set_timer(b, Some(Instant(6)));
        assert_eq!(table.poll_timeout(), Some(Instant(5)));
        table.close(b);
        assert_eq!(table.poll_expired(Instant(4)), None);
        assert_eq!(table.poll_expired(Instant(7)), Some(a));
        assert_eq!(table.poll_expired(Instant(7)), None);
        table.set_timer(a, Some(Instant(9)));
        table.set_timer(a, None);
        assert_eq!(table.poll_expired(Instant(9)), None);
    }
}
