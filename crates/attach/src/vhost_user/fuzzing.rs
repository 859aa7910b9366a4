//! One virtqueue, served by the calling thread: the entry for fuzzers and for tests that replay
//! their findings. The code behind it is the one that serves a virtual machine.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tyche_block::{Disk, Sink};
use vm_memory::{GuestAddress, GuestMemoryMmap};

use super::PAYLOAD_MAX;
use super::chain::Memory;
use super::inflight::{Area, area_len};
use super::queue::{Counters, INLINE_MAX, Queue};
use super::request::{IDENTITY_LEN, Terms};
use super::ring::{Ring, Start};
use crate::slots;

/// A virtqueue as set up by a guest and its monitor.
#[derive(Debug)]
pub struct Virtqueue {
    /// The guest's memory.
    pub memory: Arc<GuestMemoryMmap<()>>,
    /// Entries of each ring.
    pub size: u16,
    /// Guest addresses of descriptor table, available ring and used ring.
    pub tables: [u64; 3],
    /// The next available entry.
    pub base: u16,
    /// Whether the event index feature was negotiated.
    pub event_idx: bool,
    /// Whether flushes were not negotiated: each write is durable when it completes.
    pub write_through: bool,
    /// The in-flight memory of one queue, and its number of entries.
    pub in_flight: Option<(File, u16)>,
}

/// The outcome of [`serve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Requests taken off the ring.
    pub requests: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Whether the queue ended because its ring was invalid.
    pub broken: bool,
    /// How often the queue's loop ran: once for each request, and once for each further check of
    /// the ring.
    pub steps: u64,
}

/// Serves available requests, in at most `steps_max` steps. `None` if the ring can't be started.
///
/// The disk must answer within `submit`: there is no wait for it. Reads and writes are limited to
/// sizes that need no second thread.
pub fn serve(queue: Virtqueue, disk: &Arc<dyn Disk>, steps_max: u64) -> Option<Served> {
    let in_flight = match queue.in_flight {
        Some((file, entries)) => {
            let area = Area::map(file, 0, area_len(1, entries) as u64, 1, entries).ok()?;
            Some(area.rings().next()?)
        }
        None => None,
    };
    let start = Start {
        memory: Arc::new(Memory::new((*queue.memory).clone()).ok()?),
        size: queue.size,
        tables: queue.tables.map(GuestAddress),
        base: queue.base,
        event_idx: queue.event_idx,
        in_flight,
    };
    let ring = Ring::start(start, None).ok()?;
    let terms = Terms {
        payload_max: slots::io_max(disk.arena(), PAYLOAD_MAX.min(INLINE_MAX)),
        write_through: queue.write_through,
        discard: disk.geometry().discard,
    };
    let counters = Arc::new(Counters::default());
    let queue = Queue::new(Arc::clone(disk), [b'd'; IDENTITY_LEN], Arc::clone(&counters));
    *queue.ring() = Some(ring);
    let queue = Arc::new(queue);
    let sink: Arc<dyn Sink> = Arc::clone(&queue) as _;
    let mut steps = 0;
    let result = queue.take_all(&sink, terms, || {
        steps += 1;
        steps > steps_max
    });
    let broken = result.is_err() || queue.ring().is_none();
    Some(Served {
        requests: counters.requests.load(Ordering::Relaxed),
        errors: counters.errors.load(Ordering::Relaxed),
        broken,
        steps,
    })
}
