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

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use tyche_counters::counters;

use super::DATAGRAM_MAX;
use super::datagram::{self, ETHERNET};
use super::socket::{self, Received};
use crate::batch::LendingMemory;
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
    memory: LendingMemory,
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
            memory: LendingMemory::new(BYTES)?,
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
        if self.memory.is_lent() {
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
            let (start, own) = self.memory.own();
            let Some(room) = own.get_mut(self.end - start..).filter(|it| it.len() >= DATAGRAM_MAX)
            else {
                break;
            };
            let received = match socket::receive(socket, &mut room[..DATAGRAM_MAX]) {
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
        result
    }

    /// Adds frames of the present train to the batch, up to its room.
    fn divide(&mut self, batch: &mut RxBatch, own_mac: Mac) {
        let Some(Train { bytes, segment, source, is_congested }) = &mut self.train else { return };
        while bytes.start < bytes.end {
            if batch.len() == batch.capacity() {
                return;
            }
            let end = bytes.end.min(bytes.start + *segment);
            let (first, own) = self.memory.own();
            let datagram = &mut own[bytes.start - first..end - first];
            match open(datagram, own_mac, *source) {
                Some(len) => match self.memory.lend(batch, bytes.start..bytes.start + len) {
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

/// Gives the frame in a datagram the Ethernet header that it has at this end of the link. Returns
/// its length; `None` if it is cut short.
fn open(datagram: &mut [u8], own: Mac, source: Mac) -> Option<usize> {
    if datagram.len() < HEAD {
        return None;
    }
    let datagram_len = datagram.len();
    let header: &mut [u8; ETHERNET] = datagram.first_chunk_mut().expect("a head is longer");
    let len = datagram::frame_len(header, datagram_len)?;
    header[..6].copy_from_slice(&own);
    header[6..12].copy_from_slice(&source);
    header[12..].copy_from_slice(&ETHERTYPE.to_be_bytes());
    Some(len)
}
