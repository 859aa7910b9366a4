//! What doorbell and inbox are made of; in the models (`cargo xtask loom`), its stand-ins.

#[cfg(not(all(test, loom)))]
pub(crate) use {
    crate::event::Event,
    crossbeam_queue::ArrayQueue,
    std::sync::atomic::{AtomicU8, Ordering, fence},
};
#[cfg(all(test, loom))]
pub(crate) use {
    loom::sync::atomic::{AtomicU8, Ordering, fence},
    stand_ins::{ArrayQueue, Event},
};

#[cfg(all(test, loom))]
mod stand_ins {
    use std::collections::VecDeque;
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::sync::{Condvar, Mutex};
    use rustix::event::{EventfdFlags, eventfd};

    /// An event that loom knows.
    pub(crate) struct Event {
        is_readable: Mutex<bool>,
        signalled: Condvar,
        /// Never signalled: a descriptor for those who ask for one.
        fd: OwnedFd,
    }

    impl Event {
        pub(crate) fn new() -> io::Result<Self> {
            let (is_readable, signalled) = (Mutex::new(false), Condvar::new());
            Ok(Self { is_readable, signalled, fd: eventfd(0, EventfdFlags::CLOEXEC)? })
        }

        pub(crate) fn signal(&self) {
            *self.is_readable.lock().unwrap() = true;
            self.signalled.notify_all();
        }

        pub(crate) fn clear(&self) -> bool {
            std::mem::take(&mut *self.is_readable.lock().unwrap())
        }

        pub(crate) fn fd(&self) -> BorrowedFd<'_> {
            self.fd.as_fd()
        }

        /// Sleeps until it is readable. If that never happens, loom reports a deadlock.
        pub(crate) fn wait(&self) {
            let mut is_readable = self.is_readable.lock().unwrap();
            while !*is_readable {
                is_readable = self.signalled.wait(is_readable).unwrap();
            }
        }
    }

    /// A bounded queue that promises no more than crossbeam's. Whether it is empty is learned from
    /// an atomic, without a lock that would put it in order with other memory.
    pub(crate) struct ArrayQueue<T> {
        items: Mutex<VecDeque<T>>,
        len: AtomicUsize,
        capacity: usize,
    }

    impl<T> ArrayQueue<T> {
        pub(crate) fn new(capacity: usize) -> Self {
            let items = Mutex::new(VecDeque::with_capacity(capacity));
            Self { items, len: AtomicUsize::new(0), capacity }
        }

        pub(crate) fn push(&self, item: T) -> Result<(), T> {
            let mut items = self.items.lock().unwrap();
            if items.len() == self.capacity {
                return Err(item);
            }
            items.push_back(item);
            self.len.store(items.len(), Ordering::Release);
            Ok(())
        }

        pub(crate) fn pop(&self) -> Option<T> {
            if self.is_empty() {
                return None;
            }
            let mut items = self.items.lock().unwrap();
            let item = items.pop_front();
            self.len.store(items.len(), Ordering::Release);
            item
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.len.load(Ordering::Acquire) == 0
        }
    }
}
