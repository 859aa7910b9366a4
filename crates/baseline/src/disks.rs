//! A store whose requests take the time of hard disks.
//!
//! The wrapped store executes a request at once; its answer waits until an array of disks would
//! have executed it. A disk moves its head, unless a request goes on where its last one ended.
//! Requests that are kicked together are sorted by their place, and wait behind those that were
//! kicked before: the driver sorts what it is given, and the disks do as they are told. So it
//! matters how many come together, and [`DiskArray::batch`] has the driver wait for more of them
//! while the disks are busy, as the target of the paper does (Marazakis et al., ICS 2006, section
//! 3.3).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tyche_block::{Arena, Completion, Geometry, Operation, Request};
use tyche_store::fault::Alarm;
use tyche_store::{BackingError, Queue, ResizeError, Store};

/// The longest wait for further requests.
const HOLD_MAX: Duration = Duration::from_micros(100);

/// An array of disks (RAID 0), and its driver.
#[derive(Clone, Copy, Debug)]
pub struct DiskArray {
    /// The number of disks.
    pub disks: usize,
    /// Bytes on one disk before those on the next.
    pub stripe: u64,
    /// Bytes per second of a disk.
    pub rate: u64,
    /// The time to move a head, and until the sector comes by.
    pub seek: Duration,
    /// How many requests the driver waits for while a disk is busy, 100 µs at most; 1: it does not
    /// wait.
    pub batch: usize,
}

impl DiskArray {
    /// The disks of the paper's target (section 4.1), of 2004.
    pub const ICS_2006: Self = Self {
        disks: 8,
        stripe: 128 << 10,
        rate: 60_000_000,
        seek: Duration::from_millis(12),
        batch: 1,
    };
}

/// A store whose requests take the time of a [`DiskArray`]. Each queue has disks of its own.
pub struct DiskArrayStore {
    inner: Arc<dyn Store>,
    array: DiskArray,
}

impl DiskArrayStore {
    /// Wraps a store in memory.
    pub fn new(inner: Arc<dyn Store>, array: DiskArray) -> Self {
        Self { inner, array }
    }
}

impl Store for DiskArrayStore {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    /// # Errors
    /// `Unsupported` for stores that do not finish requests as they are submitted.
    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        let inner = self.inner.queue(depth)?;
        if inner.wait_fd().is_some() {
            let message = "modelled disks are for exports in memory";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        Ok(Box::new(DiskArrayQueue {
            inner,
            heads: Heads::new(self.array),
            held: Vec::with_capacity(depth),
            held_since: Instant::now(),
            executed: Vec::with_capacity(1),
            under_way: BTreeMap::new(),
            serial: 0,
            alarm: Alarm::new(None)?,
        }))
    }

    fn resize(&self, size: Option<u64>) -> Result<u64, ResizeError> {
        self.inner.resize(size)
    }

    fn check_backing(&self) -> Result<(), BackingError> {
        self.inner.check_backing()
    }

    fn losses(&self) -> u64 {
        self.inner.losses()
    }
}

/// The positions of the disks' heads, and when the disks are idle.
struct Heads {
    array: DiskArray,
    /// By disk: the byte after its last request, and when that ends.
    disks: Vec<(u64, Instant)>,
}

impl Heads {
    fn new(array: DiskArray) -> Self {
        Self { array, disks: vec![(0, Instant::now()); array.disks] }
    }

    /// When the last request ends.
    fn idle_at(&self) -> Instant {
        self.disks.iter().map(|it| it.1).max().expect("there is a disk")
    }

    /// Moves those bytes; returns when the last of them have been.
    fn transfer(&mut self, now: Instant, offset: u64, len: u64) -> Instant {
        let DiskArray { stripe, rate, seek, .. } = self.array;
        let (mut at, mut end) = (offset, now);
        while at < offset + len {
            let (index, within) = (at / stripe, at % stripe);
            let part = (stripe - within).min(offset + len - at);
            let disks = self.disks.len() as u64;
            let place = index / disks * stripe + within;
            let (head, idle_at) = &mut self.disks[(index % disks) as usize];
            let moves = if *head == place { Duration::ZERO } else { seek };
            let transfer = Duration::from_nanos(part * 1_000_000_000 / rate);
            (*head, *idle_at) = (place + part, now.max(*idle_at) + moves + transfer);
            end = end.max(*idle_at);
            at += part;
        }
        end
    }

    /// Executes a request; returns when it ends.
    fn execute(&mut self, now: Instant, request: &Request) -> Instant {
        match request.operation {
            Operation::Read | Operation::Write { .. } => {
                self.transfer(now, request.offset, request.len.into())
            }
            Operation::Flush => self.idle_at().max(now),
            _ => now,
        }
    }

    /// Whether the driver waits for more than `count` requests, the first of which has waited for
    /// that long.
    fn holds(&self, now: Instant, count: usize, waited: Duration) -> bool {
        count < self.array.batch && waited < HOLD_MAX && now < self.idle_at()
    }
}

struct DiskArrayQueue {
    inner: Box<dyn Queue>,
    heads: Heads,
    /// Requests that the driver has not passed to the disks, and since when there are any.
    held: Vec<(u64, Request)>,
    held_since: Instant,
    /// The one that the wrapped store has executed.
    executed: Vec<Completion>,
    /// Completions, by when they are due, and in the order of their execution.
    under_way: BTreeMap<(Instant, u64), Completion>,
    serial: u64,
    alarm: Alarm,
}

impl DiskArrayQueue {
    /// Sets the alarm to when there is something to do next.
    fn set_alarm(&mut self) -> io::Result<()> {
        let first = self.under_way.first_key_value().map(|(it, _)| it.0);
        let held = (!self.held.is_empty()).then(|| self.held_since + HOLD_MAX);
        self.alarm.set(first.into_iter().chain(held).min())
    }
}

impl Queue for DiskArrayQueue {
    fn register(&mut self, arena: &Arena) {
        self.inner.register(arena);
    }

    fn unregister(&mut self, arena: &Arena) {
        self.inner.unregister(arena);
    }

    fn cut(&mut self, arena: &Arena, first: usize) -> usize {
        self.inner.cut(arena, first)
    }

    fn submit(&mut self, token: u64, request: Request) {
        if self.held.is_empty() {
            self.held_since = Instant::now();
        }
        self.held.push((token, request));
    }

    fn kick(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if !self.heads.holds(now, self.held.len(), now - self.held_since) {
            self.held.sort_by_key(|(_, request)| request.offset);
            for (token, request) in self.held.drain(..) {
                let due = self.heads.execute(now, &request);
                self.inner.submit(token, request);
                self.inner.kick()?;
                self.inner.reap(&mut self.executed);
                for completion in self.executed.drain(..) {
                    self.serial += 1;
                    self.under_way.insert((due, self.serial), completion);
                }
            }
        }
        self.set_alarm()
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        let now = Instant::now();
        while let Some(first) = self.under_way.first_entry().filter(|it| it.key().0 <= now) {
            out.push(first.remove());
        }
        // It can't fail with a valid time; the next kick would tell.
        let _ = self.set_alarm();
    }

    fn in_flight(&self) -> usize {
        self.held.len() + self.under_way.len()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.alarm.fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRIPE: u64 = DiskArray::ICS_2006.stripe;
    const SEEK: Duration = DiskArray::ICS_2006.seek;

    fn heads(batch: usize) -> (Heads, Instant) {
        let heads = Heads::new(DiskArray { batch, ..DiskArray::ICS_2006 });
        let now = heads.idle_at();
        (heads, now)
    }

    #[test]
    fn a_stream_moves_no_head_and_two_of_them_do_unless_they_are_sorted() {
        let time = |places: &[u64]| {
            let (mut heads, now) = heads(1);
            places.iter().map(|it| heads.transfer(now, *it * 4096, 4096)).max().unwrap() - now
        };
        let transfer = Duration::from_nanos(4096 * 1_000_000_000 / 60_000_000);
        assert_eq!(time(&[0, 1, 2, 3]), 4 * transfer);
        assert_eq!(time(&[0, 16, 1, 17]), 4 * transfer + 3 * SEEK);
        assert_eq!(time(&[0, 1, 16, 17]), 4 * transfer + SEEK);
    }

    #[test]
    fn all_disks_work_at_a_long_request() {
        let (mut array, now) = heads(1);
        let one = array.transfer(now, 0, STRIPE) - now;
        let (mut array, now) = heads(1);
        assert_eq!(array.transfer(now, 0, 8 * STRIPE) - now, one);
        // It goes on where the last one ended.
        assert_eq!(array.transfer(now, 8 * STRIPE, 8 * STRIPE) - now, one * 2);
    }

    #[test]
    fn the_driver_waits_for_more_while_a_disk_is_busy_but_not_for_long() {
        let (mut heads, now) = heads(16);
        assert!(!heads.holds(now, 1, Duration::ZERO), "the disks are idle");
        heads.transfer(now, 1 << 30, 4096);
        assert!(heads.holds(now, 15, Duration::ZERO));
        assert!(!heads.holds(now, 16, Duration::ZERO));
        assert!(!heads.holds(now, 1, HOLD_MAX));
    }
}
