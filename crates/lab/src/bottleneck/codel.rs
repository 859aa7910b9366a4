//! Controlled delay (RFC 8289): when a queue has been too long for too long, and how often it shall
//! say so.

use std::time::{Duration, Instant};

/// The wait that is put up with for longer than an interval.
const TARGET: Duration = Duration::from_millis(5);
/// The longest usual round trip.
const INTERVAL: Duration = Duration::from_millis(100);

/// State of one queue.
#[derive(Default)]
pub(super) struct Codel {
    /// When the wait will have been above the target for an interval.
    above: Option<Instant>,
    /// When to tell the next time, while the queue is too long.
    next: Option<Instant>,
    told: u32,
    /// `told` as the last episode began, and when it was to end.
    last: (u32, Option<Instant>),
}

impl Codel {
    /// Whether a packet that has waited since then, and is taken out now, is to be marked or
    /// dropped. `is_short`: no more than one packet is left behind it.
    pub(super) fn tells(&mut self, now: Instant, since: Instant, is_short: bool) -> bool {
        if now - since < TARGET || is_short {
            (self.above, self.next) = (None, None);
            return false;
        }
        let above = *self.above.get_or_insert(now + INTERVAL);
        match self.next {
            Some(next) if now < next => false,
            Some(next) => {
                self.told += 1;
                self.next = Some(self.after(next));
                true
            }
            None if now < above => false,
            None => {
                self.begin(now);
                true
            }
        }
    }

    /// Begins an episode, at the last one's frequency if that is not long ago.
    fn begin(&mut self, now: Instant) {
        let (before, ended) = self.last;
        let told = self.told - before;
        let is_soon = ended.is_some_and(|ended| now < ended + 16 * INTERVAL);
        self.told = if told > 1 && is_soon { told } else { 1 };
        let next = self.after(now);
        self.next = Some(next);
        self.last = (self.told, Some(next));
    }

    fn after(&self, time: Instant) -> Instant {
        time + INTERVAL.div_f64(f64::from(self.told).sqrt())
    }
}
