//! A frame that is repeated until it is answered, or given up.
//!
//! All hosts of a target lose it at the same time, and it takes only so many questions at once. So
//! no time between two questions is exact: hosts that begin together soon ask one after the other.

use std::time::Duration;

use crate::time::Instant;

/// Time until the first repetition; it doubles each time.
const REPEAT_FIRST: Duration = Duration::from_millis(20);
/// How often an unanswered frame is sent before it is given up, after 1.3 s in all, or up to a
/// quarter less or more.
const SENDS_MAX: u32 = 6;

/// When to send an unanswered frame again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeat {
    begun: Instant,
    next: Instant,
    sends: u32,
    /// A random number.
    lot: u64,
}

impl Repeat {
    /// A frame that is due now. `lot`: a random number.
    pub(super) fn new(now: Instant, lot: u64) -> Self {
        Self { begun: now, next: now, sends: 0, lot }
    }

    /// When it was due first.
    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// How often it was sent.
    pub(super) fn sends(&self) -> u32 {
        self.sends
    }

    /// When it is sent again or given up.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Whether the frame is to be sent now; if so, counts it as sent.
    pub(super) fn due(&mut self, now: Instant) -> bool {
        if now < self.next || self.sends >= SENDS_MAX {
            return false;
        }
        self.next = now + spread(REPEAT_FIRST * (1 << self.sends), self.lot);
        self.lot = self.lot.rotate_right(u8::BITS);
        self.sends += 1;
        true
    }

    pub(super) fn is_exhausted(&self, now: Instant) -> bool {
        self.sends >= SENDS_MAX && now >= self.next
    }
}

/// A time that is up to a quarter shorter or longer than `time`. `lot`: a random number.
pub(super) fn spread(time: Duration, lot: u64) -> Duration {
    time - time / 4 + (time / 2).saturating_mul(u32::from(lot as u8)) / 256
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a frame that nobody answers is sent.
    fn sent(lot: u64) -> Vec<u64> {
        let (mut repeat, mut sent) = (Repeat::new(Instant(0), lot), Vec::new());
        while !repeat.is_exhausted(repeat.next()) {
            let now = repeat.next();
            assert!(repeat.due(now) && !repeat.due(now));
            sent.push(now.0);
        }
        sent
    }

    #[test]
    fn hosts_that_begin_together_do_not_stay_together() {
        let (early, late) = (sent(0), sent(u64::MAX));
        assert_eq!((early.len(), late.len(), early[0], late[0]), (6, 6, 0, 0));
        for (sends, pair) in early.windows(2).zip(late.windows(2)).enumerate() {
            let (early, late) = (pair.0[1] - pair.0[0], pair.1[1] - pair.1[0]);
            let middle = 20_000_000 << sends;
            assert!(early >= middle * 3 / 4 && late <= middle * 5 / 4, "{early} {late}");
            assert!(late - early > middle * 2 / 5, "{early} {late}");
        }
        assert_eq!(spread(Duration::ZERO, 7), Duration::ZERO);
        assert!(spread(Duration::MAX, u64::MAX) > Duration::MAX / 2, "it does not overflow");
    }
}
