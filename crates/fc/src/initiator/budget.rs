//! Frames that reads may cause at a time. There is no flow control on the wire: what the lane's
//! ring does not hold is lost.
//!
//! As losses show that even fewer get through, half as many are asked for, and then more, bit by
//! bit.

use std::time::Duration;

use tyche_time::Instant;

/// The least time between two halvings, and between two growths: a loss concerns all reads that are
/// on the way.
const PACE: Duration = Duration::from_millis(10);
/// Frames that are added each time: 64 KiB in frames of 2 KiB.
const GROWTH: u32 = 32;

/// See the module.
pub(super) struct Budget {
    max: u32,
    /// Frames at a time, as things are.
    now: u32,
    used: u32,
    changed_at: Instant,
}

impl Budget {
    pub(super) fn new(max: u32) -> Self {
        Self { max, now: max, used: 0, changed_at: Instant(0) }
    }

    /// Takes so many frames if there is room. A read that alone has more than that has its turn
    /// when there is no other.
    pub(super) fn take(&mut self, frames: u32) -> bool {
        let has_room = self.used == 0 || self.used.saturating_add(frames) <= self.now;
        if has_room {
            self.used += frames;
        }
        has_room
    }

    /// Returns frames of a read that has ended.
    pub(super) fn give_back(&mut self, frames: u32) {
        self.used -= frames;
    }

    /// Frames were lost.
    pub(super) fn lost(&mut self, now: Instant) {
        if now >= self.changed_at + PACE {
            (self.now, self.changed_at) = ((self.now / 2).max(1), now);
        }
    }

    /// A read has gone well.
    pub(super) fn arrived(&mut self, now: Instant) {
        if self.now < self.max && now >= self.changed_at + PACE {
            (self.now, self.changed_at) = ((self.now + GROWTH).min(self.max), now);
        }
    }

    /// Frames at a time, as things are.
    pub(super) fn now(&self) -> u32 {
        self.now
    }
}
