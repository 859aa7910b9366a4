//! Exchanges that have something to send, in order.

use std::collections::VecDeque;

use tyche_fc_wire::Xid;

/// A queue in which each exchange is once at most. Those that end stay in it, and are passed over
/// when it is their turn: its length is bounded by the number of exchanges.
pub(super) struct Ready {
    queue: VecDeque<Xid>,
    is_in: Box<[bool]>,
}

impl Ready {
    pub(super) fn new(capacity: usize) -> Self {
        Self { queue: VecDeque::with_capacity(capacity), is_in: vec![false; capacity].into() }
    }

    /// Appends an exchange, by XID and index, unless it is in the queue.
    pub(super) fn push(&mut self, xid: Xid, index: u16) {
        if !std::mem::replace(&mut self.is_in[usize::from(index)], true) {
            self.queue.push_back(xid);
        }
    }

    /// The first exchange.
    pub(super) fn first(&self) -> Option<Xid> {
        self.queue.front().copied()
    }

    /// Removes the first exchange, whose index this is.
    pub(super) fn remove_first(&mut self, index: u16) {
        self.queue.pop_front();
        self.is_in[usize::from(index)] = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_is_once_in_the_queue_in_its_first_place() {
        let mut ready = Ready::new(2);
        for index in [1, 0, 1, 1] {
            ready.push(Xid(0x10 + index), index);
        }
        for index in [1, 0] {
            assert_eq!(ready.first(), Some(Xid(0x10 + index)));
            ready.remove_first(index);
        }
        assert_eq!(ready.first(), None);
        ready.push(Xid(0x11), 1);
        assert_eq!(ready.first(), Some(Xid(0x11)), "again");
    }
}
