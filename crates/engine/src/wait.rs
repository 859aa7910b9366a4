//! The one blocking wait of a loop: everything that can bring work, together.

use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use tyche_proto::Instant;

/// The most things that one loop waits for.
pub(crate) const SOURCES_MAX: usize = 64;

/// Sleeps until one of `sources` is readable or `deadline` has come. Without a deadline, for as
/// long as it takes.
pub(crate) fn wait<'a>(
    sources: impl IntoIterator<Item = BorrowedFd<'a>>,
    now: Instant,
    deadline: Option<Instant>,
) {
    let mut fds = ArrayVec::<PollFd<'_>, SOURCES_MAX>::new();
    for source in sources {
        fds.push(PollFd::from_borrowed_fd(source, PollFlags::IN));
    }
    let timeout = deadline.map(|deadline| {
        let left = deadline.since(now);
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    // An interrupted wait is an early one: the loop looks around and comes back.
    let _ = poll(&mut fds, timeout.as_ref());
}
