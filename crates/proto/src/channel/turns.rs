//! The order in which the data of a channel's requests are sent.
//!
//! Requests are served one after the other, not all at the same time: the same frames go out, but
//! half of the requests end in half of the time, and the pages in use are few enough to stay in a
//! cache. Large and small requests wait in two queues, which are served alternately, one part of a
//! frame each. So neither delays the other.

use std::collections::VecDeque;

/// Bytes above which a request is large.
pub(crate) const LARGE: u32 = 16 << 10;

/// Slots with data to be sent.
#[derive(Debug)]
pub(crate) struct Turns {
    small: VecDeque<u16>,
    large: VecDeque<u16>,
    /// Whether the large requests are next, if both queues have any.
    large_next: bool,
    /// Whether the [next](Self::next) request was a large one.
    is_large: bool,
}

impl Turns {
    /// `slots`: the number of slots of the channel.
    pub(crate) fn new(slots: usize) -> Self {
        let queue = || VecDeque::with_capacity(slots);
        Self { small: queue(), large: queue(), large_next: false, is_large: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }

    /// Adds a slot with `len` bytes.
    pub(crate) fn push(&mut self, slot: u16, len: u32) {
        if len > LARGE { &mut self.large } else { &mut self.small }.push_back(slot);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot to be served next.
    pub(crate) fn next(&mut self) -> Option<u16> {
        self.is_large = self.small.is_empty() || (self.large_next && !self.large.is_empty());
        if self.is_large { &self.large } else { &self.small }.front().copied()
    }

    /// A part of the [next](Self::next) slot's data has been put into a frame. `last`: it was the
    /// slot's last part.
    pub(crate) fn served(&mut self, last: bool) {
        self.large_next = !self.is_large;
        if last {
            if self.is_large { &mut self.large } else { &mut self.small }.pop_front();
        }
    }

    /// Whether there are large requests, which fill frames by themselves.
    pub(crate) fn has_large(&self) -> bool {
        !self.large.is_empty()
    }

    /// Removes a slot.
    pub(crate) fn remove(&mut self, slot: u16) {
        self.small.retain(|&other| other != slot);
        self.large.retain(|&other| other != slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next `parts` parts; each slot in `last` has its last part the first time.
    fn serve(turns: &mut Turns, parts: usize, last: &[u16]) -> Vec<u16> {
        let serve = |_| {
            let slot = turns.next()?;
            turns.served(last.contains(&slot));
            Some(slot)
        };
        (0..parts).map_while(serve).collect()
    }

    #[test]
    fn one_request_after_the_other() {
        let mut turns = Turns::new(8);
        turns.push(1, 1 << 20);
        turns.push(2, 1 << 20);
        assert_eq!(serve(&mut turns, 3, &[]), [1, 1, 1]);
        turns.served(true);
        assert_eq!(serve(&mut turns, 2, &[2]), [2]);
        assert_eq!(turns.len(), 0);
    }

    #[test]
    fn small_and_large_ones_take_turns() {
        let mut turns = Turns::new(8);
        turns.push(1, 1 << 20);
        assert_eq!(serve(&mut turns, 2, &[]), [1, 1]);
        for slot in 2..5 {
            turns.push(slot, 4096);
        }
        assert_eq!(serve(&mut turns, 7, &[2, 3, 4]), [2, 1, 3, 1, 4, 1, 1]);
        turns.push(5, 4096);
        turns.remove(1);
        assert_eq!(serve(&mut turns, 2, &[5]), [5]);
    }
}
