//! The one blocking wait of a loop: everything that can bring work, together.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The most things that one loop waits for.
pub const SOURCES_MAX: usize = 64;

/// Sleeps until one of `sources` is readable or `timeout` has passed; `None`: for as long as it
/// takes. May return early: the loop looks around and comes back.
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
    // An interrupted wait is an early one.
    let _ = poll(&mut fds, timeout.as_ref());
}

/// The system's monotonic clock in nanoseconds.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
