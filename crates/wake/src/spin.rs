//! When to look again at once, and when to sleep.
//!
//! Waking a sleeping thread costs tens of microseconds, more than a whole exchange of frames; but
//! a spinning thread takes a core from everybody else. So a loop spins only as long as spinning
//! has paid off lately: the budget doubles when work came while it spun, and halves when it spun
//! in vain. An idle loop soon does not spin at all, and tries again now and then.

use std::time::Duration;

/// The smallest budget that is still spent, in nanoseconds.
const BUDGET_MIN_NS: u64 = 1_000;
/// One in so many sleeps is preceded by a spin, though the budget is used up: to learn whether
/// times have changed.
const RETRY_EVERY: u32 = 64;

/// The policy of one loop. Times are nanoseconds.
#[derive(Clone, Debug)]
pub struct Spin {
    budget_ns_max: u64,
    budget_ns: u64,
    sleeps: u32,
    /// When the present idle time began.
    idle_since: Option<u64>,
}

impl Spin {
    /// `budget_max`: the longest time to spin; zero: never.
    pub fn new(budget_max: Duration) -> Self {
        let budget_ns_max = u64::try_from(budget_max.as_nanos()).unwrap_or(u64::MAX);
        Self { budget_ns_max, budget_ns: budget_ns_max, sleeps: 0, idle_since: None }
    }

    /// There was work in the last round.
    pub fn worked(&mut self) {
        if self.idle_since.take().is_some() {
            self.budget_ns = (self.budget_ns * 2).max(BUDGET_MIN_NS).min(self.budget_ns_max);
        }
    }

    /// There was none: whether to look again at once rather than to sleep.
    pub fn again(&mut self, now_ns: u64) -> bool {
        if self.budget_ns == 0 {
            return false;
        }
        let since = *self.idle_since.get_or_insert(now_ns);
        now_ns.saturating_sub(since) < self.budget_ns
    }

    /// The loop sleeps now: whatever it spun was in vain.
    pub fn sleeps(&mut self) {
        self.idle_since = None;
        self.budget_ns = if self.budget_ns / 2 < BUDGET_MIN_NS { 0 } else { self.budget_ns / 2 };
        self.sleeps = self.sleeps.wrapping_add(1);
        if self.budget_ns == 0 && self.sleeps.is_multiple_of(RETRY_EVERY) {
            self.budget_ns = self.budget_ns_max;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_stops_when_it_never_pays_and_is_tried_again() {
        let mut spin = Spin::new(Duration::from_micros(50));
        let mut spun = 0;
        for sleep in 0..256u64 {
            spun += u32::from(spin.again(sleep));
            spin.sleeps();
        }
        assert!((6..=40).contains(&spun), "spun before {spun} of 256 sleeps");
    }

    #[test]
    fn a_loop_that_finds_work_keeps_spinning() {
        let mut spin = Spin::new(Duration::from_micros(50));
        for round in 0..1000u64 {
            assert!(spin.again(round * 40_000));
            assert!(spin.again(round * 40_000 + 30_000));
            spin.worked();
        }
        assert!(!spin.again(0) || !spin.again(60_000));
    }

    #[test]
    fn zero_never_spins() {
        let mut spin = Spin::new(Duration::ZERO);
        for _ in 0..200 {
            assert!(!spin.again(0));
            spin.sleeps();
            spin.worked();
        }
    }
}
