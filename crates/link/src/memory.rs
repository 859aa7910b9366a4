//! Two connected links in one process.
//!
//! Frames sent at one end are received at the other, in order and complete, as over a cable between
//! two cards in promiscuous mode: addresses are ignored. Each direction is a ring of frames in
//! memory that is reserved once. A full ring is a full transmit queue: the sender is told and
//! nothing is lost, hence there are no overruns.
//!
//! When an end is dropped, the other gets the frames in flight and then `NetworkDown`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::{Interface, Link, Mac, Receiver, RxBatch, TxBatch};

/// The most frames in flight in one direction.
pub const QUEUE: usize = 1024;

/// The number of pairs in this process, from which every end gets an address of its own.
static PAIRS: AtomicU32 = AtomicU32::new(0);

/// One end of a pair.
pub struct MemoryLink {
    name: String,
    mac: Mac,
    frame_len_max: usize,
    outgoing: Arc<Lane>,
    incoming: Arc<Lane>,
}

/// Two connected ends, for frames of up to `frame_len_max` bytes.
///
/// # Errors
/// The error of `eventfd(2)`, e.g. too many open files.
pub fn pair(frame_len_max: usize) -> io::Result<(MemoryLink, MemoryLink)> {
    let number = PAIRS.fetch_add(1, Ordering::Relaxed);
    let lanes = [Arc::new(Lane::new(frame_len_max)?), Arc::new(Lane::new(frame_len_max)?)];
    let [a, b, c, d] = number.to_be_bytes();
    let end = |side: usize| MemoryLink {
        name: format!("memory{number}{}", ['a', 'b'][side]),
        // Locally administered.
        mac: [0x02, side as u8, a, b, c, d],
        frame_len_max,
        outgoing: Arc::clone(&lanes[side]),
        incoming: Arc::clone(&lanes[1 - side]),
    };
    Ok((end(0), end(1)))
}

/// One direction.
struct Lane {
    ring: Mutex<Ring>,
    /// Readable while frames wait or the other end is gone. Written only under the lock.
    waiting: OwnedFd,
}

struct Ring {
    /// Room for `QUEUE` frames of the longest length.
    bytes: Vec<u8>,
    lengths: [usize; QUEUE],
    frame_len_max: usize,
    first: usize,
    count: usize,
    /// Whether one of the ends is gone.
    closed: bool,
}

impl Lane {
    fn new(frame_len_max: usize) -> io::Result<Self> {
        let ring = Ring {
            bytes: vec![0; QUEUE * frame_len_max],
            lengths: [0; QUEUE],
            frame_len_max,
            first: 0,
            count: 0,
            closed: false,
        };
        let waiting = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { ring: Mutex::new(ring), waiting })
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self) -> io::Result<()> {
        rustix::io::write(&self.waiting, &1u64.to_ne_bytes())?;
        Ok(())
    }

    /// See [`Link::receive`], for the end called `name`.
    fn receive(&self, batch: &mut RxBatch, name: &str) -> io::Result<usize> {
        batch.clear();
        let mut ring = self.lock();
        if ring.count == 0 {
            return if ring.closed { Err(down(name)) } else { Ok(0) };
        }
        while batch.len() < batch.capacity() {
            let Some(frame) = ring.front() else { break };
            // A frame that is too long for the batch is lost, as on a socket.
            let _ = batch.push([frame]);
            ring.pop();
        }
        // A closed lane stays readable, so that its reader sees the end.
        if ring.count == 0 && !ring.closed {
            rustix::io::read(&self.waiting, &mut [0; 8])?;
        }
        Ok(batch.len())
    }

    fn close(&self) {
        self.lock().closed = true;
        // Fails only if the counter overflows, which two ends can't cause.
        let _ = self.announce();
    }
}

impl Ring {
    fn slot(&self, index: usize) -> usize {
        (self.first + index) % QUEUE
    }

    fn front(&self) -> Option<&[u8]> {
        let start = self.first * self.frame_len_max;
        (self.count > 0).then(|| &self.bytes[start..start + self.lengths[self.first]])
    }

    fn pop(&mut self) {
        assert!(self.count > 0, "popping a frame of an empty ring");
        self.first = self.slot(1);
        self.count -= 1;
    }
}

fn down(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NetworkDown, format!("the other end of {name} is gone"))
}

impl Link for MemoryLink {
    fn interface(&self) -> Interface<'_> {
        Interface { name: &self.name, mac: self.mac }
    }

    fn frame_len_max(&self) -> usize {
        self.frame_len_max
    }

    fn receive_capacity(&self, _frame_len: usize) -> usize {
        QUEUE
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        self.incoming.receive(batch, &self.name)
    }

    fn take_receiver(&mut self) -> io::Result<Box<dyn Receiver>> {
        let (lane, name) = (Arc::clone(&self.incoming), self.name.clone());
        Ok(Box::new(MemoryReceiver { lane, name }))
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        let mut ring = self.outgoing.lock();
        if ring.closed {
            return Err(down(&self.name));
        }
        let was_empty = ring.count == 0;
        let mut sent = 0;
        for frame in batch.frames() {
            if frame.len() > self.frame_len_max && sent == 0 {
                return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
            }
            if frame.len() > self.frame_len_max || ring.count == QUEUE {
                break;
            }
            let slot = ring.slot(ring.count);
            let mut at = slot * self.frame_len_max;
            for part in frame.parts() {
                ring.bytes[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            ring.lengths[slot] = frame.len();
            ring.count += 1;
            sent += 1;
        }
        if was_empty && sent > 0 {
            self.outgoing.announce()?;
        }
        Ok(sent)
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.incoming.waiting.as_fd()
    }

    // Frames to all addresses are received anyway.
    fn join(&mut self, _address: Mac) -> io::Result<()> {
        Ok(())
    }

    fn leave(&mut self, _address: Mac) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        self.outgoing.close();
        self.incoming.close();
    }
}

/// The receiving half of an end.
struct MemoryReceiver {
    lane: Arc<Lane>,
    name: String,
}

impl Receiver for MemoryReceiver {
    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        self.lane.receive(batch, &self.name)
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.lane.waiting.as_fd()
    }
}

impl std::fmt::Debug for MemoryLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryLink({})", self.name)
    }
}
