//! The part of an arena that takes memory only while it is needed.
//!
//! ```text
//!  [ kept: always there ][ block ][ block ][ block ] ..
//!                         `- in use -'      `- held back: no memory
//! ```
//!
//! Pages are taken from the first one on, so blocks come into use in order, and go the other way.

use crate::arena::{Arena, Extent, PAGE};

/// Pages of a block. Lower: more steps until there is enough. Higher: longer ones.
const BLOCK: usize = 64;

/// The size of an arena with a [`Reserve`], in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaSize {
    /// All pages.
    pub all: usize,
    /// The first ones, which always have memory.
    pub kept: usize,
}

impl From<usize> for ArenaSize {
    /// All pages always have memory.
    fn from(all: usize) -> Self {
        Self { all, kept: all }
    }
}

impl ArenaSize {
    /// Whether there is more than what is kept.
    pub fn is_elastic(self) -> bool {
        self.kept < self.all
    }
}

/// The pages of an [`Arena`] that are held back. One thread grows and shrinks it; requests that find
/// no pages wait for others to end meanwhile, so nothing depends on it.
pub struct Reserve {
    arena: Arena,
    /// The blocks that are held back, the next one to be used last.
    held: Vec<Extent>,
    /// The blocks in use, in order, by their first pages.
    used: Vec<usize>,
}

impl Reserve {
    /// Holds back all pages of an arena of which none was used, but the first `kept` ones, which get
    /// their memory now. None of one that is spread over NUMA nodes: its pages have no order.
    ///
    /// # Panics
    /// If pages are lent.
    pub fn of(arena: &Arena, kept: usize) -> Self {
        let is_spread = arena.nodes().len() > 1;
        let kept = if is_spread { arena.pages() } else { kept.min(arena.pages()) };
        if kept > 0 && kept < arena.pages() {
            arena.claim(0, kept * PAGE).expect("no page is lent").fill(0);
        }
        let blocks = (kept..arena.pages()).step_by(BLOCK).map(|first| {
            let pages = BLOCK.min(arena.pages() - first);
            arena.claim(first, pages * PAGE).expect("no page is lent")
        });
        let mut held: Vec<_> = blocks.collect();
        held.reverse();
        Self { arena: arena.clone(), held, used: Vec::new() }
    }

    /// Has another block be used, if pages were looked for in vain since the last call. False if
    /// not, or if there is none left. Allocates its memory, and may take as long as that does.
    pub fn grow(&mut self) -> bool {
        if !self.arena.takes_lack() {
            return false;
        }
        let Some(mut block) = self.held.pop() else { return false };
        // The page faults happen here rather than during a request.
        block.fill(0);
        self.used.push(block.first_page());
        true
    }

    /// Holds the last block back again, and gives its memory to the kernel. False if there is none,
    /// or a page of it is lent.
    pub fn shrink(&mut self) -> bool {
        let Some(&first) = self.used.last() else { return false };
        let pages = BLOCK.min(self.arena.pages() - first);
        let Some(mut block) = self.arena.claim(first, pages * PAGE) else { return false };
        block.forget();
        self.used.pop();
        self.held.push(block);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_into_use_when_pages_lack_and_go_when_they_are_free() {
        let arena = Arena::untouched(10 + 2 * BLOCK + 5).unwrap();
        let mut reserve = Reserve::of(&arena, 10);
        assert!(!reserve.grow(), "nobody has looked for pages");
        let first = arena.alloc(10 * PAGE).unwrap();
        assert!(!reserve.grow(), "there were enough");
        assert!(arena.alloc(PAGE).is_none());
        assert!(reserve.grow() && !reserve.grow(), "one at a time");
        let second = arena.alloc(BLOCK * PAGE).unwrap();
        assert_eq!(second.first_page(), 10, "right behind");
        for _ in 0..2 {
            assert!(arena.alloc((BLOCK + 5) * PAGE).is_none());
            assert!(reserve.grow());
        }
        assert!(arena.alloc((BLOCK + 6) * PAGE).is_none());
        assert!(!reserve.grow(), "there is no more");
        let last = arena.alloc((BLOCK + 5) * PAGE).unwrap();
        assert!(!reserve.shrink(), "its pages are lent");
        drop((first, last));
        assert!(reserve.shrink() && reserve.shrink() && !reserve.shrink(), "those that are free");
        drop(second);
        assert!(reserve.shrink() && !reserve.shrink());
        assert!(arena.alloc(11 * PAGE).is_none() && arena.alloc(10 * PAGE).is_some());
    }

    #[test]
    fn an_arena_that_is_kept_as_a_whole_has_no_reserve() {
        let arena = Arena::new(7);
        let mut reserve = Reserve::of(&arena, 9);
        assert!(arena.alloc(8 * PAGE).is_none());
        assert!(!reserve.grow() && !reserve.shrink());
        assert!(arena.alloc(7 * PAGE).is_some());
    }
}
