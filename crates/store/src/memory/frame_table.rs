//! The table of a disk's frames: the frame of each page, and the loans of each frame. It works with
//! their numbers alone and does not touch the memory.
//!
//! Each page is at first in the frame of its own number. A write to a lent page moves the page to a
//! free frame; the old frame becomes free when its last loan ends.

use std::io;
use std::ops::Range;
use std::sync::PoisonError;

use super::sync::{AtomicUsize, Counters, Mutex, MutexGuard, Ordering};

/// Flag in a frame's loan count: its page has moved away, so the frame is free after its last loan.
const LEFT: u32 = 1 << 31;

/// See the [module](self).
pub(super) struct FrameTable {
    /// By page: the number of its frame plus 1; 0 for the frame of the page's own number. Guarded
    /// by the lock of the page's region.
    frame_of: Counters,
    /// By frame: the number of its loans, and [`LEFT`]. A count grows only under the lock of the
    /// region whose page is in the frame.
    loans: Counters,
    /// Pages lent now.
    lent: AtomicUsize,
    /// The most pages lent at once.
    lent_max: usize,
    free: Mutex<Free>,
}

/// Frames without a page.
struct Free {
    /// Frames that have never been used.
    unused: Range<usize>,
    /// Frames that have been used before.
    used: Vec<usize>,
}

impl FrameTable {
    /// A table for `pages` pages, guarded by `locks` locks. At most `lent_max` pages are lent at
    /// once.
    ///
    /// # Errors
    /// The error of `mmap` if the address space has no room for it.
    pub(super) fn new(pages: usize, lent_max: usize, locks: usize) -> io::Result<Self> {
        // Besides the frames of the pages: one for each lent page, and one for each lock, whose
        // holder may take a frame for a page while the last loan of the page ends.
        let frames = pages + lent_max + locks;
        Ok(Self {
            frame_of: Counters::new(pages)?,
            loans: Counters::new(frames)?,
            lent: AtomicUsize::new(0),
            lent_max,
            free: Mutex::new(Free { unused: pages..frames, used: Vec::new() }),
        })
    }

    /// The number of frames.
    pub(super) fn frames(&self) -> usize {
        self.loans.len()
    }

    /// The frame of a page; changes under the lock of its region.
    pub(super) fn frame_of(&self, page: usize) -> usize {
        match self.frame_of[page].load(Ordering::Relaxed) {
            0 => page,
            frame => frame as usize - 1,
        }
    }

    /// Whether the frame of a page is lent; under the lock of the page's region. If it is not, all
    /// reads through earlier loans have happened.
    pub(super) fn is_lent(&self, frame: usize) -> bool {
        self.loans[frame].load(Ordering::Acquire) != 0
    }

    /// Lends the frame of a page, under the lock of its region; false at the limit.
    pub(super) fn lend(&self, frame: usize) -> bool {
        if self.lent.fetch_add(1, Ordering::AcqRel) >= self.lent_max {
            self.lent.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        self.loans[frame].fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Takes a free frame.
    pub(super) fn take(&self) -> usize {
        self.free().take()
    }

    /// Moves a page from a frame that was lent to one that was [taken](Self::take), under the lock
    /// of its region. After this, the old frame is read through its loans only.
    pub(super) fn move_page(&self, page: usize, from: usize, to: usize) {
        self.frame_of[page].store(to as u32 + 1, Ordering::Relaxed);
        if self.loans[from].fetch_or(LEFT, Ordering::AcqRel) == 0 {
            self.vacate(from);
        }
    }

    /// Ends a loan of each of these frames.
    pub(super) fn end_loans(&self, frames: Range<usize>) {
        let pages = frames.len();
        for frame in frames {
            // The loan's reads happen before later writes to the frame.
            if self.loans[frame].fetch_sub(1, Ordering::AcqRel) == LEFT + 1 {
                self.vacate(frame);
            }
        }
        // Last, so that the loans never need more frames than there are.
        self.lent.fetch_sub(pages, Ordering::AcqRel);
    }

    /// Frees a frame that has neither a page nor a loan.
    fn vacate(&self, frame: usize) {
        self.loans[frame].store(0, Ordering::Relaxed);
        self.free().used.push(frame);
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Free {
    fn take(&mut self) -> usize {
        self.used.pop().or_else(|| self.unused.next()).expect("a frame for every loan and lock")
    }
}

#[cfg(test)]
impl FrameTable {
    /// Pages lent now.
    pub(super) fn lent(&self) -> usize {
        self.lent.load(Ordering::Relaxed)
    }

    /// The first frame that has never been used.
    pub(super) fn unused(&self) -> usize {
        self.free().unused.start
    }

    /// Free frames that have been used before.
    pub(super) fn used(&self) -> usize {
        self.free().used.len()
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// A disk with one page in each region. Its frames are loom's cells, which report a write
    /// during a read.
    struct Disk {
        table: FrameTable,
        locks: Vec<Mutex<()>>,
        frames: Vec<UnsafeCell<()>>,
    }

    impl Disk {
        fn new(pages: usize, lent_max: usize) -> Arc<Self> {
            let table = FrameTable::new(pages, lent_max, pages).unwrap();
            let frames = (0..table.frames()).map(|_| UnsafeCell::new(())).collect();
            Arc::new(Self { table, locks: (0..pages).map(|_| Mutex::default()).collect(), frames })
        }

        /// Writes a part of a page, as `Pages` does.
        fn write(&self, page: usize) {
            let _guard = self.locks[page].lock().unwrap();
            let mut frame = self.table.frame_of(page);
            if self.table.is_lent(frame) {
                let to = self.table.take();
                drop((self.frames[frame].get(), self.frames[to].get_mut()));
                self.table.move_page(page, frame, to);
                frame = to;
            }
            drop(self.frames[frame].get_mut());
        }

        /// Lends a page, unless too much is lent, and reads it after `meanwhile`, without the lock.
        fn read(&self, page: usize, meanwhile: impl FnOnce(&Self)) {
            let guard = self.locks[page].lock().unwrap();
            let frame = self.table.frame_of(page);
            let is_lent = self.table.lend(frame);
            drop(guard);
            if is_lent {
                meanwhile(self);
                let reading = self.frames[frame].get();
                thread::yield_now();
                drop(reading);
                self.table.end_loans(frame..frame + 1);
            }
        }

        /// Checks that each frame has a page or is free, and that none is listed twice.
        fn check(&self) {
            let (pages, frames) = (self.locks.len(), self.table.frames());
            assert_eq!(self.table.lent(), 0);
            let taken = (pages..frames).map(|_| self.table.take());
            let mut all: Vec<_> =
                (0..pages).map(|page| self.table.frame_of(page)).chain(taken).collect();
            all.sort_unstable();
            assert_eq!(all, (0..frames).collect::<Vec<_>>());
        }
    }

    /// Runs `threads` at the same time, on a disk of `pages` pages.
    fn at_once(pages: usize, lent_max: usize, threads: &'static [fn(&Disk)]) {
        loom::model(move || {
            let disk = Disk::new(pages, lent_max);
            let spawn = |thread: &'static fn(&Disk)| {
                let disk = Arc::clone(&disk);
                thread::spawn(move || thread(&disk))
            };
            let spawned: Vec<_> = threads[1..].iter().map(spawn).collect();
            threads[0](&disk);
            for thread in spawned {
                thread.join().unwrap();
            }
            disk.check();
        });
    }

    fn read(disk: &Disk) {
        disk.read(0, |_| {});
    }

    fn write(disk: &Disk) {
        disk.write(0);
    }

    fn write_twice(disk: &Disk) {
        write(disk);
        write(disk);
    }

    #[test]
    fn a_lent_frame_is_not_written() {
        fn read_twice(disk: &Disk) {
            read(disk);
            read(disk);
        }
        at_once(1, 1, &[read_twice, write_twice]);
    }

    #[test]
    fn a_frame_is_used_again_after_the_last_of_two_loans() {
        at_once(1, 2, &[write_twice, read, read]);
    }

    #[test]
    fn a_frame_is_used_again_for_another_region() {
        fn move_other(disk: &Disk) {
            disk.read(1, |disk| disk.write(1));
        }
        at_once(2, 2, &[write, read, move_other]);
    }

    #[test]
    fn free_frames_do_not_run_out() {
        loom::model(|| {
            let disk = Disk::new(1, 1);
            let mut ending = Vec::new();
            for _ in 0..3 {
                let frame = disk.table.frame_of(0);
                if disk.table.lend(frame) {
                    disk.write(0);
                    let disk = Arc::clone(&disk);
                    ending.push(thread::spawn(move || disk.table.end_loans(frame..frame + 1)));
                }
                thread::yield_now();
            }
            for thread in ending {
                thread.join().unwrap();
            }
            disk.check();
        });
    }
}
