//! One writer, or many readers, at a time.
//!
//! The lock is a `flock` on the open file description that does the I/O. The kernel releases it
//! with the last reference to that description, and a request in flight holds one: so even after
//! `kill -9` the lock is held until the last write of the dead process is out. For the same reason
//! a process that no longer exists may hold a lock for a moment. So may udev, which takes a shared
//! one while it probes a block device; hence the caller waits a little.
//!
//! An `fcntl` lock of the description would do as well, but the kernel does not reveal its owner.

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use rustix::fs::{FlockOperation, flock, fstat, major, minor};
use rustix::io::Errno;

/// The interval between attempts at a lock that is held.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process that took the lock, if it is visible from here. It may have ended since.
    pub pid: Option<u32>,
    /// The name of its program, while it runs.
    pub program: Option<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, &self.program) {
            (Some(pid), Some(program)) => write!(f, "pid {pid} ({program})"),
            (Some(pid), None) => write!(f, "pid {pid}, which is just ending"),
            (None, _) => f.write_str("another process"),
        }
    }
}

/// Takes the lock, shared or exclusive; tries until `deadline`, and at least once.
pub(super) fn acquire(file: BorrowedFd<'_>, shared: bool, deadline: Instant) -> Result<(), Errno> {
    let operation = if shared {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    retry_until(deadline, Errno::WOULDBLOCK, || flock(file, operation))
}

/// Repeats `attempt` while it fails with `transient`, until `deadline`.
pub(super) fn retry_until<T>(
    deadline: Instant,
    transient: Errno,
    mut attempt: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    loop {
        match attempt() {
            Err(Errno::INTR) => {}
            Err(errno) if errno == transient && Instant::now() < deadline => {
                thread::sleep(RETRY_INTERVAL);
            }
            outcome => return outcome,
        }
    }
}

/// The holder of a lock on `file`, according to the kernel's list of locks.
pub(super) fn holder(file: BorrowedFd<'_>) -> Holder {
    let list = fs::read_to_string("/proc/locks").unwrap_or_default();
    let pid = fstat(file).ok().and_then(|stat| {
        let file = (major(stat.st_dev), minor(stat.st_dev), stat.st_ino);
        list.lines().find_map(|line| parse_holder(line, file))
    });
    let program = pid
        .and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok())
        .map(|name| name.trim_end().to_owned());
    Holder { pid, program }
}

/// The pid of a line such as `1: FLOCK  ADVISORY  WRITE 708 fe:00:1234 0 EOF`, if it is about
/// `file` (major and minor number of the filesystem, inode). Waiters, marked by an arrow, are not
/// holders; a pid of another namespace reads as 0.
fn parse_holder(line: &str, file: (u32, u32, u64)) -> Option<u32> {
    let mut words = line.split_ascii_whitespace();
    if words.nth(1)? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?.parse().ok().filter(|&pid| pid != 0);
    let mut id = words.next()?.split(':');
    let major = u32::from_str_radix(id.next()?, 16).ok()?;
    let minor = u32::from_str_radix(id.next()?, 16).ok()?;
    let inode = id.next()?.parse().ok()?;
    if (major, minor, inode) == file { pid } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_holder_of_the_very_file_is_named() {
        let file = (0xfe, 0, 1234);
        let line = "1: FLOCK  ADVISORY  WRITE 708 fe:00:1234 0 EOF";
        assert_eq!(parse_holder(line, file), Some(708));
        for other in [
            "1: FLOCK  ADVISORY  WRITE 708 fe:00:1235 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 708 fe:01:1234 0 EOF",
            "1: -> FLOCK  ADVISORY  WRITE 708 fe:00:1234 0 EOF",
            "1: POSIX  ADVISORY  WRITE 708 fe:00:1234 0 EOF",
            "1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 0 fe:00:1234 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 708",
            "1: FLOCK  ADVISORY  WRITE 708 fe 0 EOF",
            "",
        ] {
            assert_eq!(parse_holder(other, file), None, "{other}");
        }
    }
}
