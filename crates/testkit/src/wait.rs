//! Waits with a time limit.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The longest wait: longer than anything takes unless it hangs, however busy the machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The shortest and the longest pause between two looks at state without an event.
const PAUSE: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(5)];

/// Waits for a condition that no event signals.
///
/// # Panics
/// If it does not hold within [`PATIENCE`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let [mut pause, longest] = PAUSE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(pause);
        pause = longest.min(pause * 2);
    }
}

/// Whether `fd` becomes readable within `limit`.
pub fn wait_readable(fd: impl AsFd, limit: Duration) -> bool {
    let timeout = Timespec::try_from(limit).unwrap();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}
