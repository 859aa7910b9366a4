//! Memory that a card may read, and that its peer may write.

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;

use tyche_block::Arena;

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

/// Memory with its keys. They die with it.
pub struct Registered<M = Region> {
    library: &'static Library,
    mr: NonNull<Mr>,
    /// The address of its first byte, for a card.
    address: u64,
    /// Dropped after the keys.
    pub(super) memory: M,
}

// SAFETY: the library may be called from any thread.
unsafe impl<M: Send> Send for Registered<M> {}

impl Registered {
    /// New memory of so many bytes, with these permissions (`ACCESS_..`).
    pub(super) fn new(domain: &Domain, len: usize, access: c_int) -> io::Result<Self> {
        let region = Region::anonymous(len)?;
        let start = region.start();
        Self::of(domain, region, (start, len), access)
    }
}

impl Registered<Arena> {
    /// All of an arena.
    pub(super) fn arena(domain: &Domain, arena: &Arena, access: c_int) -> io::Result<Self> {
        Self::of(domain, arena.clone(), arena.region(), access)
    }
}

impl<M> Registered<M> {
    /// Memory that is at this place as long as its owner lives.
    fn of(
        domain: &Domain,
        memory: M,
        (start, len): (NonNull<u8>, usize),
        access: c_int,
    ) -> io::Result<Self> {
        let library = domain.library;
        let place: Opaque = start.as_ptr().cast();
        // SAFETY: the memory lives longer than its registration.
        let mr = unsafe { (library.ibv_reg_mr)(domain.pd.as_ptr(), place, len, access) };
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
        let address = start.as_ptr().expose_provenance() as u64;
        Ok(Self { library, mr, address, memory })
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
        self.address
    }
}

impl<M> Drop for Registered<M> {
    fn drop(&mut self) {
        // SAFETY: the queue pair that used it is gone, or fails from now on.
        unsafe { (self.library.ibv_dereg_mr)(self.mr.as_ptr()) };
    }
}
