//! The virtual clock and its future events. Events at the same time occur in the order of their
//! planning, so that a run is deterministic.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tyche_proto::Instant;

struct Entry<E> {
    at: Instant,
    number: u64,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.number)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// Reversed: the heap returns the greatest first, which has to be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// Future events in the order of their time.
pub(crate) struct Schedule<E> {
    heap: BinaryHeap<Entry<E>>,
    planned: u64,
}

impl<E> Schedule<E> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), planned: 0 }
    }

    pub(crate) fn plan(&mut self, at: Instant, event: E) {
        self.planned += 1;
        self.heap.push(Entry { at, number: self.planned, event });
    }

    /// When the next event is due.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.at)
    }

    pub(crate) fn pop(&mut self) -> Option<(Instant, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}
