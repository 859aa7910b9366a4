//! The descriptors of a queue's requests, in memory that the kernel writes.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::abi::{IoDescriptor, descriptors_offset};

/// The descriptors of one queue, one for each tag.
pub(super) struct IoDescriptors {
    base: NonNull<IoDescriptor>,
    depth: u16,
    /// Bytes mapped.
    len: usize,
}

// SAFETY: the memory is the kernel's, and is only copied from.
unsafe impl Send for IoDescriptors {}

impl IoDescriptors {
    pub(super) fn map(device: &File, queue: u16, depth: u16) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let len = (usize::from(depth) * size_of::<IoDescriptor>()).next_multiple_of(page);
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let offset = descriptors_offset(queue);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, flags, device, offset) }?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at 0");
        Ok(Self { base, depth, len })
    }

    /// Reads the descriptor of the request of that tag. It stays the same until the request is
    /// answered.
    pub(super) fn read(&self, tag: u16) -> IoDescriptor {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: within the mapping, and any bytes are a descriptor. The kernel does not write
        // there between issuing a request and its answer; if it did, the numbers would be checked
        // like all others.
        unsafe { self.base.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for IoDescriptors {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`, and no reference into it is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
    }
}
