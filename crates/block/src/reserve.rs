//! The part of an arena that takes memory only while it is needed.
//!
//! ```text
//!  [ kept: always there ][ in use, while needed ][ held back: no memory ]
//!                                                ^ moves a block at a time
//! ```
//!
//! A thread that serves a disk must not wait for memory: the kernel may first have to write dirty
//! pages, to this very disk. So that thread only ever uses pages that have memory already. When it
//! finds none, it says so, and goes on with what is returned to it; another thread, which no
//! request depends on, has a [`Reserve`] and allocates more. If that thread gets no memory, or none
//! for a while, requests wait for each other, and all end: each fits into what is kept. It takes
//! none while memory is short: a thread that the kernel keeps waiting for a page may also keep the
//! next daemon of the disk from its place.

use std::time::{Duration, Instant};

use crate::arena::Arena;
use crate::mapping::PAGE;
use crate::reclaim::available_memory;
use crate::sync::Thread;

/// Pages of a block, which are used, or held back, together: a word of the record of lent pages.
/// Lower: more steps until there is enough. Higher: requests wait longer for the first ones, and
/// one page that is lent keeps more from being held back.
const BLOCK: usize = 64;
/// The least growth at a lack, in pages: 1 MiB.
const GROWTH_MIN: usize = 256;
/// The interval at which the pages that are lent are counted, while there is more than what is
/// kept.
const SAMPLE: Duration = Duration::from_millis(100);
/// Samples after which what they did not show in use is held back. Lower: more pages are allocated
/// anew under a load that comes and goes.
const SAMPLES: u32 = 50;

/// Bytes that have to be left to others after a growth. Lower: when many disks are written back at
/// once because memory is short, each of them takes more. Higher: machines with little memory do
/// less at once.
const SPARE: u64 = 256 << 20;

/// Grows and shrinks an [elastic](Arena::elastic) arena.
pub struct Reserve {
    arena: Arena,
    /// The most pages that were lent in the samples since `samples` was zero.
    peak: usize,
    samples: u32,
    /// The number of pages to shrink to.
    target: usize,
    next_sample: Instant,
    /// Memory was short: no growth before.
    short_until: Option<Instant>,
}

impl Reserve {
    /// The reserve of `arena`; `None` if it keeps all its pages.
    pub fn of(arena: &Arena) -> Option<Self> {
        let (all, now) = (arena.pages(), Instant::now());
        let (peak, samples, target, short_until) = (0, 0, all, None);
        let arena_of = arena.clone();
        let this = Self { arena: arena_of, peak, samples, target, next_sample: now, short_until };
        (arena.kept() < all).then_some(this)
    }

    /// Has `helper` unparked when pages lack, from now on.
    pub fn wake(&self, helper: Thread) {
        self.arena.lent().lack().wake(helper);
    }

    /// Grows if pages lack, and shrinks if too many were unused for some seconds. Returns when to
    /// be called next; `None`: when pages lack. May take as long as the kernel does to find memory.
    pub fn attend(&mut self, now: Instant) -> Option<Instant> {
        if self.short_until.is_some_and(|until| now < until) {
            return self.short_until;
        }
        self.short_until = None;
        while self.end() < self.arena.pages() && self.arena.lent().lack().take() {
            if !self.grow() {
                self.short_until = Some(now + SAMPLE);
                break;
            }
            (self.peak, self.samples, self.target) = (self.end(), 0, self.arena.pages());
            self.next_sample = now + SAMPLE;
        }
        if self.end() <= self.arena.kept() {
            return self.short_until;
        }
        if now >= self.next_sample {
            self.sample();
            self.shrink();
            self.next_sample = now + SAMPLE;
        }
        Some(self.next_sample)
    }

    /// The end of the pages in use.
    fn end(&self) -> usize {
        self.arena.lent().end()
    }

    /// Grows by half, block by block: what waits has the first one at once. False if memory is
    /// short.
    fn grow(&self) -> bool {
        let more = (self.end() / 2).max(GROWTH_MIN);
        if available_memory().is_some_and(|bytes| bytes < SPARE + (more * PAGE) as u64) {
            return false;
        }
        for _ in 0..more.div_ceil(BLOCK) {
            self.arena.growth().grow(BLOCK);
        }
        true
    }

    fn sample(&mut self) {
        self.peak = self.peak.max(self.arena.lent().count());
        self.samples += 1;
        if self.samples == SAMPLES {
            let enough = (2 * self.peak).next_multiple_of(BLOCK);
            self.target = enough.clamp(self.arena.kept(), self.arena.pages());
            (self.peak, self.samples) = (0, 0);
        }
    }

    /// Holds blocks back until the target is reached or one has a page that is lent.
    fn shrink(&self) {
        if self.end() <= self.target {
            return;
        }
        if self.end() == self.arena.pages() {
            // Nobody has heard of a lack, for there was no more. One from now on is answered.
            self.arena.lent().lack().take();
        }
        loop {
            let mut growth = self.arena.growth();
            let block = (growth.end() - self.target.max(self.arena.kept())).min(BLOCK);
            if block == 0 || !growth.shrink(block) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::{ArenaSize, PAGE};

    const KEPT: usize = 10;
    const ALL: usize = KEPT + 2 * GROWTH_MIN + 5;

    /// An arena, its reserve, and the moments at which samples are due.
    fn elastic() -> (Arena, Reserve, impl Iterator<Item = Instant>) {
        let arena = Arena::elastic(ArenaSize { all: ALL, kept: KEPT }).unwrap();
        let reserve = Reserve::of(&arena).unwrap();
        let start = Instant::now();
        (arena, reserve, (1..).map(move |sample| start + sample * SAMPLE))
    }

    /// Pages of the arena that have memory, as the kernel counts them.
    fn resident(arena: &Arena) -> usize {
        let (start, len) = arena.region();
        // A number for each page of the address space; its highest bit: the page has memory.
        let mut numbers = vec![0; len / PAGE * 8];
        let map = File::open("/proc/self/pagemap").unwrap();
        map.read_exact_at(&mut numbers, (start.as_ptr().addr() / PAGE * 8) as u64).unwrap();
        numbers.chunks(8).filter(|number| number[7] & 0x80 != 0).count()
    }

    #[test]
    fn memory_comes_when_pages_lack_and_goes_when_they_are_not_used() {
        let (arena, mut reserve, mut moments) = elastic();
        let mut moment = || moments.next().unwrap();
        assert_eq!((arena.kept(), resident(&arena)), (KEPT, KEPT));
        let first = arena.alloc(KEPT * PAGE).unwrap();
        assert_eq!(reserve.attend(moment()), None, "there were enough");
        assert!(arena.alloc(PAGE).is_none());
        let now = moment();
        assert_eq!(reserve.attend(now), Some(now + SAMPLE));
        assert_eq!(resident(&arena), KEPT + GROWTH_MIN);
        let second = arena.alloc(GROWTH_MIN * PAGE).unwrap();
        assert_eq!(second.first_page(), KEPT, "right behind");
        for _ in 0..2 {
            assert!(arena.alloc((GROWTH_MIN + 5) * PAGE).is_none());
            reserve.attend(moment());
        }
        let third = arena.alloc((GROWTH_MIN + 5) * PAGE).unwrap();
        assert!(arena.alloc(PAGE).is_none(), "there is no more");
        for _ in 0..3 * SAMPLES {
            assert!(reserve.attend(moment()).is_some());
        }
        assert_eq!(resident(&arena), ALL, "all is in use");

        drop((first, third));
        for _ in 0..3 * SAMPLES {
            assert!(reserve.attend(moment()).is_some());
        }
        let end = reserve.end();
        assert!((KEPT + GROWTH_MIN..ALL).contains(&end), "{end}: twice as much as is used");
        assert_eq!(resident(&arena), end);
        drop(second);
        let more = (0..3 * SAMPLES).take_while(|_| reserve.attend(moment()).is_some()).count();
        assert!(more >= SAMPLES as usize, "not at once");
        assert_eq!((reserve.end(), resident(&arena)), (KEPT, KEPT));
        assert!(arena.alloc((KEPT + 1) * PAGE).is_none());
        assert!(reserve.attend(moment()).is_some(), "a lack after it was full is heard");
    }

    #[test]
    fn what_is_kept_can_grow_but_not_shrink() {
        let (arena, mut reserve, mut moments) = elastic();
        arena.keep(100);
        assert_eq!((arena.kept(), resident(&arena)), (100, 100));
        arena.keep(50);
        assert_eq!(arena.kept(), 100);
        assert_eq!(reserve.attend(moments.next().unwrap()), None);
        assert!(arena.alloc(100 * PAGE).is_some());
        arena.keep(2 * ALL);
        assert_eq!((arena.kept(), resident(&arena)), (ALL, ALL));
    }

    #[test]
    fn an_arena_that_keeps_all_has_no_reserve() {
        let arena = Arena::elastic(7.into()).unwrap();
        assert!(Reserve::of(&arena).is_none() && Reserve::of(&Arena::new(7)).is_none());
        assert!(arena.alloc(8 * PAGE).is_none() && arena.alloc(7 * PAGE).is_some());
    }

    #[test]
    fn threads_use_an_arena_while_it_grows_and_shrinks() {
        let (arena, mut reserve, moments) = elastic();
        std::thread::scope(|scope| {
            let users: Vec<_> = (1..5)
                .map(|number: usize| {
                    let arena = arena.clone();
                    scope.spawn(move || {
                        for round in 0..2000 {
                            let len = (number * 37 + round) % (KEPT * PAGE) + 1;
                            let mut extent =
                                arena.alloc_timeout(len, Duration::from_secs(60)).unwrap();
                            extent.fill(number as u8);
                            std::thread::yield_now();
                            assert!(extent.iter().all(|byte| *byte == number as u8));
                        }
                    })
                })
                .collect();
            // Time goes so fast that it shrinks as well.
            for moment in moments {
                reserve.attend(moment);
                if users.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                    break;
                }
                std::thread::yield_now();
            }
        });
    }
}
