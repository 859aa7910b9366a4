//! Latency of requests, from their start in the session to their answer: in total and recently. It
//! uses the clock of the loop's rounds and a fixed amount of memory.

use std::time::Duration;

use tyche_counters::{Kind, Metric, Unit};
use tyche_time::Instant;

use crate::histogram::Histogram;

/// Recent figures cover one to two of these windows.
const WINDOW: Duration = Duration::from_secs(5);

/// The description of a [`Latency`].
pub const LATENCY: Metric = Metric {
    name: "latency",
    unit: Unit::Nanoseconds,
    kind: Kind::Histogram,
    help: "Latency of successful requests.",
};

/// The latency of one kind of request, as histograms of nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    all: Histogram,
    /// This window and the one before.
    windows: [Histogram; 2],
    /// The start of this window.
    since: Instant,
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

    /// All requests.
    pub fn all(&self) -> &Histogram {
        &self.all
    }

    /// The requests of the last 5 to 10 s.
    pub fn recent(&self) -> Histogram {
        let [mut recent, before] = self.windows.clone();
        recent.merge(&before);
        recent
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
        let reported = latency.at(after(200));
        let (all, recent) = (reported.all(), reported.recent());
        assert!(all.buckets().eq(recent.buckets()));
        assert_eq!((all.count(), all.mean()), (100, 1_990_000.0));
        assert!((970_000..=1_000_000).contains(&all.quantile(0.5)), "{all:?}");
        assert!(all.quantile(0.99) < 2_000_000, "one of a hundred took longer");

        latency.add(after(5200), after(5300));
        let recent = |latency: &mut Latency, now| latency.at(after(now)).recent().count();
        assert_eq!(recent(&mut latency, 5300), 101, "the window before counts");
        assert_eq!(recent(&mut latency, 10_400), 1);
        assert_eq!(recent(&mut latency, 60_000), 0);
        assert_eq!(latency.all().count(), 101);
    }

    #[test]
    fn a_clock_that_was_read_before_the_request_began_makes_no_long_time() {
        let mut latency = Latency::new(after(0));
        latency.add(after(2), after(1));
        assert_eq!(latency.all().quantile(0.99), 0);
    }
}
