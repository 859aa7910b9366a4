//! Page-aligned memory that is taken once and lent out in extents.
//!
//! An [`Arena`] is one allocation. An [`Extent`] is a run of its pages with exactly one owner:
//! the arena remembers which pages are out, so that the same page can never be lent twice. That
//! check, made once per request, is what makes handing memory between threads and to the kernel
//! safe without a lock on the data itself.
//!
//! Two ways to get an extent: [`Arena::alloc`] finds free pages (the host's side, where requests
//! start), [`Arena::claim`] takes the very pages that somebody else chose (the target's `damq`,
//! whose pages the *host* hands out: PROTOCOL.md, "Placement").

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, slice};

/// Bytes in a page; the unit of every arena.
pub const PAGE: usize = 4096;

/// One allocation of whole pages, lent out in extents. Clones share the same memory.
#[derive(Clone)]
pub struct Arena {
    memory: Arc<Memory>,
}

struct Memory {
    base: NonNull<u8>,
    pages: usize,
    lent: Mutex<Lent>,
    returned: Condvar,
}

// SAFETY: `base` is only ever dereferenced through an `Extent`, and `Lent` guarantees that no two
// extents overlap; moving or sharing the bookkeeping between threads is what the mutex is for.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Which pages are out: one bit a page.
struct Lent {
    words: Box<[u64]>,
    /// Where the next search starts, so that pages go out in order while nothing is in the way.
    next: usize,
    /// Threads asleep in [`Arena::alloc_timeout`].
    waiting: usize,
}

impl Lent {
    fn is_lent(&self, page: usize) -> bool {
        self.words[page / 64] & (1 << (page % 64)) != 0
    }

    /// The first page in `range` that is out.
    fn first_lent(&self, first: usize, pages: usize) -> Option<usize> {
        (first..first + pages).find(|&page| self.is_lent(page))
    }

    fn set(&mut self, first: usize, pages: usize, lent: bool) {
        for page in first..first + pages {
            let bit = 1 << (page % 64);
            assert_ne!(self.words[page / 64] & bit != 0, lent, "page {page} has two owners");
            self.words[page / 64] ^= bit;
        }
    }

    /// Next fit: from the last place onwards, then once from the start.
    fn find(&mut self, pages: usize, total: usize) -> Option<usize> {
        let mut first = self.next;
        let mut wrapped = false;
        loop {
            if first + pages > total {
                if wrapped {
                    return None;
                }
                (first, wrapped) = (0, true);
                continue;
            }
            match self.first_lent(first, pages) {
                None => {
                    self.next = first + pages;
                    return Some(first);
                }
                Some(page) => first = page + 1,
            }
            if wrapped && first > self.next {
                return None;
            }
        }
    }
}

impl Arena {
    /// Takes `pages` zeroed pages from the system. Aborts, as every allocation does, if there is
    /// no such memory.
    ///
    /// # Panics
    /// If `pages` is zero or more than a `u32` counts.
    pub fn new(pages: usize) -> Self {
        assert!(pages > 0 && u32::try_from(pages).is_ok(), "an arena of {pages} pages");
        let layout = Memory::layout(pages);
        // SAFETY: the layout's size is not zero.
        let Some(base) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        let words = vec![0; pages.div_ceil(64)].into_boxed_slice();
        let lent = Mutex::new(Lent { words, next: 0, waiting: 0 });
        Self { memory: Arc::new(Memory { base, pages, lent, returned: Condvar::new() }) }
    }

    /// Pages in all.
    pub fn pages(&self) -> usize {
        self.memory.pages
    }

    /// Where the memory starts and how many bytes it has, for registering it with the kernel.
    pub fn region(&self) -> (NonNull<u8>, usize) {
        (self.memory.base, self.memory.pages * PAGE)
    }

    /// A run of free pages that holds `len` bytes, or `None` if there is none now.
    pub fn alloc(&self, len: usize) -> Option<Extent> {
        let pages = len.div_ceil(PAGE).max(1);
        let mut lent = self.memory.lock();
        let first = lent.find(pages, self.memory.pages)?;
        lent.set(first, pages, true);
        Some(self.extent(first, pages, len))
    }

    /// As [`alloc`](Self::alloc), waiting up to `timeout` for pages to come back.
    pub fn alloc_timeout(&self, len: usize, timeout: Duration) -> Option<Extent> {
        let deadline = Instant::now() + timeout;
        let pages = len.div_ceil(PAGE).max(1);
        let mut lent = self.memory.lock();
        loop {
            if let Some(first) = lent.find(pages, self.memory.pages) {
                lent.set(first, pages, true);
                return Some(self.extent(first, pages, len));
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            lent.waiting += 1;
            let (guard, _) = self
                .memory
                .returned
                .wait_timeout(lent, left)
                .unwrap_or_else(PoisonError::into_inner);
            lent = guard;
            lent.waiting -= 1;
        }
    }

    /// The pages from `first` on that hold `len` bytes, or `None` if one of them is out already
    /// or does not exist.
    pub fn claim(&self, first: usize, len: usize) -> Option<Extent> {
        let pages = len.div_ceil(PAGE).max(1);
        if first.checked_add(pages)? > self.memory.pages {
            return None;
        }
        let mut lent = self.memory.lock();
        if lent.first_lent(first, pages).is_some() {
            return None;
        }
        lent.set(first, pages, true);
        Some(self.extent(first, pages, len))
    }

    fn extent(&self, first: usize, pages: usize, len: usize) -> Extent {
        Extent { memory: Arc::clone(&self.memory), first, pages, len }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} pages)", self.memory.pages)
    }
}

impl Memory {
    fn layout(pages: usize) -> Layout {
        Layout::from_size_align(pages * PAGE, PAGE).expect("u32 pages fit an address space")
    }

    fn lock(&self) -> MutexGuard<'_, Lent> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `Arena::new` with the same layout; no extent is left, for each
        // holds a reference to `self`.
        unsafe { dealloc(self.base.as_ptr(), Self::layout(self.pages)) }
    }
}

/// A run of pages of an [`Arena`] with one owner. Returned to the arena when dropped.
pub struct Extent {
    memory: Arc<Memory>,
    first: usize,
    pages: usize,
    len: usize,
}

impl Extent {
    /// Index of the first page in its arena.
    pub fn first_page(&self) -> usize {
        self.first
    }

    /// Whether the extent is part of `arena`.
    pub fn is_of(&self, arena: &Arena) -> bool {
        Arc::ptr_eq(&self.memory, &arena.memory)
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: `first` is below the arena's page count, so the offset stays in the allocation.
        unsafe { self.memory.base.add(self.first * PAGE) }
    }
}

impl Deref for Extent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are initialised (zeroed at first) and lent to `self` alone.
        unsafe { slice::from_raw_parts(self.start().as_ptr(), self.len) }
    }
}

impl DerefMut for Extent {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start().as_ptr(), self.len) }
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let mut lent = self.memory.lock();
        lent.set(self.first, self.pages, false);
        if lent.waiting > 0 {
            drop(lent);
            self.memory.returned.notify_all();
        }
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extent({} bytes at page {})", self.len, self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_do_not_overlap_and_come_back() {
        let arena = Arena::new(8);
        let mut a = arena.alloc(3 * PAGE).unwrap();
        let b = arena.alloc(5 * PAGE - 1).unwrap();
        assert_eq!((a.first_page(), b.first_page()), (0, 3));
        assert_eq!(b.len(), 5 * PAGE - 1);
        assert!(arena.alloc(1).is_none());
        assert!(arena.claim(2, 1).is_none());
        a.fill(0xa5);
        assert!(b.iter().all(|&byte| byte == 0));
        drop(a);
        assert_eq!(arena.claim(2, 1).unwrap().first_page(), 2);
        assert!(arena.claim(7, 2 * PAGE).is_none(), "past the end");
    }

    #[test]
    fn search_finds_the_only_hole_wherever_it_starts() {
        let arena = Arena::new(200);
        let mut all: Vec<_> = (0..200).map(|_| arena.alloc(1)).collect();
        for hole in [0usize, 1, 63, 64, 127, 198] {
            all[hole] = None;
            all[hole + 1] = None;
            assert!(arena.alloc(3 * PAGE).is_none());
            let found = arena.alloc(2 * PAGE).expect("there is a hole of two pages");
            assert_eq!(found.first_page(), hole);
            drop(found);
            all[hole] = arena.claim(hole, 1);
            all[hole + 1] = arena.claim(hole + 1, 1);
            assert!(all[hole].is_some() && all[hole + 1].is_some());
        }
    }

    #[test]
    fn a_waiter_gets_what_another_thread_returns() {
        let arena = Arena::new(1);
        let taken = arena.alloc(1).unwrap();
        assert!(arena.alloc_timeout(1, Duration::from_millis(1)).is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| arena.alloc_timeout(1, Duration::from_secs(30)));
            drop(taken);
            assert!(waiter.join().unwrap().is_some());
        });
    }
}
