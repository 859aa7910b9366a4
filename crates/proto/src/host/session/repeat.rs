//! A frame that is repeated until it is answered, or given up.

use std::time::Duration;

use crate::time::Instant;

/// Time until the first repetition; it doubles each time.
const REPEAT_FIRST: Duration = Duration::from_millis(20);
/// How often an unanswered frame is sent before it is given up, after 1.3 s in all.
const SENDS_MAX: u32 = 6;

/// When to send an unanswered frame again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeat {
    begun: Instant,
    next: Instant,
    sends: u32,
}

impl Repeat {
    pub(super) fn new(now: Instant) -> Self {
        Self { begun: now, next: now, sends: 0 }
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
        self.next = now + REPEAT_FIRST * (1 << self.sends);
        self.sends += 1;
        true
    }

    pub(super) fn is_exhausted(&self, now: Instant) -> bool {
        self.sends >= SENDS_MAX && now >= self.next
    }
}
