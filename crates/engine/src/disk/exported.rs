//! An exported disk, shared by the loops of all links: its store and its failures.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tyche_block::{Errno, OperationKind};
use tyche_store::Store;

use crate::errors::ErrorCounts;
use crate::limiter::Limiter;

/// The least time between two log lines about a disk: one that fails may fail thousands of requests
/// in a second.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// A store under its name, with what all loops share of it: its limit, failed requests, and losses
/// that it does not know of itself. A failure is logged at most every ten seconds.
pub struct Exported {
    name: RwLock<Arc<str>>,
    store: Arc<dyn Store>,
    failures: Mutex<Failures>,
    distrusts: AtomicU64,
    limiter: Arc<Limiter>,
}

#[derive(Default)]
struct Failures {
    counts: ErrorCounts,
    limit: LogLimit,
    /// Threads whose requests it does not answer, and since when.
    hanging: usize,
    hangs_since: Option<Instant>,
}

/// The known health of a disk.
pub struct Health {
    /// Requests that it has failed.
    pub errors: ErrorCounts,
    /// The fault of its file or device, if any.
    pub problem: Option<String>,
}

impl Exported {
    /// A disk of that name.
    pub fn new(name: String, store: Arc<dyn Store>) -> Self {
        let (failures, limiter) = (Mutex::default(), Arc::default());
        let name = RwLock::new(name.into());
        Self { name, store, failures, distrusts: AtomicU64::new(0), limiter }
    }

    /// Its name now.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.name.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives it another name.
    pub fn rename(&self, name: &str) {
        *self.name.write().unwrap_or_else(PoisonError::into_inner) = name.into();
    }

    /// Its store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The limit of its requests, those of all hosts together. It keeps no disk open.
    pub fn limiter(&self) -> &Arc<Limiter> {
        &self.limiter
    }

    /// How often completed writes may have been lost: by its store, or with all that this machine
    /// knows of them.
    pub fn losses(&self) -> u64 {
        self.store.losses() + self.distrusts()
    }

    /// Number of calls of [`distrust`](Self::distrust).
    pub fn distrusts(&self) -> u64 {
        self.distrusts.load(Ordering::Acquire)
    }

    /// Declares that any write may be lost, also one that nobody here knows of: the machine has
    /// gone back to an earlier state.
    pub fn distrust(&self) {
        self.distrusts.fetch_add(1, Ordering::AcqRel);
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request that the store has failed, and logs it if due.
    pub(super) fn failed(&self, operation: OperationKind, errno: Errno) {
        let mut failures = self.failures();
        failures.counts.add(operation, errno);
        let Some(unsaid) = failures.limit.admit(Instant::now()) else { return };
        drop(failures);
        let (name, what) = (self.name(), operation.name().replace('_', " "));
        match unsaid {
            0 => tracing::error!("export {name}: {what} failed: {errno}"),
            _ => tracing::error!(
                "export {name}: {what} failed: {errno}; so did {unsaid} other requests since this \
                 was last reported"
            ),
        }
    }

    /// Logs that the store takes no requests, if due.
    pub(super) fn jammed(&self, error: &io::Error) {
        self.complain("cannot hand requests to the disk", error);
    }

    /// Logs that there is no queue to the store, if due.
    pub(super) fn closed(&self, error: &io::Error) {
        self.complain("cannot open a queue to the disk", error);
    }

    fn complain(&self, what: &str, error: &io::Error) {
        if self.failures().limit.admit(Instant::now()).is_some() {
            tracing::error!("export {}: {what}, trying again: {error}", self.name());
        }
    }

    /// Notes that the store has not answered the requests of a thread for that long.
    pub(super) fn hangs(&self, requests: usize, time: Duration) {
        let mut failures = self.failures();
        failures.hanging += 1;
        failures.hangs_since.get_or_insert_with(|| Instant::now() - time);
        drop(failures);
        let (name, seconds) = (self.name(), time.as_secs());
        tracing::error!(
            "export {name}: its disk has not answered {requests} requests for {seconds} s: hosts \
             wait; look at the kernel's log"
        );
    }

    /// Notes that the store answers the requests of a thread again.
    pub(super) fn answers(&self) {
        let mut failures = self.failures();
        failures.hanging = failures.hanging.saturating_sub(1);
        if failures.hanging > 0 {
            return;
        }
        let since = failures.hangs_since.take();
        drop(failures);
        let seconds = since.map_or(0, |since| since.elapsed().as_secs());
        tracing::warn!("export {}: its disk answers again, after {seconds} s", self.name());
    }

    /// Checks the backing file or device.
    pub fn health(&self) -> Health {
        let hangs_since = self.failures().hangs_since;
        let hangs = |since: Instant| {
            let seconds = since.elapsed().as_secs();
            format!(
                "its disk has not answered for {seconds} s: hosts wait; look at the kernel's log"
            )
        };
        // A disk that hangs is not asked.
        let problem = hangs_since.map(hangs);
        let check = || Some(self.store.check_backing().err()?.to_string());
        Health { errors: self.failures().counts, problem: problem.or_else(check) }
    }
}

/// Admits one event in [`LOG_INTERVAL`] to the log, and counts the others.
#[derive(Default)]
struct LogLimit {
    last: Option<Instant>,
    unsaid: u64,
}

impl LogLimit {
    /// `None` if the event is not to be logged; else the number of events suppressed before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < LOG_INTERVAL) {
            self.unsaid += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_is_logged_and_one_in_each_interval_after_it() {
        let (mut limit, start) = (LogLimit::default(), Instant::now());
        let mut at = |seconds| limit.admit(start + Duration::from_secs(seconds));
        assert_eq!(at(0), Some(0));
        assert_eq!([at(0), at(1), at(9)], [None; 3]);
        assert_eq!(at(10), Some(3));
        assert_eq!(at(11), None);
        assert_eq!(at(60), Some(1));
    }
}
