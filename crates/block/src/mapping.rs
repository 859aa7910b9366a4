//! Memory mapped directly from the kernel, and unmapped when dropped: it does not pass through an
//! allocator's free list.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Bytes in a page; the unit of every arena.
pub const PAGE: usize = 4096;

/// Zeroed memory of whole pages. On a machine with several NUMA nodes the first touch of a page
/// decides its node.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory of its own. The owner, who dereferences the result of `part`,
// decides who accesses which bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes.
    ///
    /// # Errors
    /// The error of `mmap` if there is no memory.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, protection, MapFlags::PRIVATE) }?;
        Ok(Self { base: NonNull::new(base.cast()).expect("the kernel maps nothing at 0"), len })
    }

    /// Maps a new file of `len` bytes that is nowhere but in memory. Whoever has its descriptor
    /// sees the same bytes.
    ///
    /// # Errors
    /// The system's error if there is no memory, or no descriptor left.
    pub(crate) fn of_file(len: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create("tyche-arena", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, len as u64)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `new`.
        let base = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0) }?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at 0");
        Ok((Self { base, len }, file))
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Touches every page.
    pub(crate) fn touch(&mut self) {
        // SAFETY: the mapping's own memory, borrowed exclusively.
        unsafe { self.base.write_bytes(0, self.len) }
    }

    /// Has the kernel allocate single pages from `offset` on, as they are touched, and not many at
    /// once.
    pub(crate) fn forgo_huge_pages(&mut self, offset: usize) {
        let (start, len) = self.part(offset, self.len - offset);
        // Without that it takes more memory.
        // SAFETY: the mapping's own memory, whose content stays.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxNoHugepage) };
    }

    /// Touches each page of `len` bytes at `offset`, which are whole pages. It does not take the
    /// lock of the address space for longer than a page, as advice (`MADV_POPULATE_WRITE`) would.
    ///
    /// # Safety
    /// There is no reference to these bytes.
    pub(crate) unsafe fn touch_part(&self, offset: usize, len: usize) {
        let (start, _) = self.part(offset, len);
        for at in (0..len).step_by(PAGE) {
            // SAFETY: within the mapping, and nobody refers to it.
            unsafe { start.add(at).write_volatile(0) };
        }
    }

    /// Gives `len` bytes at `offset`, which are whole pages, back to the kernel; they are zero when
    /// they are used next.
    ///
    /// # Safety
    /// There is no reference to these bytes.
    pub(crate) unsafe fn forget(&self, offset: usize, len: usize) {
        let (start, len) = self.part(offset, len);
        // SAFETY: the mapping's own memory, to which nobody refers. Without the advice (before
        // Linux 5.18) it stays as it is.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontneedLocked) };
    }

    /// The address and length of the `len` bytes at `offset`.
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub(crate) fn part(&self, offset: usize, len: usize) -> (NonNull<u8>, usize) {
        assert!(offset <= self.len && len <= self.len - offset, "within the mapping");
        // SAFETY: within the mapping.
        (unsafe { self.base.add(offset) }, len)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping's own memory; everything that points into it keeps its owner alive.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
    }
}
