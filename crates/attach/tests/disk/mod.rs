//! A disk in memory whose answers can be held back, failed and inspected.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use tyche_block::{
    Arena, ArenaSize, Completion, Disk, Errno, Geometry, Operation, PAGE, Request, Sink, StatusRun,
    StatusWriter,
};
use tyche_testkit::wait::{PATIENCE, wait_until};

/// Threads that answer; with several, answers overtake each other.
const WORKERS: usize = 3;

/// The disk. Clones are the same disk.
#[derive(Clone)]
pub(crate) struct MemoryDisk {
    shared: Arc<Shared>,
    arena: Arena,
}

struct Shared {
    state: Mutex<DiskState>,
    changed: Condvar,
}

struct DiskState {
    geometry: Geometry,
    bytes: Vec<u8>,
    queue: VecDeque<(Request, u64, Arc<dyn Sink>)>,
    held: bool,
    failures: Vec<(Range<u64>, Errno)>,
    flush_error: Option<Errno>,
    lies: bool,
    log: Vec<(Operation, u64, u32)>,
    handles: usize,
}

impl MemoryDisk {
    /// A disk of `size` zero bytes, with blocks of `block_size` and an arena of 16 MiB.
    pub(crate) fn new(size: usize, block_size: u32) -> Self {
        Self::with(size, block_size, 4096, |_| {})
    }

    /// The same with an arena of that size, to which nobody adds memory, and a geometry changed by
    /// `change`.
    pub(crate) fn with(
        size: usize,
        block_size: u32,
        pages: impl Into<ArenaSize>,
        change: impl FnOnce(&mut Geometry),
    ) -> Self {
        let mut geometry =
            Geometry { write_cache: true, discard: true, ..Geometry::new(size as u64, block_size) };
        change(&mut geometry);
        let state = DiskState {
            geometry,
            bytes: vec![0; size],
            queue: VecDeque::new(),
            held: false,
            failures: Vec::new(),
            flush_error: None,
            lies: false,
            log: Vec::new(),
            handles: 1,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        for _ in 0..WORKERS {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.work());
        }
        Self { shared, arena: Arena::elastic(pages.into()).unwrap() }
    }

    /// The disk as a trait object, for attachments.
    pub(crate) fn dyn_disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    /// Holds all answers back until [`release`](Self::release).
    pub(crate) fn hold(&self) {
        self.shared.lock().held = true;
    }

    /// Releases the answers.
    pub(crate) fn release(&self) {
        self.shared.lock().held = false;
        self.shared.changed.notify_all();
    }

    /// Waits until `count` requests are held back.
    pub(crate) fn wait_held(&self, count: usize) {
        self.shared.wait(|state| state.held && state.queue.len() >= count);
    }

    /// Waits until all buffers are back with the arena.
    pub(crate) fn wait_all_buffers_back(&self) {
        let all = self.arena.pages() * PAGE;
        wait_until("all buffers are back", || self.arena.claim(0, all).is_some());
    }

    /// Fails every request that touches `range`.
    pub(crate) fn fail(&self, range: Range<u64>, errno: Errno) {
        self.shared.lock().failures.push((range, errno));
    }

    /// Fails flushes with an error, or lets them succeed again.
    pub(crate) fn fail_flushes(&self, errno: Option<Errno>) {
        self.shared.lock().flush_error = errno;
    }

    /// Answers that are no status from now on.
    pub(crate) fn lie_about_holes(&self) {
        self.shared.lock().lies = true;
    }

    /// Enlarges the disk.
    pub(crate) fn grow(&self, size: usize) {
        let mut state = self.shared.lock();
        state.bytes.resize(size, 0);
        state.geometry.size = size as u64;
    }

    /// The content of a range.
    pub(crate) fn read(&self, range: Range<usize>) -> Vec<u8> {
        self.shared.lock().bytes[range].to_vec()
    }

    /// Writes to the disk directly.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        self.shared.lock().bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Requests since the last call, in the order of execution.
    pub(crate) fn take_log(&self) -> Vec<(Operation, u64, u32)> {
        std::mem::take(&mut self.shared.lock().log)
    }
}

impl Drop for MemoryDisk {
    fn drop(&mut self) {
        // The workers end with the last handle outside a request's sink.
        if Arc::strong_count(&self.shared) == WORKERS + 1 {
            self.shared.lock().handles = 0;
            self.shared.changed.notify_all();
        }
    }
}

impl Disk for MemoryDisk {
    fn geometry(&self) -> Geometry {
        self.shared.lock().geometry
    }

    fn arena(&self) -> &Arena {
        &self.arena
    }

    fn submit(&self, request: Request, token: u64, sink: &Arc<dyn Sink>) {
        self.shared.lock().queue.push_back((request, token, Arc::clone(sink)));
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap()
    }

    fn wait(&self, mut condition: impl FnMut(&mut DiskState) -> bool) {
        let (_state, timeout) = self
            .changed
            .wait_timeout_while(self.lock(), PATIENCE, |state| !condition(state))
            .unwrap();
        assert!(!timeout.timed_out(), "waited in vain for the disk");
    }

    fn work(&self) {
        loop {
            let mut state = self.lock();
            while state.handles > 0 && (state.held || state.queue.is_empty()) {
                state = self.changed.wait(state).unwrap();
            }
            let Some((mut request, token, sink)) = state.queue.pop_front() else { return };
            let result = state.execute(&mut request);
            drop(state);
            sink.complete(Completion { token, result, buffer: request.buffer });
        }
    }
}

impl DiskState {
    fn execute(&mut self, request: &mut Request) -> Result<(), Errno> {
        let Request { operation, offset, len, ref mut buffer } = *request;
        self.log.push((operation, offset, len));
        if operation == Operation::Flush {
            return self.flush_error.map_or(Ok(()), Err);
        }
        let end = offset + u64::from(len);
        for (range, errno) in &self.failures {
            if range.start < end && offset < range.end {
                return Err(*errno);
            }
        }
        if operation == Operation::BlockStatus {
            let answer = &mut buffer.as_mut().unwrap()[..len as usize];
            self.status(offset as usize, answer);
            return Ok(());
        }
        let bytes = &mut self.bytes[offset as usize..end as usize];
        match operation {
            Operation::Read => buffer.as_mut().unwrap()[..len as usize].copy_from_slice(bytes),
            Operation::Write { .. } => {
                bytes.copy_from_slice(&buffer.as_ref().unwrap()[..len as usize]);
            }
            // After a discard any data may be read; this pattern is unlike the old content.
            Operation::Discard => bytes.fill(0xdd),
            Operation::WriteZeroes { .. } => bytes.fill(0),
            Operation::Flush | Operation::BlockStatus => unreachable!(),
        }
        Ok(())
    }

    /// Sectors of zeroes are holes.
    fn status(&self, offset: usize, answer: &mut [u8]) {
        let mut status = StatusWriter::new(answer);
        for sector in self.bytes[offset..].chunks(512) {
            let is_zero = sector.iter().all(|&byte| byte == 0);
            let run = if is_zero { StatusRun::hole } else { StatusRun::data };
            if !status.push(run(512)) {
                break;
            }
        }
        if self.lies {
            answer.fill(0xEE);
        }
    }
}

/// A pattern that differs by offset and by seed.
pub(crate) fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 512) as u8 ^ (i % 251) as u8 ^ seed).collect()
}
