//! Frames of data that may be on the way from an initiator.
//!
//! Nothing on Ethernet keeps a sender from filling a receive ring. So no more data are asked for
//! than it holds, of all initiators together, who [share](Share) it. If data of one are lost
//! nevertheless, somewhere on its way there is less room: half as much is asked for, of this one,
//! and then a frame more with each burst that comes whole.

use super::share::Share;
use crate::{Rule, Rules};

/// The window of one initiator: the frames of data that it was asked for and that have not come.
/// Its size adapts to losses of this initiator only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    max: u32,
    size: u32,
    taken: u32,
}

impl Window {
    /// A window of an initiator at a ring that holds so many frames.
    pub(super) fn new(max: u32) -> Self {
        Self { max, size: max, taken: 0 }
    }

    /// Frames that may be asked for now, of so many that are wanted. With nothing on the way, a
    /// part of them is enough; otherwise none are asked for before there is room for all.
    pub(super) fn room<R: Rules>(&self, rules: R, ring: &Share, wanted: u32) -> u32 {
        let is_shared = rules.keeps(Rule::ShareRing);
        let of_ring = if is_shared { ring.room(self.taken) } else { ring.free() };
        let room = self.size.saturating_sub(self.taken).min(of_ring);
        if wanted <= room || self.taken == 0 { wanted.min(room) } else { 0 }
    }

    /// Takes room for frames.
    pub(super) fn take(&mut self, ring: &mut Share, frames: u32) {
        self.taken += frames;
        ring.take(frames);
    }

    /// Returns the room of frames that have come, or will not come.
    pub(super) fn give(&mut self, ring: &mut Share, frames: u32) {
        self.taken -= frames;
        ring.give(frames);
    }

    /// A burst has come whole.
    pub(super) fn grow(&mut self) {
        self.size = self.max.min(self.size + 1);
    }

    /// A burst has not.
    pub(super) fn shrink(&mut self) {
        self.size = (self.size / 2).max(1);
    }

    /// The initiator sends nothing of what it was asked for: it is asked for one frame at a time,
    /// until it does.
    pub(super) fn close(&mut self) {
        self.size = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AllRules;

    #[test]
    fn losses_halve_it_and_whole_bursts_let_it_grow_to_what_it_was() {
        let (mut ring, mut window) = (Share::new(100), Window::new(8));
        window.take(&mut ring, 5);
        assert_eq!((window.room(AllRules, &ring, 4), window.room(AllRules, &ring, 3)), (0, 3));
        window.take(&mut ring, 3);
        window.shrink();
        window.give(&mut ring, 3);
        assert_eq!(window.room(AllRules, &ring, 1), 0, "more is on the way than may be");
        window.give(&mut ring, 5);
        assert_eq!(window.room(AllRules, &ring, 6), 4, "a part, with nothing on the way");
        (0..9).for_each(|_| window.grow());
        assert_eq!(window.room(AllRules, &ring, 9), 8);
        window.close();
        assert_eq!(window.room(AllRules, &ring, 9), 1);
        (0..9).for_each(|_| window.grow());
        (0..9).for_each(|_| window.shrink());
        assert_eq!(window.room(AllRules, &ring, 9), 1);
    }

    #[test]
    fn one_initiator_leaves_room_for_others() {
        let mut ring = Share::new(9);
        let (mut one, mut other) = (Window::new(9), Window::new(9));
        assert_eq!(one.room(AllRules, &ring, 9), 4);
        one.take(&mut ring, 4);
        assert_eq!((one.room(AllRules, &ring, 1), other.room(AllRules, &ring, 9)), (0, 2));
        other.take(&mut ring, 2);
        one.give(&mut ring, 4);
        assert_eq!(one.room(AllRules, &ring, 9), 3);
    }
}
