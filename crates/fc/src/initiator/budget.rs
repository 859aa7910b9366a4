//! Frames of data that may be on their way at a time. There is no flow control on the wire: what
//! the receiver's ring does not hold is lost. That is the lane's own for reads. For writes, targets
//! ask for what they have room for, but some ask for all data of all commands at once.
//!
//! As losses show that even fewer get through, half as many are allowed, and then more, bit by
//! bit.

use std::collections::VecDeque;
use std::time::Duration;

use tyche_fc_wire::Xid;
use tyche_time::Instant;

/// The least time between two halvings, and between two growths: a loss concerns all commands that
/// are on the way.
const PACE: Duration = Duration::from_millis(10);
/// Frames that are added each time: 64 KiB in frames of 2 KiB.
const GROWTH: u32 = 32;

/// The congestion window of a lane for one direction of data, in frames, with the commands that
/// wait for room in it. A command holds its frames until it ends.
pub(super) struct Budget {
    max: u32,
    /// Frames at a time, as things are.
    now: u32,
    used: u32,
    changed_at: Instant,
    /// Commands that wait for room, in order.
    pub(super) waiting: VecDeque<Xid>,
}

impl Budget {
    /// So many frames at most, and so many commands.
    pub(super) fn new(max: u32, depth: usize) -> Self {
        let waiting = VecDeque::with_capacity(depth);
        Self { max, now: max, used: 0, changed_at: Instant(0), waiting }
    }

    /// Takes room for a command at once; false if there is none, or others wait.
    pub(super) fn enter(&mut self, frames: u32) -> bool {
        self.waiting.is_empty() && self.take(frames)
    }

    /// The next command for which there is room.
    pub(super) fn admit(&mut self, frames_of: impl Fn(Xid) -> u32) -> Option<Xid> {
        let xid = *self.waiting.front()?;
        if !self.take(frames_of(xid)) {
            return None;
        }
        self.waiting.pop_front()
    }

    /// Takes so many frames if there is room. A command that alone has more than that has its turn
    /// when there is no other.
    fn take(&mut self, frames: u32) -> bool {
        let has_room = self.used == 0 || self.used.saturating_add(frames) <= self.now;
        if has_room {
            self.used += frames;
        }
        has_room
    }

    /// Returns frames of a command that has ended.
    pub(super) fn give_back(&mut self, frames: u32) {
        self.used -= frames;
    }

    /// Frames were lost.
    pub(super) fn lost(&mut self, now: Instant) {
        if now >= self.changed_at + PACE {
            (self.now, self.changed_at) = ((self.now / 2).max(1), now);
        }
    }

    /// A command has gone well.
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
