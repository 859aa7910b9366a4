//! Requests in flight: a table of fixed size, and the waits for a slot or for memory.
//!
//! An attachment stops reading from its client while the table is full or the arena has no pages;
//! that is its back-pressure. Slots and pages are freed as the disk answers, and the disk answers
//! everything within its own limits (`--ctrl-loss-tmo`), so the waits are bounded. They also end
//! when the [`Closed`] flag is raised.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tyche_block::{Arena, Disk, Extent, PAGE};

use crate::Error;

/// The interval at which a waiting thread checks [`Closed`], and so the longest delay that the
/// check adds to a teardown. The flag is rarely raised during a wait.
pub(crate) const CLOSED_CHECK: Duration = Duration::from_millis(50);

/// The longest request takes one of so many parts of what an arena keeps.
const PARTS: usize = 4;

/// A flag raised once, at the end of an attachment or a connection: all waits end.
#[derive(Debug, Default)]
pub(crate) struct Closed(AtomicBool);

impl Closed {
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Takes `len` bytes from `arena`, waiting for pages; `None` only once `closed` is raised.
///
/// # Panics
/// If the arena may never have `len` bytes: the callers refuse such requests before.
pub(crate) fn alloc(arena: &Arena, len: usize, closed: &Closed) -> Option<Extent> {
    assert!(len <= arena.kept() * PAGE, "an extent larger than what its arena keeps");
    loop {
        if let Some(extent) = arena.alloc(len) {
            return Some(extent);
        }
        if closed.is_raised() {
            return None;
        }
        if let Some(extent) = arena.alloc_timeout(len, CLOSED_CHECK) {
            return Some(extent);
        }
    }
}

/// The longest read or write of an attachment, in bytes: a power of two, at most `limit` and at
/// most a quarter of what the arena keeps, so that several fit when there is no more memory. Zero
/// if a quarter is less than a page.
pub(crate) fn io_max(arena: &Arena, limit: u32) -> u32 {
    match u32::try_from(arena.kept() / PARTS * PAGE) {
        Ok(0) => 0,
        Ok(bytes) => (1 << bytes.ilog2()).min(limit),
        Err(_) => limit,
    }
}

/// The longest read or write that can be served, in bytes: up to all that the arena keeps.
pub(crate) fn accepted_max(arena: &Arena, limit: u32) -> u32 {
    u32::try_from(arena.kept() * PAGE).map_or(limit, |bytes| bytes.min(limit))
}

/// As [`io_max`], of an attachment that serves nothing without a page.
///
/// # Errors
/// The arena is too small; `action` is for the message.
pub(crate) fn io_max_of(arena: &Arena, limit: u32, action: &str) -> Result<u32, Error> {
    match io_max(arena, limit) {
        0 => {
            Err(Error::new(action, ErrorKind::InvalidInput)
                .remedy("use an arena of 4 pages or more"))
        }
        bytes => Ok(bytes),
    }
}

/// Has each queue of a disk keep enough memory for requests of `bytes`, which a device may make
/// that a former process has made from it.
///
/// # Errors
/// So much the arenas can't have.
pub(crate) fn keep(disk: &Arc<dyn Disk>, bytes: u64) -> Result<(), ErrorKind> {
    let disks = tyche_block::queues(disk);
    let bytes = usize::try_from(bytes).map_err(|_| ErrorKind::InvalidInput)?;
    // Limits of requests are powers of two.
    let pages = bytes.next_power_of_two().div_ceil(PAGE) * PARTS;
    if disks.iter().any(|disk| disk.arena().pages() < pages) {
        return Err(ErrorKind::InvalidInput);
    }
    disks.iter().for_each(|disk| disk.arena().keep(pages));
    Ok(())
}

/// A table of requests in flight; the index is the request's token.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    table: Mutex<Table<T>>,
    freed: Condvar,
    size: usize,
}

#[derive(Debug)]
struct Table<T> {
    entries: Box<[Option<T>]>,
    /// Free indices. A slot whose entry was taken and not freed yet has no entry and is not here.
    free: Vec<usize>,
    waiting: usize,
}

impl<T> Slots<T> {
    pub(crate) fn new(size: usize) -> Self {
        let entries = (0..size).map(|_| None).collect();
        let free = (0..size).rev().collect();
        let table = Mutex::new(Table { entries, free, waiting: 0 });
        Self { table, freed: Condvar::new(), size }
    }

    /// Puts `entry` in a free slot, waiting for one; gives it back once `closed` is raised.
    pub(crate) fn insert(&self, entry: T, closed: &Closed) -> Result<u64, T> {
        let mut table = self.lock();
        loop {
            if closed.is_raised() {
                return Err(entry);
            }
            if let Some(index) = table.free.pop() {
                table.entries[index] = Some(entry);
                return Ok(index as u64);
            }
            table = self.wait(table, CLOSED_CHECK);
        }
    }

    /// Takes the entry of a finished request. The slot stays reserved until [`free`](Self::free),
    /// so that answers not yet delivered count as in flight.
    ///
    /// # Panics
    /// If the disk answers a request twice, or one that was never made.
    pub(crate) fn take(&self, token: u64) -> T {
        let index = usize::try_from(token).expect("tokens are indices");
        self.lock().entries[index].take().expect("a disk answers each request exactly once")
    }

    /// Frees the slot of a taken entry.
    pub(crate) fn free(&self, token: u64) {
        let mut table = self.lock();
        let index = usize::try_from(token).expect("tokens are indices");
        assert!(table.entries[index].is_none(), "slot {index} is in use");
        assert!(table.free.len() < self.size, "slot {index} freed twice");
        table.free.push(index);
        if table.waiting > 0 {
            drop(table);
            self.freed.notify_all();
        }
    }

    /// Waits until nothing is in flight. Returns false if `closed` is raised or `timeout` passes
    /// first.
    pub(crate) fn wait_idle(&self, timeout: Duration, closed: &Closed) -> bool {
        let deadline = Instant::now() + timeout;
        let mut table = self.lock();
        while table.free.len() < self.size {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || closed.is_raised() {
                return false;
            }
            table = self.wait(table, left.min(CLOSED_CHECK));
        }
        true
    }

    fn wait<'a>(
        &self,
        mut table: MutexGuard<'a, Table<T>>,
        limit: Duration,
    ) -> MutexGuard<'a, Table<T>> {
        table.waiting += 1;
        let (mut table, _) =
            self.freed.wait_timeout(table, limit).unwrap_or_else(PoisonError::into_inner);
        table.waiting -= 1;
        table
    }

    fn lock(&self) -> MutexGuard<'_, Table<T>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tyche_block::ArenaSize;

    use super::*;

    #[test]
    fn a_full_table_waits_for_a_freed_slot_not_a_taken_one() {
        let slots = Slots::new(1);
        let closed = Closed::default();
        let token = slots.insert('a', &closed).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| slots.insert('b', &closed));
            assert_eq!(slots.take(token), 'a');
            let now = Duration::ZERO;
            assert!(!slots.wait_idle(now, &closed), "taken is still in flight");
            slots.free(token);
            assert_eq!(waiter.join().unwrap(), Ok(0));
        });
        assert!(!slots.wait_idle(Duration::ZERO, &closed));
    }

    #[test]
    fn a_request_takes_a_quarter_of_the_arena_at_most() {
        let io_max = |pages| io_max(&Arena::new(pages), 1 << 20);
        assert_eq!([io_max(3), io_max(4), io_max(8)], [0, 4096, 8192]);
        assert_eq!([io_max(1023), io_max(1024), io_max(1 << 16)], [512 << 10, 1 << 20, 1 << 20]);
    }

    #[test]
    fn requests_are_bounded_by_what_is_kept_and_all_end_though_nobody_adds_memory() {
        let arena = Arena::elastic(ArenaSize { all: 4096, kept: 64 }).unwrap();
        assert_eq!(io_max(&arena, 1 << 20), 64 << 10);
        let closed = Closed::default();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (arena, closed) = (&arena, &closed);
                scope.spawn(move || {
                    for round in 0..500 {
                        let len = if thread % 2 == 0 { 64 << 10 } else { 4096 << (round % 4) };
                        drop(alloc(arena, len, closed).unwrap());
                    }
                });
            }
        });
        assert!(arena.claim(0, 64 * PAGE).is_some() && arena.claim(64, 1).is_none());
    }

    #[test]
    fn raising_closed_ends_every_wait() {
        let slots = Slots::new(1);
        let arena = Arena::new(1);
        let closed = Closed::default();
        let _taken = arena.alloc(1).unwrap();
        slots.insert('a', &closed).unwrap();
        std::thread::scope(|scope| {
            let full = scope.spawn(|| slots.insert('b', &closed));
            let empty = scope.spawn(|| alloc(&arena, 1, &closed).is_none());
            let idle = scope.spawn(|| slots.wait_idle(Duration::from_secs(60), &closed));
            closed.raise();
            assert_eq!(full.join().unwrap(), Err('b'));
            assert!(empty.join().unwrap());
            assert!(!idle.join().unwrap());
        });
    }

    #[test]
    #[should_panic(expected = "exactly once")]
    fn a_second_answer_is_a_bug_of_the_disk() {
        let slots = Slots::new(2);
        let token = slots.insert((), &Closed::default()).unwrap();
        slots.take(token);
        slots.take(token);
    }
}
