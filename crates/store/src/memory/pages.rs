//! The pages of a disk in memory, their locks and their loans.
//!
//! # Locks
//! Every access holds a lock for a region of 64 KiB, so a copy never sees half of another one
//! within a region, and a request that spans regions is one copy per region. Locks are striped:
//! region `n` uses lock `n % STRIPES`, each lock on cache lines of its own.
//!
//! Why a lock and not a bare copy: two hosts, or a careless one, may write a block while another
//! thread reads it, and a data race is undefined behaviour however harmless the bytes. Per-word
//! atomics would avoid the lock, at the price of a copy loop several times slower than `memcpy`; an
//! uncontended lock costs some 20 ns against the 100 ns of copying 4 KiB. The region is large
//! enough for usual requests to take one lock, and small enough for a waiter to wait only
//! microseconds.
//!
//! # Loans
//! Pages can be lent: read in place, without the lock. A write to a lent page goes to another
//! *frame*, which replaces the page's frame; the old one is free when its last loan ends. Until the
//! first such write a page is in the frame of its own number.
//!
//! ```text
//!            frames  [ one for each page .................. ][ SPARE ]
//!  table: page 3 ───────────┘ (lent, then written: now) ────────┘
//! ```
//!
//! Free frames never run out. A page needs another frame only while its own is lent, and at most
//! `SPARE` pages are lent. One more frame for each lock serves the pages whose last loan ends while
//! the lock's holder takes a frame. A loan is one contiguous piece of memory, so pages in frames
//! that are not adjacent are not lent together.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::mm::{Advice, madvise};
use tyche_block::{PAGE, StatusRun, StatusWriter};

use super::frame_table::FrameTable;
use super::mapping::Mapping;
use super::sync::{AtomicU32, Counters, Ordering};
use crate::Loan;
use crate::loan::Lender;

/// Bytes that one lock covers; a multiple of the page size.
pub(super) const REGION: usize = 64 * 1024;
/// Bytes of which a word of [`Pages::written`] tells.
const SPAN: usize = 32 * REGION;
/// Locks of a store. Two threads collide by chance once in this many accesses.
const STRIPES: usize = 1024;
/// The most pages lent at once: 64 MiB, allocated only as pages are written meanwhile.
const SPARE: usize = 16 * 1024;

/// The longest loan, in bytes, that is prefetched, which pays because its reader serves other
/// requests first. Longer loans are left to the processor's own prefetcher.
const PREFETCH_MAX: usize = 16 * 1024;

/// The longest range of which one answer tells the status, in bytes: 32 GiB, whose bits are read
/// in the time that a short read takes.
const STATUS_MAX: usize = 1 << 35;

/// A lock with two cache lines to itself, because processors prefetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Stripe(Mutex<()>);

/// See the [module](self).
pub(super) struct Pages {
    frames: Mapping<u8>,
    /// Bytes of all pages.
    len: usize,
    table: FrameTable,
    stripes: Box<[Stripe]>,
    /// A bit for each region that may have memory; changed under the region's lock. So the discard
    /// of a disk that is empty, as a new file system begins with, costs nothing.
    written: Counters,
}

/// The part of an access that lies within a page.
struct Piece {
    page: usize,
    /// The offset of the piece in the page.
    start: usize,
    len: usize,
    /// The offset of the piece in the access.
    at: usize,
}

impl Pages {
    /// Pages for `len` bytes, all zero. Reserves address space only.
    ///
    /// # Errors
    /// `FileTooLarge` for 16 TiB and more; the error of `mmap` if the address space has no such
    /// room.
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let pages = len.div_ceil(PAGE);
        if u32::try_from(pages + SPARE + STRIPES).is_err() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let table = FrameTable::new(pages, SPARE, STRIPES)?;
        Ok(Self {
            frames: Mapping::new(table.frames() * PAGE)?,
            len,
            table,
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            written: Counters::new(len.div_ceil(SPAN))?,
        })
    }

    /// The size of the disk in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Allocates the memory of all pages.
    ///
    /// # Errors
    /// The error of `madvise`.
    pub(super) fn populate(&self) -> io::Result<()> {
        if !self.frames.populate(self.len)? {
            self.touch();
        }
        self.written.iter().for_each(|word| word.store(u32::MAX, Ordering::Relaxed));
        Ok(())
    }

    /// Makes the kernel allocate each page, by writing a byte of it without changing it.
    pub(super) fn touch(&self) {
        self.modify(0, self.len, |bytes, _| {
            // The black box keeps the write from being optimized away.
            bytes[0] = std::hint::black_box(bytes[0]);
        });
    }

    /// Copies from the disk.
    pub(super) fn read(&self, offset: u64, to: &mut [u8]) {
        self.visit(offset, to.len(), |pieces| {
            for Piece { page, start, len, at } in pieces {
                // SAFETY: the piece lies within the frame of its page, which is written only with
                // the lock held.
                let from = unsafe {
                    slice::from_raw_parts(
                        self.frame(self.table.frame_of(page)).add(start).as_ptr(),
                        len,
                    )
                };
                to[at..][..len].copy_from_slice(from);
            }
        });
    }

    /// Tells which regions may have memory: [`StatusWriter`] says how.
    pub(super) fn status(&self, offset: u64, bytes: &mut [u8]) {
        let mut status = StatusWriter::new(bytes);
        let mut start = usize::try_from(offset).expect("the disk's size is a usize");
        let end = self.len.min(start.saturating_add(STATUS_MAX));
        while start < end {
            // No lock: a write that is done has set its bit, and one that is not may be later.
            let word = self.written[start / SPAN].load(Ordering::Relaxed);
            let step = if matches!(word, 0 | u32::MAX) { SPAN } else { REGION };
            let next = (start + 1).next_multiple_of(step).min(end);
            let (len, is_written) = (next - start, word >> (start / REGION % 32) & 1 != 0);
            let run = if is_written { StatusRun::data } else { StatusRun::hole };
            if !status.push(run(len as u64)) {
                return;
            }
            start = next;
        }
    }

    /// Copies to the disk.
    pub(super) fn write(&self, offset: u64, from: &[u8]) {
        self.modify(offset, from.len(), |bytes, at| {
            bytes.copy_from_slice(&from[at..][..bytes.len()]);
        });
    }

    /// Fills with zeroes.
    pub(super) fn zero(&self, offset: u64, len: usize) {
        self.modify(offset, len, |bytes, _| bytes.fill(0));
    }

    /// Fills with zeroes. Gives the memory of whole regions and pages back where possible.
    pub(super) fn discard(&self, offset: u64, len: usize) {
        let mut start = usize::try_from(offset).expect("the disk's size is a usize");
        let end = start + len;
        while start < end {
            let next = (start + 1).next_multiple_of(SPAN).min(end);
            // No lock: of a write that is not done yet the discard may be before or after.
            if self.written[start / SPAN].load(Ordering::Relaxed) != 0 {
                self.visit(start as u64, next - start, |pieces| self.discard_region(pieces));
            }
            start = next;
        }
    }

    fn discard_region(&self, pieces: Pieces) {
        let (word, bit) = self.written(&pieces);
        if self.release_region(&pieces) {
            word.fetch_and(!bit, Ordering::Relaxed);
            return;
        }
        for piece in pieces {
            if !self.release_page(&piece) {
                self.writable(&piece).fill(0);
            }
        }
    }

    /// The word and the bit of the region of these pieces.
    fn written(&self, pieces: &Pieces) -> (&AtomicU32, u32) {
        let region = pieces.now / REGION;
        (&self.written[region / 32], 1 << (region % 32))
    }

    /// Gives the memory of a region back to the kernel, after which it reads as zeroes. False if
    /// the region is not whole, not all in its own frames, or lent.
    fn release_region(&self, pieces: &Pieces) -> bool {
        let own = |piece: &Piece| {
            self.is_releasable(piece) && self.table.frame_of(piece.page) == piece.page
        };
        let first = pieces.now / PAGE;
        pieces.clone().count() == REGION / PAGE
            && pieces.clone().all(|piece| own(&piece))
            && self.release(first..first + REGION / PAGE)
    }

    /// Gives the memory of a page back, whatever frame it is in.
    fn release_page(&self, piece: &Piece) -> bool {
        let frame = self.table.frame_of(piece.page);
        self.is_releasable(piece) && self.release(frame..frame + 1)
    }

    /// Whether the piece is a whole page that is not lent.
    fn is_releasable(&self, piece: &Piece) -> bool {
        piece.len == PAGE && !self.table.is_lent(self.table.frame_of(piece.page))
    }

    /// Gives the memory of frames back to the kernel. They must not be lent, and the caller must
    /// hold the lock of their pages' region.
    fn release(&self, frames: Range<usize>) -> bool {
        let (start, len) = (self.frame(frames.start), frames.len() * PAGE);
        // SAFETY: whole pages of a private anonymous mapping that nobody reads: they are not lent,
        // and we hold the lock.
        unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontNeed) }.is_ok()
    }

    /// Lends the current content in place; `None` if its frames are not adjacent, or if too many
    /// pages are lent.
    pub(super) fn lend(self: &Arc<Self>, offset: u64, len: usize) -> Option<Loan> {
        let mut lent: Option<Range<usize>> = None;
        let mut refused = false;
        self.visit(offset, len, |pieces| {
            for piece in pieces {
                let frame = self.table.frame_of(piece.page);
                let frames = lent.get_or_insert(frame..frame);
                refused = refused || frame != frames.end || !self.table.lend(frame);
                frames.end += usize::from(!refused);
            }
        });
        let frames = lent?;
        if refused {
            self.table.end_loans(frames);
            return None;
        }
        // SAFETY: within the frames, which are lent: writes to their pages go to other frames.
        let loan = unsafe {
            let start = self.frame(frames.start).add(offset as usize % PAGE);
            Loan::new(Arc::clone(self) as Arc<dyn Lender>, start, len)
        };
        if len <= PREFETCH_MAX {
            prefetch(&loan);
        }
        Some(loan)
    }

    /// Calls `visit` for each region of the `len` bytes at `offset`, with the region's pieces and
    /// under its lock.
    fn visit(&self, offset: u64, len: usize, mut visit: impl FnMut(Pieces)) {
        let start = usize::try_from(offset).expect("the disk's size is a usize");
        assert!(len <= self.len && start <= self.len - len, "checked by the queue");
        let mut done = 0;
        while done < len {
            let at = start + done;
            let next = (REGION - at % REGION).min(len - done);
            let stripe = &self.stripes[at / REGION % STRIPES].0;
            // A panic in between leaves bytes half copied at worst, so poison is ignored.
            let _guard = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            visit(Pieces { begin: start, now: at, end: at + next });
            done += next;
        }
    }

    /// Calls `change` with the bytes of each piece and their offset in the access.
    fn modify(&self, offset: u64, len: usize, mut change: impl FnMut(&mut [u8], usize)) {
        self.visit(offset, len, |pieces| {
            let (word, bit) = self.written(&pieces);
            // Mostly set already, and then the word stays in the caches of other processors.
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
            pieces.for_each(|piece| change(self.writable(&piece), piece.at));
        });
    }

    /// The bytes of a piece, for writing while the lock of its region is held.
    #[expect(clippy::mut_from_ref, reason = "the lock makes it exclusive")]
    fn writable(&self, piece: &Piece) -> &mut [u8] {
        let mut frame = self.table.frame_of(piece.page);
        if self.table.is_lent(frame) {
            frame = self.move_page(piece, frame);
        }
        // SAFETY: within the frame, which is not lent; others touch it only with the lock.
        unsafe { slice::from_raw_parts_mut(self.frame(frame).add(piece.start).as_ptr(), piece.len) }
    }

    /// Moves a lent page to another frame, and copies the bytes that the piece does not overwrite.
    #[cold]
    fn move_page(&self, piece: &Piece, from: usize) -> usize {
        let to = self.table.take();
        if piece.len < PAGE {
            // SAFETY: two different frames; the one is not written while lent, the other is not
            // shared yet.
            unsafe { self.frame(to).copy_from_nonoverlapping(self.frame(from), PAGE) };
        }
        self.table.move_page(piece.page, from, to);
        to
    }

    /// The address of a frame.
    fn frame(&self, frame: usize) -> NonNull<u8> {
        debug_assert!(frame < self.table.frames(), "frame {frame} of {}", self.table.frames());
        // SAFETY: within the mapping, which has room for all frames.
        unsafe { self.frames.base().add(frame * PAGE) }
    }
}

impl Lender for Pages {
    fn give_back(&self, start: NonNull<u8>, len: usize) {
        let offset = start.as_ptr().addr() - self.frame(0).as_ptr().addr();
        self.table.end_loans(offset / PAGE..(offset + len).div_ceil(PAGE));
    }
}

/// Prefetches bytes that will be read soon.
fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a hint; it reads nothing, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// The pieces of a range, page by page.
#[derive(Clone)]
struct Pieces {
    /// The start of the access, the current position and the end, in bytes of the disk.
    begin: usize,
    now: usize,
    end: usize,
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let now = self.now;
        let len = (PAGE - now % PAGE).min(self.end - now);
        self.now += len;
        (len > 0).then(|| Piece { page: now / PAGE, start: now % PAGE, len, at: now - self.begin })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use tyche_block::status_runs;

    use super::*;

    const LEN: usize = 4 * REGION;

    fn pages() -> Arc<Pages> {
        Arc::new(Pages::new(LEN).unwrap())
    }

    #[test]
    fn what_was_never_written_is_discarded_at_once() {
        let pages = Pages::new(1 << 40).unwrap();
        let (near, far) = (3 * REGION as u64 + 7, (1 << 40) - 4096);
        pages.write(near, &[1; 100]);
        pages.write(far, &[2; 4096]);
        let start = std::time::Instant::now();
        pages.discard(0, 1 << 40);
        // A lock and a system call for each region take half a minute.
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
        assert_eq!(content(&pages, near as usize, 100), [0; 100]);
        assert_eq!(content(&pages, far as usize, 4096), [0; 4096]);
        pages.write(near, &[3; 100]);
        pages.discard(near, 50);
        assert_eq!(content(&pages, near as usize + 49, 2), [0, 3], "a part of a page");
        pages.discard(0, 1 << 40);
        assert_eq!(content(&pages, near as usize, 100), [0; 100], "written anew");
    }

    #[test]
    fn what_was_written_and_not_discarded_is_no_hole() {
        let pages = Pages::new(1 << 40).unwrap();
        let runs = |offset: usize| {
            let mut bytes = [0; PAGE];
            pages.status(offset as u64, &mut bytes);
            status_runs(&bytes, offset as u64, 512).unwrap().collect::<Vec<_>>()
        };
        let (region, max) = (REGION as u64, STATUS_MAX as u64);
        assert_eq!(runs(512), [StatusRun::hole(max)]);
        pages.write(3 * region + 512, &[1; 512]);
        let data = StatusRun::data(region);
        assert_eq!(runs(0), [StatusRun::hole(3 * region), data, StatusRun::hole(max - 4 * region)]);
        assert_eq!(runs(3 * REGION + 4096)[0], StatusRun::data(region - 4096));
        assert_eq!(runs((1 << 40) - 512), [StatusRun::hole(512)]);
        pages.discard(3 * region, REGION);
        assert_eq!(runs(0), [StatusRun::hole(max)]);
        for index in 0..600 {
            pages.write(2 * index * region, &[1; 512]);
        }
        assert_eq!(runs(0).len(), PAGE / 8, "and no more than there is room for");
    }

    fn content(pages: &Pages, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xEE; len];
        pages.read(offset as u64, &mut bytes);
        bytes
    }

    /// Pages that are resident.
    fn resident(pages: &Pages) -> usize {
        let mut given = vec![0_u8; LEN / PAGE];
        let base = pages.frame(0).as_ptr().cast();
        // SAFETY: the range is mapped, and `given` has a byte for each page of it.
        let result = unsafe { libc::mincore(base, LEN, given.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        given.iter().filter(|&&page| page & 1 != 0).count()
    }

    #[test]
    fn all_memory_is_allocated_and_written_data_stay() {
        let ways: [fn(&Pages); 2] = [|pages| pages.populate().unwrap(), Pages::touch];
        for populate in ways {
            let pages = pages();
            pages.write(8192, &[7; PAGE]);
            populate(&pages);
            assert_eq!(resident(&pages), LEN / PAGE);
            let wanted = [[0; PAGE], [7; PAGE], [0; PAGE]].concat();
            assert!(content(&pages, 4096, 3 * PAGE) == wanted);
        }
    }

    #[test]
    fn discarded_regions_are_given_back_unless_they_are_lent() {
        let pages = pages();
        pages.touch();
        pages.discard(0, REGION);
        assert_eq!(resident(&pages), (LEN - REGION) / PAGE);
        pages.write(REGION as u64, &[3; PAGE]);
        let loan = pages.lend(REGION as u64, PAGE).unwrap();
        pages.discard(REGION as u64, REGION);
        assert_eq!(*loan, [3; PAGE]);
        assert_eq!(resident(&pages), (LEN - 2 * REGION) / PAGE + 1, "all but what is lent");
        assert!(content(&pages, REGION, REGION) == vec![0; REGION]);
    }

    #[test]
    fn a_loan_stays_as_it_was_whatever_is_written() {
        let changes: [fn(&Pages); 4] = [
            |pages| pages.write(PAGE as u64, &[2; 2 * PAGE]),
            |pages| pages.write(PAGE as u64 + 512, &[2; 512]),
            |pages| pages.zero(0, LEN),
            |pages| pages.discard(PAGE as u64 + 1024, PAGE),
        ];
        for change in changes {
            let (pages, plain) = (pages(), pages());
            let before: Vec<u8> = (0..LEN).map(|at| (at / 512) as u8).collect();
            for pages in [&pages, &plain] {
                pages.write(0, &before);
            }
            let loan = pages.lend(512, 3 * PAGE).unwrap();
            assert!(*loan == before[512..512 + 3 * PAGE]);
            for _ in 0..2 {
                change(&pages);
                change(&plain);
                assert!(*loan == before[512..512 + 3 * PAGE]);
                assert!(content(&pages, 0, LEN) == content(&plain, 0, LEN));
            }
        }
    }

    #[test]
    fn frames_are_used_again_and_pages_that_have_moved_are_lent_alone() {
        let pages = pages();
        for round in 0..100_u8 {
            let loan = pages.lend(0, PAGE).unwrap();
            pages.write(0, &[round; PAGE]);
            assert_eq!(loan[0], round.saturating_sub(1));
        }
        assert_eq!((pages.table.unused(), pages.table.used()), (LEN / PAGE + 1, 1));
        assert_eq!(pages.table.frame_of(0), 0, "after an even number of moves");
        pages.write(PAGE as u64, &[1; PAGE]);
        let loan = pages.lend(0, 2 * PAGE).unwrap();
        pages.write(0, &[99; PAGE]);
        drop(loan);
        assert!(pages.lend(0, 2 * PAGE).is_none(), "not one piece of memory");
        assert_eq!(pages.lend(0, PAGE).unwrap()[..], [99; PAGE]);
        assert_eq!(pages.table.lent(), 0);
    }

    #[test]
    fn no_more_is_lent_than_there_are_frames_to_write_to() {
        let pages = pages();
        let mut loans = Vec::new();
        let mut round = 0_u8;
        while let Some(loan) = pages.lend(0, PAGE) {
            loans.push((round, loan));
            round = round.wrapping_add(1);
            pages.write(0, &[round; PAGE]);
        }
        assert_eq!(pages.table.lent(), SPARE);
        assert_eq!(pages.table.unused(), LEN / PAGE + SPARE);
        assert!(loans.iter().all(|(round, loan)| loan.iter().all(|byte| byte == round)));
        pages.write(0, &[7; PAGE]);
        drop(loans);
        assert_eq!(pages.table.lent(), 0);
        assert_eq!(pages.table.used(), SPARE);
        assert!((0..pages.table.frames()).all(|frame| !pages.table.is_lent(frame)));
        assert_eq!(pages.lend(0, PAGE).unwrap()[..], [7; PAGE]);
    }

    #[test]
    fn threads_that_write_and_lend_the_same_pages_never_see_half_of_a_write() {
        let (pages, start) = (pages(), Barrier::new(4));
        let page_of = |round: usize, thread: usize| (round * 7 + thread) % 5;
        thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn({
                    let (pages, start) = (&pages, &start);
                    move || {
                        start.wait();
                        for round in 0..20_000 {
                            let bytes = [(round + thread) as u8; PAGE];
                            pages.write((page_of(round, thread) * PAGE) as u64, &bytes);
                        }
                    }
                });
                scope.spawn({
                    let (pages, start) = (&pages, &start);
                    move || {
                        start.wait();
                        let mut held = Vec::new();
                        for round in 0..20_000 {
                            let offset = (page_of(round, thread) * PAGE) as u64;
                            let loan = pages.lend(offset, PAGE).unwrap();
                            let byte = loan[0];
                            held.push((byte, loan));
                            if held.len() > 8 {
                                let (byte, loan) = held.swap_remove(round % 8);
                                assert!(loan.iter().all(|&it| it == byte), "it has changed");
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(pages.table.lent(), 0);
        // Every frame but those of the pages is free.
        assert_eq!(pages.table.used(), pages.table.unused() - LEN / PAGE);
    }
}
