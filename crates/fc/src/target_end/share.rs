//! The division of what a target has among its initiators: frames of the receive ring, exchanges,
//! memory.
//!
//! An initiator may take more as long as it then holds no more than is left free for others: a
//! dynamic threshold (Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory
//! Packet Switches", 1998). One alone gets half of it, and `n` that want everything get 1/(n + 1)
//! each. So there is always as much free as each of them holds, nothing has to be taken back when
//! another initiator comes, and one that returns nothing costs the others its share, not all.

/// A pool of equal units that initiators share by a dynamic threshold. It counts all units that are
/// taken; its user counts those of each initiator, and passes that number to [`room`](Self::room).
#[derive(Clone, Copy, Debug)]
pub struct Share {
    total: u32,
    taken: u32,
}

impl Share {
    /// That many units, none of which is taken.
    pub fn new(total: u32) -> Self {
        Self { total, taken: 0 }
    }

    /// Units that nobody holds.
    pub fn free(&self) -> u32 {
        self.total.saturating_sub(self.taken)
    }

    /// The most units that an initiator which holds `own` of them may take now. Whoever holds none
    /// gets one, as long as there is one.
    pub fn room(&self, own: u32) -> u32 {
        let free = self.free();
        let room = free.saturating_sub(own) / 2;
        if own == 0 { room.max(free.min(1)) } else { room }
    }

    /// Takes units, whether or not there is [room](Self::room) for them.
    pub fn take(&mut self, units: u32) {
        self.taken += units;
    }

    /// Returns units.
    pub fn give(&mut self, units: u32) {
        self.taken -= units;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Initiators that take one unit after the other, in turn, until none gets another.
    fn fill(share: &mut Share, held: &mut [u32]) {
        while held.iter().any(|own| share.room(*own) > 0) {
            for own in held.iter_mut() {
                let units = share.room(*own).min(1);
                share.take(units);
                *own += units;
            }
        }
    }

    #[test]
    fn who_wants_everything_gets_as_much_as_is_left() {
        for count in 1..9 {
            let (mut share, mut held) = (Share::new(900), vec![0; count]);
            fill(&mut share, &mut held);
            let fair = 900 / (count as u32 + 1);
            assert!(held.iter().all(|own| own.abs_diff(fair) <= 2), "{held:?}");
            assert!(share.free().abs_diff(fair) <= 2 * count as u32);
        }
    }

    #[test]
    fn there_is_room_for_another_that_comes_later() {
        let (mut share, mut held) = (Share::new(100), [0]);
        fill(&mut share, &mut held);
        assert_eq!((held, share.room(0)), ([50], 25));
        let mut late = [0];
        fill(&mut share, &mut late);
        assert_eq!(late, [25]);
    }

    #[test]
    fn one_that_holds_nothing_gets_the_last_unit() {
        let mut share = Share::new(1);
        assert_eq!(share.room(0), 1);
        share.take(1);
        assert_eq!((share.room(0), share.room(1)), (0, 0));
        // Some are taken beyond what there is room for.
        share.take(2);
        assert_eq!(share.room(0), 0);
        share.give(3);
        assert_eq!(share.room(0), 1);
    }
}
