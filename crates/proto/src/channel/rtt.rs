//! Round-trip time and the retransmission timer derived from it (Jacobson 1988; RFC 6298).
//!
//! Every frame with an ack brings a sample, so all arithmetic is in integer nanoseconds.

use std::time::Duration;

/// The estimate before the first sample.
const INITIAL_NS: u64 = 5_000_000;
/// Lower bound of the retransmission timer. Lower: spurious retransmissions whenever a scheduler
/// takes the peer's core away for a slice. Higher: a lost tail waits longer.
const TIMEOUT_NS_MIN: u64 = 5_000_000;
/// Upper bound of the retransmission timer, back-off included.
const TIMEOUT_NS_MAX: u64 = 1_000_000_000;
/// Upper bound of a sample, so that sums do not overflow.
const SAMPLE_NS_MAX: u64 = 1 << 40;
/// Samples after which the shortest counts. The first ones are of the time in which both sides
/// prepare their channels, and may be a thousand times too long.
const SAMPLES_LEAST: u8 = 8;

/// Smoothed round-trip time of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    smoothed_ns: u64,
    variation_ns: u64,
    least_ns: u64,
    /// Number of samples, as far as it matters.
    samples: u8,
}

impl Rtt {
    pub(crate) fn new() -> Self {
        Self {
            smoothed_ns: INITIAL_NS,
            variation_ns: INITIAL_NS / 2,
            least_ns: u64::MAX,
            samples: 0,
        }
    }

    /// Takes the time of the handshake for the round trip, before the first sample. It is an upper
    /// bound: frames of a handshake are repeated, and the peer prepares the channel.
    pub(crate) fn assume(&mut self, time_ns: u64) {
        if self.samples == 0 {
            self.smoothed_ns = time_ns.clamp(INITIAL_NS, TIMEOUT_NS_MAX);
            self.variation_ns = self.smoothed_ns / 2;
        }
    }

    /// Takes a sample: the time from sending a frame that was sent once until its ack.
    pub(crate) fn sample(&mut self, sample_ns: u64) {
        let sample_ns = sample_ns.min(SAMPLE_NS_MAX);
        self.least_ns = self.least_ns.min(sample_ns);
        if self.samples > 0 {
            let error_ns = self.smoothed_ns.abs_diff(sample_ns);
            self.variation_ns = (self.variation_ns * 3 + error_ns) / 4;
            self.smoothed_ns = (self.smoothed_ns * 7 + sample_ns) / 8;
        } else {
            (self.smoothed_ns, self.variation_ns) = (sample_ns, sample_ns / 2);
        }
        self.samples = (self.samples + 1).min(SAMPLES_LEAST);
    }

    /// The smoothed round-trip time, for people; zero before the first sample.
    pub(crate) fn measured(&self) -> Duration {
        Duration::from_nanos(if self.samples > 0 { self.smoothed_ns } else { 0 })
    }

    pub(crate) fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.smoothed_ns)
    }

    pub(crate) fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// The shortest sample: the round trip without queueing. Zero before there are enough samples,
    /// so that a path which was hardly measured is tried.
    pub(crate) fn least(&self) -> Duration {
        let is_known = self.samples == SAMPLES_LEAST;
        Duration::from_nanos(if is_known { self.least_ns } else { 0 })
    }

    /// Retransmission timeout in nanoseconds, after `expiries` expiries in a row without progress.
    pub(crate) fn timeout_ns(&self, expiries: u32) -> u64 {
        let base_ns = (self.smoothed_ns + self.variation_ns * 4).max(TIMEOUT_NS_MIN);
        (base_ns << expiries.min(10)).min(TIMEOUT_NS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_samples_converge_and_the_timer_backs_off_to_its_bound() {
        let mut rtt = Rtt::new();
        assert_eq!(rtt.measured(), Duration::ZERO, "an assumption is no measurement");
        for _ in 0..100 {
            rtt.sample(20_000_000);
        }
        assert_eq!(rtt.smoothed(), Duration::from_millis(20));
        let first = rtt.timeout_ns(0);
        assert!((20_000_000..21_000_000).contains(&first));
        assert_eq!(rtt.timeout_ns(1), first * 2);
        assert_eq!(rtt.timeout_ns(40), TIMEOUT_NS_MAX);
    }

    #[test]
    fn the_handshake_counts_until_the_first_sample() {
        let mut rtt = Rtt::new();
        rtt.assume(100_000);
        assert_eq!(rtt.timeout_ns(0), 15_000_000, "no less than without");
        rtt.assume(300_000_000);
        assert_eq!((rtt.smoothed(), rtt.timeout_ns(0)), (Duration::from_millis(300), 900_000_000));
        rtt.sample(20_000_000);
        rtt.assume(300_000_000);
        assert_eq!(rtt.smoothed(), Duration::from_millis(20));
    }

    #[test]
    fn the_shortest_sample_is_kept_and_a_path_that_was_not_tried_has_none() {
        let mut rtt = Rtt::new();
        assert_eq!(rtt.least(), Duration::ZERO);
        for sample_ns in [7_000_000, 20_000, 9_000_000, 8_000_000, 8_000_000, 8_000_000, 8_000_000]
        {
            rtt.sample(sample_ns);
            assert_eq!(rtt.least(), Duration::ZERO);
        }
        rtt.sample(8_000_000);
        assert_eq!(rtt.least(), Duration::from_nanos(20_000));
    }

    #[test]
    fn a_fast_link_keeps_the_floor() {
        let mut rtt = Rtt::new();
        rtt.sample(10_000);
        assert_eq!(rtt.timeout_ns(0), TIMEOUT_NS_MIN);
    }

    #[test]
    fn a_sample_of_years_does_not_overflow() {
        let mut rtt = Rtt::new();
        for _ in 0..100 {
            rtt.sample(u64::MAX);
        }
        assert_eq!(rtt.timeout_ns(40), TIMEOUT_NS_MAX);
    }
}
