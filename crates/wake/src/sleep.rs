//! The one blocking wait of a loop, for all sources of work together.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The most sources of a wait that allocates nothing.
pub const SOURCES_MAX: usize = 64;

/// Sleeps until one of `sources` is readable or `timeout` has passed; `None`: without a limit. May
/// return early: the loop finds no work and sleeps again.
pub fn sleep<'a>(sources: impl IntoIterator<Item = BorrowedFd<'a>>, timeout: Option<Duration>) {
    let mut fds = ArrayVec::<PollFd<'_>, SOURCES_MAX>::new();
    let source = |source| PollFd::from_borrowed_fd(source, PollFlags::IN);
    let mut sources = sources.into_iter().map(source);
    fds.extend(sources.by_ref().take(SOURCES_MAX));
    match sources.next() {
        None => wait(&mut fds, timeout),
        Some(next) => {
            let mut all: Vec<_> = fds.into_iter().chain([next]).chain(sources).collect();
            wait(&mut all, timeout);
        }
    }
}

fn wait(fds: &mut [PollFd<'_>], timeout: Option<Duration>) {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // An interrupted wait counts as an early return.
    let _ = poll(fds, timeout.as_ref());
}

/// The system's monotonic clock in nanoseconds.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Doorbell;

    #[test]
    fn the_last_of_many_sources_wakes() {
        for count in [1, SOURCES_MAX, SOURCES_MAX + 1, 3 * SOURCES_MAX] {
            let bells: Vec<_> = (0..count).map(|_| Doorbell::new().unwrap()).collect();
            bells[count - 1].announce();
            bells[count - 1].ring();
            // It would wait for ever.
            sleep(bells.iter().map(Doorbell::wait_fd), None);
        }
    }
}
