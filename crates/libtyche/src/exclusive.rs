//! A value that one thread at a time uses, while others are refused: a lock that nobody waits for,
//! taken by one atomic instruction and given back by a plain store.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A value that at most one thread uses at a time. [`take`](Self::take) never waits: it fails while
/// another thread has the value.
pub(crate) struct Exclusive<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the one `Taken` at a time, or by its owner. It goes from
// thread to thread that way, which is what `Send` allows.
unsafe impl<T: Send> Sync for Exclusive<T> {}

/// The right to use the value. After a panic it is not given back: the value may be half changed.
pub(crate) struct Taken<'a, T>(&'a Exclusive<T>);

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { is_taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the value; `None` while it is taken.
    pub(crate) fn take(&self) -> Option<Taken<'_, T>> {
        let was_taken = self.is_taken.swap(true, Ordering::Acquire);
        (!was_taken).then(|| Taken(self))
    }

    pub(crate) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: there is no other `Taken` of the value while `self` exists.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and `self` is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.0.is_taken.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn one_at_a_time_has_it() {
        let value = Exclusive::new(1);
        let mut taken = value.take().unwrap();
        *taken += 1;
        assert!(value.take().is_none());
        assert!(value.take().is_none(), "who is refused gives nothing back");
        drop(taken);
        assert_eq!(value.take().map(|it| *it), Some(2));
        assert_eq!(value.into_inner(), 2);
    }

    #[test]
    fn after_a_panic_nobody_has_it() {
        let value = Exclusive::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _taken = value.take();
            panic!("on purpose");
        }));
        assert!(panicked.is_err() && value.take().is_none());
    }

    #[test]
    fn threads_exclude_each_other() {
        let value = Exclusive::new(0);
        let count = || {
            let mut done = 0;
            while done < 1000 {
                let Some(mut taken) = value.take() else { continue };
                let before = *taken;
                thread::yield_now();
                *taken = before + 1;
                done += 1;
            }
        };
        thread::scope(|scope| {
            scope.spawn(count);
            scope.spawn(count);
        });
        assert_eq!(value.into_inner(), 2000);
    }
}
