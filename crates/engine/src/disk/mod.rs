//! One loop's access to one store, for any protocol.

mod exported;

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use tyche_block::{Arena, Completion, Errno, Operation, OperationKind, Request};
use tyche_store::{Loan, Queue, Store};
use tyche_time::Instant;

pub use exported::{Exported, Health};

/// The most requests of one loop at one store; more wait in the loop.
pub const DEPTH: usize = 1024;
/// Time without an answer after which a disk with requests is reported. Disks that spin up, or that
/// try a bad sector again and again, take 5 to 8 s.
const HANGS_AFTER: Duration = Duration::from_secs(10);
/// Bits of a token. At the store the kind of operation is above them, for completions lack it.
const TOKEN_BITS: u32 = 48;

/// The requests of one loop at one store, and the time since which the store answers none. The
/// queue of the store is opened when memory is first registered.
pub struct Disk {
    exported: Arc<Exported>,
    queue: Option<Box<dyn Queue>>,
    /// Requests that wait for room in the queue.
    waiting: VecDeque<(u64, Request)>,
    /// Whether the store has answered since the last look.
    answered: bool,
    /// Whether it had requests at the last look.
    busy: bool,
    /// When it last had answered, or nothing to answer, at a look.
    progress_at: Instant,
    /// Whether it was reported that it does not answer.
    hangs: bool,
}

impl Disk {
    /// Access to a disk, not used yet.
    pub fn new(exported: Arc<Exported>) -> Self {
        let (waiting, answered, progress_at) = (VecDeque::new(), false, Instant(0));
        Self { exported, queue: None, waiting, answered, busy: false, progress_at, hangs: false }
    }

    /// The disk that it is.
    pub fn exported(&self) -> &Exported {
        &self.exported
    }

    /// Its store.
    pub fn store(&self) -> &dyn Store {
        &**self.exported.store()
    }

    /// Whether no request is at the store, or waits for it.
    pub fn is_idle(&self) -> bool {
        let in_flight = self.queue.as_ref().map_or(0, |queue| queue.in_flight());
        in_flight == 0 && self.waiting.is_empty()
    }

    /// Registers the memory of future requests.
    ///
    /// # Errors
    /// The system's error when no queue can be opened. The next [check](Self::check) tries again.
    pub fn register(&mut self, arena: &Arena) -> io::Result<()> {
        let queue = match self.queue.take() {
            Some(queue) => queue,
            None => self.exported.store().queue(DEPTH)?,
        };
        self.queue.insert(queue).register(arena);
        Ok(())
    }

    /// Unregisters memory that no request uses any more.
    pub fn unregister(&mut self, arena: &Arena) {
        if let Some(queue) = &mut self.queue {
            queue.unregister(arena);
        }
    }

    /// Unregisters what it can of the pages from `first` on, which no request uses. Returns from
    /// which page on none is registered.
    pub fn cut(&mut self, arena: &Arena, first: usize) -> usize {
        self.queue.as_mut().map_or(first, |queue| queue.cut(arena, first))
    }

    /// Checks that the disk can execute a request with this memory. Past the end is invalid on the
    /// wire, whatever the operation: `NOSPC` is for local writers on Linux, and here means a full
    /// medium.
    ///
    /// # Errors
    /// The request's own; or there is no queue to the store.
    pub fn check(&mut self, request: &Request, memory: &Arena) -> Result<(), Errno> {
        if self.queue.is_none()
            && let Err(error) = self.register(memory)
        {
            // Hosts get errors instead of silence.
            self.exported.closed(&error);
            self.exported.failed(request.operation.into(), Errno::IO);
            return Err(Errno::IO);
        }
        let checked = request.check(&self.exported.store().geometry());
        checked.map_err(|errno| if errno == Errno::NOSPC { Errno::INVAL } else { errno })
    }

    /// Reads without a copy, if the store can. The request has been checked.
    pub fn lend(&mut self, request: &Request) -> Option<Loan> {
        let queue = self.queue.as_mut().filter(|_| request.operation == Operation::Read)?;
        queue.lend(request.offset, request.len as usize)
    }

    /// Takes a request that was checked. Its token has at most 48 bits.
    ///
    /// # Panics
    /// If no memory was registered.
    pub fn submit(&mut self, token: u64, request: Request) {
        let queue = self.queue.as_mut().expect("requests have registered memory");
        let token = labelled(token, request.operation.into());
        if queue.in_flight() < DEPTH {
            queue.submit(token, request);
        } else {
            self.waiting.push_back((token, request));
        }
    }

    /// Submits all waiting and new requests to the kernel, then collects completions.
    pub fn work(&mut self, done: &mut Vec<Completion>) {
        let Some(queue) = &mut self.queue else { return };
        while queue.in_flight() < DEPTH {
            let Some((token, request)) = self.waiting.pop_front() else { break };
            queue.submit(token, request);
        }
        if queue.in_flight() == 0 {
            return;
        }
        if let Err(error) = queue.kick() {
            self.exported.jammed(&error);
        }
        let before = done.len();
        queue.reap(done);
        self.answered |= done.len() > before;
        for completion in &mut done[before..] {
            let (token, operation) = unlabelled(completion.token);
            completion.token = token;
            if let Err(errno) = completion.result {
                self.exported.failed(operation, errno);
            }
        }
    }

    /// Looks whether the disk answers: one that has not for `HANGS_AFTER`, though it has
    /// requests, is reported, and again when it does.
    pub fn watch(&mut self, now: Instant) {
        let Some(queue) = &self.queue else { return };
        let in_flight = queue.in_flight();
        let was_busy = std::mem::replace(&mut self.busy, in_flight > 0);
        if !was_busy || in_flight == 0 || std::mem::take(&mut self.answered) {
            if std::mem::take(&mut self.hangs) {
                self.exported.answers();
            }
            self.progress_at = now;
        } else if !self.hangs && now.since(self.progress_at) >= HANGS_AFTER {
            self.hangs = true;
            self.exported.hangs(in_flight, HANGS_AFTER);
        }
    }

    /// When [`watch`](Self::watch) has to look next.
    pub fn watch_at(&self) -> Option<Instant> {
        (self.busy && !self.hangs).then(|| self.progress_at + HANGS_AFTER)
    }

    /// Whether it has requests, or had some at the last [`watch`](Self::watch).
    pub fn is_busy(&self) -> bool {
        let in_flight = self.queue.as_ref().map_or(0, |queue| queue.in_flight());
        self.busy || in_flight > 0 || !self.waiting.is_empty()
    }

    /// The descriptor to wait for.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.as_ref()?.wait_fd()
    }
}

impl Drop for Disk {
    /// A disk that is given up has answered all requests: none was left to look at.
    fn drop(&mut self) {
        if self.hangs {
            self.exported.answers();
        }
    }
}

fn labelled(token: u64, operation: OperationKind) -> u64 {
    debug_assert!(token < 1 << TOKEN_BITS, "a token has 48 bits");
    (operation as u64) << TOKEN_BITS | token
}

fn unlabelled(token: u64) -> (u64, OperationKind) {
    let operation = OperationKind::ALL[(token >> TOKEN_BITS) as usize];
    (token & ((1 << TOKEN_BITS) - 1), operation)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tyche_block::Geometry;
    use tyche_store::ResizeError;
    use tyche_store::null::NullStore;

    use super::*;

    #[test]
    fn past_the_end_is_invalid_whatever_the_operation() {
        let store = Arc::new(NullStore::new(4096, 512).unwrap());
        let mut disk = Disk::new(Arc::new(Exported::new("a".to_owned(), store)));
        let memory = Arena::new(1);
        let zeroes = Operation::WriteZeroes { fua: false, may_unmap: true };
        let write = Operation::Write { fua: false };
        for operation in [Operation::Read, write, zeroes, Operation::Discard] {
            for offset in [3584, 4096, u64::MAX - 511] {
                let request = Request { operation, offset, len: 1024, buffer: None };
                assert_eq!(
                    disk.check(&request, &memory),
                    Err(Errno::INVAL),
                    "{operation:?} at {offset}"
                );
            }
        }
    }

    /// A disk that has no queue at first.
    struct Late(NullStore, AtomicBool);

    impl Store for Late {
        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }

        fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
            match self.1.swap(true, Ordering::Relaxed) {
                true => self.0.queue(depth),
                false => Err(io::ErrorKind::OutOfMemory.into()),
            }
        }

        fn resize(&self, size: Option<u64>) -> Result<u64, ResizeError> {
            self.0.resize(size)
        }
    }

    #[test]
    fn a_queue_that_could_not_be_opened_is_opened_with_the_next_request() {
        let store = Late(NullStore::new(4096, 512).unwrap(), AtomicBool::new(false));
        let mut disk = Disk::new(Arc::new(Exported::new("a".to_owned(), Arc::new(store))));
        let memory = Arena::new(1);
        let request = Request { operation: Operation::Flush, offset: 0, len: 0, buffer: None };
        assert_eq!(disk.check(&request, &memory), Err(Errno::IO));
        assert_eq!(disk.check(&request, &memory), Ok(()));
    }
}
