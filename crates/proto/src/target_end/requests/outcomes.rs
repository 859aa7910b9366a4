//! Outcomes of the requests of a closed channel, kept for fences.

use tyche_wire::{Fate, Tag};

/// For each slot, the generation of its last use and how that ended.
#[derive(Clone, Debug)]
pub(crate) struct Outcomes(Box<[(u16, Fate)]>);

impl Outcomes {
    pub(super) fn new(slots: impl Iterator<Item = (u16, Fate)>) -> Self {
        Self(slots.collect())
    }

    /// The fate of a request. A host asks only about the last use of a slot, because it uses a slot
    /// again only after the completion of the previous request.
    pub(crate) fn fate(&self, tag: Tag) -> Fate {
        let Some(&(generation, fate)) = self.0.get(usize::from(tag.slot)) else {
            return Fate::Unknown;
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
        assert_eq!(fate(7, 1), Fate::Unknown, "no such slot");
    }
}
