//! A disk in memory, gone with the process.
//!
//! One anonymous mapping, given pages by the kernel as they are first written, or beforehand by
//! [`MemoryStore::populate`]: a first write that has to wait for its page takes 20 to 100 times as
//! long on a virtual machine. Discarded regions give their pages back either way. Every access
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
use tyche_block::{Geometry, Operation, PAGE, Request};

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
    /// A disk of `size` bytes, all zero. Takes address space only.
    ///
    /// # Errors
    /// `InvalidInput` if `block_size` is neither 512 nor 4096, or `size` not a multiple of it;
    /// what `mmap` says if the address space has no such room.
    pub fn new(size: u64, block_size: u32) -> io::Result<Self> {
        let geometry = inline::geometry(size, block_size)?;
        let memory = Mapping::new(usize::try_from(size).map_err(io::Error::other)?)?;
        let stripes = (0..STRIPES).map(|_| Stripe::default()).collect();
        // The hasher's keys are random: all that is asked of a generation.
        let generation = RandomState::new().build_hasher().finish() | 1;
        Ok(Self { disk: Arc::new(MemoryDisk { geometry, memory, stripes }), generation })
    }
}

impl MemoryStore {
    /// The same disk, refusing writes.
    ///
    /// # Panics
    /// If it has a queue already.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        let disk =
            Arc::get_mut(&mut self.disk).expect("a disk becomes read-only before it is used");
        disk.geometry.read_only = true;
        self
    }

    /// Takes all memory from the kernel now rather than at the first writes.
    ///
    /// # Errors
    /// What `madvise` says; `OutOfMemory` if there is less than that, as far as the kernel can
    /// tell beforehand: it would end some process, likely this one, once it is short of memory.
    pub fn populate(&self) -> io::Result<()> {
        let memory = &self.disk.memory;
        if let Some(available) = available()
            && memory.len as u64 > available
        {
            let message = format!("{} bytes of memory are available", available);
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, message));
        }
        let base = memory.base.as_ptr();
        // SAFETY: the range is ours, and its content stays as it is.
        let populated = unsafe { madvise(base.cast(), memory.len, Advice::LinuxPopulateWrite) };
        match populated {
            // Before Linux 5.14.
            Err(rustix::io::Errno::INVAL) => {
                self.touch();
                Ok(())
            }
            populated => Ok(populated?),
        }
    }

    /// Writes a byte of each page without changing it.
    fn touch(&self) {
        for start in (0..self.disk.memory.len).step_by(REGION) {
            let len = REGION.min(self.disk.memory.len - start);
            self.disk.visit(start as u64, len, |bytes, _| {
                for page in bytes.chunks_mut(PAGE) {
                    // Not optimized away, for nobody may assume what a black box does.
                    page[0] = std::hint::black_box(page[0]);
                }
            });
        }
    }
}

/// Bytes of memory that can be taken without any of it going to swap, as the kernel estimates;
/// `None` where it does not say.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
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

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 8 << 20;

    fn write(store: &MemoryStore, offset: u64, byte: u8) {
        store.disk.visit(offset, PAGE, |bytes, _| bytes.fill(byte));
    }

    /// Pages that the kernel has given.
    fn resident(store: &MemoryStore) -> usize {
        let mut pages = vec![0_u8; SIZE / PAGE];
        let base = store.disk.memory.base.as_ptr().cast();
        // SAFETY: the range is mapped, and `pages` has a byte for each page of it.
        let result = unsafe { libc::mincore(base, SIZE, pages.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        pages.iter().filter(|&&page| page & 1 != 0).count()
    }

    #[test]
    fn all_memory_is_taken_and_what_is_written_stays() {
        let ways: [fn(&MemoryStore); 2] = [|store| store.populate().unwrap(), MemoryStore::touch];
        for populate in ways {
            let store = MemoryStore::new(SIZE as u64, 512).unwrap();
            write(&store, 8192, 7);
            // A huge page at most.
            assert!(resident(&store) <= SIZE / PAGE / 2, "{}", resident(&store));
            populate(&store);
            assert_eq!(resident(&store), SIZE / PAGE);
            store.disk.visit(4096, 3 * PAGE, |bytes, _| {
                let is_right = |(at, &byte): (usize, &u8)| byte == 7 * u8::from(at / PAGE == 1);
                assert!(bytes.iter().enumerate().all(is_right));
            });
        }
    }
}
