//! Rate limit for frames of one kind from hosts without a channel.

use std::time::Duration;

use crate::time::Instant;

/// Admits one frame per interval, on average. More are dropped, and their hosts repeat them. So the
/// cost of a flood is bounded, and the sessions of the link go on.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    /// Frames that may come at once.
    burst: u32,
    /// When the intervals of the frames that were taken end.
    until: Instant,
}

impl Pace {
    pub(super) fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst, until: Instant(0) }
    }

    /// Whether to take a frame that has come now.
    pub(super) fn takes(&mut self, now: Instant) -> bool {
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
