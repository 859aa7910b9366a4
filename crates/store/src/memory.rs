//! A disk in memory, gone with the process.
//!
//! One anonymous mapping, given pages by the kernel as they are first written. Every access
//! copies under a lock that stands for a region of 64 KiB, so a copy never sees half of another
//! one within a region, and a request that spans regions is one copy per region. Locks are
//! striped: region `n` uses lock `n % STRIPES`, each lock on cache lines of its own.
//!
//! Why a lock and not a bare copy: two hosts, or a careless one, may write what another thread
//! reads, and a data race is undefined behaviour however harmless the bytes. Per-word atomics
//! would avoid the lock, at the price of a copy loop several times slower than `memcpy`; an
//! uncontended lock costs some 20 ns against the 100 ns of copying 4 KiB. The region is as
//! large as it is so that usual requests take one lock, and as small as it is so that a
//! waiter waits for microseconds.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};
use std::{io, slice};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use tyche_block::{Geometry, Operation, Request};

use crate::inline::{self, Serve};
use crate::{Queue, Store};

/// Bytes that one lock covers at a time; a multiple of the page size.
const REGION: usize = 64 * 1024;
/// Locks of a store. Two threads meet by accident once in this many accesses.
const STRIPES: usize = 1024;

/// See the [module](self).
pub struct MemoryStore {
    disk: Arc<MemoryDisk>,
    generation: u64,
}

impl MemoryStore {
    /// A disk of `size` bytes, all zero.
    ///
    /// # Errors
    /// `InvalidInput` if `block_size` is neither 512 nor 4096, or `size` not a multiple of it;
    /// what `mmap` says if the address space has no such room.
    pub fn new(size: u64, block_size: u32) -> io::Result<Self> {
        inline::check_geometry(size, block_size)?;
        let geometry =
            Geometry { size, block_size, read_only: false, write_cache: false, discard: true };
        let memory = Mapping::new(usize::try_from(size).map_err(io::Error::other)?)?;
        let stripes = (0..STRIPES).map(|_| Stripe::default()).collect();
        // The hasher's keys are random: all that is asked of a generation.
        let generation = RandomState::new().build_hasher().finish() | 1;
        Ok(Self { disk: Arc::new(MemoryDisk { geometry, memory, stripes }), generation })
    }
}

impl Store for MemoryStore {
    fn geometry(&self) -> Geometry {
        self.disk.geometry
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        inline::queue(&self.disk, depth)
    }

    /// Random: the content does not survive the process.
    fn generation(&self) -> u64 {
        self.generation
    }
}

struct MemoryDisk {
    geometry: Geometry,
    memory: Mapping,
    stripes: Box<[Stripe]>,
}

/// A lock that shares its cache lines (two, as they are prefetched in pairs) with nothing.
#[derive(Default)]
#[repr(align(128))]
struct Stripe(Mutex<()>);

impl MemoryDisk {
    /// Calls `visit` for each region that `len` bytes from `offset` on touch, with the bytes
    /// and their distance from `offset`.
    fn visit(&self, offset: u64, len: usize, mut visit: impl FnMut(&mut [u8], usize)) {
        let start = usize::try_from(offset).expect("the mapping's size is a usize");
        assert!(len <= self.memory.len && start <= self.memory.len - len, "checked by the queue");
        let mut done = 0;
        while done < len {
            let at = start + done;
            let piece = (REGION - at % REGION).min(len - done);
            let stripe = &self.stripes[at / REGION % STRIPES].0;
            // A panic in between leaves bytes half copied at worst, so poison means nothing.
            let _guard = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: in bounds by the assertion above; the piece lies within one region, whose
            // bytes are only ever reached here, by the holder of its lock.
            let bytes =
                unsafe { slice::from_raw_parts_mut(self.memory.base.as_ptr().add(at), piece) };
            visit(bytes, done);
            done += piece;
        }
    }
}

impl Serve for MemoryDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn serve(&self, request: &mut Request) {
        let len = request.len as usize;
        match (request.operation, &mut request.buffer) {
            (Operation::Read, Some(buffer)) => self.visit(request.offset, len, |bytes, at| {
                buffer[at..at + bytes.len()].copy_from_slice(bytes);
            }),
            (Operation::Write { .. }, Some(buffer)) => {
                self.visit(request.offset, len, |bytes, at| {
                    bytes.copy_from_slice(&buffer[at..at + bytes.len()]);
                });
            }
            (Operation::Discard | Operation::WriteZeroes { may_unmap: true, .. }, _) => {
                self.visit(request.offset, len, |bytes, _| release(bytes));
            }
            (Operation::WriteZeroes { .. }, _) => {
                self.visit(request.offset, len, |bytes, _| bytes.fill(0));
            }
            (Operation::Flush | Operation::Read | Operation::Write { .. }, _) => {}
        }
    }
}

/// Zeroes `bytes` of a mapping: a whole region by giving its pages back to the kernel.
fn release(bytes: &mut [u8]) {
    if bytes.len() == REGION {
        // SAFETY: the range is whole pages (regions are page aligned) of a private anonymous
        // mapping, borrowed exclusively, and reads as zeroes afterwards, which are valid bytes.
        let advised =
            unsafe { madvise(bytes.as_mut_ptr().cast(), bytes.len(), Advice::LinuxDontNeed) };
        if advised.is_ok() {
            return;
        }
    }
    bytes.fill(0);
}

/// An anonymous mapping, zeroed and lazily backed.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory; who may touch it when is the owner's business (`MemoryDisk::visit`).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)?
        };
        // SAFETY: the range was mapped just now. The advice is a wish: fewer page faults.
        let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast()).expect("mmap never returns a null page");
        Ok(Self { base, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this very range, and nobody holds a reference into it.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
    }
}
