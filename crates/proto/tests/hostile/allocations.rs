//! Counts the memory that a thread holds, so that frames can be shown not to decide it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Bytes that this thread has taken and not given back.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // The thread may be about to end: then nobody asks any more.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: the system's allocator does the work; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Bytes that this thread has taken and not given back. Can be less than zero where another thread
/// has taken them.
pub(crate) fn held() -> isize {
    HELD.with(Cell::get)
}
