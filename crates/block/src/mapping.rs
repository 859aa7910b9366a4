//! Memory from the kernel, and back to it: never what somebody else had and put somewhere.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Zeroed memory of whole pages. Where a page is, on a machine with several NUMA nodes, is decided
/// when it is touched first.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory of its own. Who may look at which bytes is for the owner of
// the mapping to decide, who dereferences what `part` returns.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` bytes. Aborts, as every allocation does, if there are none.
    pub(crate) fn new(len: usize) -> Self {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, wherever the kernel wants it.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, protection, MapFlags::PRIVATE) };
        let Ok(base) = base else {
            let layout = Layout::from_size_align(len, 1).expect("arenas fit an address space");
            handle_alloc_error(layout)
        };
        Self { base: NonNull::new(base.cast()).expect("the kernel maps nothing at 0"), len }
    }

    /// Bytes in all.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Touches every page.
    pub(crate) fn touch(&mut self) {
        // SAFETY: the mapping's own memory, which nobody else looks at: it is borrowed exclusively.
        unsafe { self.base.write_bytes(0, self.len) }
    }

    /// `len` bytes from `offset` on: where they are.
    ///
    /// # Panics
    /// If there are not so many.
    pub(crate) fn part(&self, offset: usize, len: usize) -> (NonNull<u8>, usize) {
        assert!(offset <= self.len && len <= self.len - offset, "within the mapping");
        // SAFETY: within the mapping.
        (unsafe { self.base.add(offset) }, len)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping's own memory; what points into it keeps its owner alive.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}
