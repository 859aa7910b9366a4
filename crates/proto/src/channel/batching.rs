//! How many requests share a frame, and whether a frame waits for more of them.
//!
//! A frame costs its sender and its receiver about the same whatever it carries. So the more
//! requests or answers share one, the more requests a core handles. Entries that are ready together
//! always may share a frame. The question is whether to wait for others: that saves frames while
//! many requests are in progress, and only costs time while few are. (MSST 2015, "Dynamic
//! Batching".)
//!
//! Requests end at the rate at which they begin, so an eighth of those in progress becomes ready
//! within an eighth of the time that a request takes (Little's law). So frames wait for an eighth
//! of the requests in progress at most: no request is delayed by more than an eighth of its time,
//! the other side has seven eighths to work on meanwhile, and there is no wait below depth 16.
//! Within that bound, the batch size is tuned for the highest rate.

use std::time::Duration;

use crate::time::Instant;

/// Longest time that a frame waits for more entries. Higher: fuller frames, slower answers at low
/// depths.
const HOLD_MAX: Duration = Duration::from_micros(50);
/// How often the batch size is tuned.
const PERIOD: Duration = Duration::from_secs(1);
/// Batch size, in requests: upper bound, and value at the start.
const SIZE_MAX: u32 = 64;
const SIZE_START: u32 = 16;
/// A frame waits for at most one in so many of the requests in progress.
const SHARE: usize = 8;
/// Rates that differ by less than this, in percent, count as equal, because of noise.
const NOISE_PERCENT: u64 = 3;
/// Periods at the same batch size after which another one is tried, to leave a local optimum.
const STEADY_MAX: u32 = 5;

/// When a frame goes out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchPolicy {
    /// At once, with one request or one answer: the baseline of measurements.
    None,
    /// At once, with all entries that are ready.
    Natural,
    /// When the batch size is reached that gave the highest rate, an eighth of the requests in
    /// progress at most; or after 50 µs.
    #[default]
    Adaptive,
}

/// Batching of one sender.
#[derive(Clone, Debug)]
pub(crate) struct Batching {
    policy: BatchPolicy,
    /// When the entries that are ready began to wait.
    held_since: Option<Instant>,
    /// The wait is over: frames go out until nothing is ready.
    released: bool,
    tuner: Tuner,
}

impl Batching {
    pub(crate) fn new(policy: BatchPolicy, now: Instant) -> Self {
        Self { policy, held_since: None, released: false, tuner: Tuner::new(now) }
    }

    /// Whether requests may share a frame.
    pub(crate) fn shares(&self) -> bool {
        self.policy != BatchPolicy::None
    }

    /// The tuned batch size, in requests; 0 if nothing is tuned.
    pub(crate) fn size(&self) -> u32 {
        if self.policy == BatchPolicy::Adaptive { self.tuner.size } else { 0 }
    }

    /// Whether the next frame has to wait, to be asked before every frame. `ready`: requests or
    /// answers that it could carry; `under_way`: those that may still become ready; `urgent`:
    /// something must not wait, or fills frames by itself.
    pub(crate) fn holds(
        &mut self,
        now: Instant,
        ready: usize,
        under_way: usize,
        urgent: bool,
    ) -> bool {
        if self.policy != BatchPolicy::Adaptive {
            return false;
        }
        let wanted = (self.tuner.size as usize).min((ready + under_way) / SHARE);
        if ready == 0 {
            (self.held_since, self.released) = (None, false);
            return false;
        }
        if self.released || urgent || ready >= wanted {
            (self.held_since, self.released) = (None, true);
            return false;
        }
        let since = *self.held_since.get_or_insert(now);
        if now >= since + HOLD_MAX {
            (self.held_since, self.released) = (None, true);
        }
        !self.released
    }

    /// When the frame that waits is sent at the latest.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.held_since.map(|since| since + HOLD_MAX)
    }

    /// A request has ended; `depth` requests were in progress, including this one.
    pub(crate) fn ended(&mut self, now: Instant, depth: usize) {
        if self.policy == BatchPolicy::Adaptive {
            self.tuner.ended(now, depth);
        }
    }
}

/// Finds the batch size with the highest rate by hill climbing. It keeps its direction while the
/// rate rises, and turns when the rate falls. While the rate stays the same, it takes a larger step
/// now and then, to leave a local optimum, and takes that back unless the rate rises.
#[derive(Clone, Debug)]
struct Tuner {
    /// Requests to wait for, 1 to [`SIZE_MAX`].
    size: u32,
    rising: bool,
    /// Periods that the size has stayed the same.
    steady: u32,
    /// The size before the last large step, to return to unless the rate rises.
    nudged_from: Option<u32>,
    /// Requests per second in the last period with another rate.
    last_rate: u64,
    began: Instant,
    ended: u64,
    /// Sum of the depths at the ends of requests, for their mean.
    depths: u64,
}

impl Tuner {
    fn new(now: Instant) -> Self {
        Self {
            size: SIZE_START,
            rising: true,
            steady: 0,
            nudged_from: None,
            last_rate: 0,
            began: now,
            ended: 0,
            depths: 0,
        }
    }

    fn ended(&mut self, now: Instant, depth: usize) {
        self.ended += 1;
        self.depths += depth as u64;
        let elapsed = now.since(self.began);
        if elapsed >= PERIOD {
            let rate = self.ended * 1_000_000 / u64::try_from(elapsed.as_micros()).unwrap_or(1);
            self.tune(rate, self.depths / self.ended);
            (self.began, self.ended, self.depths) = (now, 0, 0);
        }
    }

    fn tune(&mut self, rate: u64, depth: u64) {
        let noise = self.last_rate * NOISE_PERCENT / 100;
        let better = rate > self.last_rate + noise;
        let worse = rate + noise < self.last_rate;
        self.steady += 1;
        if let Some(home) = self.nudged_from.take().filter(|_| !better) {
            self.size = home;
            self.rising = !self.rising;
            self.steady = 0;
        } else if better || worse {
            self.last_rate = rate;
            self.rising ^= worse;
            self.step((self.size / 4).max(1));
        } else if self.steady > STEADY_MAX {
            self.nudged_from = Some(self.size);
            self.step(self.size.div_ceil(2));
        }
        // A larger size has no effect: see `SHARE`.
        let most = u32::try_from(depth / SHARE as u64).unwrap_or(SIZE_MAX);
        self.size = self.size.clamp(1, most.clamp(1, SIZE_MAX));
    }

    fn step(&mut self, by: u32) {
        self.size = if self.rising { self.size + by } else { self.size.saturating_sub(by) };
        self.steady = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tunes against a rate that depends on the size; returns the sizes of the last periods.
    fn climb(mut tuner: Tuner, depth: u64, rate: impl Fn(u32) -> u64) -> Vec<u32> {
        let sizes = (0..200).map(|_| {
            let rate = rate(tuner.size);
            tuner.tune(rate, depth);
            tuner.size
        });
        sizes.skip(100).collect()
    }

    /// Rate with a single best size.
    fn peak_at(best: u32) -> impl Fn(u32) -> u64 {
        move |size| 400_000_u64.saturating_sub(u64::from(size.abs_diff(best)) * 15_000)
    }

    #[test]
    fn the_best_size_is_found_from_either_side() {
        for (start, best) in [(1, 12), (40, 12), (1, 1), (20, 4)] {
            let tuner = Tuner { size: start, ..Tuner::new(Instant(0)) };
            let sizes = climb(tuner, 128, peak_at(best));
            let mean = sizes.iter().sum::<u32>() / sizes.len() as u32;
            assert!(mean.abs_diff(best) <= 2 + best / 4, "from {start}: {sizes:?}");
        }
    }

    #[test]
    fn a_flat_stretch_does_not_end_the_search() {
        // Level up to 7, then rising to 16.
        let rate = |size: u32| 200_000 + 10_000 * u64::from(size.clamp(7, 16));
        let sizes = climb(Tuner { size: 4, ..Tuner::new(Instant(0)) }, 128, rate);
        assert!(sizes.iter().any(|&size| size >= 12), "{sizes:?}");
    }

    #[test]
    fn no_frame_waits_for_more_than_an_eighth_of_what_is_in_progress() {
        for depth in [1, 2, 8, 100] {
            let sizes = climb(Tuner::new(Instant(0)), depth, |size| 1_000 * u64::from(size));
            assert!(sizes.iter().all(|&size| u64::from(size) <= (depth / 8).max(1)));
        }
        for (in_progress, wanted) in [(8, 1), (15, 1), (16, 2), (63, 7), (64, 8), (200, 8)] {
            let mut batching = adaptive(8);
            assert!(
                wanted == 1
                    || batching.holds(Instant(0), wanted - 1, in_progress + 1 - wanted, false)
            );
            assert!(!batching.holds(Instant(0), wanted, in_progress - wanted, false));
        }
    }

    fn adaptive(size: u32) -> Batching {
        let mut batching = Batching::new(BatchPolicy::Adaptive, Instant(0));
        batching.tuner.size = size;
        batching
    }

    #[test]
    fn a_frame_waits_until_it_is_full_or_its_time_is_over() {
        let mut batching = adaptive(8);
        assert!(batching.holds(Instant(100), 3, 80, false));
        let deadline = Instant(100) + HOLD_MAX;
        assert_eq!(batching.poll_timeout(), Some(deadline));
        assert!(!batching.holds(Instant(200), 8, 75, false), "full");
        assert_eq!(batching.poll_timeout(), None);
        assert!(!batching.holds(Instant(210), 2, 81, false), "the rest goes with it");
        assert!(!batching.holds(Instant(220), 0, 83, false), "nothing is left");
        assert!(batching.holds(Instant(300), 1, 75, false));
        assert!(!batching.holds(Instant(300) + HOLD_MAX, 1, 75, false), "late");
    }

    #[test]
    fn nothing_waits_for_what_can_not_come() {
        let mut batching = adaptive(8);
        assert!(!batching.holds(Instant(0), 1, 0, false), "alone");
        assert!(!batching.holds(Instant(0), 1, 80, true), "large");
        assert!(!batching.holds(Instant(0), 0, 80, false), "nothing to send");
        assert_eq!(batching.poll_timeout(), None);
        let mut natural = Batching::new(BatchPolicy::Natural, Instant(0));
        assert!(!natural.holds(Instant(0), 1, 80, false));
    }
}
