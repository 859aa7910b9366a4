//! Locks on ranges of the file. A write of a part of a block reads the block and writes it as a
//! whole, so every write and every zeroing holds its blocks until it is done; otherwise another one
//! to the same block could be undone.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::slots::{CLOSED_CHECK, Closed};

/// The ranges that are locked, a few hundred at most (see `InFlight`).
#[derive(Debug, Default)]
pub(super) struct RangeLocks {
    locked: Mutex<Vec<Range<u64>>>,
    unlocked: Condvar,
}

impl RangeLocks {
    /// Locks `range`, waiting for overlapping locks; `None` only once `closed` is raised.
    pub(super) fn lock(self: &Arc<Self>, range: Range<u64>, closed: &Closed) -> Option<RangeLock> {
        let mut locked = self.locked();
        while locked.iter().any(|other| other.start < range.end && range.start < other.end) {
            if closed.is_raised() {
                return None;
            }
            let result = self.unlocked.wait_timeout(locked, CLOSED_CHECK);
            (locked, _) = result.unwrap_or_else(PoisonError::into_inner);
        }
        locked.push(range.clone());
        Some(RangeLock { locks: Arc::clone(self), range })
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A locked range; dropping it unlocks it.
#[derive(Debug)]
pub(super) struct RangeLock {
    locks: Arc<RangeLocks>,
    range: Range<u64>,
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        let mut locked = self.locks.locked();
        let index = locked.iter().position(|range| *range == self.range);
        locked.swap_remove(index.expect("a lock is held until it is dropped"));
        drop(locked);
        self.locks.unlocked.notify_all();
    }
}
