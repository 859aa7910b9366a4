//! The wait for a session to be connected.

use std::time::{Duration, Instant};

use tyche_remote::Notice;

/// Interval at which to look why a session is not connected yet.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Waits until a session is connected. `next` returns its next notice, if there is one in time.
/// `check` fails if there is no use in waiting longer; it is called once more, for the last time
/// (`true`), when `timeout` has passed, and must fail then.
///
/// # Errors
/// Those of `next` and `check`, or the session has failed: `explain` makes an error of the last
/// refusal by the target, or else of the failure.
pub fn wait_connected<E>(
    timeout: Duration,
    mut next: impl FnMut(Duration) -> Result<Option<Notice>, E>,
    mut check: impl FnMut(bool) -> Result<(), E>,
    explain: impl FnOnce(Notice) -> E,
) -> Result<(), E> {
    let deadline = Instant::now() + timeout;
    let mut refusal = None;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match next(left.min(LOOK_EVERY))? {
            Some(Notice::Connected(_)) => return Ok(()),
            // It precedes the failure that it causes, and says more. Not every one is final.
            Some(notice @ Notice::Rejected(_)) => refusal = Some(notice),
            Some(notice @ Notice::Failed(_)) => return Err(explain(refusal.unwrap_or(notice))),
            Some(_) => {}
            None => check(Instant::now() >= deadline)?,
        }
    }
}
