//! Anonymous memory: zeroes, allocated by the kernel on first touch.

use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// An anonymous mapping with room for a number of `T`.
pub(super) struct Mapping<T> {
    base: NonNull<u8>,
    /// Length in bytes.
    len: usize,
    content: PhantomData<T>,
}

// SAFETY: plain memory; the owner synchronizes all access to it.
unsafe impl<T> Send for Mapping<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Mapping<T> {}

impl<T> Mapping<T> {
    /// Reserves address space only.
    ///
    /// # Errors
    /// The error of `mmap` if the address space has no such room.
    pub(super) fn new(count: usize) -> io::Result<Self> {
        let len = count * size_of::<T>();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)?
        };
        // SAFETY: the range was mapped just now. The advice only saves page faults.
        let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast()).expect("mmap never returns a null page");
        Ok(Self { base, len, content: PhantomData })
    }

    /// The start of the mapping.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Allocates the first `len` bytes now. False if the kernel cannot (before Linux 5.14).
    ///
    /// # Errors
    /// The error of `madvise`.
    pub(super) fn populate(&self, len: usize) -> io::Result<bool> {
        assert!(len <= self.len, "within the mapping");
        // SAFETY: the range is ours, and its content stays as it is.
        let populated =
            unsafe { madvise(self.base.as_ptr().cast(), len, Advice::LinuxPopulateWrite) };
        match populated {
            Err(rustix::io::Errno::INVAL) => Ok(false),
            populated => Ok(populated.map(|()| true)?),
        }
    }
}

impl Deref for Mapping<AtomicU32> {
    type Target = [AtomicU32];

    fn deref(&self) -> &[AtomicU32] {
        let count = self.len / size_of::<AtomicU32>();
        // SAFETY: the mapping is page aligned and has room for `count`. Any bytes are valid, zeroes
        // at first, and all access is atomic.
        unsafe { NonNull::slice_from_raw_parts(self.base.cast(), count).as_ref() }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this very range, and no reference into it is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
    }
}
