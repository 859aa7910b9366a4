//! Load of a channel: its requests in flight and its measured rate. The path scheduler
//! (`session/choice.rs`) chooses by them.

use std::time::Duration;

use crate::time::Instant;

/// Bytes that a request costs beside its data: headers and entries of its frames.
const REQUEST_COST: u64 = 512;
/// Minimum duration of a sample of the rate.
const SAMPLE: Duration = Duration::from_millis(20);
/// Bytes in flight below which the rate of a channel says nothing about its capacity.
pub(crate) const BACKLOG: u64 = 64 << 10;
/// The rate assumed of a channel that was not measured yet, in bytes per second.
pub(crate) const RATE_UNKNOWN: u64 = 1 << 30;

/// The load estimator of one channel: bytes in flight, with a constant for the headers of each
/// request, and the measured rate. Without a backlog, a measurement only raises that rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Cost of all requests in flight.
    outstanding: u64,
    /// Cost of all requests that have ended.
    ended: u64,
    /// Bytes per second, once known.
    rate: Option<u64>,
    /// The current sample: its begin, the cost of the requests that ended in it, and whether there
    /// was a backlog throughout.
    sample_at: Instant,
    sample: u64,
    backlogged: bool,
    /// Since when requests have been in flight without a break.
    busy_since: Instant,
    /// When a request ended last; before the first, when the channel was opened.
    ended_at: Instant,
}

/// The cost of a request with `data_len` bytes of data, in bytes.
pub(crate) fn cost(data_len: u32) -> u64 {
    u64::from(data_len) + REQUEST_COST
}

impl Load {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            outstanding: 0,
            ended: 0,
            rate: None,
            sample_at: now,
            sample: 0,
            backlogged: false,
            busy_since: now,
            ended_at: now,
        }
    }

    /// The measured rate in bytes per second; `None` if the channel was never busy, or is faster
    /// than was measured.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// The cost of all requests in flight, in bytes.
    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// The cost of all requests that have ended, in bytes.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// Since when requests have been in flight; `None` if none is.
    pub(crate) fn busy_since(&self) -> Option<Instant> {
        (self.outstanding > 0).then_some(self.busy_since)
    }

    /// For how long no request has been in flight. The measured rate may be as old.
    pub(crate) fn rested(&self, now: Instant) -> Duration {
        if self.outstanding > 0 { Duration::ZERO } else { now.since(self.ended_at) }
    }

    /// A request was issued.
    pub(crate) fn begin(&mut self, now: Instant, cost: u64) {
        if self.outstanding == 0 {
            self.busy_since = now;
            self.restart(now);
        }
        self.outstanding += cost;
    }

    /// A request has ended.
    pub(crate) fn end(&mut self, now: Instant, cost: u64) {
        self.ended_at = now;
        self.outstanding -= cost;
        self.ended += cost;
        self.sample += cost;
        let elapsed = now.since(self.sample_at);
        let seen = |sample: u64| sample * 1_000_000_000 / (elapsed.as_nanos() as u64).max(1);
        if elapsed >= SAMPLE {
            self.learn(seen(self.sample));
            self.restart(now);
        } else if self.outstanding == 0
            && self.sample_at == self.busy_since
            && self.rate.is_some_and(|rate| rate < seen(self.sample))
        {
            // Too short for a sample, but complete: the channel is faster than was known. How much
            // does not follow, because queues on the way let a short burst pass at any rate.
            self.rate = None;
        }
        self.backlogged &= self.outstanding >= BACKLOG;
    }

    fn restart(&mut self, now: Instant) {
        (self.sample_at, self.sample) = (now, 0);
        self.backlogged = self.outstanding >= BACKLOG;
    }

    /// A rate that was measured without a backlog is a lower bound.
    fn learn(&mut self, seen: u64) {
        self.rate = match self.rate {
            None => self.backlogged.then_some(seen),
            Some(rate) if self.backlogged => Some((rate * 3 + seen) / 4),
            Some(rate) => Some(rate.max(seen)),
        };
    }

    /// How long the channel will take for the requests in flight and another one.
    pub(crate) fn time_for(&self, cost: u64, rate: u64) -> Duration {
        Duration::from_nanos((self.outstanding + cost) * 1_000_000_000 / rate.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn a_busy_channel_shows_its_rate() {
        let mut load = Load::new(ms(0));
        for _ in 0..4 {
            load.begin(ms(0), 1 << 20);
        }
        for step in 1..=40 {
            load.end(ms(step * 10), 1 << 20);
            load.begin(ms(step * 10), 1 << 20);
        }
        let rate = load.rate().unwrap();
        assert!((100 << 20..=105 << 20).contains(&rate), "{rate}");
        assert_eq!(load.outstanding, 4 << 20);
        assert_eq!(load.busy_since(), Some(ms(0)));
    }

    #[test]
    fn a_channel_without_a_backlog_is_not_taken_for_slow() {
        let mut load = Load::new(ms(0));
        for step in 0..100 {
            load.begin(ms(step * 10), 4096);
            load.end(ms(step * 10 + 9), 4096);
        }
        assert_eq!((load.rate(), load.busy_since()), (None, None));
    }

    #[test]
    fn doing_better_than_known_is_learned_even_without_a_backlog() {
        let mut load = Load { rate: Some(1000), ..Load::new(ms(0)) };
        load.begin(ms(0), 4096);
        load.end(ms(100), 4096);
        assert_eq!(load.rate(), Some(40960));
    }

    #[test]
    fn a_lone_request_that_is_quickly_done_is_enough_to_be_tried() {
        let mut load = Load { rate: Some(1000), ..Load::new(ms(0)) };
        load.begin(ms(10), 4096);
        load.begin(ms(10), 4096);
        load.end(ms(14), 4096);
        assert_eq!(load.rate(), Some(1000), "what is still in flight may be what takes long");
        load.end(ms(18), 4096);
        assert_eq!(load.rate(), None, "it is taken to be as fast as the fastest");
    }

    #[test]
    fn a_channel_rests_from_its_last_request_on() {
        let mut load = Load::new(ms(5));
        assert_eq!(load.rested(ms(7)), Duration::from_millis(2));
        load.begin(ms(10), 4096);
        assert_eq!(load.rested(ms(20)), Duration::ZERO);
        load.end(ms(30), 4096);
        assert_eq!(load.rested(ms(1030)), Duration::from_secs(1));
    }
}
