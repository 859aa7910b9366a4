//! The half of a link that takes frames out of the socket's ring.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tyche_numa::Node;

use super::Malformed;
use super::endpoint::Endpoint;
use super::ring::Ring;
use crate::{Receiver, Refused, RxBatch};

/// Calls that find nothing until one asks the kernel whether the interface is still there: those
/// who spin make no system call otherwise. Spinning, that is a fraction of a millisecond.
const LOOK_EVERY: u32 = 1024;

/// See the module. There is one for each socket.
pub(super) struct PacketReceiver {
    endpoint: Arc<Endpoint>,
    ring: Arc<Ring>,
    /// The position whose turn it is.
    next: usize,
    /// Calls that may find nothing until the interface is looked at.
    until_look: Cell<u32>,
}

impl PacketReceiver {
    pub(super) fn new(endpoint: Arc<Endpoint>, ring: Ring) -> Self {
        let ring = Arc::new(ring);
        Self { endpoint, ring, next: 0, until_look: Cell::new(LOOK_EVERY) }
    }

    /// The nodes that the ring is on.
    pub(super) fn memory_nodes(&self) -> Vec<Node> {
        self.ring.memory_nodes()
    }

    /// Nothing has come: whether the interface is still there is asked from time to time.
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
        let (first, mut malformed) = (self.next, Malformed::default());
        let now = self.endpoint.is_stamped().then(real_time);
        while batch.len() < batch.capacity()
            && let Some(frame) = self.ring.take(self.next)
        {
            self.next += 1;
            // A clock that was set back makes it nothing.
            let waited = now.map(|now| now.saturating_sub(frame.arrived));
            let lent = if frame.truncated {
                Err(Refused::Long)
            } else {
                // SAFETY: the frame stays as it is until its position is given back, which the
                // batch does when it no longer looks.
                unsafe { batch.lend(frame.start, frame.len, waited) }
            };
            match lent {
                Ok(()) => {}
                Err(Refused::Short) => malformed.short += 1,
                Err(Refused::Long) => malformed.long += 1,
                Err(Refused::Full) => unreachable!("the batch has room"),
            }
        }
        if self.next == first {
            return self.idle();
        }
        batch.borrow_from(self.ring.clone(), first..self.next);
        if malformed != Malformed::default() {
            self.endpoint.count_malformed(malformed);
        }
        Ok(batch.len())
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        // What wakes the sleeper may be news of the interface.
        self.until_look.set(0);
        self.endpoint.incoming.as_fd()
    }
}

/// The kernel's stamps are of this clock, which may be set at any moment. So they do not leave this
/// file: what counts is how long a frame lay in the ring, and that is taken at once.
fn real_time() -> Duration {
    let now = clock_gettime(ClockId::Realtime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}
