//! The record of an arena's lent pages: a bit for each page, 64 to a word.
//!
//! A run of pages within one word is lent by one atomic instruction, without a lock. The words of a
//! longer run are taken one by one, under a lock, and given back if another thread is faster. Such
//! pages look lent meanwhile, so a search without the lock may miss them: a thread that finds no
//! pages searches again under the lock before it believes that.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::lack::Lack;
use crate::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, order_in_models};

/// Pages in a word.
const WORD: usize = 64;

/// Order of all accesses: who waits for pages and who returns some must not miss each other.
const ORDER: Ordering = Ordering::SeqCst;

/// The allocator of an arena's pages: a bitmap of the pages that are lent, in parts that no run of
/// pages crosses. All threads use it at once; a run within one word of the bitmap usually needs no
/// lock.
pub(crate) struct Lent {
    words: Box<[AtomicU64]>,
    /// Pages in each part; no run is in two parts.
    part_pages: usize,
    /// The start of the next search in each part, so that pages are lent in order as long as they
    /// are free.
    next: Box<[AtomicUsize]>,
    /// Held while a long run is taken.
    slow: Mutex<()>,
    /// Threads in [`take_free_timeout`](Self::take_free_timeout).
    waiting: AtomicUsize,
    returned: Condvar,
    /// The end of the pages that searches look at: those behind it are held back. Only a hint, for
    /// pages that are held back are marked as lent.
    end: AtomicUsize,
    /// Raised by who finds no pages.
    lack: Lack,
}

/// The part of a run that is in one word: the word, and the run's bits there.
#[derive(Clone, Copy)]
struct Piece {
    word: usize,
    bits: u64,
}

/// The pieces of a run, in order.
fn pieces(first: usize, pages: usize) -> impl DoubleEndedIterator<Item = Piece> + Clone {
    let end = first + pages;
    (first / WORD..end.div_ceil(WORD)).map(move |word| {
        let from = first.max(word * WORD) - word * WORD;
        let to = end.min((word + 1) * WORD) - word * WORD;
        Piece { word, bits: (u64::MAX >> (WORD - (to - from))) << from }
    })
}

impl Lent {
    /// No page is lent. `pages`: their number in each of so many `parts`.
    pub(crate) fn new(pages: usize, parts: usize) -> Self {
        Self {
            words: (0..(pages * parts).div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect(),
            part_pages: pages,
            next: (0..parts).map(|part| AtomicUsize::new(part * pages)).collect(),
            slow: Mutex::new(()),
            waiting: AtomicUsize::new(0),
            returned: Condvar::new(),
            end: AtomicUsize::new(pages * parts),
            lack: Lack::default(),
        }
    }

    /// As [`new`](Self::new), of one part, whose pages from `end` on are held back.
    pub(crate) fn with_held(pages: usize, end: usize) -> Self {
        let this = Self::new(pages, 1);
        if end < pages {
            this.hold(end, pages - end);
        }
        this
    }

    /// Holds back the last `pages` of those that are in use, from `first` on; false if one of them
    /// is lent. One thread at a time does this, or [`release`](Self::release).
    pub(crate) fn hold(&self, first: usize, pages: usize) -> bool {
        let is_held = self.take(first, pages);
        if is_held {
            self.end.store(first, ORDER);
        }
        is_held
    }

    /// Has the first `pages` that are held back, from `first` on, be used, and wakes who waits.
    pub(crate) fn release(&self, first: usize, pages: usize) {
        self.end.store(first + pages, ORDER);
        self.give_back(first, pages);
    }

    /// The end of the pages in use.
    pub(crate) fn end(&self) -> usize {
        self.end.load(ORDER)
    }

    /// Raised by who finds no pages.
    pub(crate) fn lack(&self) -> &Lack {
        &self.lack
    }

    /// Number of pages in use that are lent now, roughly.
    pub(crate) fn count(&self) -> usize {
        let lent = |piece: Piece| self.words[piece.word].load(Ordering::Relaxed) & piece.bits;
        pieces(0, self.end()).map(|piece| lent(piece).count_ones() as usize).sum()
    }

    /// Lends a run of free pages and returns the first: from the part `near` if that has one,
    /// otherwise from another part. `None` if no part has one now.
    pub(crate) fn take_free(&self, pages: usize, near: usize) -> Option<usize> {
        match self.find(pages, near) {
            Some(first) if self.take_short(first, pages) => Some(first),
            _ => {
                let first = self.take_free_locked(&self.lock(), pages, near);
                if first.is_none() {
                    self.lack.raise();
                }
                first
            }
        }
    }

    /// As [`take_free`](Self::take_free), but waits up to `timeout` for pages to be returned.
    pub(crate) fn take_free_timeout(
        &self,
        pages: usize,
        near: usize,
        timeout: Duration,
    ) -> Option<usize> {
        let deadline = Instant::now() + timeout;
        let mut lock = self.lock();
        self.waiting.fetch_add(1, ORDER);
        let first = loop {
            order_in_models();
            if let Some(first) = self.take_free_locked(&lock, pages, near) {
                break Some(first);
            }
            self.lack.raise();
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { break None };
            let waited = self.returned.wait_timeout(lock, left);
            (lock, _) = waited.unwrap_or_else(PoisonError::into_inner);
        };
        self.waiting.fetch_sub(1, ORDER);
        first
    }

    /// Lends the given run; false if one of its pages is lent already.
    pub(crate) fn take(&self, first: usize, pages: usize) -> bool {
        self.take_short(first, pages) || self.take_locked(&self.lock(), first, pages)
    }

    /// Takes a run back.
    ///
    /// # Panics
    /// If one of its pages is not lent.
    pub(crate) fn give_back(&self, first: usize, pages: usize) {
        pieces(first, pages).for_each(|piece| self.clear(piece));
        order_in_models();
        if self.waiting.load(ORDER) > 0 {
            // Who waits has either seen these pages, or is asleep once it has given up the lock.
            drop(self.lock());
            self.returned.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_free_locked(
        &self,
        lock: &MutexGuard<'_, ()>,
        pages: usize,
        near: usize,
    ) -> Option<usize> {
        loop {
            let first = self.find(pages, near)?;
            // Otherwise another thread was faster, without the lock.
            if self.take_locked(lock, first, pages) {
                return Some(first);
            }
        }
    }

    /// Takes a run if it is within one word and free.
    fn take_short(&self, first: usize, pages: usize) -> bool {
        let mut pieces = pieces(first, pages);
        pieces.next().is_some_and(|piece| pieces.next().is_none() && self.set(piece))
    }

    fn take_locked(&self, _: &MutexGuard<'_, ()>, first: usize, pages: usize) -> bool {
        let taken = pieces(first, pages).take_while(|piece| self.set(*piece)).count();
        let is_whole = taken == pieces(first, pages).count();
        if !is_whole {
            pieces(first, pages).take(taken).for_each(|piece| self.clear(piece));
        }
        is_whole
    }

    /// Marks pages as lent; false if one of them is.
    fn set(&self, Piece { word, bits }: Piece) -> bool {
        let free = |word: u64| (word & bits == 0).then_some(word | bits);
        self.words[word].fetch_update(ORDER, ORDER, free).is_ok()
    }

    fn clear(&self, Piece { word, bits }: Piece) {
        let before = self.words[word].fetch_and(!bits, ORDER);
        assert_eq!(before & bits, bits, "pages of word {word} have two owners");
    }

    /// The last lent page of a run.
    fn last_lent(&self, first: usize, pages: usize) -> Option<usize> {
        pieces(first, pages).rev().find_map(|Piece { word, bits }| {
            let lent = self.words[word].load(ORDER) & bits;
            lent.checked_ilog2().map(|bit| word * WORD + bit as usize)
        })
    }

    /// Finds a run of pages that look free.
    fn find(&self, pages: usize, near: usize) -> Option<usize> {
        let others = (0..self.next.len()).filter(|part| *part != near);
        [near].into_iter().chain(others).find_map(|part| self.find_in(pages, part))
    }

    /// Searches one part by next fit: from the last position onwards, then once from the start.
    fn find_in(&self, pages: usize, part: usize) -> Option<usize> {
        let (start, end) = (part * self.part_pages, (part + 1) * self.part_pages);
        let end = end.min(self.end.load(Ordering::Relaxed));
        let next = self.next[part].load(ORDER);
        let (mut first, mut wrapped) = (next, false);
        loop {
            if first + pages > end {
                if wrapped {
                    return None;
                }
                (first, wrapped) = (start, true);
                continue;
            }
            match self.last_lent(first, pages) {
                None => {
                    self.next[part].store(first + pages, Ordering::Relaxed);
                    return Some(first);
                }
                Some(page) => first = page + 1,
            }
            if wrapped && first > next {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_cut_at_words() {
        let of =
            |first, pages| pieces(first, pages).map(|it| (it.word, it.bits)).collect::<Vec<_>>();
        assert_eq!(of(0, 1), [(0, 1)]);
        assert_eq!(of(63, 1), [(0, 1 << 63)]);
        assert_eq!(of(64, 64), [(1, u64::MAX)]);
        assert_eq!(of(62, 68), [(0, 3 << 62), (1, u64::MAX), (2, 3)]);
    }

    #[test]
    fn a_run_that_cannot_be_taken_whole_takes_nothing() {
        let lent = Lent::new(256, 1);
        assert!(lent.take(130, 1));
        assert!(!lent.take(10, 200));
        assert_eq!(lent.last_lent(0, 256), Some(130));
        lent.give_back(130, 1);
        assert!(lent.take(10, 200) && lent.last_lent(0, 10).is_none());
        assert_eq!((lent.take_free(46, 0), lent.take_free(10, 0)), (Some(210), Some(0)));
        assert_eq!(lent.take_free(1, 0), None);
    }

    #[test]
    fn pages_that_are_held_back_are_not_found_before_they_are_released() {
        let lent = Lent::with_held(200, 100);
        assert!(!lent.take(100, 1) && lent.take_free(101, 0).is_none());
        assert!(lent.lack().take() && !lent.lack().take(), "said once");
        assert_eq!(
            (lent.take_free(90, 0), lent.take_free(20, 0), lent.count()),
            (Some(0), None, 90)
        );
        lent.release(100, 64);
        assert_eq!((lent.take_free(20, 0), lent.end()), (Some(90), 164));
        assert!(!lent.hold(100, 64), "a page of it is lent");
        lent.give_back(90, 20);
        assert!(lent.hold(100, 64) && lent.end() == 100);
        assert_eq!((lent.take_free(11, 0), lent.take_free(10, 0)), (None, Some(90)));
    }

    #[test]
    #[should_panic = "two owners"]
    fn what_is_not_lent_cannot_be_given_back() {
        let lent = Lent::new(64, 1);
        assert!(lent.take(3, 2));
        lent.give_back(3, 3);
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::thread;

    use super::*;
    use crate::sync::Arc;

    /// The record of two words and a page.
    fn lent() -> Arc<Lent> {
        Arc::new(Lent::new(2 * WORD + 1, 1))
    }

    #[test]
    fn of_two_runs_that_overlap_one_is_lent() {
        for other in [(WORD - 1, 1), (WORD, 1), (WORD - 3, 4)] {
            loom::model(move || {
                let lent = lent();
                let theirs = thread::spawn({
                    let lent = Arc::clone(&lent);
                    move || lent.take(other.0, other.1)
                });
                let ours = lent.take(WORD - 2, 4);
                assert!(ours != theirs.join().unwrap());
                let (first, pages) = if ours { (WORD - 2, 4) } else { other };
                lent.give_back(first, pages);
                assert_eq!(lent.last_lent(0, 2 * WORD + 1), None);
            });
        }
    }

    #[test]
    fn a_long_run_that_is_not_lent_hides_no_free_page() {
        loom::model(|| {
            let lent = lent();
            assert!(lent.take(0, WORD - 1) && lent.take(WORD, WORD + 1));
            let failing = thread::spawn({
                let lent = Arc::clone(&lent);
                move || lent.take(WORD - 1, 2)
            });
            assert_eq!(lent.take_free(1, 0), Some(WORD - 1));
            assert!(!failing.join().unwrap());
        });
    }
}
