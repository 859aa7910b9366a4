//! The one blocking wait of a loop, for all sources of work together.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The most sources of one wait.
pub const SOURCES_MAX: usize = 64;

/// Sleeps until one of `sources` is readable or `timeout` has passed; `None`: without a limit. May
/// return early: the loop finds no work and sleeps again.
///
/// # Panics
/// With more than [`SOURCES_MAX`] sources.
pub fn sleep<'a>(sources: impl IntoIterator<Item = BorrowedFd<'a>>, timeout: Option<Duration>) {
    let mut fds = ArrayVec::<PollFd<'_>, SOURCES_MAX>::new();
    for source in sources {
        fds.push(PollFd::from_borrowed_fd(source, PollFlags::IN));
    }
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // An interrupted wait counts as an early return.
    let _ = poll(&mut fds, timeout.as_ref());
}

/// The system's monotonic clock in nanoseconds.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
