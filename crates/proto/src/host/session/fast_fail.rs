//! Requests that fail early, while the session goes on.
//!
//! After `fast_io_fail_tmo` without the target, all operations in progress fail, and new ones are
//! refused, so that who is above the device (RAID) can use another. The session looks
//! for its target until `ctrl_loss_tmo`, and takes operations again when it is back.
//!
//! A failed modification is in doubt while its lost channel has an unconfirmed fence: the target
//! may still execute it. It is never issued again, and its operation's number may be another's by
//! then: so its fence keeps the tag only. Operations are refused until no such doubt is left, on
//! all queues of the session: a failed write must not undo a later one (*fence before anew*).

use std::time::Duration;

use tyche_wire::Status;

use super::{Session, SessionEvent, State};
use crate::host::operation::OpId;
use crate::rules::{Rule, Rules};
use crate::time::{Instant, earliest};

/// An outage that is shorter fails no operation, however old that is. Longer: the operations of a
/// session that is lost again and again wait longer. Shorter: channels that are opened anew make
/// old operations fail.
const LEAST_OUTAGE: Duration = Duration::from_secs(5);

impl<R: Rules> Session<R> {
    /// Whether operations fail at once because the target was away for too long, or is back and has
    /// not yet said that nothing of the failed ones can happen any more.
    pub fn fails_fast(&self) -> bool {
        self.fails_fast
    }

    /// Whether new operations are refused: this queue or another one of its session fails fast.
    pub(super) fn refuses(&self) -> bool {
        let others = R::keeps(Rule::FailTogether) && self.handle.fails_fast();
        self.fails_fast || others
    }

    /// When operations begin to fail: after `fast_io_fail_tmo` without the target, or sooner if one
    /// has waited for twice that time, so that it also holds for a session that is lost again and
    /// again.
    pub(super) fn fails_fast_at(&self) -> Option<Instant> {
        let State::Lost(since) = self.state else { return None };
        let timeout = self.config.fast_io_fail_tmo.filter(|_| !self.fails_fast)?;
        // The time that an operation has waited at a live target is no outage.
        let least = since + (timeout / 2).min(LEAST_OUTAGE);
        let longest = self.operations.oldest().map(|oldest| least.max(oldest + timeout * 2));
        earliest(Some(since + timeout), longest)
    }

    /// Since when the oldest operation waits; or, if all have failed, since when the target has
    /// been back without an answer to the fences of these.
    pub(super) fn oldest_wait(&self) -> Option<Instant> {
        let revived = Some(self.progress_timeout.live_since()).filter(|_| self.fails_fast);
        revived.or(self.operations.oldest())
    }

    /// Fails all operations in progress. No channel is live: what is not in doubt is forgotten.
    pub(super) fn fail_fast(&mut self) {
        self.fails_fast = true;
        // Before anybody hears of a failure and writes anew, by whichever queue.
        self.handle.fail_fast();
        if R::keeps(Rule::ForgetFailed) {
            self.fences.forget_operations();
        }
        let failed = |index| SessionEvent::Completed { op: OpId(index), status: Status::Io };
        self.events.extend(self.operations.fail().into_iter().map(failed));
        self.events.push_back(SessionEvent::FailsFast);
    }

    /// Has a session that takes over a device go on as the former one of the device has left it:
    /// operations fail at once, until the target is back. Nothing changes if it is there.
    pub fn fail_until_connected(&mut self, now: Instant) {
        self.now = now;
        if matches!(self.state, State::Lost(_)) && !self.fails_fast {
            self.fail_fast();
        }
    }

    /// Takes operations again if the target is back and no failed modification is in doubt.
    pub(super) fn resume(&mut self) {
        if !self.fails_fast || self.state != State::Live {
            return;
        }
        if self.fences.has_forgotten() && R::keeps(Rule::FenceFailed) {
            // The wait for the answer has a limit.
            return self.progress_timeout.submitted(self.now);
        }
        self.fails_fast = false;
        self.handle.resume();
        self.events.push_back(SessionEvent::Resumed);
    }
}
