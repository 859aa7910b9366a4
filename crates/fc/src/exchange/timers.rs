//! Timers of slots, for deadlines that are moved back again and again and seldom reached.

use tyche_time::Instant;

/// A time that never comes.
const NEVER: Instant = Instant(u64::MAX);
/// The place of an index that is not in the heap.
const NOWHERE: u16 = u16::MAX;

/// A timer for each index.
///
/// A heap has the indices by the time at which each is looked at, which is not later than its timer
/// expires. To move a timer back, or to stop it, is to write its time: the heap is put right when
/// the index is looked at. So nothing is sorted for an exchange that goes well.
pub(super) struct Timers {
    /// When the timer of each index expires.
    at: Box<[Instant]>,
    heap: Vec<(Instant, u16)>,
    /// The place of each index in the heap.
    places: Box<[u16]>,
}

impl Timers {
    /// Timers of indices less than `count`; none runs.
    pub(super) fn new(count: u16) -> Self {
        let len = usize::from(count);
        Self {
            at: vec![NEVER; len].into(),
            heap: Vec::with_capacity(len),
            places: vec![NOWHERE; len].into(),
        }
    }

    /// Sets the timer of an index, or stops it.
    pub(super) fn set(&mut self, index: u16, at: Option<Instant>) {
        let at = at.unwrap_or(NEVER);
        self.at[usize::from(index)] = at;
        let place = self.places[usize::from(index)];
        if place == NOWHERE {
            if at < NEVER {
                self.heap.push((at, index));
                self.rise(self.heap.len() - 1);
            }
        } else if at < self.heap[usize::from(place)].0 {
            self.heap[usize::from(place)].0 = at;
            self.rise(place.into());
        }
    }

    /// An index whose timer has expired, and is stopped by that.
    pub(super) fn expired(&mut self, now: Instant) -> Option<u16> {
        loop {
            let &(looked_at, index) = self.heap.first()?;
            if now < looked_at {
                return None;
            }
            let at = &mut self.at[usize::from(index)];
            if *at <= now {
                *at = NEVER;
                self.remove_first();
                return Some(index);
            }
            if *at == NEVER {
                self.remove_first();
            } else {
                self.heap[0].0 = *at;
                self.sink();
            }
        }
    }

    /// The time before which no timer expires.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.first().map(|(at, _)| *at)
    }

    fn remove_first(&mut self) {
        let (_, index) = self.heap.swap_remove(0);
        self.places[usize::from(index)] = NOWHERE;
        if !self.heap.is_empty() {
            self.sink();
        }
    }

    /// Moves an entry up to its place.
    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.heap[above] <= self.heap[place] {
                break;
            }
            self.swap(above, place);
            place = above;
        }
        self.note(place);
    }

    /// Moves the first entry down to its place.
    fn sink(&mut self) {
        let mut place = 0;
        loop {
            let below = [2 * place + 1, 2 * place + 2].into_iter();
            let below = below.filter(|it| *it < self.heap.len()).min_by_key(|it| self.heap[*it]);
            let Some(below) = below.filter(|it| self.heap[*it] < self.heap[place]) else { break };
            self.swap(place, below);
            place = below;
        }
        self.note(place);
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.note(a);
        self.note(b);
    }

    fn note(&mut self, place: usize) {
        self.places[usize::from(self.heap[place].1)] = place as u16;
    }
}

#[cfg(test)]
mod tests {
    use tyche_testkit::random::Random;

    use super::*;

    #[test]
    fn timers_expire_as_those_of_a_list() {
        const COUNT: usize = 50;
        let (mut timers, mut list) = (Timers::new(COUNT as u16), [None; COUNT]);
        let (mut random, mut now) = (Random(7), Instant(0));
        for step in 0..20_000 {
            let index = random.below(COUNT as u64) as usize;
            let at = now.plus_ns(random.below(1000));
            let at = (!random.chance(4)).then_some(at);
            timers.set(index as u16, at);
            list[index] = at;
            if random.chance(8) {
                now = now.plus_ns(random.below(200));
            }
            let mut expired = Vec::new();
            while let Some(index) = timers.expired(now) {
                assert!(list[usize::from(index)].take().is_some_and(|at| at <= now), "step {step}");
                expired.push(index);
            }
            assert!(list.iter().flatten().all(|at| *at > now), "step {step}: {expired:?}");
            let first = list.iter().flatten().min();
            assert!(first.is_none_or(|at| timers.next().is_some_and(|it| it <= *at)));
            assert!(timers.next().is_none_or(|at| at > now), "what is due has been looked at");
            assert!(timers.heap.len() <= COUNT);
        }
    }

    #[test]
    fn a_timer_that_is_moved_back_stays_where_it_is() {
        let mut timers = Timers::new(2);
        timers.set(1, Some(Instant(10)));
        timers.set(1, Some(Instant(30)));
        assert_eq!(timers.next(), Some(Instant(10)));
        assert_eq!(timers.expired(Instant(10)), None);
        assert_eq!(timers.next(), Some(Instant(30)));
        timers.set(1, None);
        assert_eq!(timers.expired(Instant(30)), None);
        assert_eq!(timers.next(), None);
    }
}
