//! Received trains, and the frames in them.
//!
//! Trains are received one behind the other into one piece of memory, and their frames are read
//! where they lie. The memory is used again from the start as soon as the batch is cleared, so it
//! stays in the cache.
//!
//! ```text
//!  memory  [frame][frame][frame][fr]  [frame][frame]   room for the longest train
//!          `------- a train -------'  `-- another -'
//! ```

use std::cell::UnsafeCell;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use tyche_counters::counters;

use super::DATAGRAM_MAX;
use super::datagram::{self, ETHERNET};
use super::socket::{self, Received};
use crate::batch::Lender;
use crate::{ETHERTYPE, HEAD, Mac, Malformed, RxBatch};

/// Bytes of the memory: a few of the longest trains. More would not stay in the cache.
const BYTES: usize = 256 << 10;
/// Trains start at multiples of it, as cache lines do.
const ALIGN: usize = 64;

counters! {
    /// Received trains.
    pub(super) struct Counters as "udp_" {
        /// Trains received; a single frame is one, too.
        trains_received: Counter in Trains,
        /// Frames received in trains.
        train_frames_received: Counter in Frames,
    }
}

/// The receive side of a UDP link. It owns the memory of the received trains; batches borrow their
/// frames from it, and nothing is received before the last batch has returned them.
pub(super) struct Incoming {
    /// A descriptor that is always readable.
    readable: OwnedFd,
    memory: Arc<Memory>,
    /// The train that is being divided.
    train: Option<Train>,
    /// The end of the received trains.
    end: usize,
    /// Whether more than one train is likely to wait: then a call goes on until none does.
    is_busy: bool,
    pub(super) malformed: Malformed,
    pub(super) counters: Counters,
}

/// The rest of a train, which is being divided.
struct Train {
    /// Where its frames are.
    bytes: Range<usize>,
    /// The length of its datagrams but the last.
    segment: usize,
    /// The Ethernet address that stands for its sender.
    source: Mac,
    /// Whether the network has marked it as congested.
    is_congested: bool,
}

impl Incoming {
    pub(super) fn new() -> io::Result<Self> {
        let readable = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            readable,
            memory: Arc::new(Memory::new()),
            train: None,
            end: 0,
            is_busy: false,
            malformed: Malformed::default(),
            counters: Counters::default(),
        })
    }

    /// The descriptor to wait for.
    pub(super) fn wait_fd<'a>(&'a self, socket: &'a OwnedFd) -> BorrowedFd<'a> {
        // The kernel does not know of frames that it has handed over already.
        if self.train.is_some() { self.readable.as_fd() } else { socket.as_fd() }
    }

    /// Receives waiting frames, up to the batch's room, with `own` as their destination. `admit`
    /// returns the Ethernet address that stands for the sender of a train, or `None` to drop it.
    ///
    /// # Errors
    /// Of the socket. The frames that came before are in the batch.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        batch: &mut RxBatch,
        own: Mac,
        mut admit: impl FnMut(&Received) -> Option<Mac>,
    ) -> io::Result<()> {
        batch.clear();
        if self.memory.lent.load(Ordering::Acquire) {
            // Another batch has frames of the last call.
            return Ok(());
        }
        if self.train.is_none() {
            self.end = 0;
        }
        let (mut result, mut trains) = (Ok(()), 0);
        loop {
            self.divide(batch, own);
            if self.train.is_some() || batch.len() == batch.capacity() {
                break;
            }
            // To ask whether another one waits takes a good part of a short round trip.
            if trains > 0 && !self.is_busy {
                self.is_busy = true;
                break;
            }
            let Some(room) = self.memory.room(self.end) else { break };
            let received = match socket::receive(socket, room) {
                Ok(Some(received)) => received,
                Ok(None) => {
                    self.is_busy = trains > 1;
                    break;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            };
            trains += 1;
            let end = self.end + received.bytes;
            // Also an empty datagram takes room, so that a flood of them ends the call.
            let used = received.bytes.max(1).next_multiple_of(ALIGN);
            if let Some(source) = admit(&received) {
                let Received { segment, is_congested, .. } = received;
                self.train = Some(Train { bytes: self.end..end, segment, source, is_congested });
            }
            self.end += used;
        }
        self.counters.trains_received += trains;
        self.counters.train_frames_received += batch.len() as u64;
        if !batch.is_empty() {
            self.memory.lent.store(true, Ordering::Relaxed);
            batch.borrow_from(self.memory.clone(), 0..1);
        }
        result
    }

    /// Adds frames of the present train to the batch, up to its room.
    fn divide(&mut self, batch: &mut RxBatch, own: Mac) {
        let Some(Train { bytes, segment, source, is_congested }) = &mut self.train else { return };
        while bytes.start < bytes.end {
            if batch.len() == batch.capacity() {
                return;
            }
            let end = bytes.end.min(bytes.start + *segment);
            match self.memory.open(bytes.start..end, own, *source) {
                // SAFETY: the frame is not written before the batch gives it back, and is not
                // handed out twice.
                Some(frame) => match unsafe { batch.lend(frame.cast(), frame.len(), None) } {
                    Ok(()) if *is_congested => batch.mark_congested(),
                    Ok(()) => {}
                    Err(refused) => self.malformed.count(refused),
                },
                None => self.malformed.short += 1,
            }
            bytes.start = end;
        }
        self.train = None;
    }
}

/// The memory, of which a batch may read as long as it is lent.
struct Memory {
    bytes: Box<[UnsafeCell<u8>]>,
    lent: AtomicBool,
}

// SAFETY: while the memory is lent, only the batch reads it, and nobody writes it; otherwise only
// the owner of `Incoming` uses it.
unsafe impl Sync for Memory {}

impl Memory {
    fn new() -> Self {
        let bytes = std::iter::repeat_with(|| UnsafeCell::new(0)).take(BYTES).collect();
        Self { bytes, lent: AtomicBool::new(false) }
    }

    /// The memory from `start` on, if it has room for the longest train.
    fn room(&self, start: usize) -> Option<NonNull<[u8]>> {
        let fits = start + DATAGRAM_MAX <= self.bytes.len();
        fits.then(|| NonNull::slice_from_raw_parts(self.at(start), DATAGRAM_MAX))
    }

    fn at(&self, index: usize) -> NonNull<u8> {
        assert!(index <= self.bytes.len(), "byte {index} of {}", self.bytes.len());
        // SAFETY: it is in the memory, or at its end.
        unsafe { NonNull::from(&*self.bytes).cast::<u8>().add(index) }
    }

    /// The frame in a datagram, with the Ethernet header that it has at this end of the link;
    /// `None` if it is cut short.
    fn open(&self, datagram: Range<usize>, own: Mac, source: Mac) -> Option<NonNull<[u8]>> {
        if datagram.len() < HEAD {
            return None;
        }
        let start = self.at(datagram.start);
        // SAFETY: a head is longer, and a datagram is opened once, before its frame is lent: nobody
        // else refers to these bytes.
        let header = unsafe { start.cast::<[u8; ETHERNET]>().as_mut() };
        let len = datagram::frame_len(header, datagram.len())?;
        header[..6].copy_from_slice(&own);
        header[6..12].copy_from_slice(&source);
        header[12..].copy_from_slice(&ETHERTYPE.to_be_bytes());
        Some(NonNull::slice_from_raw_parts(start, len))
    }
}

impl Lender for Memory {
    fn give_back(&self, _: Range<usize>) {
        self.lent.store(false, Ordering::Release);
    }
}
