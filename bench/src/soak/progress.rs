//! Progress of a block device's requests, polled a hundred times a second.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::device::block;
use crate::process::{Doing, Result, Stop, failed};

/// Polling interval.
const LOOK: Duration = Duration::from_millis(10);

pub(super) struct Progress {
    /// The kernel's counters.
    stat: PathBuf,
    seen: Mutex<Seen>,
}

struct Seen {
    /// Requests done.
    done: u64,
    /// Time when their number last grew, or when the device was idle.
    since: Instant,
    /// The longest time in which requests waited and none got done.
    stall: Duration,
}

impl Progress {
    pub(super) fn new(device: &Path) -> Self {
        let seen = Seen { done: 0, since: Instant::now(), stall: Duration::ZERO };
        Self { stat: block(device).join("stat"), seen: Mutex::new(seen) }
    }

    /// Polls until `over`.
    pub(super) fn follow(&self, over: &AtomicBool, stop: &Stop) -> Result<()> {
        while !over.load(Relaxed) {
            let text = fs::read_to_string(&self.stat).doing(self.stat.display())?;
            let Some((done, waiting)) = parse(&text) else {
                return failed(format!("{}: `{}`", self.stat.display(), text.trim()));
            };
            self.seen().note(done, waiting, Instant::now());
            stop.pause(LOOK)?;
        }
        Ok(())
    }

    /// Requests done so far.
    pub(super) fn done(&self) -> u64 {
        self.seen().done
    }

    /// The longest stall since the last call.
    pub(super) fn stall(&self) -> Duration {
        std::mem::take(&mut self.seen().stall)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn note(&mut self, done: u64, waiting: u64, now: Instant) {
        self.stall = self.stall.max(now - self.since);
        if done != self.done || waiting == 0 {
            (self.done, self.since) = (done, now);
        }
    }
}

/// Completed reads and writes, and waiting requests, in `/sys/block/NAME/stat`.
fn parse(stat: &str) -> Option<(u64, u64)> {
    let numbers: Option<Vec<u64>> = stat.split_whitespace().map(|it| it.parse().ok()).collect();
    match numbers?[..] {
        [reads, _, _, _, writes, _, _, _, waiting, ..] => Some((reads + writes, waiting)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted() {
        assert_eq!(parse("  5 0 40 3 7 0 56 9 2 10 12 0 0 0 0\n"), Some((12, 2)));
        assert_eq!(parse("5 0"), None);
        assert_eq!(parse("a 0 40 3 7 0 56 9 2"), None);
    }

    #[test]
    fn a_stall_is_time_in_which_what_waits_is_not_done() {
        let start = Instant::now();
        let mut seen = Seen { done: 0, since: start, stall: Duration::ZERO };
        let ms = Duration::from_millis;
        for (at, done, waiting) in [(10, 0, 0), (500, 0, 0), (510, 0, 3), (900, 0, 3), (910, 1, 2)]
        {
            seen.note(done, waiting, start + ms(at));
        }
        assert_eq!(seen.stall, ms(490), "of which 80 ms had passed unseen");
    }
}
