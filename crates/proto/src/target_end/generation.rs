//! The generation of an export, `generation` on the wire: completed writes survive within one.
//!
//! It has two halves. The first names the content: writes that a flush has covered survive as long
//! as it stays. The second names the cache: writes that no flush has covered survive as long as
//! both stay. A target that has lost only a cache changes only the second half. PROTOCOL.md, "Lost
//! writes".

use tyche_wire::Uuid;

/// The completed writes that a target may have lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Writes that no flush has covered: a cache is gone, or a flush has failed.
    Cache,
    /// Any write: the disk was replaced, or restored from an earlier state.
    Content,
}

impl Loss {
    /// The generation after this loss. `random`: a random UUID.
    pub fn renew(self, generation: Uuid, random: Uuid) -> Uuid {
        let cache = random.as_u64_pair().1;
        match self {
            Self::Cache => Uuid::from_u64_pair(generation.as_u64_pair().0, cache),
            Self::Content => random,
        }
    }

    /// The loss between two generations of an export, if they differ.
    pub fn between(before: Uuid, now: Uuid) -> Option<Self> {
        let same_content = before.as_u64_pair().0 == now.as_u64_pair().0;
        (before != now).then_some(if same_content { Self::Cache } else { Self::Content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_says_what_was_lost() {
        let [first, second] = [1, 2].map(|half| Uuid::from_u64_pair(half, half));
        assert_eq!(Loss::between(first, first), None);
        for loss in [Loss::Cache, Loss::Content] {
            assert_eq!(Loss::between(first, loss.renew(first, second)), Some(loss));
        }
    }
}
