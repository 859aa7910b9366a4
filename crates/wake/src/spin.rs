//! The policy that decides between spinning and sleeping.
//!
//! Waking a sleeping thread costs tens of microseconds, more than a whole exchange of frames; but a
//! spinning thread takes a core from others. So a loop spins only as long as spinning has paid off
//! lately: the budget doubles when work came during a spin, and halves after a spin in vain. An
//! idle loop soon stops spinning, and tries it again now and then.

use std::time::Duration;

/// The smallest budget in nanoseconds; a smaller one is zero.
const BUDGET_MIN_NS: u64 = 1_000;
/// One in this many sleeps is preceded by a spin although the budget is used up, to learn whether
/// spinning pays again.
const RETRY_EVERY: u32 = 64;

/// The policy of one loop. Times are nanoseconds.
#[derive(Clone, Debug)]
pub struct Spin {
    budget_ns_max: u64,
    budget_ns: u64,
    sleeps: u32,
    /// The start of the present idle time.
    idle_since: Option<u64>,
}

impl Spin {
    /// A policy that spins for at most `budget_max`; zero: never.
    pub fn new(budget_max: Duration) -> Self {
        let budget_ns_max = u64::try_from(budget_max.as_nanos()).unwrap_or(u64::MAX);
        Self { budget_ns_max, budget_ns: budget_ns_max, sleeps: 0, idle_since: None }
    }

    /// Records a round with work.
    pub fn worked(&mut self) {
        if self.idle_since.take().is_some() {
            self.budget_ns = (self.budget_ns * 2).max(BUDGET_MIN_NS).min(self.budget_ns_max);
        }
    }

    /// Records a round without work; true if the loop should spin on rather than sleep.
    pub fn again(&mut self, now_ns: u64) -> bool {
        if self.budget_ns == 0 {
            return false;
        }
        let since = *self.idle_since.get_or_insert(now_ns);
        now_ns.saturating_sub(since) < self.budget_ns
    }

    /// Records a sleep: the spin before it was in vain.
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
