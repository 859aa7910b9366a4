//! A time limit for operations of a live session, for targets that are heard, but whose disk hangs,
//! or that do not answer a fence.
//!
//! While no channel is live, `ctrl_loss_tmo` limits the outage of the session. While one is, it
//! limits each operation, from its submission or the end of its last piece.

use std::time::Duration;

use crate::time::Instant;

/// The least time limit of an operation, even if `ctrl_loss_tmo` is shorter: a disk may have to
/// spin up.
const WAIT_MIN: Duration = Duration::from_secs(10);
/// The least time that operations get after the session has become live again.
const GRACE: Duration = Duration::from_secs(5);

/// The timer that limits how long an operation of a live session may make no progress. It looks at
/// the operations only when the oldest of them could have exceeded the limit.
#[derive(Debug)]
pub(super) struct ProgressTimeout {
    limit: Option<Duration>,
    /// Since when the session is live.
    live_since: Instant,
    /// When to check the operations next. None exceeds its limit before.
    at: Option<Instant>,
}

impl ProgressTimeout {
    /// `ctrl_loss_tmo`: as configured; `None`: no limit.
    pub(super) fn new(ctrl_loss_tmo: Option<Duration>, now: Instant) -> Self {
        Self { limit: ctrl_loss_tmo.map(|tmo| tmo.max(WAIT_MIN)), live_since: now, at: None }
    }

    /// The session has become live.
    pub(super) fn revived(&mut self, now: Instant) {
        self.live_since = now;
    }

    /// Since when the session is live, if it is.
    pub(super) fn live_since(&self) -> Instant {
        self.live_since
    }

    /// An operation was submitted.
    pub(super) fn submitted(&mut self, now: Instant) {
        if let (None, Some(limit)) = (self.at, self.limit) {
            self.at = Some(now + limit);
        }
    }

    /// When to check the operations.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.at
    }

    /// Whether an operation has exceeded its limit. `oldest`: the earliest time since when one has
    /// made no progress.
    pub(super) fn is_over(&mut self, now: Instant, oldest: Option<Instant>) -> bool {
        let Some(limit) = self.limit.filter(|_| self.at.is_some_and(|at| at <= now)) else {
            return false;
        };
        // At most twice the limit, so that it also holds for a session that is lost again and
        // again.
        let deadline = oldest.map(|since| {
            let revived = self.live_since + GRACE.min(limit);
            (since + limit).max(revived).min(since + limit * 2)
        });
        self.at = deadline;
        deadline.is_some_and(|deadline| deadline <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn an_operation_without_progress_ends_the_wait() {
        let start = Instant(1_000);
        let mut progress_timeout = ProgressTimeout::new(Some(LIMIT), start);
        assert_eq!(progress_timeout.poll_timeout(), None);
        progress_timeout.submitted(start);
        let end = start + LIMIT;
        assert_eq!(progress_timeout.poll_timeout(), Some(end));
        let progress = start + Duration::from_secs(3);
        assert!(!progress_timeout.is_over(end, Some(progress)));
        assert_eq!(progress_timeout.poll_timeout(), Some(progress + LIMIT));
        assert!(progress_timeout.is_over(progress + LIMIT, Some(progress)));
        assert!(!progress_timeout.is_over(progress + LIMIT, None), "all have ended");
        assert_eq!(progress_timeout.poll_timeout(), None);
    }

    #[test]
    fn a_revived_session_has_time_but_not_for_ever() {
        let start = Instant(1_000);
        let mut progress_timeout = ProgressTimeout::new(Some(LIMIT), start);
        progress_timeout.submitted(start);
        progress_timeout.revived(start + LIMIT);
        assert!(!progress_timeout.is_over(start + LIMIT, Some(start)));
        assert_eq!(progress_timeout.poll_timeout(), Some(start + LIMIT + GRACE));
        progress_timeout.revived(start + LIMIT * 2);
        assert!(progress_timeout.is_over(start + LIMIT * 2, Some(start)));
    }

    #[test]
    fn without_a_limit_nothing_is_watched() {
        let mut progress_timeout = ProgressTimeout::new(None, Instant(0));
        progress_timeout.submitted(Instant(0));
        assert_eq!(progress_timeout.poll_timeout(), None);
        assert!(!progress_timeout.is_over(Instant(u64::MAX), Some(Instant(0))));
    }
}
