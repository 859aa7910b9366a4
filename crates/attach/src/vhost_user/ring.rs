//! One virtqueue under a lock: takes requests off, and puts answers in.

use std::fs::File;
use std::io::Write;
use std::num::Wrapping;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_queue::{Queue as SplitQueue, QueueOwnedT, QueueT};
use vm_memory::GuestAddress;

use super::chain::{Broken, Memory};
use super::inflight::InFlight;

/// The most entries of a ring. A power of two.
pub(super) const SIZE_MAX: u16 = 1024;

/// The start parameters of a ring.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) memory: Arc<Memory>,
    pub(super) size: u16,
    /// Descriptor table, available ring and used ring.
    pub(super) tables: [GuestAddress; 3],
    /// The next available entry; `in_flight` takes precedence.
    pub(super) base: u16,
    pub(super) event_idx: bool,
    pub(super) in_flight: Option<InFlight>,
}

/// A ring that has been started.
#[derive(Debug)]
pub(super) struct Ring {
    queue: SplitQueue,
    memory: Arc<Memory>,
    in_flight: Option<InFlight>,
    /// Requests left by the previous process, in reverse order: the next one is the last.
    left: Vec<u16>,
    call: Option<Arc<File>>,
}

/// A request that has been taken off the ring.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) head: u16,
    pub(super) memory: Arc<Memory>,
    /// Descriptor table.
    pub(super) table: GuestAddress,
    pub(super) size: u16,
}

impl Ring {
    /// Starts a ring. Fails if it is outside the guest's memory, or the in-flight memory is
    /// invalid.
    pub(super) fn start(start: Start, call: Option<Arc<File>>) -> Result<Self, Broken> {
        let Start { memory, size, tables: [table, available, used], base, event_idx, in_flight } =
            start;
        let mut queue = SplitQueue::new(SIZE_MAX).map_err(|_| Broken)?;
        queue.try_set_size(size).map_err(|_| Broken)?;
        queue.try_set_desc_table_address(table).map_err(|_| Broken)?;
        queue.try_set_avail_ring_address(available).map_err(|_| Broken)?;
        queue.try_set_used_ring_address(used).map_err(|_| Broken)?;
        queue.set_event_idx(event_idx);
        queue.set_ready(true);
        if !queue.is_valid(&**memory) {
            return Err(Broken);
        }
        let used_idx = queue.used_idx(&**memory, Ordering::Acquire);
        let used_idx = used_idx.map_err(|_| Broken)?.0;
        queue.set_next_used(used_idx);
        queue.set_next_avail(base);
        let mut ring = Self { queue, memory, in_flight, left: Vec::new(), call };
        if let Some(in_flight) = &mut ring.in_flight {
            let mut left = in_flight.recover(used_idx).map_err(|_| Broken)?;
            // Each entry that was taken off the available ring is in the used ring by now, or left.
            ring.queue.set_next_avail(used_idx.wrapping_add(left.len() as u16));
            left.reverse();
            ring.left = left;
        }
        Ok(ring)
    }

    /// The next request, or `None` if there is none now. Fails if the ring has become invalid.
    pub(super) fn take(&mut self) -> Result<Option<Taken>, Broken> {
        let head = match self.left.pop() {
            Some(head) => head,
            None => {
                let next = Wrapping(self.queue.next_avail());
                let available = self.queue.avail_idx(&**self.memory, Ordering::Acquire);
                if available.map_err(|_| Broken)? == next {
                    return Ok(None);
                }
                let mut entries = self.queue.iter(&**self.memory).map_err(|_| Broken)?;
                // Without the error, an unreadable entry would be found again and again.
                entries.next().ok_or(Broken)?.head_index()
            }
        };
        if head >= self.queue.size() {
            return Err(Broken);
        }
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.begin(head);
        }
        Ok(Some(Taken {
            head,
            memory: Arc::clone(&self.memory),
            table: GuestAddress(self.queue.desc_table()),
            size: self.queue.size(),
        }))
    }

    /// Suppresses kicks while requests are being taken.
    pub(super) fn quiet(&mut self) -> Result<(), Broken> {
        self.queue.disable_notification(&**self.memory).map_err(|_| Broken)
    }

    /// Enables kicks again. True if requests wait already.
    pub(super) fn listen(&mut self) -> Result<bool, Broken> {
        self.queue.enable_notification(&**self.memory).map_err(|_| Broken)
    }

    /// Returns a request to the ring; the device has written `written` bytes of it.
    pub(super) fn answer(&mut self, head: u16, written: u32) -> Result<(), Broken> {
        if let Some(in_flight) = &self.in_flight {
            in_flight.ending(head);
        }
        self.queue.add_used(&**self.memory, head, written).map_err(|_| Broken)?;
        if let Some(in_flight) = &self.in_flight {
            in_flight.ended(head, self.queue.next_used());
        }
        if self.queue.needs_notification(&**self.memory).map_err(|_| Broken)? {
            self.signal();
        }
        Ok(())
    }

    /// Replaces the eventfd that signals answers to the guest.
    pub(super) fn set_call(&mut self, call: Option<Arc<File>>) {
        self.call = call;
        // A signal of the old one may have been missed.
        self.signal();
    }

    /// Whether the guest's memory, with the ring in it, has vanished.
    pub(super) fn is_lost(&self) -> bool {
        self.memory.is_lost()
    }

    /// The next available entry, once all requests taken have been answered.
    pub(super) fn base(&self) -> u16 {
        self.queue.next_avail()
    }

    fn signal(&self) {
        if let Some(mut call) = self.call.as_deref() {
            // Fails after 2^64 signals, or if it is no eventfd; both harm only the guest.
            let _ = call.write(&1_u64.to_ne_bytes());
        }
    }
}
