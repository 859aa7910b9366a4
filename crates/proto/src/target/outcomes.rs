//! What became of the requests of a channel that is closed: kept for the fence that will ask.

use tyche_wire::{Fate, Tag};

/// See the module: of each slot, the last use and how it ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes(Box<[(u16, Fate)]>);

impl Outcomes {
    pub(super) fn new(slots: impl Iterator<Item = (u16, Fate)>) -> Self {
        Self(slots.collect())
    }

    /// The fate of a request. A host asks about the last use of a slot only, for it uses a slot
    /// again only when it has the completion of the use before.
    pub(crate) fn fate(&self, tag: Tag) -> Fate {
        // A channel that never had a frame has no slots, and has executed nothing.
        let Some(&(generation, fate)) = self.0.get(usize::from(tag.slot)) else {
            return Fate::NotExecuted;
        };
        match tag.generation.wrapping_sub(generation) {
            0 => fate,
            1..0x8000 => Fate::NotExecuted,
            _ => Fate::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use tyche_wire::Status;

    use super::*;

    #[test]
    fn the_last_use_of_a_slot_is_known_and_later_ones_never_came() {
        let executed = Fate::Executed(Status::Success);
        let outcomes = Outcomes::new([(0xffff, executed), (3, Fate::NotExecuted)].into_iter());
        let fate = |slot, generation| outcomes.fate(Tag { slot, generation });
        assert_eq!(fate(0, 0xffff), executed);
        assert_eq!(fate(0, 0), Fate::NotExecuted, "a later use, over the edge");
        assert_eq!(fate(0, 0xfffe), Fate::Unknown, "an earlier one");
        assert_eq!(fate(1, 3), Fate::NotExecuted);
        assert_eq!(fate(7, 1), Fate::NotExecuted, "a slot that was never used");
    }
}
