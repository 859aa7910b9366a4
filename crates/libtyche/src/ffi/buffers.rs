//! Registered buffers: memory that requests use in place.
//!
//! Each is an arena of its own. A request claims the very pages at its pointer, so two requests in
//! flight never own the same page, and a buffer that is freed early stays allocated until its last
//! request has ended. If pages can't be claimed (the pointer is not page-aligned, or another
//! request has the page), the data are copied instead.

use std::sync::{PoisonError, RwLock};

use tyche_block::{Arena, Extent, PAGE};

/// The most bytes in one buffer.
pub(super) const LEN_MAX: usize = 16 << 30;

#[derive(Default)]
pub(super) struct Buffers {
    all: RwLock<Vec<Arena>>,
}

impl Buffers {
    /// Allocates a buffer, zeroed; `None` if `len` is zero or too large.
    pub(super) fn alloc(&self, len: usize) -> Option<*mut u8> {
        if !(1..=LEN_MAX).contains(&len) {
            return None;
        }
        let arena = Arena::new(len.div_ceil(PAGE));
        let (base, _) = arena.region();
        self.all.write().unwrap_or_else(PoisonError::into_inner).push(arena);
        Some(base.as_ptr())
    }

    /// Removes the buffer that begins at `base`; false if there is none.
    pub(super) fn free(&self, base: *mut u8) -> bool {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(|arena| arena.region().0.as_ptr() == base);
        found.map(|index| all.swap_remove(index)).is_some()
    }

    /// Claims the memory at `at` as a request's buffer, if possible.
    pub(super) fn claim(&self, at: *const u8, len: usize) -> Option<Extent> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().find_map(|arena| {
            let (base, size) = arena.region();
            let offset = at.addr().checked_sub(base.addr().get())?;
            (offset < size && offset.is_multiple_of(PAGE))
                .then(|| arena.claim(offset / PAGE, len))
                .flatten()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_free_pages_of_a_buffer_are_used_in_place() {
        let buffers = Buffers::default();
        let base = buffers.alloc(3 * PAGE - 1).unwrap();
        let at = |offset: usize| base.wrapping_add(offset).cast_const();
        let extent = buffers.claim(at(PAGE), 512).unwrap();
        assert_eq!((extent.as_ptr(), extent.len()), (at(PAGE), 512));
        assert!(buffers.claim(at(PAGE), 512).is_none(), "in use");
        assert!(buffers.claim(at(0), PAGE + 1).is_none(), "reaches into a page in use");
        assert!(buffers.claim(at(512), 512).is_none(), "not the start of a page");
        assert!(buffers.claim(at(2 * PAGE), PAGE + 1).is_none(), "past the end");
        assert!(buffers.claim(at(3 * PAGE), 1).is_none(), "behind the end");
        assert!(buffers.claim(at(0).wrapping_sub(PAGE), 1).is_none(), "before the start");
        assert!(!buffers.free(base.wrapping_add(PAGE)) && buffers.free(base));
        assert!(buffers.claim(at(0), 512).is_none());
        drop(extent);
    }
}
