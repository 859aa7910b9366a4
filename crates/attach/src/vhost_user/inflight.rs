//! The in-flight memory: a record of the requests in progress, which outlives this process.
//!
//! The front end keeps this memory, and hands it to the process that serves it next. Each ring has
//! a header and an entry for each descriptor in it, as the vhost-user specification describes for
//! split rings:
//!
//! ```text
//! 0       8         10         12          14         16
//! features| version | entries | last head | used idx | entry, entry, ...
//!
//! entry:  in progress (1 byte), 5 unused, next (2 bytes), counter (8 bytes)
//! ```
//!
//! A request is marked when it is taken off the ring. For an answer, its head is first stored as
//! the *last head*; then the used ring moves; then the mark is cleared; then the used index is
//! stored. So if the stored used index differs from that of the used ring, the last head has been
//! answered, and all others marked have not. Their counters give the order of arrival.
//!
//! The front end may write anything there; it is checked when read.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

use super::guard::Guard;

/// Version of the layout.
const VERSION: u16 = 1;
const HEADER_LEN: usize = 16;
const ENTRY_LEN: usize = 16;
/// Rings do not share cache lines.
const ALIGN: usize = 64;

mod header {
    pub(super) const VERSION: usize = 8;
    pub(super) const ENTRIES: usize = 10;
    pub(super) const LAST_HEAD: usize = 12;
    pub(super) const USED_IDX: usize = 14;
}

mod entry {
    pub(super) const NEXT: usize = 6;
    pub(super) const COUNTER: usize = 8;
}

fn ring_len(entries: u16) -> usize {
    (HEADER_LEN + ENTRY_LEN * usize::from(entries)).next_multiple_of(ALIGN)
}

/// Bytes for `rings` rings of `entries` entries each.
pub(super) fn area_len(rings: u16, entries: u16) -> usize {
    usize::from(rings) * ring_len(entries)
}

/// Makes the memory for `rings` rings, with nothing in progress.
pub(super) fn create(rings: u16, entries: u16) -> io::Result<File> {
    let len = area_len(rings, entries);
    let file = File::from(memfd_create("tyche-inflight", MemfdFlags::CLOEXEC)?);
    ftruncate(&file, len as u64)?;
    for ring in Area::map(file.try_clone()?, 0, len as u64, rings, entries)?.rings() {
        ring.put(header::ENTRIES, entries);
        ring.put(header::VERSION, VERSION);
    }
    Ok(file)
}

/// Memory that the front end shares.
#[derive(Debug)]
struct Shared {
    /// Dropped first: the guard ends before the mapping.
    guard: Guard,
    mapped: MmapRegion<()>,
}

/// The memory of all rings.
#[derive(Debug)]
pub(super) struct Area {
    memory: Arc<Shared>,
    rings: u16,
    entries: u16,
}

impl Area {
    /// Maps the memory that the front end hands over.
    pub(super) fn map(
        file: File,
        offset: u64,
        len: u64,
        rings: u16,
        entries: u16,
    ) -> io::Result<Self> {
        let needed = area_len(rings, entries);
        // An access beyond the end of a mapped file would kill the process.
        let end = offset.checked_add(needed as u64).ok_or(io::ErrorKind::InvalidInput)?;
        if len < needed as u64 || file.metadata()?.len() < end {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mapped = MmapRegion::from_file(FileOffset::new(file, offset), needed);
        let mapped = mapped.map_err(io::Error::other)?;
        // SAFETY: a mapping of its own, of memory that the front end may change at any time; the
        // struct keeps it longer than its guard.
        let guard = unsafe { Guard::new(mapped.as_ptr(), mapped.size())? };
        Ok(Self { memory: Arc::new(Shared { guard, mapped }), rings, entries })
    }

    /// The parts of the rings.
    pub(super) fn rings(&self) -> impl Iterator<Item = InFlight> {
        (0..usize::from(self.rings)).map(|ring| InFlight {
            memory: Arc::clone(&self.memory),
            start: ring * ring_len(self.entries),
            entries: self.entries,
            counter: 0,
        })
    }
}

/// The requests of one ring.
#[derive(Debug)]
pub(super) struct InFlight {
    memory: Arc<Shared>,
    start: usize,
    entries: u16,
    /// The counter of the next request.
    counter: u64,
}

impl InFlight {
    /// The heads of the requests that the previous process has not answered, the oldest first.
    /// `used_idx` is that of the used ring.
    ///
    /// # Errors
    /// If the memory does not have this module's layout.
    pub(super) fn recover(&mut self, used_idx: u16) -> io::Result<Vec<u16>> {
        let at = |field| self.get::<u16>(field);
        if (at(header::VERSION), at(header::ENTRIES)) != (VERSION, self.entries) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let last_head = at(header::LAST_HEAD);
        if at(header::USED_IDX) != used_idx && last_head < self.entries {
            self.put(self.entry(last_head), 0_u8);
        }
        self.put(header::USED_IDX, used_idx);
        let mut waiting: Vec<_> = (0..self.entries)
            .filter(|&head| self.get::<u8>(self.entry(head)) == 1)
            .map(|head| (self.get::<u64>(self.entry(head) + entry::COUNTER), head))
            .collect();
        if self.memory.guard.is_lost() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        waiting.sort_unstable();
        self.counter = waiting.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        Ok(waiting.into_iter().map(|(_, head)| head).collect())
    }

    /// Marks a request that has been taken off the ring.
    pub(super) fn begin(&mut self, head: u16) {
        if head < self.entries {
            self.put(self.entry(head) + entry::COUNTER, self.counter);
            self.put(self.entry(head), 1_u8);
            self.counter = self.counter.wrapping_add(1);
        }
    }

    /// Must be called before the used ring moves on for this request.
    pub(super) fn ending(&self, head: u16) {
        if head < self.entries {
            self.put(self.entry(head) + entry::NEXT, self.get::<u16>(header::LAST_HEAD));
            self.put(header::LAST_HEAD, head);
        }
    }

    /// Must be called after the used ring has moved on for this request.
    pub(super) fn ended(&self, head: u16, used_idx: u16) {
        if head < self.entries {
            self.put(self.entry(head), 0_u8);
        }
        self.put(header::USED_IDX, used_idx);
    }

    fn entry(&self, head: u16) -> usize {
        HEADER_LEN + ENTRY_LEN * usize::from(head)
    }

    /// Stores a value in order: others see it only after the stores before it.
    fn put<T: vm_memory::AtomicAccess>(&self, offset: usize, value: T) {
        let memory = self.memory.mapped.as_volatile_slice();
        memory.store(value, self.start + offset, Ordering::SeqCst).expect("the ring's own memory");
    }

    fn get<T: vm_memory::AtomicAccess>(&self, offset: usize) -> T {
        let memory = self.memory.mapped.as_volatile_slice();
        memory.load(self.start + offset, Ordering::SeqCst).expect("the ring's own memory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second_ring(file: &File) -> InFlight {
        let len = area_len(2, 8);
        let area = Area::map(file.try_clone().unwrap(), 0, len as u64, 2, 8).unwrap();
        area.rings().nth(1).unwrap()
    }

    #[test]
    fn unanswered_requests_are_recovered_in_order() {
        let file = create(2, 8).unwrap();
        let mut ring = second_ring(&file);
        assert_eq!(ring.recover(0).unwrap(), [0_u16; 0]);
        for head in [5, 3, 7, 1] {
            ring.begin(head);
        }
        ring.ending(3);
        ring.ended(3, 1);
        let mut next = second_ring(&file);
        assert_eq!(next.recover(1).unwrap(), [5, 7, 1]);
        next.begin(0);
        // Dies right after the used ring has moved.
        next.ending(7);
        assert_eq!(second_ring(&file).recover(2).unwrap(), [5, 1, 0]);
        // Dies right before.
        second_ring(&file).ending(1);
        assert_eq!(second_ring(&file).recover(2).unwrap(), [5, 1, 0]);
    }

    #[test]
    fn foreign_memory_is_refused() {
        let file = create(2, 8).unwrap();
        let map = |len, entries| Area::map(file.try_clone().unwrap(), 0, len, 2, entries);
        assert!(map(8, 8).is_err(), "too short");
        assert!(map(1 << 20, 1024).is_err(), "longer than the file");
        let mut other = map(area_len(2, 8) as u64, 4).unwrap().rings().next().unwrap();
        assert!(other.recover(0).is_err());
        let mut ring = second_ring(&file);
        ring.put(header::LAST_HEAD, 0xffff_u16);
        assert_eq!(ring.recover(9).unwrap(), [0_u16; 0]);
        ring.begin(8);
        ring.ended(0xffff, 10);
    }
}
