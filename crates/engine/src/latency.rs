//! Latency of requests, from their start in the session to their answer: in total and recently. It
//! uses the clock of the loop's rounds and a fixed amount of memory.

use std::time::Duration;

use tyche_time::Instant;

use crate::histogram::Histogram;

/// Recent figures cover one to two of these windows.
const WINDOW: Duration = Duration::from_secs(5);

/// The latency of one kind of request.
#[derive(Clone)]
pub struct Latency {
    all: Histogram,
    /// This window and the one before.
    windows: [Histogram; 2],
    /// The start of this window.
    since: Instant,
}

/// The latency of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyReport {
    /// All requests.
    pub all: LatencyFigures,
    /// Requests of the last 5 to 10 s.
    pub recent: LatencyFigures,
}

/// Figures of a set of requests; zeroes if it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyFigures {
    /// The number of requests.
    pub count: u64,
    /// The mean of all of them.
    pub mean: Duration,
    /// The median, to 3 %.
    pub p50: Duration,
    /// The 99th percentile, to 3 %.
    pub p99: Duration,
}

impl Latency {
    /// No request yet.
    pub fn new(now: Instant) -> Self {
        let windows = [Histogram::new(), Histogram::new()];
        Self { all: Histogram::new(), windows, since: now }
    }

    /// Adds a request that began at `begun` and is answered `now`.
    pub fn add(&mut self, begun: Instant, now: Instant) {
        self.roll(now);
        let nanoseconds = now.0.saturating_sub(begun.0);
        self.all.add(nanoseconds);
        self.windows[0].add(nanoseconds);
    }

    /// Begins another window if this one is over.
    fn roll(&mut self, now: Instant) {
        let age = now.since(self.since);
        if age < WINDOW {
            return;
        }
        self.windows.swap(0, 1);
        self.windows[0].clear();
        if age >= 2 * WINDOW {
            self.windows[1].clear();
        }
        self.since = now;
    }

    /// The counts as of `now`.
    pub fn at(&mut self, now: Instant) -> Self {
        self.roll(now);
        self.clone()
    }

    /// Adds the counts of another queue as of the same time.
    pub fn merge(&mut self, other: &Self) {
        self.all.merge(&other.all);
        for (mine, theirs) in self.windows.iter_mut().zip(&other.windows) {
            mine.merge(theirs);
        }
    }

    /// The figures.
    pub fn report(&self) -> LatencyReport {
        let [mut recent, before] = self.windows.clone();
        recent.merge(&before);
        LatencyReport { all: figures(&self.all), recent: figures(&recent) }
    }
}

fn figures(histogram: &Histogram) -> LatencyFigures {
    LatencyFigures {
        count: histogram.count(),
        mean: Duration::from_nanos(histogram.mean() as u64),
        p50: Duration::from_nanos(histogram.quantile(0.5)),
        p99: Duration::from_nanos(histogram.quantile(0.99)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(milliseconds: u64) -> Instant {
        Instant(0) + Duration::from_millis(milliseconds)
    }

    #[test]
    fn what_is_recent_goes_and_the_rest_stays() {
        let mut latency = Latency::new(after(0));
        for _ in 0..99 {
            latency.add(after(0), after(1));
        }
        latency.add(after(0), after(100));
        let LatencyReport { all, recent } = latency.at(after(200)).report();
        assert_eq!((all, all.count), (recent, 100));
        assert_eq!(all.mean, Duration::from_micros(1990));
        assert!((970..=1000).contains(&all.p50.as_micros()), "{:?}", all.p50);
        assert!(all.p99 < Duration::from_millis(2), "one of a hundred took longer");

        latency.add(after(5200), after(5300));
        assert_eq!(latency.at(after(5300)).report().recent.count, 101, "the window before counts");
        assert_eq!(latency.at(after(10_400)).report().recent.count, 1);
        assert_eq!(latency.at(after(60_000)).report().recent, LatencyFigures::default());
        assert_eq!(latency.at(after(60_000)).report().all.count, 101);
    }

    #[test]
    fn a_clock_that_was_read_before_the_request_began_makes_no_long_time() {
        let mut latency = Latency::new(after(0));
        latency.add(after(2), after(1));
        assert_eq!(latency.at(after(2)).report().all.p99, Duration::ZERO);
    }
}
