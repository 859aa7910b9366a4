//! Memory that a network card reads and writes while we do.

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use rustix::mm::{self, MapFlags, ProtFlags};

/// A mapping that others write to at any time: a peer's card, or a peer's process. There are no
/// references into it, only copies, so that nothing changes after it was looked at.
pub struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, whichever thread; it ends with its owner.
unsafe impl Send for Region {}

// SAFETY: there are no references into it but atomic ones; copies may be torn, which is said there.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroes, of this process alone.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the place of a new mapping.
        let start = unsafe { mm::mmap_anonymous(ptr::null_mut(), len, protection, flags) }?;
        Ok(Self { start: NonNull::new(start.cast()).expect("a mapping is not at 0"), len })
    }

    /// The first `len` bytes of a file in memory, as all see them who map it.
    ///
    /// # Errors
    /// The error of `mmap(2)`.
    pub(super) fn shared(file: impl AsFd, len: usize) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the place of a new mapping.
        let start = unsafe { mm::mmap(ptr::null_mut(), len, protection, flags, file, 0) }?;
        Ok(Self { start: NonNull::new(start.cast()).expect("a mapping is not at 0"), len })
    }

    /// The address of its first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The address of the `len` bytes at `at`.
    fn place(&self, at: usize, len: usize) -> NonNull<u8> {
        let is_inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(is_inside, "{len} bytes at {at} of {}", self.len);
        // SAFETY: it is inside of the mapping.
        unsafe { self.start.add(at) }
    }

    /// Copies the bytes at `at` out.
    ///
    /// # Panics
    /// If they are not inside.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        let from = self.place(at, bytes.len()).as_ptr();
        // SAFETY: `place` has looked; the mapping and the caller's bytes do not overlap. Others may
        // write meanwhile: then the copy is a mixture of bytes, any of which the peer could have
        // sent.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Copies bytes to `at`.
    ///
    /// # Panics
    /// If they do not fit there.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.place(at, bytes.len()).as_ptr();
        // SAFETY: as in `read`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies `len` bytes of another region to `at`.
    ///
    /// # Panics
    /// If they are not inside of both.
    pub(super) fn copy(&self, at: usize, (from, from_at): (&Self, usize), len: usize) {
        let (to, from) = (self.place(at, len).as_ptr(), from.place(from_at, len).as_ptr());
        // SAFETY: as in `read`; two mappings do not overlap.
        unsafe { ptr::copy_nonoverlapping(from, to, len) }
    }

    /// The word at `at`.
    ///
    /// # Panics
    /// If it is not inside, or not aligned.
    pub fn word(&self, at: usize) -> &AtomicU32 {
        let word = self.place(at, size_of::<AtomicU32>()).cast::<AtomicU32>();
        assert!(word.is_aligned(), "a word at {at}");
        // SAFETY: any bytes are a word, and others may write it at any time.
        unsafe { word.as_ref() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and there are no references into it.
        let unmapped = unsafe { mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} bytes)", self.len)
    }
}
