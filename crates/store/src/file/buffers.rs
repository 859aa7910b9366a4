//! Memory registered with a ring.
//!
//! The kernel pins registered memory once instead of once per request. The table is created empty
//! and sparse; an arena takes one entry for each gibibyte, the most that an entry may cover. Where
//! registration is refused (an old kernel, a limit on locked memory), requests find no entry and
//! use plain I/O.

use io_uring::Submitter;
use tyche_block::Arena;

/// Entries of the table.
const ENTRIES: u32 = 64;
/// Bytes that the kernel lets one entry cover.
const ENTRY_MAX: usize = 1 << 30;

/// The table of registered memory, by index.
pub(super) struct Buffers {
    /// Grows to the most entries ever in use at once, which keeps a search short.
    entries: Vec<Option<Registered>>,
    /// The limit of entries; zero if the kernel has no sparse tables.
    entries_max: usize,
}

struct Registered {
    start: usize,
    len: usize,
    /// Keeps the memory mapped while its pages are registered. After an unmap, new memory at the
    /// same address would have other pages, and the kernel would still write to the old ones.
    arena: Arena,
}

impl Buffers {
    pub(super) fn new(submitter: &Submitter<'_>) -> Self {
        let sparse = submitter.register_buffers_sparse(ENTRIES);
        let entries_max = if sparse.is_ok() { ENTRIES as usize } else { 0 };
        Self { entries: Vec::with_capacity(entries_max), entries_max }
    }

    /// Registers as much of `arena` as the kernel allows.
    pub(super) fn register(&mut self, submitter: &Submitter<'_>, arena: &Arena) {
        let (base, total) = arena.region();
        let base = base.as_ptr() as usize;
        if self.entries.iter().flatten().any(|entry| entry.is_of(arena)) {
            return;
        }
        for start in (0..total).step_by(ENTRY_MAX) {
            let index = self.entries.iter().position(Option::is_none);
            let index = index.unwrap_or(self.entries.len());
            if index == self.entries_max {
                return;
            }
            if index == self.entries.len() {
                self.entries.push(None);
            }
            let len = ENTRY_MAX.min(total - start);
            if update(submitter, index, base + start, len) {
                let arena = arena.clone();
                self.entries[index] = Some(Registered { start: base + start, len, arena });
            }
        }
    }

    pub(super) fn unregister(&mut self, submitter: &Submitter<'_>, arena: &Arena) {
        for (index, slot) in self.entries.iter_mut().enumerate() {
            if slot.as_ref().is_some_and(|entry| entry.is_of(arena))
                && update(submitter, index, 0, 0)
            {
                *slot = None;
            }
        }
    }

    /// The index of the entry that covers `bytes` wholly.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<u16> {
        let start = bytes.as_ptr() as usize;
        let index = self
            .entries
            .iter()
            .position(|slot| slot.as_ref().is_some_and(|entry| entry.covers(start, bytes.len())))?;
        u16::try_from(index).ok()
    }
}

impl Registered {
    fn covers(&self, start: usize, len: usize) -> bool {
        len <= self.len && start >= self.start && start - self.start <= self.len - len
    }

    fn is_of(&self, arena: &Arena) -> bool {
        self.arena.region().0 == arena.region().0
    }
}

/// Sets an entry of the table to the `len` bytes at `start`, or clears it if both are zero. Returns
/// whether the kernel has done so.
fn update(submitter: &Submitter<'_>, index: usize, start: usize, len: usize) -> bool {
    let iovec = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: len };
    let index = u32::try_from(index).expect("the table is small");
    // SAFETY: the memory belongs to an arena that the table holds on to for as long as the entry
    // exists and, as the ring is closed before the table is dropped, until the kernel is done.
    unsafe { submitter.register_buffers_update(index, &[iovec], None).is_ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_covers_what_lies_wholly_in_it() {
        let entry = Registered { start: 0x10000, len: 0x4000, arena: Arena::new(1) };
        for (start, len) in [(0x10000, 0x4000), (0x13fff, 1), (0x12000, 0x2000)] {
            assert!(entry.covers(start, len), "{len:#x} bytes at {start:#x}");
        }
        // The third is an extent across the border of two entries.
        for (start, len) in [(0xffff, 2), (0x14000, 1), (0x13000, 0x2000), (0x10000, 0x4001)] {
            assert!(!entry.covers(start, len), "{len:#x} bytes at {start:#x}");
        }
    }
}
