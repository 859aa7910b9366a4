//! Drives a queue from a test: sleeps on its descriptor as the engine does, with a bound.

use std::time::{Duration, Instant};

use tyche_block::{
    Arena, Completion, Errno, Extent, Operation, PAGE, Request, STATUS_LEN_MAX, StatusRun,
    status_runs,
};
use tyche_store::{Queue, Store};
use tyche_testkit::wait::{PATIENCE, wait_readable};

pub(crate) const WRITE: Operation = Operation::Write { fua: false };
pub(crate) const WRITE_FUA: Operation = Operation::Write { fua: true };

/// A queue with memory for its requests.
pub(crate) struct Driver {
    pub(crate) queue: Box<dyn Queue>,
    pub(crate) arena: Arena,
}

impl Driver {
    pub(crate) fn new(store: &dyn Store, depth: usize) -> Self {
        Self { queue: store.queue(depth).unwrap(), arena: Arena::new(4096) }
    }

    pub(crate) fn buffer(&self, bytes: &[u8]) -> Extent {
        let mut buffer = self.arena.alloc(bytes.len()).expect("enough pages for a test");
        buffer.copy_from_slice(bytes);
        buffer
    }

    pub(crate) fn submit(&mut self, token: u64, operation: Operation, offset: u64, len: usize) {
        let buffer = operation.has_data().then(|| self.arena.alloc(len).unwrap());
        self.submit_with(token, operation, offset, len, buffer);
    }

    pub(crate) fn submit_with(
        &mut self,
        token: u64,
        operation: Operation,
        offset: u64,
        len: usize,
        buffer: Option<Extent>,
    ) {
        let len = u32::try_from(len).unwrap();
        self.queue.submit(token, Request { operation, offset, len, buffer });
    }

    /// Whether the queue's descriptor becomes readable within `timeout`.
    pub(crate) fn readable(&self, timeout: Duration) -> bool {
        let fd = self.queue.wait_fd().expect("a queue that can be slept on");
        wait_readable(fd, timeout)
    }

    /// Waits until nothing is in flight.
    pub(crate) fn finish(&mut self) -> Vec<Completion> {
        let mut done = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.queue.kick().unwrap();
            self.queue.reap(&mut done);
            if self.queue.in_flight() == 0 {
                return done;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} requests hang", self.queue.in_flight());
            if self.queue.wait_fd().is_some() {
                self.readable(left);
            }
        }
    }

    /// One request from start to end.
    pub(crate) fn run(&mut self, operation: Operation, offset: u64, len: usize) -> Completion {
        self.submit(77, operation, offset, len);
        let completion = self.finish().pop().unwrap();
        assert_eq!(completion.token, 77);
        completion
    }

    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        let completion = self.run(Operation::Read, offset, len);
        completion.result.expect("a read that succeeds");
        completion.buffer.unwrap().to_vec()
    }

    pub(crate) fn write(
        &mut self,
        operation: Operation,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let buffer = self.buffer(bytes);
        self.submit_with(77, operation, offset, bytes.len(), Some(buffer));
        self.finish().pop().unwrap().result
    }

    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        self.run(Operation::Flush, 0, 0).result
    }

    /// The status of the disk from `offset` on, as one answer tells.
    pub(crate) fn status(&mut self, offset: u64, size: u64) -> Vec<StatusRun> {
        let len = (size - offset).min(STATUS_LEN_MAX.into()) as usize;
        let Completion { result, buffer, .. } = self.run(Operation::BlockStatus, offset, len);
        result.expect("a status");
        let buffer = buffer.expect("its buffer");
        status_runs(&buffer[..len], offset, 512).expect("a list of runs").collect()
    }

    /// Asserts that every page is back with the arena.
    pub(crate) fn assert_nothing_is_lent(&self) {
        let all = self.arena.claim(0, self.arena.pages() * PAGE);
        assert!(all.is_some(), "a buffer has not come back");
    }
}
