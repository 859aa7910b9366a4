//! Rate limit for what strangers can cause.

use core::time::Duration;

use crate::Instant;

/// Admits one frame of a kind per interval, on average. More are dropped, and their senders repeat
/// them. So the cost of a flood is bounded.
#[derive(Debug)]
pub struct Pace {
    interval: Duration,
    /// Frames that may come at once.
    burst: u32,
    /// When the intervals of the frames that were taken end.
    until: Instant,
}

impl Pace {
    /// Admits one frame per `interval`, and up to `burst` at once.
    pub fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst, until: Instant(0) }
    }

    /// Whether to take a frame that has come now.
    #[inline]
    pub fn takes(&mut self, now: Instant) -> bool {
        let until = self.until.max(now) + self.interval;
        let taken = until.since(now) <= self.interval * self.burst;
        if taken {
            self.until = until;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_burst_and_then_one_in_each_interval() {
        let mut pace = Pace::new(Duration::from_micros(200), 3);
        let mut taken = |at: u64| (0..8).filter(|_| pace.takes(Instant(at))).count();
        assert_eq!(taken(1_000_000), 3, "at once");
        assert_eq!(taken(1_100_000), 0, "half an interval later");
        assert_eq!(taken(1_200_000), 1);
        assert_eq!(taken(1_600_000), 2);
        assert_eq!(taken(900_000_000), 3, "silence does not save up more");
    }
}
