//! A disk in memory, lost when the process ends.
//!
//! The disk is one anonymous mapping. The kernel allocates its pages at the first write, or all of
//! them in [`MemoryStore::populate`]: on a virtual machine, a first write that waits for its page
//! takes 20 to 100 times as long. Discarded regions give their pages back in either case, and are
//! holes then, as those that were never written. Reads can do without a copy ([`Queue::lend`]).

mod frame_table;
mod mapping;
mod pages;
mod sync;

use std::io;
use std::sync::Arc;

use pages::Pages;
use tyche_block::{Geometry, Operation, Request};

use crate::inline::{self, Serve};
use crate::{Loan, Queue, ResizeError, Store};

/// See the [module](self).
pub struct MemoryStore {
    disk: Arc<MemoryDisk>,
}

impl MemoryStore {
    /// A disk of `size` bytes, all zero. Reserves address space only.
    ///
    /// # Errors
    /// `InvalidInput` if `block_size` is neither 512 nor 4096, or `size` not a multiple of it;
    /// `FileTooLarge` for 16 TiB and more; the error of `mmap` if the address space has no such
    /// room.
    pub fn new(size: u64, block_size: u32) -> io::Result<Self> {
        // The end of the process loses completed writes, so hosts must not assume them durable.
        let geometry = Geometry { write_cache: true, ..inline::geometry(size, block_size)? };
        let pages = Arc::new(Pages::new(usize::try_from(size).map_err(io::Error::other)?)?);
        Ok(Self { disk: Arc::new(MemoryDisk { geometry, pages }) })
    }
}

impl MemoryStore {
    /// Makes the disk read-only.
    ///
    /// # Panics
    /// If the disk has a queue already.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        let disk =
            Arc::get_mut(&mut self.disk).expect("a disk becomes read-only before it is used");
        disk.geometry.read_only = true;
        self
    }

    /// Allocates all memory now rather than at the first writes.
    ///
    /// # Errors
    /// The error of `madvise`; `OutOfMemory` if less is available by the kernel's estimate. Without
    /// that check the kernel would run out of memory and kill a process, likely this one.
    pub fn populate(&self) -> io::Result<()> {
        let pages = &self.disk.pages;
        if let Some(available) = available()
            && pages.len() as u64 > available
        {
            let message = format!("{} bytes of memory are available", available);
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, message));
        }
        pages.populate()
    }
}

/// Bytes of memory available without swapping, as the kernel estimates; `None` if it has no
/// estimate.
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

    /// Accepts only the current size: the position of the spare frames depends on the number of
    /// pages, and some of them may be lent.
    fn resize(&self, size: Option<u64>) -> Result<u64, ResizeError> {
        let now = self.disk.geometry.size;
        if size.is_none_or(|size| size == now) { Ok(now) } else { Err(ResizeError::Memory) }
    }
}

struct MemoryDisk {
    geometry: Geometry,
    pages: Arc<Pages>,
}

impl Serve for MemoryDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn serve(&self, request: &mut Request) {
        let (offset, len) = (request.offset, request.len as usize);
        match (request.operation, &mut request.buffer) {
            (Operation::Read, Some(buffer)) => self.pages.read(offset, &mut buffer[..len]),
            (Operation::Write { .. }, Some(buffer)) => self.pages.write(offset, &buffer[..len]),
            (Operation::Discard | Operation::WriteZeroes { may_unmap: true, .. }, _) => {
                self.pages.discard(offset, len);
            }
            (Operation::WriteZeroes { .. }, _) => self.pages.zero(offset, len),
            (Operation::BlockStatus, Some(buffer)) => self.pages.status(offset, &mut buffer[..len]),
            (_, None) | (Operation::Flush, _) => {}
        }
    }

    fn lend(&self, offset: u64, len: usize) -> Option<Loan> {
        self.pages.lend(offset, len)
    }
}
