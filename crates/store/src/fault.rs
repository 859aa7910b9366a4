//! A store that fails and delays requests on demand.
//!
//! [`FaultStore`] wraps any store; [`Faults`], its handle, changes the faults while the store is in
//! use. Nothing is random: the same requests under the same rules end the same way.
//!
//! ```
//! # use tyche_block::{Errno, OperationKind};
//! # use tyche_store::{fault::{FaultStore, Rule}, memory::MemoryStore};
//! # fn main() -> std::io::Result<()> {
//! let store = FaultStore::new(MemoryStore::new(1 << 20, 512)?);
//! let faults = store.faults();
//! faults.add(Rule::fail(Errno::IO).on(OperationKind::Write).times(2));
//! faults.add(Rule::fail(Errno(61)).within(4096..8192)); // a bad spot on the disk
//! # Ok(())
//! # }
//! ```
//!
//! A store made [`with_volatile_cache`](FaultStore::with_volatile_cache) also keeps the previous
//! content of each block that is written and not yet flushed. [`Faults::crash`] restores it, as a
//! loss of power would. This costs a read before each write, and the submitting thread waits for
//! it: do not measure with such a store.

mod alarm;
mod queue;
mod rules;
mod undo;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tyche_block::{Geometry, Operation};

use crate::{BackingError, Queue, ResizeError, Store};
use queue::FaultQueue;
use rules::Rules;
use undo::UndoLog;

pub use alarm::Alarm;
pub use rules::{Fault, Rule, RuleId};

/// See the [module](self).
pub struct FaultStore {
    shared: Arc<Shared>,
}

/// The faults of a [`FaultStore`], changed at any time from any thread.
#[derive(Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Box<dyn Store>,
    rules: Mutex<Rules>,
    undo: Option<Mutex<UndoLog>>,
    crashes: AtomicU64,
    /// Crashes, and durable steps that failed by a rule.
    losses: AtomicU64,
}

impl Shared {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn undo(&self) -> Option<MutexGuard<'_, UndoLog>> {
        Some(self.undo.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a loss if a rule has failed a durable step, which may lose the content of the cache.
    fn note_failure(&self, operation: Operation) {
        let cached = self.inner.geometry().write_cache || self.undo.is_some();
        let loses = match operation {
            Operation::Flush => cached,
            Operation::Write { fua } | Operation::WriteZeroes { fua, .. } => fua && cached,
            Operation::Read | Operation::Discard | Operation::BlockStatus => false,
        };
        if loses {
            self.losses.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn crashes(&self) -> u64 {
        self.crashes.load(Ordering::Acquire)
    }
}

impl FaultStore {
    /// Wraps `inner`, without faults at first.
    pub fn new(inner: impl Store + 'static) -> Self {
        Self::wrap(Box::new(inner), None)
    }

    /// As [`new`](Self::new), with a write cache that a crash empties, whatever `inner` has.
    ///
    /// # Errors
    /// The error of `inner` when it refuses another queue.
    pub fn with_volatile_cache(inner: impl Store + 'static) -> io::Result<Self> {
        let undo = UndoLog::new(&inner)?;
        Ok(Self::wrap(Box::new(inner), Some(Mutex::new(undo))))
    }

    fn wrap(inner: Box<dyn Store>, undo: Option<Mutex<UndoLog>>) -> Self {
        let (crashes, losses) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Shared { inner, rules: Mutex::default(), undo, crashes, losses };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the handle to the faults.
    pub fn faults(&self) -> Faults {
        Faults { shared: Arc::clone(&self.shared) }
    }
}

impl Store for FaultStore {
    fn geometry(&self) -> Geometry {
        let geometry = self.shared.inner.geometry();
        let write_cache = geometry.write_cache || self.shared.undo.is_some();
        Geometry { write_cache, ..geometry }
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        let inner = self.shared.inner.queue(depth)?;
        Ok(Box::new(FaultQueue::new(&self.shared, inner, depth)?))
    }

    fn resize(&self, size: Option<u64>) -> Result<u64, ResizeError> {
        self.shared.inner.resize(size)
    }

    fn check_backing(&self) -> Result<(), BackingError> {
        self.shared.inner.check_backing()
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.shared.inner.file()
    }

    /// Counts every crash, and every durable step that fails by a rule.
    fn losses(&self) -> u64 {
        self.shared.inner.losses() + self.shared.losses.load(Ordering::Acquire)
    }
}

impl Faults {
    /// Adds a rule. Rules are applied in the order they were added.
    pub fn add(&self, rule: Rule) -> RuleId {
        self.shared.rules().add(rule)
    }

    /// Removes a rule and returns how often it has struck.
    pub fn remove(&self, id: RuleId) -> Option<u64> {
        self.shared.rules().remove(id)
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.shared.rules().clear();
    }

    /// Simulates a loss of power: every block with unflushed writes gets the content from before
    /// them. Requests that the wrapped store has not finished end with `EIO`; their writes may or
    /// may not be on the disk.
    ///
    /// # Errors
    /// The error of the wrapped store when the blocks are put back.
    ///
    /// # Panics
    /// If the store has no volatile cache.
    pub fn crash(&self) -> io::Result<()> {
        self.crash_keeping(|_| false)
    }

    /// As [`crash`](Self::crash), but keeps the new content of each block for whose number `keep`
    /// returns true: a disk may write its cache out in any order.
    ///
    /// # Errors
    /// The error of the wrapped store when the blocks are put back.
    ///
    /// # Panics
    /// If the store has no volatile cache.
    pub fn crash_keeping(&self, keep: impl FnMut(u64) -> bool) -> io::Result<()> {
        let mut undo = self.shared.undo().expect("a crash needs a store with a volatile cache");
        self.shared.crashes.fetch_add(1, Ordering::AcqRel);
        self.shared.losses.fetch_add(1, Ordering::AcqRel);
        undo.undo(keep)
    }

    /// Blocks that a crash would lose now; zero without a volatile cache.
    pub fn volatile_blocks(&self) -> usize {
        self.shared.undo().map_or(0, |undo| undo.len())
    }
}
