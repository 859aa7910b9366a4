//! Memory registered with a ring.
//!
//! The kernel pins registered memory once instead of once per request. The table is created empty
//! and sparse; an arena takes as many entries as it has gibibytes, the most that one entry may
//! cover. Where any of this is refused (an old kernel, a limit on locked memory), requests simply
//! find no entry and use plain I/O.

use io_uring::Submitter;
use tyche_block::Arena;

/// Entries of the table.
const ENTRIES: usize = 64;
/// Bytes that the kernel lets one entry cover.
const ENTRY_MAX: usize = 1 << 30;

/// Which memory is registered under which index.
pub(super) struct Buffers {
    /// Empty where the kernel has no sparse tables.
    entries: Vec<Option<Registered>>,
}

struct Registered {
    start: usize,
    len: usize,
    /// Keeps the memory from being given back while the kernel has its pages under this address:
    /// new memory at the same address would not be what the kernel writes to.
    arena: Arena,
}

impl Buffers {
    pub(super) fn new(submitter: &Submitter<'_>) -> Self {
        let entries = u32::try_from(ENTRIES).expect("a small constant");
        let mut table = Self { entries: Vec::new() };
        if submitter.register_buffers_sparse(entries).is_ok() {
            table.entries.resize_with(ENTRIES, || None);
        }
        table
    }

    /// Registers what it can of `arena`.
    pub(super) fn register(&mut self, submitter: &Submitter<'_>, arena: &Arena) {
        let (base, total) = arena.region();
        let base = base.as_ptr() as usize;
        if self.entries.iter().flatten().any(|entry| entry.is_of(arena)) {
            return;
        }
        for start in (0..total).step_by(ENTRY_MAX) {
            let Some(index) = self.entries.iter().position(Option::is_none) else { return };
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
        let covers = |entry: &Registered| {
            start >= entry.start && start - entry.start <= entry.len.saturating_sub(bytes.len())
        };
        let index = self.entries.iter().position(|slot| slot.as_ref().is_some_and(covers))?;
        u16::try_from(index).ok()
    }
}

impl Registered {
    fn is_of(&self, arena: &Arena) -> bool {
        self.arena.region().0 == arena.region().0
    }
}

/// Puts `len` bytes from address `start` into the table, or nothing for an address of zero.
fn update(submitter: &Submitter<'_>, index: usize, start: usize, len: usize) -> bool {
    let iovec = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: len };
    let index = u32::try_from(index).expect("the table is small");
    // SAFETY: the memory belongs to an arena that the table holds on to for as long as the entry
    // exists and, as the ring is closed before the table is dropped, until the kernel is done.
    unsafe { submitter.register_buffers_update(index, &[iovec], None).is_ok() }
}
