//! A sample of answers of which anybody may have sent any number.
//!
//! Whoever forges answers to a question has to hear it first, as the one who is asked does. So half
//! of the room is for the first ones. The others get the rest by lot, each with the same chance: an
//! answer that is left out is not lost for good, because there is another question soon. Answers
//! that show what is known of the right one come before all that do not.

use arrayvec::ArrayVec;

/// A bounded sample of the answers to one question: `N` at most. The first half of the room goes to
/// those that come first, the second half by lot, and preferred answers displace the others.
pub(super) struct Sample<T, const N: usize> {
    /// The answers, and whether each is a preferred one.
    kept: ArrayVec<(T, bool), N>,
    /// Answers that have come for the second half of the room.
    lots: u64,
}

impl<T, const N: usize> Sample<T, N> {
    pub(super) fn new() -> Self {
        Self { kept: ArrayVec::new(), lots: 0 }
    }

    /// Takes an answer, perhaps in place of another; false if it is left out. `random`: a random
    /// number.
    pub(super) fn take(&mut self, answer: T, is_preferred: bool, random: u64) -> bool {
        let room = (N / 2) as u64;
        let Err(full) = self.kept.try_push((answer, is_preferred)) else { return true };
        self.lots = self.lots.max(room) + 1;
        let answer = full.element();
        let other = self.kept.iter().rposition(|&(_, is_preferred)| !is_preferred);
        let place = match other.filter(|_| is_preferred) {
            Some(place) => place,
            None => {
                let lot = random % self.lots;
                let place = N - 1 - lot as usize % N;
                if lot >= room || self.kept[place].1 != is_preferred {
                    return false;
                }
                place
            }
        };
        self.kept[place] = answer;
        true
    }

    /// The answers, and whether each is a preferred one.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(T, bool)> {
        self.kept.iter()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: u64 = 6_364_136_223_846_793_005;

    fn kept(sample: &Sample<u32, 8>) -> Vec<u32> {
        sample.iter().map(|&(answer, _)| answer).collect()
    }

    #[test]
    fn the_first_stay_and_the_others_have_a_chance_each() {
        let (mut counts, mut random) = ([0; 100], 1_u64);
        for _ in 0..10_000 {
            let mut sample = Sample::<u32, 8>::new();
            for answer in 0..100 {
                random = random.wrapping_mul(NUMBERS).wrapping_add(1);
                sample.take(answer, false, random >> 20);
            }
            kept(&sample).iter().for_each(|&answer| counts[answer as usize] += 1);
        }
        assert_eq!(counts[..4], [10_000; 4]);
        // 4 of 96.
        assert!(counts[4..].iter().all(|count| (330..510).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_preferred_answer_displaces_another_and_never_the_other_way() {
        let mut sample = Sample::<u32, 8>::new();
        for answer in 0..1000 {
            sample.take(answer, false, answer.into());
        }
        assert!(sample.take(7000, true, 0));
        for answer in 0..1000 {
            sample.take(answer, false, answer.into());
        }
        assert!(kept(&sample).contains(&7000));
        (8000..8007).for_each(|answer| assert!(sample.take(answer, true, u64::MAX)));
        assert!(kept(&sample).iter().all(|&answer| answer >= 7000));
    }
}
