//! Descriptor chains: the buffers of a request in the guest's memory.
//!
//! A chain is read once, when it is taken off the ring, and checked at the same time: later writes
//! of the guest to the tables change nothing. Addresses are checked when they are used.
//!
//! The guest is not trusted. A chain that is longer than the offered limit, leads out of its table,
//! nests indirect tables, or has a readable descriptor after a writable one is [`Broken`]; so is
//! memory that the guest does not have, or that has vanished.

use std::io;
use std::ops::Deref;

use arrayvec::ArrayVec;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{
    Address, Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion,
    GuestRegionMmap,
};

use super::guard::Guard;

/// Guest memory, shared by a front end.
#[derive(Debug)]
pub(super) struct Memory {
    /// Dropped first: the guards end before the mappings.
    guards: Vec<Guard>,
    mapped: GuestMemoryMmap<()>,
}

impl Memory {
    /// Guards mapped memory.
    ///
    /// # Errors
    /// As [`Guard::new`].
    pub(super) fn new(mapped: GuestMemoryMmap<()>) -> io::Result<Self> {
        let guard = |region: &GuestRegionMmap<()>| {
            // SAFETY: a region is a mapping of its own, of memory that the guest may change at any
            // time; the struct keeps it longer than its guard.
            unsafe { Guard::new(region.as_ptr(), region.len() as usize) }
        };
        let guards = mapped.iter().map(guard).collect::<io::Result<_>>()?;
        Ok(Self { guards, mapped })
    }

    /// Whether a part of the memory has vanished: nothing that was read from it counts.
    pub(super) fn is_lost(&self) -> bool {
        self.guards.iter().any(Guard::is_lost)
    }

    /// Refuses memory that is lost, after an access to it.
    fn check(&self) -> Result<(), Broken> {
        if self.is_lost() { Err(Broken) } else { Ok(()) }
    }
}

impl Deref for Memory {
    type Target = GuestMemoryMmap<()>;

    fn deref(&self) -> &Self::Target {
        &self.mapped
    }
}

/// The most data segments that the guest is told to use.
pub(super) const DATA_SEGMENTS_MAX: usize = 126;

/// The most segments of a chain: the data segments, a header and a status.
const SEGMENTS_MAX: usize = DATA_SEGMENTS_MAX + 2;

/// Bytes of a descriptor.
const DESCRIPTOR_LEN: u64 = size_of::<Descriptor>() as u64;

/// The guest's tables or addresses are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Segments of the guest's memory, contiguous to the device.
#[derive(Debug, Default)]
pub(super) struct Segments {
    list: ArrayVec<(GuestAddress, u32), SEGMENTS_MAX>,
}

impl Segments {
    /// Total bytes. At most 2^39, as the number of segments is limited.
    pub(super) fn len(&self) -> u64 {
        self.list.iter().map(|&(_, len)| u64::from(len)).sum()
    }

    /// Reads at `offset` into `bytes`.
    pub(super) fn read(
        &self,
        memory: &Memory,
        offset: u64,
        mut bytes: &mut [u8],
    ) -> Result<(), Broken> {
        self.visit(offset, bytes.len() as u64, |address, len| {
            let (part, rest) = std::mem::take(&mut bytes).split_at_mut(len);
            bytes = rest;
            memory.read_slice(part, address).map_err(|_| Broken)
        })?;
        memory.check()
    }

    /// Writes `bytes` at `offset`.
    pub(super) fn write(
        &self,
        memory: &Memory,
        offset: u64,
        mut bytes: &[u8],
    ) -> Result<(), Broken> {
        self.visit(offset, bytes.len() as u64, |address, len| {
            let (part, rest) = bytes.split_at(len);
            bytes = rest;
            memory.write_slice(part, address).map_err(|_| Broken)
        })?;
        memory.check()
    }

    /// Calls `visit` for each piece of the `len` bytes at `offset`.
    fn visit(
        &self,
        mut offset: u64,
        mut len: u64,
        mut visit: impl FnMut(GuestAddress, usize) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        for &(address, segment_len) in &self.list {
            let segment_len = u64::from(segment_len);
            if offset >= segment_len {
                offset -= segment_len;
                continue;
            }
            let piece = len.min(segment_len - offset);
            if piece > 0 {
                let address = address.checked_add(offset).ok_or(Broken)?;
                visit(address, piece as usize)?;
            }
            (offset, len) = (0, len - piece);
        }
        if len == 0 { Ok(()) } else { Err(Broken) }
    }
}

/// A request's buffers in the guest's memory.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Segments that the device reads.
    pub(super) readable: Segments,
    /// Segments that the device writes.
    pub(super) writable: Segments,
}

impl Chain {
    /// Follows the chain that begins with the descriptor `head` of a table of `len`.
    pub(super) fn walk(
        memory: &Memory,
        table: GuestAddress,
        len: u16,
        head: u16,
    ) -> Result<Self, Broken> {
        let mut chain = Self::default();
        let (mut table, mut len, mut index) = (table, u32::from(len), u32::from(head));
        let mut indirect = false;
        loop {
            if index >= len {
                return Err(Broken);
            }
            let address = table.checked_add(u64::from(index) * DESCRIPTOR_LEN).ok_or(Broken)?;
            let descriptor: Descriptor = memory.read_obj(address).map_err(|_| Broken)?;
            if descriptor.refers_to_indirect_table() {
                let fits = u64::from(descriptor.len()).is_multiple_of(DESCRIPTOR_LEN);
                if indirect || descriptor.has_next() || !fits {
                    return Err(Broken);
                }
                let count = descriptor.len() / DESCRIPTOR_LEN as u32;
                (table, len, index, indirect) = (descriptor.addr(), count, 0, true);
                continue;
            }
            chain.push(&descriptor)?;
            if !descriptor.has_next() {
                memory.check()?;
                return Ok(chain);
            }
            index = u32::from(descriptor.next());
        }
    }

    /// Adds a segment. The limit also ends the walk of a cyclic chain.
    fn push(&mut self, descriptor: &Descriptor) -> Result<(), Broken> {
        let segments = match descriptor.is_write_only() {
            true => &mut self.writable,
            false if self.writable.list.is_empty() => &mut self.readable,
            false => return Err(Broken),
        };
        segments.list.try_push((descriptor.addr(), descriptor.len())).map_err(|_| Broken)
    }
}

#[cfg(test)]
mod tests {
    use virtio_bindings::bindings::virtio_ring::{
        VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE,
    };

    use super::*;

    const NEXT: u16 = VRING_DESC_F_NEXT as u16;
    const WRITE: u16 = VRING_DESC_F_WRITE as u16;
    const INDIRECT: u16 = VRING_DESC_F_INDIRECT as u16;

    fn memory() -> Memory {
        Memory::new(GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 16)]).unwrap()).unwrap()
    }

    /// Puts descriptors of (address, length, flags, next) at `table`, and walks from the first.
    fn walk(table: &[(u64, u32, u16, u16)], indirect: &[(u64, u32, u16, u16)]) -> Option<Chain> {
        let memory = memory();
        for (at, table) in [(0, table), (0x1000, indirect)] {
            for (index, &(address, len, flags, next)) in table.iter().enumerate() {
                let descriptor = Descriptor::new(address, len, flags, next);
                let at = GuestAddress(at + index as u64 * DESCRIPTOR_LEN);
                memory.write_obj(descriptor, at).unwrap();
            }
        }
        Chain::walk(&memory, GuestAddress(0), table.len() as u16, 0).ok()
    }

    #[test]
    fn a_chain_has_readable_and_writable_segments() {
        let direct = [(0x2000, 16, NEXT, 2), (0x5000, 1, WRITE, 0), (0x3000, 512, NEXT | WRITE, 1)];
        let inner = [(0x2000, 16, NEXT, 1), (0x3000, 513, WRITE, 0)];
        for chain in [walk(&direct, &[]), walk(&[(0x1000, 32, INDIRECT, 0)], &inner)] {
            let chain = chain.unwrap();
            assert_eq!((chain.readable.len(), chain.writable.len()), (16, 513));
        }
    }

    #[test]
    fn invalid_chains_are_refused() {
        let invalid: [(&str, &[_], &[_]); 7] = [
            ("a loop", &[(0, 1, NEXT, 1), (0, 1, NEXT, 0)], &[]),
            ("out of the table", &[(0, 1, NEXT, 7)], &[]),
            ("nested tables", &[(0x1000, 16, INDIRECT, 0)], &[(0x1000, 16, INDIRECT, 0)]),
            ("an empty table", &[(0x1000, 0, INDIRECT, 0)], &[]),
            ("a table of a fractional length", &[(0x1000, 17, INDIRECT, 0)], &[(0, 1, 0, 0)]),
            ("a table nowhere", &[(u64::MAX - 3, 32, INDIRECT, 0)], &[]),
            ("read after write", &[(0, 1, NEXT | WRITE, 1), (0, 1, 0, 0)], &[]),
        ];
        for (what, table, indirect) in invalid {
            assert!(walk(table, indirect).is_none(), "{what}");
        }
    }

    #[test]
    fn pieces_are_found_across_segments() {
        let table =
            [(0x2000, 3, NEXT | WRITE, 1), (0x3000, 0, NEXT | WRITE, 2), (0x4000, 5, WRITE, 0)];
        let (chain, memory) = (walk(&table, &[]).unwrap(), memory());
        chain.writable.write(&memory, 1, b"abcdef").unwrap();
        let mut bytes = [0; 8];
        chain.writable.read(&memory, 0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0abcdef\0");
        assert_eq!(chain.writable.write(&memory, 1, &[0; 8]), Err(Broken), "too long");
        let nowhere = walk(&[(u64::MAX - 1, 8, WRITE, 0)], &[]).unwrap();
        assert_eq!(nowhere.writable.write(&memory, 4, &[1]), Err(Broken));
    }
}
