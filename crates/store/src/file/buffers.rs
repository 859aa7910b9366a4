//! Memory registered with a ring.
//!
//! The kernel pins registered memory once instead of once per request. So that memory which nobody
//! uses is not pinned, an arena is registered in blocks, each when a request uses it for the first
//! time: the first blocks are short, for pages are used from the first one on. Where registration
//! is refused (an old kernel, a limit on locked memory, a full table), and for a buffer across two
//! blocks, requests find no entry and use plain I/O.

use std::collections::BTreeMap;
use std::ops::Range;

use io_uring::Submitter;
use tyche_block::{Arena, PAGE};

/// Entries of the table.
const ENTRIES: u16 = 1024;
/// The longest block. Higher: the request that uses it first waits longer for its pages.
const BLOCK_MAX: usize = 1024 * PAGE;
/// Bytes of the first block. Each further one is so long that with those before it, it is
/// [`GROWTH`] times as long.
const FIRST: usize = 16 * PAGE;
const GROWTH: usize = 2;

/// The table of registered memory.
pub(super) struct Buffers {
    /// By the addresses at which they begin.
    arenas: BTreeMap<usize, Announced>,
    /// The entries that are not used; none if the kernel has no sparse tables.
    free: Vec<u16>,
}

/// An arena of which blocks are registered.
struct Announced {
    /// Keeps the memory mapped while its pages are registered. After an unmap, new memory at the
    /// same address would have other pages, and the kernel would still write to the old ones.
    arena: Arena,
    /// The blocks that were used, by their offsets.
    blocks: BTreeMap<usize, Registered>,
}

/// A block that was used.
#[derive(Clone, Copy)]
struct Registered {
    /// `None` if it has no entry.
    index: Option<u16>,
    /// Where it ended: further on in the arena, pages were not meant to be used then.
    end: usize,
}

/// The block of an arena of `total` bytes with the byte at `offset`.
fn block(offset: usize, total: usize) -> Range<usize> {
    let (mut start, mut end) = (0, FIRST);
    while offset >= end {
        start = end;
        end = (start * GROWTH).min(start + BLOCK_MAX);
    }
    start..end.min(total)
}

impl Buffers {
    pub(super) fn new(submitter: &Submitter<'_>) -> Self {
        let sparse = submitter.register_buffers_sparse(ENTRIES.into());
        let free = if sparse.is_ok() { (0..ENTRIES).rev().collect() } else { Vec::new() };
        Self { arenas: BTreeMap::new(), free }
    }

    /// Registers parts of `arena` as they are used.
    pub(super) fn register(&mut self, arena: &Arena) {
        let new = || Announced { arena: arena.clone(), blocks: BTreeMap::new() };
        self.arenas.entry(arena.region().0.as_ptr().addr()).or_insert_with(new);
    }

    pub(super) fn unregister(&mut self, submitter: &Submitter<'_>, arena: &Arena) {
        let Some(announced) = self.arenas.remove(&arena.region().0.as_ptr().addr()) else { return };
        for index in announced.blocks.into_values().filter_map(|block| block.index) {
            if update(submitter, index, (0, 0)) {
                self.free.push(index);
            }
        }
    }

    /// Unregisters the blocks of `arena` from the page `first` on, but for one that begins before.
    /// Returns from which page on none is registered.
    pub(super) fn cut(&mut self, submitter: &Submitter<'_>, arena: &Arena, first: usize) -> usize {
        let Some(announced) = self.arenas.get_mut(&arena.region().0.as_ptr().addr()) else {
            return first;
        };
        for Registered { index, .. } in announced.blocks.split_off(&(first * PAGE)).into_values() {
            if let Some(index) = index
                && update(submitter, index, (0, 0))
            {
                self.free.push(index);
            }
        }
        let last = announced.blocks.values().next_back();
        first.max(last.filter(|it| it.index.is_some()).map_or(0, |it| it.end / PAGE))
    }

    /// The index of the entry that covers `bytes` wholly.
    pub(super) fn find(&mut self, submitter: &Submitter<'_>, bytes: &[u8]) -> Option<u16> {
        let start = bytes.as_ptr().addr();
        let (base, announced) = self.arenas.range_mut(..=start).next_back()?;
        let (base, total) = (*base, announced.arena.usable() * PAGE);
        let (first, last) = (start - base, start - base + bytes.len());
        if last > total {
            return None;
        }
        let block = block(first, total);
        if last > block.end {
            return None;
        }
        let known = announced.blocks.get(&block.start).copied();
        if let Some(Registered { index, end }) = known
            && (index.is_none() || last <= end)
        {
            return index;
        }
        // A block that has grown with what is meant to be used keeps its entry.
        let former = known.and_then(|known| known.index);
        let index = former.or_else(|| self.free.pop())?;
        let is_done = update(submitter, index, (base + block.start, block.len()));
        if !is_done && former.is_some() {
            return None;
        }
        if !is_done {
            self.free.push(index);
        }
        let registered = Registered { index: is_done.then_some(index), end: block.end };
        announced.blocks.insert(block.start, registered);
        registered.index
    }
}

/// Sets an entry of the table to a number of bytes at an address, or clears it if both are zero.
/// Returns whether the kernel has done so.
fn update(submitter: &Submitter<'_>, index: u16, (start, len): (usize, usize)) -> bool {
    let iovec = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: len };
    // SAFETY: the memory belongs to an arena that the table holds on to for as long as the entry
    // exists and, as the ring is closed before the table is dropped, until the kernel is done.
    unsafe { submitter.register_buffers_update(index.into(), &[iovec], None).is_ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_divide_an_arena_and_grow() {
        for total in [PAGE, 15 * PAGE, FIRST, FIRST + PAGE, 8192 * PAGE, 8193 * PAGE] {
            let mut at = 0;
            while at < total {
                let block = block(at, total);
                assert_eq!(block.start, at, "of {total}");
                assert!((1..=BLOCK_MAX).contains(&block.len()));
                for inside in [block.start + 1, block.end - 1] {
                    assert_eq!(super::block(inside, total), block);
                }
                at = block.end;
            }
            assert_eq!(at, total);
        }
        let ends = [0, 16, 32, 512, 1024].map(|page| block(page * PAGE, usize::MAX).end / PAGE);
        assert_eq!(ends, [16, 32, 64, 1024, 2048]);
    }
}
