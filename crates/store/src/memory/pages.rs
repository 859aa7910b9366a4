//! The pages of a disk in memory, and who may touch them when.
//!
//! # Locks
//! Every access happens under a lock that stands for a region of 64 KiB, so a copy never sees half
//! of another one within a region, and a request that spans regions is one copy per region. Locks
//! are striped: region `n` uses lock `n % STRIPES`, each lock on cache lines of its own.
//!
//! Why a lock and not a bare copy: two hosts, or a careless one, may write what another thread
//! reads, and a data race is undefined behaviour however harmless the bytes. Per-word atomics
//! would avoid the lock, at the price of a copy loop several times slower than `memcpy`; an
//! uncontended lock costs some 20 ns against the 100 ns of copying 4 KiB. The region is as
//! large as it is so that usual requests take one lock, and as small as it is so that a
//! waiter waits for microseconds.
//!
//! # Loans
//! Pages can be lent: read where they lie, without the lock. Who writes to a page that is lent
//! writes to another *frame*, which takes the page's place; the old one is free when the last loan
//! of it ends. A page is in the frame of its own number until that happens for the first time.
//!
//! ```text
//!            frames  [ one for each page .................. ][ SPARE ]
//!  table: page 3 ───────────┘ (lent, then written: now) ────────┘
//! ```
//!
//! Frames to write to never run out: a page needs another one while the one that it is in is lent,
//! no more than `SPARE` are lent, and of those whose loans end meanwhile there are no more at a
//! time than locks.
//! A loan is one piece of memory, so pages whose frames do not follow each other are not lent
//! together.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{Advice, madvise};
use tyche_block::PAGE;

use super::mapping::Mapping;
use crate::Loan;
use crate::loan::Lender;

/// Bytes that one lock covers at a time; a multiple of the page size.
pub(super) const REGION: usize = 64 * 1024;
/// Locks of a store. Two threads meet by accident once in this many accesses.
const STRIPES: usize = 1024;
/// Pages lent at once, at most: 64 MiB, which are taken from the kernel only as they are written to
/// meanwhile.
const SPARE: usize = 16 * 1024;
/// Frames beyond those of the pages: for each that is lent, and each whose loan ends while somebody
/// who holds a lock takes another for it.
const EXTRA: usize = SPARE + STRIPES;

/// Loans of up to so many bytes are brought into the cache at once: their reader is about to deal
/// with other requests first. In longer ones the processor sees by itself what comes next.
const PREFETCH_MAX: usize = 16 * 1024;

/// In a frame's count of loans: a page's content has moved on, the frame is free when it is given
/// back.
const LEFT: u32 = 1 << 31;

/// A lock that shares its cache lines (two, as they are prefetched in pairs) with nothing.
#[derive(Default)]
#[repr(align(128))]
struct Stripe(Mutex<()>);

/// See the module.
pub(super) struct Pages {
    frames: Mapping<u8>,
    /// Bytes of all pages.
    len: usize,
    /// By page, under its region's lock: the frame that it is in, counted from 1; 0 for its own.
    table: Mapping<AtomicU32>,
    /// By frame: loans that it is part of, and [`LEFT`]. Grows only under the lock of the region
    /// whose page is in the frame.
    loans: Mapping<AtomicU32>,
    /// Pages lent.
    lent: AtomicUsize,
    free: Mutex<Free>,
    stripes: Box<[Stripe]>,
}

/// Frames without a page.
struct Free {
    /// Never used so far.
    unused: Range<usize>,
    used: Vec<usize>,
}

/// The part of an access that lies within a page.
struct Piece {
    page: usize,
    /// Where it begins in the page.
    start: usize,
    len: usize,
    /// Where it begins in the access.
    at: usize,
}

impl Pages {
    /// Pages for `len` bytes, all zero. Takes address space only.
    ///
    /// # Errors
    /// `FileTooLarge` for 16 TiB and more; what `mmap` says if the address space has no such room.
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let pages = len.div_ceil(PAGE);
        if u32::try_from(pages + EXTRA).is_err() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(Self {
            frames: Mapping::new((pages + EXTRA) * PAGE)?,
            len,
            table: Mapping::new(pages)?,
            loans: Mapping::new(pages + EXTRA)?,
            lent: AtomicUsize::new(0),
            free: Mutex::new(Free { unused: pages..pages + EXTRA, used: Vec::new() }),
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
        })
    }

    /// Bytes of the disk.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Takes the memory of all pages from the kernel.
    ///
    /// # Errors
    /// What `madvise` says.
    pub(super) fn populate(&self) -> io::Result<()> {
        if !self.frames.populate(self.len)? {
            self.touch();
        }
        Ok(())
    }

    /// Writes a byte of each page without changing it.
    pub(super) fn touch(&self) {
        self.modify(0, self.len, |bytes, _| {
            // Not optimized away, for nobody may assume what a black box does.
            bytes[0] = std::hint::black_box(bytes[0]);
        });
    }

    /// Copies from the disk.
    pub(super) fn read(&self, offset: u64, to: &mut [u8]) {
        self.visit(offset, to.len(), |pieces| {
            for Piece { page, start, len, at } in pieces {
                // SAFETY: the piece lies within the frame of its page, to which nobody writes
                // without the lock.
                let from = unsafe {
                    slice::from_raw_parts(self.frame(self.frame_of(page)).add(start).as_ptr(), len)
                };
                to[at..][..len].copy_from_slice(from);
            }
        });
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

    /// The same, giving the memory of whole regions back to the kernel if that can be.
    pub(super) fn discard(&self, offset: u64, len: usize) {
        self.visit(offset, len, |pieces| {
            if !self.release_region(&pieces) {
                for piece in pieces {
                    if !self.release_page(&piece) {
                        self.writable(&piece).fill(0);
                    }
                }
            }
        });
    }

    /// Gives the memory of a region back to the kernel, which makes it read as zeroes; false if it
    /// is no whole one, or not all in the frames of its own, or lent.
    fn release_region(&self, pieces: &Pieces) -> bool {
        let own =
            |piece: &Piece| self.is_releasable(piece) && self.frame_of(piece.page) == piece.page;
        let first = pieces.now / PAGE;
        pieces.clone().count() == REGION / PAGE
            && pieces.clone().all(|piece| own(&piece))
            && self.release(first..first + REGION / PAGE)
    }

    /// The same for a page, whatever frame it is in.
    fn release_page(&self, piece: &Piece) -> bool {
        let frame = self.frame_of(piece.page);
        self.is_releasable(piece) && self.release(frame..frame + 1)
    }

    /// Whether the piece is all of a page, and that is not lent.
    fn is_releasable(&self, piece: &Piece) -> bool {
        let frame = self.frame_of(piece.page);
        piece.len == PAGE && self.loans[frame].load(Ordering::Acquire) == 0
    }

    /// Under the lock of their pages' region, gives the memory of frames that are not lent back.
    fn release(&self, frames: Range<usize>) -> bool {
        let (start, len) = (self.frame(frames.start), frames.len() * PAGE);
        // SAFETY: whole pages of a private anonymous mapping, at which nobody looks: they are not
        // lent, and we hold the lock.
        unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontNeed) }.is_ok()
    }

    /// What is on the disk now, where it lies; `None` if that is not one piece of memory, or too
    /// much is lent.
    pub(super) fn lend(self: &Arc<Self>, offset: u64, len: usize) -> Option<Loan> {
        let mut lent: Option<Range<usize>> = None;
        let mut refused = false;
        self.visit(offset, len, |pieces| {
            for piece in pieces {
                let frame = self.frame_of(piece.page);
                let frames = lent.get_or_insert(frame..frame);
                refused = refused || frame != frames.end || !self.may_lend();
                if !refused {
                    self.loans[frame].fetch_add(1, Ordering::Relaxed);
                    frames.end += 1;
                }
            }
        });
        let frames = lent?;
        if refused {
            self.end_loans(frames);
            return None;
        }
        // SAFETY: within the frames, which are lent: whoever writes to their pages takes others.
        let loan = unsafe {
            let start = self.frame(frames.start).add(offset as usize % PAGE);
            Loan::new(Arc::clone(self) as Arc<dyn Lender>, start, len)
        };
        if len <= PREFETCH_MAX {
            prefetch(&loan);
        }
        Some(loan)
    }

    /// Calls `visit` with the pieces of each region that `len` bytes from `offset` on touch, under
    /// the region's lock.
    fn visit(&self, offset: u64, len: usize, mut visit: impl FnMut(Pieces)) {
        let start = usize::try_from(offset).expect("the disk's size is a usize");
        assert!(len <= self.len && start <= self.len - len, "checked by the queue");
        let mut done = 0;
        while done < len {
            let at = start + done;
            let next = (REGION - at % REGION).min(len - done);
            let stripe = &self.stripes[at / REGION % STRIPES].0;
            // A panic in between leaves bytes half copied at worst, so poison means nothing.
            let _guard = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            visit(Pieces { begin: start, now: at, end: at + next });
            done += next;
        }
    }

    /// Calls `change` with the bytes of each piece, and where they begin in the access.
    fn modify(&self, offset: u64, len: usize, mut change: impl FnMut(&mut [u8], usize)) {
        self.visit(offset, len, |pieces| {
            pieces.for_each(|piece| change(self.writable(&piece), piece.at));
        });
    }

    /// The bytes of a piece, to write to while the lock of its region is held.
    #[expect(clippy::mut_from_ref, reason = "the lock makes it exclusive")]
    fn writable(&self, piece: &Piece) -> &mut [u8] {
        let mut frame = self.frame_of(piece.page);
        if self.loans[frame].load(Ordering::Acquire) != 0 {
            frame = self.move_page(piece, frame);
        }
        // SAFETY: within the frame, which is not lent; nobody else touches it without the lock.
        unsafe { slice::from_raw_parts_mut(self.frame(frame).add(piece.start).as_ptr(), piece.len) }
    }

    /// Gives a page that is lent another frame, with what the piece leaves as it was.
    #[cold]
    fn move_page(&self, piece: &Piece, from: usize) -> usize {
        let to = self.free_frames().take();
        if piece.len < PAGE {
            // SAFETY: two frames; the one is not written to while it is lent, and nobody else
            // knows of the other.
            unsafe { self.frame(to).copy_from_nonoverlapping(self.frame(from), PAGE) };
        }
        self.table[piece.page].store(to as u32 + 1, Ordering::Relaxed);
        if self.loans[from].fetch_or(LEFT, Ordering::AcqRel) == 0 {
            self.vacate(from);
        }
        to
    }

    /// A frame that no page is in, and that is not lent, can be used again.
    fn vacate(&self, frame: usize) {
        self.loans[frame].store(0, Ordering::Relaxed);
        self.free_frames().used.push(frame);
    }

    fn free_frames(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The frame that a page is in; changes under the lock of its region.
    fn frame_of(&self, page: usize) -> usize {
        match self.table[page].load(Ordering::Relaxed) {
            0 => page,
            frame => frame as usize - 1,
        }
    }

    /// Where a frame begins.
    fn frame(&self, frame: usize) -> NonNull<u8> {
        debug_assert!(frame < self.loans.len(), "frame {frame} of {}", self.loans.len());
        // SAFETY: within the mapping: there is a frame for each count of loans.
        unsafe { self.frames.base().add(frame * PAGE) }
    }

    /// Counts a page as lent, if that is not one too many.
    fn may_lend(&self) -> bool {
        let may = self.lent.fetch_add(1, Ordering::AcqRel) < SPARE;
        if !may {
            self.lent.fetch_sub(1, Ordering::AcqRel);
        }
        may
    }

    fn end_loans(&self, frames: Range<usize>) {
        let pages = frames.len();
        for frame in frames {
            // What the loan's reader has read, it has read before somebody writes there.
            if self.loans[frame].fetch_sub(1, Ordering::AcqRel) == LEFT + 1 {
                self.vacate(frame);
            }
        }
        // Last, so that what is lent never takes more frames than there are.
        self.lent.fetch_sub(pages, Ordering::AcqRel);
    }
}

impl Lender for Pages {
    fn give_back(&self, start: NonNull<u8>, len: usize) {
        let offset = start.as_ptr().addr() - self.frame(0).as_ptr().addr();
        self.end_loans(offset / PAGE..(offset + len).div_ceil(PAGE));
    }
}

impl Free {
    fn take(&mut self) -> usize {
        self.used.pop().or_else(|| self.unused.next()).expect("a frame for every loan and lock")
    }
}

/// Has the processor fetch what will soon be read, while it does other things.
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
    /// Where the access begins, and this range now and in the end, in bytes of the disk.
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

    use super::*;

    const LEN: usize = 4 * REGION;

    fn pages() -> Arc<Pages> {
        Arc::new(Pages::new(LEN).unwrap())
    }

    fn content(pages: &Pages, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xEE; len];
        pages.read(offset as u64, &mut bytes);
        bytes
    }

    /// Pages that the kernel has given.
    fn resident(pages: &Pages) -> usize {
        let mut given = vec![0_u8; LEN / PAGE];
        let base = pages.frame(0).as_ptr().cast();
        // SAFETY: the range is mapped, and `given` has a byte for each page of it.
        let result = unsafe { libc::mincore(base, LEN, given.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        given.iter().filter(|&&page| page & 1 != 0).count()
    }

    #[test]
    fn all_memory_is_taken_and_what_is_written_stays() {
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
        let free = pages.free_frames();
        assert_eq!((free.unused.start, free.used.len()), (LEN / PAGE + 1, 1));
        drop(free);
        assert_eq!(pages.frame_of(0), 0, "after an even number of moves");
        pages.write(PAGE as u64, &[1; PAGE]);
        let loan = pages.lend(0, 2 * PAGE).unwrap();
        pages.write(0, &[99; PAGE]);
        drop(loan);
        assert!(pages.lend(0, 2 * PAGE).is_none(), "not one piece of memory");
        assert_eq!(pages.lend(0, PAGE).unwrap()[..], [99; PAGE]);
        assert_eq!(pages.lent.load(Ordering::Relaxed), 0);
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
        assert_eq!(pages.lent.load(Ordering::Relaxed), SPARE);
        assert_eq!(pages.free_frames().unused.start, LEN / PAGE + SPARE);
        assert!(loans.iter().all(|(round, loan)| loan.iter().all(|byte| byte == round)));
        pages.write(0, &[7; PAGE]);
        drop(loans);
        assert_eq!(pages.lent.load(Ordering::Relaxed), 0);
        assert_eq!(pages.free_frames().used.len(), SPARE);
        assert!(pages.loans.iter().all(|loans| loans.load(Ordering::Relaxed) == 0));
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
        assert_eq!(pages.lent.load(Ordering::Relaxed), 0);
        // Every frame but those of the pages is free.
        let free = pages.free_frames();
        assert_eq!(free.used.len(), free.unused.start - LEN / PAGE);
    }
}
