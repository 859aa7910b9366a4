//! A counting allocator, to show that bytes from outside do not determine how much is allocated.
//!
//! A test program counts if it has `#[global_allocator] static ALLOCATOR: Counting = Counting;`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, with counters.
#[derive(Debug)]
pub struct Counting;

/// Bytes ever allocated, by all threads.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Bytes that this thread has taken and not given back.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// Bytes that this thread has ever allocated.
    static ALLOCATED_HERE: Cell<usize> = const { Cell::new(0) };
}

fn hold(bytes: isize) {
    // Fails while the thread ends: its count is not read any more.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

fn count(bytes: usize) {
    ALLOCATED.fetch_add(bytes, Ordering::Relaxed);
    let _ = ALLOCATED_HERE.try_with(|allocated| allocated.set(allocated.get() + bytes));
    hold(bytes.cast_signed());
}

// SAFETY: the system's allocator does the work; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller promises what the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        hold(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Bytes that this thread has taken and not given back. Negative if it has given back bytes that
/// another thread has taken.
pub fn held() -> isize {
    HELD.with(Cell::get)
}

/// Runs `act`, and returns the bytes that this thread has allocated meanwhile.
pub fn during<T>(act: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED_HERE.with(Cell::get);
    let result = act();
    (result, ALLOCATED_HERE.with(Cell::get) - before)
}

/// Runs `act`, and returns the bytes that all threads have allocated meanwhile: those of the test's
/// harness are among them.
pub fn during_in_all_threads<T>(act: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.load(Ordering::Relaxed);
    let result = act();
    (result, ALLOCATED.load(Ordering::Relaxed) - before)
}
