//! Round-trip time and the timer that follows from it (Jacobson 1988; RFC 6298).

use std::time::Duration;

/// The estimate before the first sample.
const INITIAL: Duration = Duration::from_millis(5);
/// Lower bound of the retransmission timer. Lower: spurious retransmissions whenever a scheduler
/// takes the peer's core away for a slice. Higher: a lost tail waits longer.
const TIMEOUT_MIN: Duration = Duration::from_millis(5);
/// Upper bound of the retransmission timer, back-off included.
const TIMEOUT_MAX: Duration = Duration::from_secs(1);

/// Smoothed round-trip time of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    smoothed: Duration,
    variation: Duration,
    sampled: bool,
}

impl Rtt {
    pub(crate) fn new() -> Self {
        Self { smoothed: INITIAL, variation: INITIAL / 2, sampled: false }
    }

    /// Takes a sample: the time from sending a frame that was sent once until its ack.
    pub(crate) fn sample(&mut self, sample: Duration) {
        if self.sampled {
            let error = self.smoothed.abs_diff(sample);
            self.variation = (self.variation * 3 + error) / 4;
            self.smoothed = (self.smoothed * 7 + sample) / 8;
        } else {
            (self.smoothed, self.variation, self.sampled) = (sample, sample / 2, true);
        }
    }

    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// How long to wait for an ack before a frame is sent again, for the `expiries`-th time in a
    /// row without progress.
    pub(crate) fn timeout(&self, expiries: u32) -> Duration {
        let base = (self.smoothed + self.variation * 4).max(TIMEOUT_MIN);
        base.saturating_mul(1 << expiries.min(10)).min(TIMEOUT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_samples_converge_and_the_timer_backs_off_to_its_bound() {
        let mut rtt = Rtt::new();
        for _ in 0..100 {
            rtt.sample(Duration::from_millis(20));
        }
        assert_eq!(rtt.smoothed(), Duration::from_millis(20));
        let first = rtt.timeout(0);
        assert!(first >= Duration::from_millis(20) && first < Duration::from_millis(21));
        assert_eq!(rtt.timeout(1), first * 2);
        assert_eq!(rtt.timeout(40), TIMEOUT_MAX);
    }

    #[test]
    fn a_fast_link_keeps_the_floor() {
        let mut rtt = Rtt::new();
        rtt.sample(Duration::from_micros(10));
        assert_eq!(rtt.timeout(0), TIMEOUT_MIN);
    }
}
