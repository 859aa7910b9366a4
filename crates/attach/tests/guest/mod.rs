//! A virtual machine's monitor and its guest's driver, as far as tests need them: shared memory,
//! and split virtqueues in it.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserInflight, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap, MmapRegion};
use vmm_sys_util::eventfd::EventFd;

use tyche_testkit::wait::{PATIENCE, wait_readable, wait_until};

pub(crate) const OK: u8 = 0;
pub(crate) const IO_ERROR: u8 = 1;
pub(crate) const UNSUPPORTED: u8 = 2;

pub(crate) const FEATURE_FLUSH: u64 = 1 << 9;
const FEATURE_EVENT_IDX: u64 = 1 << 29;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const IDENTIFY: u32 = 8;
pub(crate) const DISCARD: u32 = 11;
pub(crate) const WRITE_ZEROES: u32 = 13;

const QUEUES: usize = 2;
const SIZE: u16 = 64;
const MEMORY: usize = 64 << 20;
/// The guest's memory in the monitor's address space.
const USER_ADDRESS: u64 = 0x7000_0000_0000;
/// The guest's memory in its own address space.
const BASE: u64 = 0x10_0000;
/// Per queue: descriptors, available ring, used ring.
const RINGS: u64 = 0x1_0000;
const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x8000;
/// Per request: its header, its status, its data.
const SLOT: u64 = BASE + 0x10_0000;
const SLOT_LEN: u64 = 0x30_0000;
const SLOTS: u64 = 16;
/// A header for the first sector, for invalid requests.
pub(crate) const HEADER: u64 = BASE + 0x8_0000;

/// An entry of a descriptor table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    pub(crate) const fn read(address: u64, len: u32) -> Self {
        Self { address, len, flags: 0, next: 0 }
    }

    pub(crate) const fn write(address: u64, len: u32) -> Self {
        Self { address, len, flags: 2, next: 0 }
    }

    pub(crate) const fn next(self, next: u16) -> Self {
        Self { flags: self.flags | 1, next, ..self }
    }

    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.flags.to_le_bytes());
        bytes[14..].copy_from_slice(&self.next.to_le_bytes());
        bytes
    }
}

/// A request that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    queue: usize,
    head: u16,
    slot: u64,
}

struct Ring {
    kick: EventFd,
    call: EventFd,
    available: u16,
    used: u16,
    /// The next request's first descriptor: each has four, round robin.
    next: u16,
    /// Answered requests that the test has not waited for yet.
    answered: Vec<u16>,
}

pub(crate) struct Guest {
    frontend: Frontend,
    memory: GuestMemoryMmap<()>,
    file: File,
    rings: Vec<Ring>,
    features: u64,
    in_flight: Option<(VhostUserInflight, File)>,
    next_slot: u64,
}

impl Guest {
    /// Connects with the offered features within `features`, with or without in-flight memory.
    pub(crate) fn connect(path: &Path, features: u64, in_flight: bool) -> Self {
        let file = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(file);
        file.set_len(MEMORY as u64).unwrap();
        let region = MmapRegion::from_file(FileOffset::new(file.try_clone().unwrap(), 0), MEMORY);
        let region = vm_memory::GuestRegionMmap::new(region.unwrap(), GuestAddress(BASE)).unwrap();
        let memory = GuestMemoryMmap::from_regions(vec![region]).unwrap();
        let ring = || Ring {
            kick: EventFd::new(0).unwrap(),
            call: EventFd::new(libc::EFD_NONBLOCK).unwrap(),
            available: 0,
            used: 0,
            next: 0,
            answered: Vec::new(),
        };
        let frontend = Frontend::connect(path, QUEUES as u64).unwrap();
        let rings = (0..QUEUES).map(|_| ring()).collect();
        let mut guest =
            Self { frontend, memory, file, rings, features, in_flight: None, next_slot: 0 };
        guest.negotiate(in_flight);
        if in_flight {
            let wanted = VhostUserInflight::new(0, 0, QUEUES as u16, SIZE);
            guest.in_flight = Some(guest.frontend.get_inflight_fd(&wanted).unwrap());
        }
        guest.set_up();
        guest
    }

    /// Connects to another process, as a monitor does after the death of its back end.
    pub(crate) fn reconnect(&mut self, path: &Path) {
        self.frontend = Frontend::connect(path, QUEUES as u64).unwrap();
        self.negotiate(self.in_flight.is_some());
        self.set_up();
    }

    /// Whether the other side has closed the socket.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.frontend.get_features().is_err()
    }

    fn negotiate(&mut self, in_flight: bool) {
        let offered = self.frontend.get_features().unwrap();
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        self.features = offered & (self.features | protocol) & !FEATURE_EVENT_IDX;
        let mut wanted = VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::CONFIG;
        wanted |= VhostUserProtocolFeatures::REPLY_ACK;
        if in_flight {
            wanted |= VhostUserProtocolFeatures::INFLIGHT_SHMFD;
        }
        let offered = self.frontend.get_protocol_features().unwrap();
        assert!(offered.contains(wanted));
        self.frontend.set_protocol_features(wanted).unwrap();
        assert_eq!(self.frontend.get_queue_num().unwrap(), QUEUES as u64);
        self.frontend.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
        self.frontend.set_owner().unwrap();
        self.frontend.set_features(self.features).unwrap();
    }

    fn set_up(&mut self) {
        if let Some((area, file)) = &self.in_flight {
            self.frontend.set_inflight_fd(area, file.as_raw_fd()).unwrap();
        }
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE,
            memory_size: MEMORY as u64,
            userspace_addr: USER_ADDRESS,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        };
        self.frontend.set_mem_table(&[region]).unwrap();
        for (queue, ring) in self.rings.iter().enumerate() {
            let at = USER_ADDRESS + queue as u64 * RINGS;
            self.frontend.set_vring_num(queue, SIZE).unwrap();
            // A monitor's only record of a dead back end: its used index.
            self.frontend.set_vring_base(queue, ring.used).unwrap();
            let config = VringConfigData {
                queue_max_size: SIZE,
                queue_size: SIZE,
                flags: 0,
                desc_table_addr: at,
                used_ring_addr: at + USED,
                avail_ring_addr: at + AVAILABLE,
                log_addr: None,
            };
            self.frontend.set_vring_addr(queue, &config).unwrap();
            self.frontend.set_vring_call(queue, &ring.call).unwrap();
            self.frontend.set_vring_kick(queue, &ring.kick).unwrap();
            self.frontend.set_vring_enable(queue, true).unwrap();
        }
    }

    /// Restarts a queue with its used ring inside its available ring: each time the device enables
    /// kicks, it makes a request available to itself. Returns after the first time.
    pub(crate) fn feed_from_itself(&mut self, queue: usize) {
        const SHIFTED: u64 = AVAILABLE + 2;
        self.stop(queue);
        let rings = queue as u64 * RINGS;
        let index = GuestAddress(BASE + rings + SHIFTED + 2);
        self.memory.store(1_u16, index, Ordering::SeqCst).unwrap();
        let config = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: USER_ADDRESS + rings,
            used_ring_addr: USER_ADDRESS + rings + SHIFTED + 2,
            avail_ring_addr: USER_ADDRESS + rings + SHIFTED,
            log_addr: None,
        };
        self.frontend.set_vring_base(queue, 1).unwrap();
        self.frontend.set_vring_addr(queue, &config).unwrap();
        self.frontend.set_vring_kick(queue, &self.rings[queue].kick).unwrap();
        wait_until("the queue runs", || {
            self.memory.load::<u16>(index, Ordering::SeqCst).unwrap() == 0
        });
    }

    /// Stops a queue. Returns its next available entry.
    pub(crate) fn stop(&mut self, queue: usize) -> u32 {
        self.frontend.get_vring_base(queue).unwrap()
    }

    pub(crate) fn config(&mut self, offset: u32, len: u32) -> Vec<u8> {
        let flags = VhostUserConfigFlags::empty();
        self.frontend.get_config(offset, len, flags, &vec![0; len as usize]).unwrap().1
    }

    pub(crate) fn read(&mut self, queue: usize, sector: u64, len: usize) -> (u8, Vec<u8>) {
        let token = self.submit_read(queue, sector, len);
        self.await_read(token, len)
    }

    pub(crate) fn write(&mut self, queue: usize, sector: u64, data: &[u8]) -> u8 {
        let token = self.submit_write(queue, sector, data);
        self.await_status(token)
    }

    pub(crate) fn flush(&mut self, queue: usize) -> u8 {
        let token = self.submit(queue, FLUSH, 0, &[], 0);
        self.await_status(token)
    }

    pub(crate) fn identify(&mut self, queue: usize) -> [u8; 20] {
        let token = self.submit(queue, IDENTIFY, 0, &[], 20);
        let (status, data) = self.await_read(token, 20);
        assert_eq!(status, OK);
        data.try_into().unwrap()
    }

    pub(crate) fn range(
        &mut self,
        queue: usize,
        kind: u32,
        sector: u64,
        sectors: u32,
        flags: u32,
    ) -> u8 {
        let range =
            [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat();
        let token = self.submit(queue, kind, 0, &range, 0);
        self.await_status(token)
    }

    pub(crate) fn submit_read(&mut self, queue: usize, sector: u64, len: usize) -> Token {
        self.submit(queue, IN, sector, &[], len)
    }

    pub(crate) fn submit_write(&mut self, queue: usize, sector: u64, data: &[u8]) -> Token {
        self.submit(queue, OUT, sector, data, 0)
    }

    /// Puts a request into the ring. Its data are two descriptors, split at an odd offset.
    fn submit(&mut self, queue: usize, kind: u32, sector: u64, out: &[u8], room: usize) -> Token {
        let slot = SLOT + self.next_slot % SLOTS * SLOT_LEN;
        self.next_slot += 1;
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.put(slot, &header);
        self.put(slot + 16, &[0xff]);
        let data = slot + 4096;
        self.put(data, out);
        let head = self.rings[queue].next;
        self.rings[queue].next = (head + 4) % SIZE;
        let (len, flags) = if room > 0 { (room, 2) } else { (out.len(), 0) };
        let cut = (len / 3) as u32;
        let part = |address, len| Descriptor { address, len, flags, next: 0 };
        let chain = match len {
            0 => vec![Descriptor::read(slot, 16).next(head + 1), Descriptor::write(slot + 16, 1)],
            _ => vec![
                Descriptor::read(slot, 16).next(head + 1),
                part(data, cut).next(head + 2),
                part(data + u64::from(cut), len as u32 - cut).next(head + 3),
                Descriptor::write(slot + 16, 1),
            ],
        };
        self.offer(queue, head, &chain);
        Token { queue, head, slot }
    }

    /// Puts any chain into the ring, and waits until it comes back.
    pub(crate) fn raw(&mut self, queue: usize, chain: &[Descriptor]) {
        self.put(HEADER, &[0; 16]);
        let head = self.rings[queue].next;
        assert_eq!(head, 0, "chains count from the table's start");
        self.rings[queue].next = 4;
        self.offer(queue, head, chain);
        self.wait(Token { queue, head, slot: 0 });
    }

    /// Advances the available index over entries that were never written.
    pub(crate) fn skip_available(&mut self, queue: usize, count: u16) {
        self.rings[queue].available += count;
        self.publish(queue);
    }

    fn offer(&mut self, queue: usize, head: u16, chain: &[Descriptor]) {
        let rings = BASE + queue as u64 * RINGS;
        for (index, descriptor) in chain.iter().enumerate() {
            let at = rings + (u64::from(head) + index as u64) * 16;
            self.put(at, &descriptor.bytes());
        }
        let entry = u64::from(self.rings[queue].available % SIZE);
        self.put(rings + AVAILABLE + 4 + entry * 2, &head.to_le_bytes());
        self.rings[queue].available += 1;
        self.publish(queue);
    }

    fn publish(&self, queue: usize) {
        let at = GuestAddress(BASE + queue as u64 * RINGS + AVAILABLE + 2);
        self.memory.store(self.rings[queue].available, at, Ordering::SeqCst).unwrap();
        self.rings[queue].kick.write(1).unwrap();
    }

    /// The status, and the data of a read of `len` bytes.
    pub(crate) fn await_read(&mut self, token: Token, len: usize) -> (u8, Vec<u8>) {
        let status = self.await_status(token);
        let mut data = vec![0; len];
        self.memory.read_slice(&mut data, GuestAddress(token.slot + 4096)).unwrap();
        (status, data)
    }

    pub(crate) fn await_status(&mut self, token: Token) -> u8 {
        self.wait(token);
        let mut status = [0];
        self.memory.read_slice(&mut status, GuestAddress(token.slot + 16)).unwrap();
        status[0]
    }

    fn wait(&mut self, token: Token) {
        let deadline = Instant::now() + PATIENCE;
        let rings = BASE + token.queue as u64 * RINGS;
        loop {
            let at = GuestAddress(rings + USED + 2);
            let used: u16 = self.memory.load(at, Ordering::SeqCst).unwrap();
            let ring = &mut self.rings[token.queue];
            while ring.used != used {
                let entry = rings + USED + 4 + u64::from(ring.used % SIZE) * 8;
                let head: u32 = self.memory.read_obj(GuestAddress(entry)).unwrap();
                assert!(!ring.answered.contains(&(head as u16)), "answered twice");
                ring.answered.push(head as u16);
                ring.used = ring.used.wrapping_add(1);
            }
            if let Some(at) = ring.answered.iter().position(|&head| head == token.head) {
                ring.answered.remove(at);
                return;
            }
            assert!(Instant::now() < deadline, "the request is not answered");
            // SAFETY: the eventfd is open as long as the guest.
            let call = unsafe { BorrowedFd::borrow_raw(ring.call.as_raw_fd()) };
            wait_readable(call, Duration::from_secs(1));
            let _ = ring.call.read();
        }
    }

    fn put(&self, address: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(address)).unwrap();
    }
}
