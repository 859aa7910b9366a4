//! Memory that a card may read, and that its peer may write.

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;

use super::Opaque;
use super::library::{Context, Library, Mr};
use crate::rdma::region::Region;

/// The domain of what works together, of one connection.
pub(super) struct Domain {
    library: &'static Library,
    pub(super) pd: NonNull<libc::c_void>,
}

// SAFETY: the library may be called from any thread.
unsafe impl Send for Domain {}

impl Domain {
    pub(super) fn new(library: &'static Library, context: *mut Context) -> io::Result<Self> {
        // SAFETY: the context is that of an open device.
        let pd = unsafe { (library.ibv_alloc_pd)(context) };
        Ok(Self { library, pd: NonNull::new(pd).ok_or_else(io::Error::last_os_error)? })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: what is in the domain is gone: its owner drops it last.
        unsafe { (self.library.ibv_dealloc_pd)(self.pd.as_ptr()) };
    }
}

/// A region with its keys. They die with it.
pub(super) struct Registered {
    library: &'static Library,
    mr: NonNull<Mr>,
    /// Dropped after the keys.
    pub(super) region: Region,
}

// SAFETY: the library may be called from any thread.
unsafe impl Send for Registered {}

impl Registered {
    /// New memory of so many bytes, with these permissions (`ACCESS_..`).
    pub(super) fn new(domain: &Domain, len: usize, access: c_int) -> io::Result<Self> {
        let (library, region) = (domain.library, Region::anonymous(len)?);
        let start: Opaque = region.start().as_ptr().cast();
        // SAFETY: the region lives longer than its registration.
        let mr = unsafe { (library.ibv_reg_mr)(domain.pd.as_ptr(), start, len, access) };
        let Some(mr) = NonNull::new(mr) else {
            let error = io::Error::last_os_error();
            let is_limit = error.raw_os_error() == Some(libc::ENOMEM);
            let remedy = "raise the limit of locked memory (LimitMEMLOCK=, ulimit -l)";
            return Err(if is_limit {
                io::Error::new(error.kind(), format!("no memory can be registered: {remedy}"))
            } else {
                error
            });
        };
        Ok(Self { library, mr, region })
    }

    /// The key for the own card.
    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: the registration lives.
        unsafe { self.mr.as_ref() }.lkey
    }

    /// The key for the peer's card.
    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: the registration lives.
        unsafe { self.mr.as_ref() }.rkey
    }

    /// The address of its first byte, for a card.
    pub(super) fn address(&self) -> u64 {
        self.region.start().as_ptr().expose_provenance() as u64
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: the queue pair that used it is gone, or fails from now on.
        unsafe { (self.library.ibv_dereg_mr)(self.mr.as_ptr()) };
    }
}
