//! The value that an operation gives a sector, and what is known of when it took effect.
//!
//! A sector is a register, and no two operations give it the same value. So it is easy to tell
//! whether any order of the operations explains what was read (Gibbons and Korach, *Testing shared
//! memories*, 1997). A value has been in effect since `settled` or before, and it was there, or
//! still to come, at `current`. Of two values the one that was settled before the other was current
//! is the older. That each is older than the other must not be.
//!
//! While an operation that `repeats` is not over, its value may come back: then only its last
//! sighting counts, on its own.

use std::fmt;

use super::{NEVER, Step};
use crate::content::Content;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) content: Content,
    pub(super) session: u64,
    pub(super) began: Step,
    /// When the operation began of which it is a torn part.
    whole: Step,
    /// When its host was told, or was gone.
    pub(super) ended: Step,
    /// If it takes effect at all, then before that.
    deadline: Step,
    settled: Step,
    current: Step,
    /// It may be executed again until its deadline is known.
    repeats: bool,
    /// Acknowledged, and its session has not been told that it may be lost.
    pub(super) owed: bool,
    /// Reads that begin now may return it.
    pub(super) live: bool,
    /// It may be left when the cache is lost now.
    pub(super) durable: bool,
    /// When it ceased to be live.
    died: Step,
    /// Its session is gone, and nobody has waited for its channels to be closed: it may take
    /// effect as long as the target lives.
    lingers: bool,
}

impl Value {
    /// That of an operation that begins.
    pub(super) fn new(content: Content, session: u64, began: Step, repeats: bool) -> Self {
        Self {
            content,
            session,
            began,
            whole: NEVER,
            ended: NEVER,
            deadline: NEVER,
            settled: NEVER,
            current: began,
            repeats,
            owed: false,
            live: true,
            durable: true,
            died: NEVER,
            lingers: false,
        }
    }

    /// What is there at a step without any operation. It began before all of them: one that has
    /// ended for its host only may still take effect.
    pub(super) fn found(content: Content, at: Step) -> Self {
        let (ended, deadline, settled, current) = (at, at, at, at);
        Self { ended, deadline, settled, current, ..Self::new(content, 0, 0, false) }
    }

    /// What is there when the whole was being written; it goes when the whole is.
    pub(super) fn torn(content: Content, whole: &Self, now: Step) -> Self {
        Self { whole: whole.began, ..Self::found(content, now) }
    }

    /// Whether its operation is in progress.
    pub(super) fn is_open(&self) -> bool {
        self.ended == NEVER && !self.lingers
    }

    /// Its session is gone; others may be let in before its channels are closed.
    pub(super) fn linger(&mut self) {
        self.lingers = true;
    }

    fn may_come_back(&self) -> bool {
        self.repeats && self.deadline == NEVER
    }

    fn forget_sightings(&mut self) {
        (self.settled, self.current) = (NEVER, self.began);
    }

    /// It takes no effect from now on; if it has `succeeded`, it had some.
    pub(super) fn close(&mut self, now: Step, succeeded: bool) {
        if self.may_come_back() {
            self.forget_sightings();
        }
        self.deadline = self.deadline.min(now);
        if succeeded {
            self.settled = self.settled.min(now);
        }
    }

    /// The target or the host's program is gone, and what it knew of the operation: if that is in
    /// progress, it will be executed again. `is_target`: nobody else's is executed any more.
    pub(super) fn lose_memory(&mut self, now: Step, is_target: bool) {
        if self.is_open() {
            (self.repeats, self.live, self.durable, self.died) = (true, true, true, NEVER);
            self.forget_sightings();
        } else if is_target {
            if std::mem::take(&mut self.lingers) {
                self.ended = now;
            }
            self.close(now, false);
        }
    }

    /// The cache is lost: the values that may be left count as written by that, one of them.
    pub(super) fn lose_cache(&mut self, now: Step) {
        self.lose_memory(now, true);
        if !self.is_open() {
            (self.settled, self.current, self.deadline) = (NEVER, now, now);
        }
        if self.durable {
            (self.live, self.died) = (true, NEVER);
        }
    }

    /// The disk has become another: nothing but what is in progress may be seen again.
    pub(super) fn lose_disk(&mut self, now: Step) {
        self.lose_memory(now, true);
        if !self.is_open() {
            (self.owed, self.durable) = (false, false);
            if self.live {
                (self.live, self.died) = (false, now);
            }
        }
    }

    /// Whether a read that began then may return it.
    pub(super) fn is_possible(&self, began: Step) -> bool {
        self.live || self.died >= began
    }

    /// Whether it may still be found or come back, given when the oldest read began.
    pub(super) fn matters(&self, oldest_read: Step) -> bool {
        self.is_open() || self.durable || self.is_possible(oldest_read)
    }

    /// A read that began then and ends now returns it.
    pub(super) fn see(&mut self, began: Step, now: Step) {
        if self.may_come_back() {
            (self.settled, self.current) = (now, began);
        } else {
            self.settled = self.settled.min(now).min(self.deadline);
            self.current = self.current.max(began);
        }
    }

    /// Whether it was there before the other, which has taken effect, and is not now.
    fn is_older(&self, other: &Self) -> bool {
        let settled = self.settled.min(self.deadline);
        self.ended < other.began
            || (self.whole == other.began && !other.is_open())
            || (settled < other.current && !self.may_come_back())
    }

    /// Whether each was there before the other.
    pub(super) fn contradicts(&self, other: &Self) -> bool {
        self.settled < other.current && other.settled < self.current
    }

    /// Whether it is there only where the operation that began then has left nothing whole.
    pub(super) fn is_without(&self, began: Step) -> bool {
        self.ended < began || self.whole == began
    }

    /// The other has taken effect: the value is gone if it is older.
    pub(super) fn give_way(&mut self, other: &Self, now: Step) {
        if self.live && self.is_older(other) {
            (self.live, self.died) = (false, now);
        }
    }

    /// The other is on the medium: the value will not come back if it is older.
    pub(super) fn give_way_for_good(&mut self, other: &Self) {
        self.durable &= !self.is_older(other);
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { content, session, began, ended, settled, current, live, durable, .. } = self;
        let step = |&step: &Step| if step == NEVER { "..".into() } else { step.to_string() };
        write!(f, "[{content:?} of session {session} in {began}-{}", step(ended))?;
        write!(f, ", there by {} and at {current}, live={live} durable={durable}]", step(settled))
    }
}
