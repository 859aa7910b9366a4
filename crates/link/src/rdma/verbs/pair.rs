//! A queue pair of a card.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tyche_block::Arena;

use super::library::{
    ACCESS_LOCAL_WRITE, ACCESS_REMOTE_WRITE, CONNECT_ERROR, CompChannel, Context, ContextOps, Cq,
    DEVICE_REMOVAL, DISCONNECTED, Library, QPT_RC, QpInitAttr, RecvWr, SEND_SIGNALED, SendWr, Sge,
    TRANSPORT_IWARP, UNREACHABLE, WC_RECV, WC_RECV_RDMA_WITH_IMM, WC_RETRY_EXC_ERR,
    WC_WR_FLUSH_ERR, WR_RDMA_WRITE, WR_RDMA_WRITE_WITH_IMM, WR_SEND, Wc, library,
};
use super::manager::Id;
use super::memory::{Domain, Registered};
use crate::rdma::pair::{QueuePair, Write};
use crate::rdma::placed::DATA_LEN;
use crate::rdma::region::Region;
use crate::rdma::ring::WRITES_MAX;
use crate::rdma::window::{INTERRUPTS_MAX, PeerWindow, WORD, window_len};

/// Receive requests: twice the interrupts that a peer causes before it is told of new ones.
const RECEIVES: usize = 2 * INTERRUPTS_MAX;
/// Permissions of the window, and of nothing else: the peer may write there.
const FOR_PEER: i32 = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE;
/// The most completions taken at once.
const COMPLETIONS: usize = 16;

/// A queue pair, its completion queues and its memory.
pub struct VerbsPair {
    // In this order they are dropped: each is used by those before it, and the device is open as
    // long as there is the ID.
    receives: CompletionQueue,
    sends: CompletionQueue,
    events: Events,
    staging: Option<Registered>,
    /// The memory that data are written from.
    data: Option<Registered>,
    window: Registered,
    /// Where devices without immediates receive them as messages, one word each; behind that, where
    /// they are sent from.
    messages: Registered,
    /// Messages sent.
    sent: usize,
    domain: Domain,
    id: Id,
    units: u32,
    takes_notes: bool,
    peer: Option<PeerWindow>,
    is_iwarp: bool,
    notified: u64,
    interrupts: u64,
    /// Immediates that have arrived, and were not asked for yet.
    arrived: RefCell<VecDeque<u32>>,
}

/// The descriptor that tells of completions.
struct Events {
    library: &'static Library,
    channel: NonNull<CompChannel>,
}

/// A completion queue.
struct CompletionQueue {
    library: &'static Library,
    queue: NonNull<Cq>,
}

// SAFETY: the library may be called from any thread.
unsafe impl Send for Events {}
// SAFETY: as above.
unsafe impl Send for CompletionQueue {}

impl Events {
    fn new(library: &'static Library, context: *mut Context) -> io::Result<Self> {
        // SAFETY: the context is that of an open device.
        let channel = unsafe { (library.ibv_create_comp_channel)(context) };
        let channel = NonNull::new(channel).ok_or_else(io::Error::last_os_error)?;
        let this = Self { library, channel };
        fcntl_setfl(this.fd(), fcntl_getfl(this.fd())? | OFlags::NONBLOCK)?;
        Ok(this)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel lives.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }

    /// Takes what it tells; returns how much that was.
    fn clear(&self) -> u64 {
        let mut count = 0;
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        let channel = self.channel.as_ptr();
        // SAFETY: the channel lives; each event is acknowledged at once, for its queue.
        unsafe {
            while (self.library.ibv_get_cq_event)(channel, &raw mut queue, &raw mut context) == 0 {
                (self.library.ibv_ack_cq_events)(queue, 1);
                count += 1;
            }
        }
        count
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // SAFETY: its queue is gone.
        unsafe { (self.library.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

impl CompletionQueue {
    fn new(
        library: &'static Library,
        context: *mut Context,
        entries: usize,
        events: Option<&Events>,
    ) -> io::Result<Self> {
        let channel = events.map_or(ptr::null_mut(), |it| it.channel.as_ptr());
        // SAFETY: the context is that of an open device, and the channel is one of it.
        let queue = unsafe {
            (library.ibv_create_cq)(context, entries as i32, ptr::null_mut(), channel, 0)
        };
        Ok(Self { library, queue: NonNull::new(queue).ok_or_else(io::Error::last_os_error)? })
    }

    /// The functions of its device.
    fn ops(&self) -> &ContextOps {
        // SAFETY: the device is open as long as the queue lives.
        unsafe { &(*self.queue.as_ref().context).ops }
    }

    /// Takes completions; those that failed are an error.
    fn poll<'a>(&self, room: &'a mut [Wc; COMPLETIONS]) -> io::Result<&'a [Wc]> {
        let room_len = room.len() as i32;
        // SAFETY: as many completions are written at most.
        let count =
            unsafe { (self.ops().poll_cq)(self.queue.as_ptr(), room_len, room.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| io::Error::from_raw_os_error(-count))?;
        let taken = &room[..count];
        match taken.iter().find(|it| it.status != 0) {
            None => Ok(taken),
            Some(failed) => Err(failure(failed)),
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: its queue pair is gone, and all events are acknowledged.
        unsafe { (self.library.ibv_destroy_cq)(self.queue.as_ptr()) };
    }
}

impl VerbsPair {
    /// The queue pair of a connection whose device is known, with a window of so many units.
    pub(super) fn new(id: Id, (units, takes_notes): (u32, bool)) -> io::Result<Self> {
        let (library, context) = (library()?, id.get().verbs);
        let domain = Domain::new(library, context)?;
        let window = Registered::new(&domain, window_len(units), FOR_PEER)?;
        let messages = Registered::new(&domain, 2 * RECEIVES * WORD, ACCESS_LOCAL_WRITE)?;
        let events = Events::new(library, context)?;
        let sends = CompletionQueue::new(library, context, 2 * WRITES_MAX as usize, None)?;
        let receives = CompletionQueue::new(library, context, RECEIVES, Some(&events))?;
        // SAFETY: the device is open, as the ID uses it.
        let is_iwarp = unsafe { (*(*context).device).transport_type } == TRANSPORT_IWARP;
        let mut init = QpInitAttr {
            qp_context: ptr::null_mut(),
            send_cq: sends.queue.as_ptr(),
            recv_cq: receives.queue.as_ptr(),
            srq: ptr::null_mut(),
            // A write and its message, where there are no immediates.
            max_send_wr: 2 * WRITES_MAX as u32,
            max_recv_wr: RECEIVES as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
            qp_type: QPT_RC,
            sq_sig_all: 0,
        };
        id.make_queue_pair(domain.pd.as_ptr(), &mut init)?;
        let this = Self {
            id,
            receives,
            sends,
            events,
            staging: None,
            data: None,
            window,
            messages,
            sent: 0,
            domain,
            units,
            takes_notes,
            peer: None,
            is_iwarp,
            notified: 0,
            interrupts: 0,
            arrived: RefCell::default(),
        };
        (0..RECEIVES).try_for_each(|slot| this.receive(slot as u64))?;
        Ok(this)
    }

    /// The ID of its connection.
    pub(super) fn id(&self) -> &Id {
        &self.id
    }

    /// The descriptor that tells of completions.
    pub(super) fn completions(&self) -> BorrowedFd<'_> {
        self.events.fd()
    }

    /// The window as the peer is told of it.
    pub(super) fn told(&self) -> PeerWindow {
        let Self { window, units, takes_notes, .. } = self;
        PeerWindow {
            key: window.remote_key(),
            address: window.address(),
            units: *units,
            takes_notes: *takes_notes,
        }
    }

    /// Takes note of the peer's window, and makes the staging memory for it.
    pub(super) fn meet(&mut self, peer: PeerWindow) -> io::Result<()> {
        self.staging =
            Some(Registered::new(&self.domain, window_len(peer.units), ACCESS_LOCAL_WRITE)?);
        self.peer = Some(peer);
        Ok(())
    }

    /// Makes room for one more immediate, or for a message in that slot.
    fn receive(&self, slot: u64) -> io::Result<()> {
        let mut sge = Sge {
            addr: self.messages.address() + slot * WORD as u64,
            length: WORD as u32,
            lkey: self.messages.local_key(),
        };
        let (sg_list, num_sge) = (&raw mut sge, 1);
        let mut work = RecvWr { wr_id: slot, next: ptr::null_mut(), sg_list, num_sge };
        let mut bad = ptr::null_mut();
        // SAFETY: the work lives during the call, and its memory as long as the queue pair.
        let posted = unsafe {
            (self.receives.ops().post_recv)(self.id.queue_pair(), &raw mut work, &raw mut bad)
        };
        posted_or(posted)
    }

    fn send(&self, work: &mut SendWr) -> io::Result<()> {
        let mut bad = ptr::null_mut();
        // SAFETY: the work lives during the call, and its memory as long as the queue pair.
        let posted =
            unsafe { (self.sends.ops().post_send)(self.id.queue_pair(), work, &raw mut bad) };
        posted_or(posted)
    }

    /// Sends a number as a message: a device without immediates has these in order with writes.
    fn tell(&mut self, number: u32) -> io::Result<()> {
        // No more are outstanding than there are places.
        let at = (RECEIVES + self.sent % RECEIVES) * WORD;
        self.sent += 1;
        self.messages.memory.write(at, &number.to_be_bytes());
        let (addr, lkey) = (self.messages.address() + at as u64, self.messages.local_key());
        let mut sge = Sge { addr, length: WORD as u32, lkey };
        self.send(&mut SendWr::new(WR_SEND, &mut sge))
    }

    /// Takes the immediates that have arrived.
    fn take_arrivals(&self) -> io::Result<()> {
        let mut room = [Wc::default(); COMPLETIONS];
        for completion in self.receives.poll(&mut room)? {
            let number = match completion.opcode {
                WC_RECV_RDMA_WITH_IMM => u32::from_be(completion.imm_data),
                WC_RECV if completion.byte_len as usize == WORD => {
                    let mut word = [0; WORD];
                    self.messages.memory.read(completion.wr_id as usize * WORD, &mut word);
                    u32::from_be_bytes(word)
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            };
            self.arrived.borrow_mut().push_back(number);
            self.receive(completion.wr_id)?;
        }
        Ok(())
    }
}

impl Drop for VerbsPair {
    fn drop(&mut self) {
        self.id.end_queue_pair();
    }
}

impl QueuePair for VerbsPair {
    type Registration = Registered<Arena>;

    fn window(&self) -> &Region {
        &self.window.memory
    }

    fn staging(&self) -> &Region {
        &self.staging.as_ref().expect("there is one once the peer is known").memory
    }

    fn stage_data(&mut self) -> io::Result<()> {
        if self.data.is_none() {
            self.data = Some(Registered::new(&self.domain, DATA_LEN, ACCESS_LOCAL_WRITE)?);
        }
        Ok(())
    }

    fn data(&self) -> &Region {
        &self.data.as_ref().expect("made before data are placed").memory
    }

    fn register(
        &mut self,
        memory: &Arena,
        _: Option<&OwnedFd>,
    ) -> io::Result<(Registered<Arena>, u32, u64)> {
        let registered = Registered::arena(&self.domain, memory, FOR_PEER)?;
        let (key, address) = (registered.remote_key(), registered.address());
        Ok((registered, key, address))
    }

    fn peer(&self) -> Option<PeerWindow> {
        self.peer
    }

    fn post(&mut self, write: &Write) -> io::Result<()> {
        let peer = self.peer.expect("a window is known before it is written to");
        let (from, key, address) = match write.region {
            None => (&self.staging, peer.key, peer.address),
            Some(region) => (&self.data, region.key, region.address),
        };
        let from = from.as_ref().expect("made before it is written from");
        let (addr, lkey) = (from.address() + write.from as u64, from.local_key());
        let mut sge = Sge { addr, length: write.len as u32, lkey };
        let has_immediate = write.immediate.is_some() && !self.is_iwarp;
        let opcode = if has_immediate { WR_RDMA_WRITE_WITH_IMM } else { WR_RDMA_WRITE };
        let mut work = SendWr::new(opcode, &mut sge);
        work.wr_id = write.number;
        work.send_flags = if write.notifies { SEND_SIGNALED } else { 0 };
        work.imm_data = write.immediate.unwrap_or_default().to_be();
        work.remote_addr = address.wrapping_add(write.at as u64);
        work.rkey = key;
        self.send(&mut work)?;
        match write.immediate {
            Some(number) if self.is_iwarp => self.tell(number),
            _ => Ok(()),
        }
    }

    fn notified(&mut self) -> io::Result<u64> {
        let mut room = [Wc::default(); COMPLETIONS];
        while let Some(last) = self.sends.poll(&mut room)?.last() {
            self.notified = last.wr_id;
        }
        Ok(self.notified)
    }

    fn arrived(&mut self) -> io::Result<Option<u32>> {
        if self.arrived.get_mut().is_empty() {
            self.take_arrivals()?;
        }
        Ok(self.arrived.get_mut().pop_front())
    }

    fn arm(&self) -> bool {
        // SAFETY: the queue lives.
        let armed = unsafe { (self.receives.ops().req_notify_cq)(self.receives.queue.as_ptr(), 0) };
        // An error shows at the next call.
        armed != 0 || self.take_arrivals().is_err() || !self.arrived.borrow().is_empty()
    }

    fn interrupts(&self) -> u64 {
        self.interrupts
    }

    fn serve(&mut self) -> io::Result<()> {
        self.interrupts += self.events.clear();
        while let Some(event) = self.id.channel.poll()? {
            if matches!(event.kind, DISCONNECTED | DEVICE_REMOVAL | UNREACHABLE | CONNECT_ERROR) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

/// The error of work that failed.
fn failure(completion: &Wc) -> io::Error {
    match completion.status {
        WC_WR_FLUSH_ERR => io::ErrorKind::UnexpectedEof.into(),
        WC_RETRY_EXC_ERR => io::ErrorKind::TimedOut.into(),
        status => io::Error::other(format!("the card reports error {status} of work")),
    }
}

/// The result of a function that returns an error number.
fn posted_or(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}
