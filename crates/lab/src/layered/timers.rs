//! The timers of packets, in one order behind a lock.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use tyche_fcoe::fc::wire::Xid;

/// Seconds until a command without an answer is looked at (REC_TOV).
const PATIENCE_S: i64 = 3;

/// A timer that runs: when it ends, and whose it is.
pub(super) type Timer = (i64, u16);

/// The set of running timers that all threads share, by the second in which they end.
#[derive(Default)]
pub(super) struct Timers(Mutex<BTreeSet<Timer>>);

impl Timers {
    fn timers(&self) -> MutexGuard<'_, BTreeSet<Timer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a timer.
    pub(super) fn start(&self, xid: Xid) -> Timer {
        let timer = (ticks() + PATIENCE_S, xid.0);
        self.timers().insert(timer);
        timer
    }

    /// Stops a timer.
    pub(super) fn stop(&self, timer: Timer) {
        self.timers().remove(&timer);
    }

    /// Takes the timers that have ended; returns their number.
    pub(super) fn expire(&self) -> usize {
        let mut timers = self.timers();
        let left = timers.split_off(&(ticks() + 1, 0));
        std::mem::replace(&mut *timers, left).len()
    }
}

/// The time in seconds, as the kernel has it at its last tick.
pub(super) fn ticks() -> i64 {
    clock_gettime(ClockId::MonotonicCoarse).tv_sec
}
