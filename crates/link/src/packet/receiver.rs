//! The receiving half of a link, which takes frames out of the socket's ring.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tyche_numa::Node;

use super::endpoint::Endpoint;
use super::ring::{Ring, Shape};
use crate::{Malformed, Receiver, Refused, RxBatch};

/// Calls without a frame before one queries the interface's state: a spinning caller makes no other
/// system call. When spinning, that is a fraction of a millisecond.
const LOOK_EVERY: u32 = 1024;

/// The receive side of a packet link: the socket's ring, and the position of the next frame in it.
/// Batches borrow frames from the ring, which can't be replaced before they are returned.
pub(super) struct PacketReceiver {
    endpoint: Arc<Endpoint>,
    /// `None` if the kernel had no memory for it after it was given up.
    ring: Option<Arc<Ring>>,
    /// The next position of the ring.
    next: usize,
    /// Calls without a frame before the interface is checked.
    until_look: Cell<u32>,
}

impl PacketReceiver {
    pub(super) fn new(endpoint: Arc<Endpoint>, ring: Ring) -> Self {
        let ring = Some(Arc::new(ring));
        Self { endpoint, ring, next: 0, until_look: Cell::new(LOOK_EVERY) }
    }

    /// The NUMA nodes of the ring.
    pub(super) fn memory_nodes(&self) -> Vec<Node> {
        self.ring.as_ref().map_or(Vec::new(), |ring| ring.memory_nodes())
    }

    /// Gives the ring up for one of the shape `to`. What waits in it is lost.
    ///
    /// # Errors
    /// `ResourceBusy` if a batch has frames of the ring. `OutOfMemory` if the kernel has no memory
    /// for the new ring: then there is one `as_before`, if there is memory for that.
    pub(super) fn reshape(&mut self, as_before: Shape, to: Shape) -> io::Result<()> {
        if self.ring.as_mut().is_some_and(|ring| Arc::get_mut(ring).is_none()) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        // The kernel frees a ring that is not mapped.
        self.ring = None;
        self.next = 0;
        let socket = &self.endpoint.incoming;
        socket.release_ring()?;
        let (ring, result) = match socket.receive_into_ring(to) {
            Ok(ring) => (Some(ring), Ok(())),
            Err(error) => (socket.receive_into_ring(as_before).ok(), Err(error)),
        };
        self.ring = ring.map(Arc::new);
        result
    }

    /// Handles a call without a frame: checks the interface from time to time.
    fn idle(&self) -> io::Result<usize> {
        let calls = self.until_look.get();
        if calls > 0 && self.endpoint.is_attached() {
            self.until_look.set(calls - 1);
            return Ok(0);
        }
        self.until_look.set(LOOK_EVERY);
        self.endpoint.look().map(|()| 0)
    }
}

impl Receiver for PacketReceiver {
    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        batch.clear();
        let Some(ring) = &self.ring else { return self.idle() };
        let (first, mut malformed) = (self.next, Malformed::default());
        let now = self.endpoint.is_stamped().then(real_time);
        while batch.len() < batch.capacity()
            && let Some(frame) = ring.take(self.next)
        {
            self.next += 1;
            // Zero if the clock was set back.
            let waited = now.map(|now| now.saturating_sub(frame.arrived));
            let lent = if frame.truncated {
                Err(Refused::Long)
            } else {
                // SAFETY: the frame does not change until its position is given back, which the
                // batch does when it no longer reads it.
                unsafe { batch.lend(frame.start, frame.len, waited) }
            };
            match lent {
                Ok(()) => {}
                Err(refused) => malformed.count(refused),
            }
        }
        if self.next == first {
            return self.idle();
        }
        batch.borrow_from(ring.clone(), first..self.next);
        if malformed != Malformed::default() {
            self.endpoint.count_malformed(malformed);
        }
        Ok(batch.len())
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        // The wake-up may be an event of the interface.
        self.until_look.set(0);
        self.endpoint.incoming.as_fd()
    }
}

/// The clock of the kernel's timestamps, which may be set at any moment. So timestamps do not leave
/// this file: only the time in the ring counts, and it is computed at once.
fn real_time() -> Duration {
    let now = clock_gettime(ClockId::Realtime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}
