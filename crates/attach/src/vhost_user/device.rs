//! One front end's device: its messages on the socket, and the queues that they set up.
//!
//! A queue runs while its memory, tables and kick are known and it is enabled. When its kick
//! changes or it is disabled, it is paused: it takes no more requests. Before a reset, a new memory
//! table or the return of a ring's position, the requests already taken are answered as well: from
//! then on, the device leaves the guest's memory alone.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tyche_block::Disk;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVirtioFeatures,
    VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_bindings::bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap};

use super::chain::Memory;
use super::config::{PROTOCOL, Space, features, has};
use super::inflight::{self, Area};
use super::queue::{Counters, Finisher, Queue, Taker};
use super::request::{IDENTITY_LEN, Terms};
use super::ring::{Ring, SIZE_MAX, Start};
use crate::slots::Closed;

/// The parameters common to the devices of all front ends.
#[derive(Clone)]
pub(super) struct Template {
    pub(super) disk: Arc<dyn Disk>,
    /// The queues of the disk, which those of the virtual machine use round robin.
    pub(super) disk_queues: Vec<Arc<dyn Disk>>,
    /// The longest read or write, in bytes, as guests are told.
    pub(super) payload_max: u32,
    /// The longest one that is accepted.
    pub(super) accepted_max: u32,
    pub(super) queues: u16,
    pub(super) identity: [u8; IDENTITY_LEN],
    pub(super) counters: Arc<Counters>,
    /// Raised when the attachment ends.
    pub(super) given_up: Arc<Closed>,
}

/// A region of the guest's memory in the front end's own address space.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    user_address: u64,
    len: u64,
    guest_address: u64,
}

/// A virtqueue as set up by the front end's messages.
struct Vring {
    /// `None` until the queue runs for the first time.
    threads: Option<QueueThreads>,
    size: u16,
    tables: Option<[GuestAddress; 3]>,
    base: u16,
    kick: Option<Arc<File>>,
    call: Option<Arc<File>>,
    enabled: bool,
}

/// A queue and its threads.
struct QueueThreads {
    queue: Arc<Queue>,
    finisher: Finisher,
    /// `None` while the queue is paused.
    taker: Option<Taker>,
}

impl QueueThreads {
    fn new(template: &Template, number: usize) -> io::Result<Self> {
        let Template { disk_queues, identity, counters, .. } = template;
        let disk = Arc::clone(&disk_queues[number % disk_queues.len()]);
        let queue = Arc::new(Queue::new(disk, *identity, Arc::clone(counters)));
        Ok(Self { finisher: Finisher::start(Arc::clone(&queue))?, queue, taker: None })
    }
}

impl Vring {
    const UNKNOWN: Self = Self {
        threads: None,
        size: SIZE_MAX,
        tables: None,
        base: 0,
        kick: None,
        call: None,
        enabled: false,
    };

    /// Stops taking requests. Those already taken are still answered.
    fn pause(&mut self) {
        if let Some(threads) = &mut self.threads {
            threads.taker = None;
        }
    }

    /// Stops taking requests, waits until those already taken are answered, and records the
    /// position in the ring.
    fn quiesce(&mut self, given_up: &Closed) {
        self.pause();
        let Some(QueueThreads { queue, .. }) = &self.threads else { return };
        queue.drain(given_up);
        if let Some(ring) = queue.ring().take() {
            self.base = ring.base();
        }
    }
}

/// A front end's device.
pub(super) struct Device {
    template: Template,
    features: u64,
    memory: Option<Arc<Memory>>,
    mappings: Vec<Mapping>,
    in_flight: Option<Area>,
    vrings: Vec<Vring>,
}

impl Device {
    pub(super) fn new(template: Template) -> Self {
        let vrings = (0..template.queues).map(|_| Vring::UNKNOWN).collect();
        let mappings = Vec::new();
        Self { template, features: 0, memory: None, mappings, in_flight: None, vrings }
    }

    /// Releases the guest's memory at once, then waits until the disk has answered: a request of
    /// this front end must not be executed after those of the next one.
    pub(super) fn end(&mut self) {
        let threads: Vec<_> = self.vrings.drain(..).filter_map(|vring| vring.threads).collect();
        for QueueThreads { queue, .. } in &threads {
            queue.close();
        }
        for QueueThreads { queue, finisher, taker } in threads {
            drop((taker, finisher));
            queue.drain(&self.template.given_up);
        }
    }

    fn vring(&mut self, index: impl Into<u32>) -> Result<&mut Vring> {
        self.vrings.get_mut(index.into() as usize).ok_or(Error::InvalidParam)
    }

    fn guest_address(&self, user_address: u64) -> Result<GuestAddress> {
        let within = |mapping: &&Mapping| {
            user_address.checked_sub(mapping.user_address).is_some_and(|at| at < mapping.len)
        };
        let mapping = self.mappings.iter().find(within).ok_or(Error::InvalidParam)?;
        let address = mapping.guest_address.checked_add(user_address - mapping.user_address);
        address.map(GuestAddress).ok_or(Error::InvalidParam)
    }

    fn terms(&self) -> Terms {
        let geometry = self.template.disk.geometry();
        Terms {
            payload_max: self.template.accepted_max,
            write_through: geometry.write_cache && !has(self.features, VIRTIO_BLK_F_FLUSH),
            discard: geometry.discard,
        }
    }

    /// Runs a queue if it is enabled and all its parameters are known.
    fn run(&mut self, index: usize) -> Result<()> {
        let (terms, features) = (self.terms(), self.features);
        let in_flight = self.in_flight.as_ref().and_then(|area| area.rings().nth(index));
        let vring = &mut self.vrings[index];
        let (Some(memory), Some(tables), Some(kick)) = (&self.memory, vring.tables, &vring.kick)
        else {
            return Ok(());
        };
        if !vring.enabled {
            return Ok(());
        }
        let threads = match vring.threads.take() {
            Some(threads) => threads,
            None => QueueThreads::new(&self.template, index).map_err(Error::ReqHandlerError)?,
        };
        let threads = vring.threads.insert(threads);
        if threads.taker.is_some() {
            return Ok(());
        }
        {
            let mut ring = threads.queue.ring();
            if ring.is_none() {
                let start = Start {
                    memory: Arc::clone(memory),
                    size: vring.size,
                    tables,
                    base: vring.base,
                    event_idx: has(features, VIRTIO_RING_F_EVENT_IDX),
                    in_flight,
                };
                let started = Ring::start(start, vring.call.clone());
                *ring = Some(started.map_err(|_| Error::InvalidParam)?);
            }
        }
        let taker = Taker::start(Arc::clone(&threads.queue), Arc::clone(kick), terms);
        threads.taker = Some(taker.map_err(Error::ReqHandlerError)?);
        Ok(())
    }

    fn run_all(&mut self) -> Result<()> {
        (0..self.vrings.len()).try_for_each(|index| self.run(index))
    }

    fn quiesce_all(&mut self) {
        for vring in &mut self.vrings {
            vring.quiesce(&self.template.given_up);
        }
    }
}

fn invalid(kind: ErrorKind) -> Error {
    Error::ReqHandlerError(kind.into())
}

const NOT_OFFERED: Error = Error::InvalidOperation("not offered");

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.quiesce_all();
        for vring in &mut self.vrings {
            vring.enabled = false;
        }
        self.features = 0;
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(features(&self.template.disk.geometry()))
    }

    fn set_features(&mut self, wanted: u64) -> Result<()> {
        if wanted & !features(&self.template.disk.geometry()) != 0 {
            return Err(Error::InvalidParam);
        }
        self.features = wanted;
        if wanted & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            // Without that feature queues are never enabled by message.
            for vring in &mut self.vrings {
                vring.enabled = true;
            }
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        self.quiesce_all();
        let mut mapped = Vec::with_capacity(regions.len());
        let mut mappings = Vec::with_capacity(regions.len());
        for (region, file) in regions.iter().zip(files) {
            // An access beyond the end of a mapped file would kill the process.
            let end = region.mmap_offset.checked_add(region.memory_size);
            let len = file.metadata().map_err(Error::ReqHandlerError)?.len();
            if end.is_none_or(|end| end > len) {
                return Err(Error::InvalidParam);
            }
            let address = GuestAddress(region.guest_phys_addr);
            let memory = GuestRegionMmap::new(region.mmap_region(file)?, address);
            mapped.push(memory.ok_or(invalid(ErrorKind::InvalidInput))?);
            mappings.push(Mapping {
                user_address: region.user_addr,
                len: region.memory_size,
                guest_address: region.guest_phys_addr,
            });
        }
        let memory = GuestMemoryMmap::from_regions(mapped);
        let memory = memory.map_err(|error| Error::ReqHandlerError(io::Error::other(error)))?;
        self.memory = Some(Arc::new(Memory::new(memory).map_err(Error::ReqHandlerError)?));
        self.mappings = mappings;
        self.run_all()?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).ok().filter(|size| (1..=SIZE_MAX).contains(size));
        self.vring(index)?.size = size.ok_or(Error::InvalidParam)?;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let table = self.guest_address(descriptor)?;
        let available = self.guest_address(available)?;
        let used = self.guest_address(used)?;
        self.vring(index)?.tables = Some([table, available, used]);
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.vring(index)?.base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let given_up = Arc::clone(&self.template.given_up);
        let vring = self.vring(index)?;
        vring.quiesce(&given_up);
        (vring.kick, vring.call) = (None, None);
        Ok(VhostUserVringState::new(index, u32::from(vring.base)))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let vring = self.vring(index)?;
        vring.pause();
        vring.kick = fd.map(Arc::new);
        self.run(index.into())
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let vring = self.vring(index)?;
        if let Some(call) = &fd {
            // Whoever answers must not wait for it, whatever it is.
            let flags = fcntl_getfl(call).and_then(|it| fcntl_setfl(call, it | OFlags::NONBLOCK));
            flags.map_err(|error| Error::ReqHandlerError(error.into()))?;
        }
        vring.call = fd.map(Arc::new);
        if let Some(QueueThreads { queue, .. }) = &vring.threads
            && let Some(ring) = queue.ring().as_mut()
        {
            ring.set_call(vring.call.clone());
        }
        Ok(())
    }

    /// Ignored: a broken queue is only logged.
    fn set_vring_err(&mut self, index: u8, _fd: Option<File>) -> Result<()> {
        self.vring(index).map(|_| ())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(PROTOCOL)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(u64::from(self.template.queues))
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let vring = self.vring(index)?;
        vring.enabled = enable;
        if !enable {
            vring.pause();
        }
        self.run(index as usize)
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        let Template { disk, payload_max, queues, .. } = &self.template;
        let space = Space::new(&disk.geometry(), *payload_max, *queues);
        space.part(offset, size).map(<[u8]>::to_vec).ok_or(Error::InvalidParam)
    }

    /// The disk's configuration is read-only.
    fn set_config(
        &mut self,
        _offset: u32,
        _buf: &[u8],
        _flags: VhostUserConfigFlags,
    ) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let &VhostUserInflight { num_queues, queue_size, .. } = wanted;
        if num_queues > self.template.queues || queue_size > SIZE_MAX {
            return Err(Error::InvalidParam);
        }
        let file = inflight::create(num_queues, queue_size).map_err(Error::ReqHandlerError)?;
        let len = inflight::area_len(num_queues, queue_size) as u64;
        Ok((VhostUserInflight::new(len, 0, num_queues, queue_size), file))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        let &VhostUserInflight { mmap_size, mmap_offset, num_queues, queue_size } = given;
        let area = Area::map(file, mmap_offset, mmap_size, num_queues, queue_size);
        self.in_flight = Some(area.map_err(Error::ReqHandlerError)?);
        Ok(())
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(NOT_OFFERED)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Err(NOT_OFFERED)
    }

    fn add_mem_region(
        &mut self,
        _region: &VhostUserSingleMemoryRegion,
        _fd: File,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        Err(NOT_OFFERED)
    }

    fn remove_mem_region(&mut self, _region: &VhostUserSingleMemoryRegion) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        Err(NOT_OFFERED)
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(NOT_OFFERED)
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(NOT_OFFERED)
    }
}
