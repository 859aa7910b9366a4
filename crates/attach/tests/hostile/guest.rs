//! A virtqueue in the memory of a hostile guest.
//!
//! An input is a queue and the guest's memory:
//!
//! ```text
//! 0     2     4      5       8       16          24          32
//! size | base | flags | unused | table | available | used ring | in flight, memory ...
//! ```
//!
//! All is little-endian. Bits of `flags`: event index, requests in flight, write-through. With the
//! second one, [`IN_FLIGHT_LEN`] bytes of a previous process's in-flight memory precede the
//! guest's, which begins at guest address 0 and is zero where the input ends.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use rustix::fs::{MemfdFlags, memfd_create};
use tyche_attach::vhost_user::fuzzing::{Served, Virtqueue, serve};
use tyche_block::{Disk, Operation};
use tyche_testkit::corpus::Bytes;
use tyche_testkit::{allocations, alone};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::ledger::Ledger;

/// The guest's memory: two regions adjacent at an odd address, and one after a hole.
const REGIONS: [Range<usize>; 3] = [0..0x2001, 0x2001..0x9000, 0xa000..0xb000];
const MEMORY_END: usize = REGIONS[2].end;

/// Entries for requests in flight, and their size in bytes.
const IN_FLIGHT_ENTRIES: u16 = 8;
const IN_FLIGHT_LEN: usize = 192;

/// Pages of the disk's arena. A quarter of it is the longest read or write.
const PAGES: usize = 16;
const PAYLOAD_MAX: u32 = 16 << 10;

/// Steps after which a queue that feeds itself is paused.
const STEPS_MAX: u64 = 4096;

/// The most bytes that a queue allocates for any input: its tables of requests and answers.
const ALLOCATED_MAX: usize = 600 << 10;

/// The most segments of a chain.
const SEGMENTS_MAX: usize = 128;

/// The outcome for a queue; `None` if it can't be started.
pub(crate) type Outcome = Option<(Served, Vec<Operation>)>;

struct Guest {
    memory: Arc<GuestMemoryMmap<()>>,
    ledger: Arc<Ledger>,
    disk: Arc<dyn Disk>,
    in_flight: File,
}

impl Guest {
    fn new() -> Self {
        let regions = REGIONS.map(|range| (GuestAddress(range.start as u64), range.len()));
        let memory = Arc::new(GuestMemoryMmap::from_ranges(&regions).unwrap());
        let ledger = Ledger::new(PAGES);
        let disk = Arc::clone(&ledger) as _;
        let in_flight = memfd_create("in-flight", MemfdFlags::CLOEXEC).unwrap().into();
        Self { memory, ledger, disk, in_flight }
    }

    fn load(&self, image: &[u8; MEMORY_END]) {
        for range in REGIONS {
            let address = GuestAddress(range.start as u64);
            self.memory.write_slice(&image[range], address).unwrap();
        }
    }

    /// The present memory, with zeroes in its hole.
    fn store(&self) -> [u8; MEMORY_END] {
        let mut image = [0; MEMORY_END];
        for range in REGIONS {
            let address = GuestAddress(range.start as u64);
            self.memory.read_slice(&mut image[range], address).unwrap();
        }
        image
    }
}

/// Serves a queue, and checks the requests to the disk and the writes to the guest. `None` if there
/// is no queue in `input`.
pub(crate) fn check(input: &[u8]) -> Option<Outcome> {
    static GUEST: OnceLock<Guest> = OnceLock::new();
    let _alone = alone::in_program();
    let guest = GUEST.get_or_init(Guest::new);

    let mut input = Bytes(input);
    let size = u16::from_le_bytes(input.array()?);
    let base = u16::from_le_bytes(input.array()?);
    let [flags, ..] = input.array::<4>()?;
    let tables = [input.array()?, input.array()?, input.array()?].map(u64::from_le_bytes);
    let mut in_flight = None;
    if flags & 2 != 0 {
        guest.in_flight.write_all_at(input.take(IN_FLIGHT_LEN)?, 0).unwrap();
        in_flight = Some((guest.in_flight.try_clone().unwrap(), IN_FLIGHT_ENTRIES));
    }
    let mut before = [0; MEMORY_END];
    let len = input.0.len().min(MEMORY_END);
    before[..len].copy_from_slice(&input.0[..len]);
    guest.load(&before);
    let before = guest.store();

    let queue = Virtqueue {
        memory: Arc::clone(&guest.memory),
        size,
        tables,
        base,
        event_idx: flags & 1 != 0,
        write_through: flags & 4 != 0,
        in_flight,
    };
    let (served, allocated) = allocations::during(|| serve(queue, &guest.disk, STEPS_MAX));
    assert!(allocated <= ALLOCATED_MAX, "{allocated} bytes allocated");
    let executed = guest.ledger.take(PAYLOAD_MAX);
    let after = guest.store();
    let Some(served) = served else {
        assert_eq!(executed, [], "executed without a queue");
        assert!(before == after, "written without a queue");
        return Some(None);
    };
    // At most two steps take no request, unless the used ring overlaps the available ring.
    let [_, available, used] = tables;
    let rings_meet =
        available < used + 6 + u64::from(size) * 8 && used < available + 6 + u64::from(size) * 2;
    assert!(rings_meet || served.steps <= served.requests + 2, "looks in vain: {served:?}");
    Granted::find(&before, tables, size).check(&before, &after, &served);
    Some(Some((served, executed.iter().map(|entry| entry.operation).collect())))
}

/// The memory that a queue may write, according to its tables before it runs.
struct Granted {
    used_ring: Range<usize>,
    /// Bytes of data, by the first descriptor.
    room: Vec<u64>,
    /// Segments that have been marked.
    seen: BTreeSet<(u64, u64)>,
    /// Whether each byte of the memory is for data, and whether it is in a descriptor.
    data: Vec<bool>,
    descriptors: Vec<bool>,
}

impl Granted {
    fn find(image: &[u8], [table, _, used]: [u64; 3], size: u16) -> Self {
        let table = table..table + u64::from(size) * 16;
        let used = used as usize;
        let mut granted = Self {
            used_ring: used..used + 6 + usize::from(size) * 8,
            room: Vec::new(),
            seen: BTreeSet::new(),
            data: vec![false; MEMORY_END],
            descriptors: vec![false; MEMORY_END],
        };
        mark(&mut granted.descriptors, &table);
        for head in 0..size {
            let room = granted.follow(image, table.clone(), head);
            granted.room.push(room);
        }
        granted
    }

    /// Marks the segments of the chain that begins with `head`, and returns their bytes for data.
    fn follow(&mut self, image: &[u8], mut table: Range<u64>, head: u16) -> u64 {
        let mut room = 0;
        let mut index = u64::from(head);
        for _ in 0..=SEGMENTS_MAX {
            let start = table.start.saturating_add(index * 16);
            let Some(descriptor) = part(image, start, 16).filter(|_| start < table.end) else {
                break;
            };
            let mut descriptor = Bytes(descriptor);
            let address = u64::from_le_bytes(descriptor.array().unwrap());
            let len = u64::from(u32::from_le_bytes(descriptor.array().unwrap()));
            let flags = u16::from_le_bytes(descriptor.array().unwrap());
            let segment = address..address.saturating_add(len);
            let new = flags & 6 != 0 && self.seen.insert((segment.start, segment.end));
            if flags & 4 != 0 {
                if new {
                    mark(&mut self.descriptors, &segment);
                }
                (table, index) = (segment, 0);
                continue;
            }
            if flags & 2 != 0 {
                if new {
                    mark(&mut self.data, &segment);
                }
                room += len;
            }
            if flags & 1 == 0 {
                break;
            }
            index = u64::from(u16::from_le_bytes(descriptor.array().unwrap()));
        }
        room
    }

    /// Panics if other memory was written, or if an answer is not to one of these chains. If the
    /// device may overwrite the guest's tables or used ring, any result is valid.
    fn check(&self, before: &[u8], after: &[u8], served: &Served) {
        let mut written = self.data.clone();
        written[self.used_ring.clone()].fill(true);
        if written.iter().zip(&self.descriptors).any(|(written, read)| *written && *read) {
            return;
        }
        for (at, granted) in written.into_iter().enumerate() {
            assert!(granted || before[at] == after[at], "{at:#x} is not for the device to write");
        }
        if self.data[self.used_ring.clone()].contains(&true) {
            return;
        }
        self.check_answers(before, after, served);
    }

    fn check_answers(&self, before: &[u8], after: &[u8], served: &Served) {
        let start = self.used_ring.start;
        let u32_at = |at: usize| u32::from_le_bytes(*after[at..].first_chunk().unwrap());
        let used_idx =
            |image: &[u8]| u16::from_le_bytes(*image[start + 2..].first_chunk().unwrap());
        let (first, end) = (used_idx(before), used_idx(after));
        let answered = end.wrapping_sub(first);
        let size = self.room.len() as u16;
        assert!(answered == served.requests as u16 || served.broken, "{answered} of {served:?}");
        for back in 1..=answered.min(size) {
            let entry = start + 4 + usize::from(end.wrapping_sub(back) % size) * 8;
            let room = self.room[u32_at(entry) as usize];
            assert!(u64::from(u32_at(entry + 4)) <= room, "more written than there is room for");
        }
    }
}

/// Marks the part of a range that is in the memory.
fn mark(marks: &mut [bool], range: &Range<u64>) {
    let clip = |at: u64| usize::try_from(at).map_or(MEMORY_END, |at| at.min(MEMORY_END));
    marks[clip(range.start)..clip(range.end)].fill(true);
}

/// A part of the guest's memory, if it is all there.
fn part(image: &[u8], start: u64, len: u64) -> Option<&[u8]> {
    let end = usize::try_from(start.checked_add(len)?).ok()?;
    let start = end - len as usize;
    let hole = REGIONS[1].end..REGIONS[2].start;
    let whole = end <= hole.start || start >= hole.end;
    image.get(start..end).filter(|_| whole)
}
