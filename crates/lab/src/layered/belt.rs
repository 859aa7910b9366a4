//! A queue from one thread to another, behind a lock.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tyche_wake::{Doorbell, Spin, now_ns, sleep};

/// The longest sleep, after which a thread looks whether it is to end.
const PAUSE: Duration = Duration::from_millis(100);

/// An unbounded queue with a doorbell, from any thread to the one that takes. Each item costs the
/// lock once, and a wake-up if that thread sleeps.
pub(super) struct Belt<T> {
    items: Mutex<VecDeque<T>>,
    bell: Doorbell,
}

impl<T> Belt<T> {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { items: Mutex::default(), bell: Doorbell::new()? })
    }

    fn items(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item, and wakes the other thread if it sleeps.
    pub(super) fn push(&self, item: T) {
        self.items().push_back(item);
        self.bell.ring();
    }

    /// Swaps all items for `empty`, which has none.
    pub(super) fn take(&self, empty: &mut VecDeque<T>) {
        std::mem::swap(&mut *self.items(), empty);
    }

    /// Waits a little for items. A thread that spins gives way to others: they may have to run
    /// before there are some.
    pub(super) fn wait(&self, spin: &mut Spin) {
        if spin.again(now_ns()) {
            std::thread::yield_now();
            return;
        }
        spin.sleeps();
        self.bell.announce();
        if self.items().is_empty() {
            sleep([self.bell.wait_fd()], Some(PAUSE));
        }
        self.bell.awake();
    }
}
