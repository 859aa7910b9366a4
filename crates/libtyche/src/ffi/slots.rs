//! Slots of the requests in flight: the caller's token, and the destination of a read's data if
//! they must be copied.
//!
//! A slot belongs to one request from [`Slots::take`] to [`Slots::release`]; the queues of the
//! request and its completion order the accesses, so relaxed atomics suffice.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;

/// A table with as many slots as requests may be in flight.
pub(super) struct Slots {
    all: Box<[Slot]>,
    free: ArrayQueue<u32>,
}

struct Slot {
    token: AtomicU64,
    copy_to: AtomicPtr<u8>,
}

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        let slot = |_| Slot { token: AtomicU64::new(0), copy_to: AtomicPtr::new(ptr::null_mut()) };
        let free = ArrayQueue::new(count);
        for index in 0..count as u32 {
            free.push(index).expect("there is room for all");
        }
        Self { all: (0..count).map(slot).collect(), free }
    }

    /// Takes a free slot for a request, if there is one. `copy_to` is null if nothing is to be
    /// copied.
    pub(super) fn take(&self, token: u64, copy_to: *mut u8) -> Option<u64> {
        let index = self.free.pop()?;
        let slot = &self.all[index as usize];
        slot.token.store(token, Ordering::Relaxed);
        slot.copy_to.store(copy_to, Ordering::Relaxed);
        Some(u64::from(index))
    }

    /// Returns the content of a slot and frees it.
    pub(super) fn release(&self, index: u64) -> (u64, *mut u8) {
        let slot = &self.all[index as usize];
        let remembered = (slot.token.load(Ordering::Relaxed), slot.copy_to.load(Ordering::Relaxed));
        self.free.push(index as u32).expect("a slot is released once");
        remembered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_run_out_and_come_back_with_what_was_remembered() {
        let slots = Slots::new(2);
        let mut byte = 0;
        let first = slots.take(u64::MAX, ptr::null_mut()).unwrap();
        let second = slots.take(7, &raw mut byte).unwrap();
        assert_eq!(slots.take(8, ptr::null_mut()), None);
        assert_eq!(slots.release(second), (7, &raw mut byte));
        assert_eq!(slots.release(first), (u64::MAX, ptr::null_mut()));
        assert!(slots.take(9, ptr::null_mut()).is_some());
    }
}
