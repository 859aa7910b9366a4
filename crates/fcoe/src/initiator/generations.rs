//! Generations of a disk of ours: what a session knows of its losses.
//!
//! A target tells of a loss by flushes that fail, with the generation that accounts for it. What it
//! does not come to tell, because it is started again, shows by the generation, which a session
//! asks for after each login. Both may tell of the same loss.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tyche_scsi::Uuid;

/// The most generations that are remembered: more than answers are on their way.
const COUNTED_MAX: usize = 64;

/// The generations of one disk that a session has seen, for all its lanes: the present one, and
/// those whose loss was counted already. It makes each loss count once.
#[derive(Debug, Default)]
pub(super) struct Generations(Mutex<KnownGenerations>);

#[derive(Debug, Default)]
struct KnownGenerations {
    /// The present one.
    now: Option<Uuid>,
    /// Those whose losses count already.
    counted: Vec<Uuid>,
}

impl Generations {
    fn known(&self) -> MutexGuard<'_, KnownGenerations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the disk has them.
    pub(super) fn are_there(&self) -> bool {
        self.known().now.is_some()
    }

    /// Whether it is the present one.
    pub(super) fn is_now(&self, generation: Uuid) -> bool {
        self.known().now == Some(generation)
    }

    /// A flush has failed: its disk has lost writes, as this generation says. Whether that is news.
    pub(super) fn lost(&self, generation: Uuid) -> bool {
        let mut known = self.known();
        known.now = Some(generation);
        known.count(generation)
    }

    /// The generation of a disk that was asked for it; `None` if it does not say. Returns whether
    /// it is another than before, and nothing was counted for that.
    pub(super) fn asked(&self, generation: Option<Uuid>) -> bool {
        let mut known = self.known();
        let before = std::mem::replace(&mut known.now, generation);
        before != generation && before.is_some() && !generation.is_some_and(|it| known.has(it))
    }

    /// The loss that this generation accounts for counts from now on.
    pub(super) fn count(&self, generation: Option<Uuid>) {
        if let Some(generation) = generation {
            self.known().count(generation);
        }
    }
}

impl KnownGenerations {
    fn has(&self, generation: Uuid) -> bool {
        self.counted.contains(&generation)
    }

    fn count(&mut self, generation: Uuid) -> bool {
        if self.has(generation) {
            return false;
        }
        if self.counted.len() == COUNTED_MAX {
            self.counted.remove(0);
        }
        self.counted.push(generation);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_counts_once_whoever_tells_of_it() {
        let [first, second, third] = [1, 2, 3].map(Uuid::from_u128);
        let generations = Generations::default();
        assert!(!generations.are_there());
        assert!(!generations.asked(Some(first)) && generations.are_there(), "nothing was known");
        assert!(!generations.asked(Some(first)));
        assert!(generations.lost(second) && !generations.lost(second));
        assert!(!generations.asked(Some(second)), "it was told by a flush");
        assert!(generations.asked(Some(third)));
        generations.count(Some(third));
        assert!(!generations.lost(third), "it was asked for before");
        assert!(!generations.lost(second), "an answer that is late");
        assert!(generations.asked(None), "another program than before");
    }
}
