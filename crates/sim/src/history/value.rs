//! The value that an operation gives a sector, with what is known about the time of its effect.
//!
//! A sector is a register, and no two operations give it the same value. So it is easy to decide
//! whether an order of the operations explains what was read (Gibbons and Korach, *Testing shared
//! memories*, 1997). A value has been in effect since `settled` or before, and was in effect, or
//! not yet, at `current`. Of two values, the one that was settled before the other was current is
//! older. It is a violation if each is older than the other.
//!
//! While an operation that `repeats` is in progress, its value may return: then only the last read
//! that saw it counts.

use std::fmt;

use super::{NEVER, Step};
use crate::content::Content;

/// A value that a sector has, may have, or has had, with bounds for the time at which it was in
/// effect. The checker keeps those of a sector that still matter, and compares them with each
/// other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) content: Content,
    /// Its operation has zeroed or discarded the sector: it may be told as a hole.
    pub(super) zeroes: bool,
    pub(super) session: u64,
    pub(super) began: Step,
    /// Of a torn value: when the operation began that was being written.
    whole: Step,
    /// When its host got the answer, or died.
    pub(super) ended: Step,
    /// It takes no effect after that.
    deadline: Step,
    settled: Step,
    current: Step,
    /// Whether its operation may be executed again, until the deadline is known.
    repeats: bool,
    /// Whether it has succeeded.
    is_done: bool,
    /// Whether it was acknowledged, and its session was not told that it may be lost.
    pub(super) owed: bool,
    /// Whether reads that begin now may return it.
    pub(super) live: bool,
    /// Whether a loss of the cache now may leave it.
    pub(super) durable: bool,
    /// When it ceased to be live.
    died: Step,
    /// Whether its session has ended without a check that its channels are closed: it may take
    /// effect as long as the target lives.
    lingers: bool,
}

impl Value {
    /// The value of an operation that begins.
    pub(super) fn new(content: Content, session: u64, began: Step, repeats: bool) -> Self {
        Self {
            content,
            zeroes: content == Content::Zero,
            session,
            began,
            whole: NEVER,
            ended: NEVER,
            deadline: NEVER,
            settled: NEVER,
            current: began,
            repeats,
            is_done: false,
            owed: false,
            live: true,
            durable: true,
            died: NEVER,
            lingers: false,
        }
    }

    /// A value that is found at a step, without an operation. It counts as older than all
    /// operations: one whose host has died may still take effect.
    pub(super) fn found(content: Content, at: Step) -> Self {
        let (ended, deadline, settled, current) = (at, at, at, at);
        Self { ended, deadline, settled, current, ..Self::new(content, 0, 0, false) }
    }

    /// A torn value, left when `whole` was being written. It is older than `whole` once that has
    /// succeeded. If it failed, it may have been executed before as well, and a read have seen it
    /// before it was torn.
    pub(super) fn torn(content: Content, whole: &Self, now: Step) -> Self {
        Self { whole: whole.began, ..Self::found(content, now) }
    }

    /// Whether its operation is in progress.
    pub(super) fn is_open(&self) -> bool {
        self.ended == NEVER && !self.lingers
    }

    /// Its session has ended; others may be admitted before the session's channels are closed.
    pub(super) fn linger(&mut self) {
        self.lingers = true;
    }

    fn may_come_back(&self) -> bool {
        self.repeats && self.deadline == NEVER
    }

    fn forget_sightings(&mut self) {
        (self.settled, self.current) = (NEVER, self.began);
    }

    /// It takes no effect from now on; if it has `succeeded`, it has taken effect.
    pub(super) fn close(&mut self, now: Step, succeeded: bool) {
        if self.may_come_back() {
            self.forget_sightings();
        }
        self.deadline = self.deadline.min(now);
        if succeeded {
            (self.settled, self.is_done) = (self.settled.min(now), true);
        }
    }

    /// The target or the host's program has died: an operation in progress may be executed again.
    /// `is_target`: it was the target, so an ended operation is not executed any more.
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

    /// The cache is lost: one of the durable values is left, as if the loss had written it.
    pub(super) fn lose_cache(&mut self, now: Step) {
        self.lose_memory(now, true);
        if !self.is_open() {
            (self.settled, self.current, self.deadline) = (NEVER, now, now);
        }
        if self.durable {
            (self.live, self.died) = (true, NEVER);
        }
    }

    /// The disk was restored: only values of operations in progress may be seen again.
    pub(super) fn lose_disk(&mut self, now: Step) {
        self.lose_memory(now, true);
        if !self.is_open() {
            (self.owed, self.durable) = (false, false);
            if self.live {
                (self.live, self.died) = (false, now);
            }
        }
    }

    /// Whether a read that began at `began` may return it.
    pub(super) fn is_possible(&self, began: Step) -> bool {
        self.live || self.died >= began
    }

    /// Whether a read may still return it, or it may return; `oldest_read`: begin of the oldest
    /// read in progress.
    pub(super) fn matters(&self, oldest_read: Step) -> bool {
        self.is_open() || self.durable || self.is_possible(oldest_read)
    }

    /// Records that a read that began at `began` and ends now has returned it.
    pub(super) fn see(&mut self, began: Step, now: Step) {
        if self.may_come_back() {
            (self.settled, self.current) = (now, began);
        } else {
            self.settled = self.settled.min(now).min(self.deadline);
            self.current = self.current.max(began);
        }
    }

    /// Whether it is older than `other`, which has taken effect, and so is not in effect any more.
    fn is_older(&self, other: &Self) -> bool {
        let settled = self.settled.min(self.deadline);
        self.ended < other.began
            || (self.whole == other.began && other.is_done)
            || (settled < other.current && !self.may_come_back())
    }

    /// Whether each is older than the other.
    pub(super) fn contradicts(&self, other: &Self) -> bool {
        self.settled < other.current && other.settled < self.current
    }

    /// Whether the sector has it only if the operation that began at `began` has not been executed
    /// whole.
    pub(super) fn is_without(&self, began: Step) -> bool {
        self.ended < began || self.whole == began
    }

    /// `other` has taken effect: the value is not live any more if it is older.
    pub(super) fn give_way(&mut self, other: &Self, now: Step) {
        if self.live && self.is_older(other) {
            (self.live, self.died) = (false, now);
        }
    }

    /// `other` is on the medium: the value is not durable any more if it is older.
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
