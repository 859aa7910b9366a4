//! The threads of one ring: they copy requests from the guest's memory into the disk's arena, and
//! answers back.
//!
//! Answers come on the data path's own thread, which must not wait. It delivers short ones to the
//! guest at once, for copying [`INLINE_MAX`] bytes takes less time than waking another thread;
//! longer reads are left to the queue's second thread. The first thread only takes requests, and
//! may wait while the table or the arena is full: answers don't need it.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use tracing::warn;
use tyche_block::{Completion, Disk, Operation, Request, Sink};

use super::chain::{Broken, Chain, Segments};
use super::request::{Command, HEADER_LEN, IDENTITY_LEN, Status, Terms, parse};
use super::ring::{Ring, Taken};
use crate::slots::{self, Closed, Slots};

/// The most requests of one queue in progress. More stay in the ring.
const IN_FLIGHT_MAX: usize = 128;

/// The most bytes that the data path's thread itself copies to the guest.
pub(super) const INLINE_MAX: u32 = 16 << 10;

/// The interval between warnings about a disk that delays the end of a queue.
const DRAIN_WARNING: Duration = Duration::from_secs(60);

/// Counters of all queues of an attachment.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) malformed: AtomicU64,
}

/// A request between its submission and its answer.
#[derive(Debug)]
struct Pending {
    taken: Taken,
    writable: Segments,
    /// Bytes of data that the guest gets after success.
    data_len: u32,
}

/// The completion of a request, on its way to the guest.
struct Completed {
    pending: Pending,
    completion: Completion,
}

/// A queue of a device, for the time of a front end's connection.
pub(super) struct Queue {
    disk: Arc<dyn Disk>,
    identity: [u8; IDENTITY_LEN],
    /// `None` until it is started, and after it broke.
    ring: Mutex<Option<Ring>>,
    slots: Slots<Pending>,
    /// Long answers, for the second thread.
    done: Mutex<VecDeque<Completed>>,
    done_changed: Condvar,
    closed: Closed,
    counters: Arc<Counters>,
}

impl Queue {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        identity: [u8; IDENTITY_LEN],
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            disk,
            identity,
            ring: Mutex::new(None),
            slots: Slots::new(IN_FLIGHT_MAX),
            done: Mutex::new(VecDeque::with_capacity(IN_FLIGHT_MAX)),
            done_changed: Condvar::new(),
            closed: Closed::default(),
            counters,
        }
    }

    /// The ring, for its set-up.
    pub(super) fn ring(&self) -> MutexGuard<'_, Option<Ring>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the queue: ends all waits, and after it returns, the guest's memory is left alone.
    pub(super) fn close(&self) {
        self.closed.raise();
        // A thread that has passed the check of `closed` finds no ring after this.
        *self.ring() = None;
        drop(self.done());
        self.done_changed.notify_all();
    }

    /// Waits until the disk has answered all requests, or until `given_up` is raised.
    pub(super) fn drain(&self, given_up: &Closed) {
        while !self.slots.wait_idle(DRAIN_WARNING, given_up) && !given_up.is_raised() {
            warn!("a virtual machine waits for a disk that does not answer");
        }
    }

    fn done(&self) -> MutexGuard<'_, VecDeque<Completed>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes requests until there are none, or until `paused`: a guest may never stop sending them.
    pub(super) fn take_all(
        &self,
        sink: &Arc<dyn Sink>,
        terms: Terms,
        mut paused: impl FnMut() -> bool,
    ) -> Result<(), Broken> {
        while !paused() {
            self.with_ring(Ring::quiet)?;
            while let Some(taken) = self.with_ring(Ring::take)? {
                self.counters.requests.fetch_add(1, Ordering::Relaxed);
                self.serve(taken, sink, terms);
                if paused() {
                    return Ok(());
                }
            }
            if !self.with_ring(Ring::listen)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn with_ring<T: Default>(
        &self,
        act: impl FnOnce(&mut Ring) -> Result<T, Broken>,
    ) -> Result<T, Broken> {
        let mut guard = self.ring();
        let Some(ring) = guard.as_mut() else { return Ok(T::default()) };
        let mut result = act(ring);
        if ring.is_lost() {
            result = Err(Broken);
        }
        if result.is_err() {
            *guard = None;
        }
        result
    }

    /// Submits or answers one request.
    fn serve(&self, taken: Taken, sink: &Arc<dyn Sink>, terms: Terms) {
        let Ok(chain) = Chain::walk(&taken.memory, taken.table, taken.size, taken.head) else {
            self.counters.malformed.fetch_add(1, Ordering::Relaxed);
            // The address of the status is unknown.
            return self.answer(taken.head, 0);
        };
        match parse(&chain, &taken.memory, terms) {
            Ok(Command::Disk { operation, offset, len }) => {
                match self.request(&taken, &chain, operation, offset, len) {
                    Ok(Some(request)) => self.submit(request, taken, chain, sink),
                    // The connection is closing.
                    Ok(None) => {}
                    Err(status) => self.reply(&taken, &chain.writable, &[], status),
                }
            }
            Ok(Command::Identify) => {
                self.reply(&taken, &chain.writable, &self.identity, Status::Ok);
            }
            Err(status) => self.reply(&taken, &chain.writable, &[], status),
        }
    }

    /// Checks a request against the disk, and allocates and fills its buffer; `None` once closed.
    fn request(
        &self,
        taken: &Taken,
        chain: &Chain,
        operation: Operation,
        offset: u64,
        len: u32,
    ) -> Result<Option<Request>, Status> {
        let mut buffer = None;
        if operation.has_data() {
            let extent = slots::alloc(self.disk.arena(), len as usize, &self.closed);
            let Some(extent) = extent else { return Ok(None) };
            let extent = buffer.insert(extent);
            if operation != Operation::Read {
                chain.readable.read(&taken.memory, HEADER_LEN, extent)?;
            }
        }
        let request = Request { operation, offset, len, buffer };
        match request.check(&self.disk.geometry()) {
            Ok(()) => Ok(Some(request)),
            Err(errno) => Err(Status::from(Err(errno))),
        }
    }

    fn submit(&self, request: Request, taken: Taken, chain: Chain, sink: &Arc<dyn Sink>) {
        let data_len = if request.operation == Operation::Read { request.len } else { 0 };
        let pending = Pending { taken, writable: chain.writable, data_len };
        if let Ok(token) = self.slots.insert(pending, &self.closed) {
            self.disk.submit(request, token, sink);
        }
    }

    /// Answers the guest after the disk has completed its request.
    fn finish(&self, answer: Completed) {
        let Completion { token, result, buffer } = answer.completion;
        let Pending { taken, writable, data_len } = answer.pending;
        if !self.closed.is_raised() {
            let data = match (result, &buffer) {
                (Ok(()), Some(buffer)) => &buffer[..data_len as usize],
                _ => &[],
            };
            self.reply(&taken, &writable, data, Status::from(result));
        }
        // The buffer goes first, for requests that wait for both.
        drop(buffer);
        self.slots.free(token);
    }

    /// Writes an answer into the guest's memory, and returns the request to the ring.
    fn reply(&self, taken: &Taken, writable: &Segments, data: &[u8], status: Status) {
        let mut status = status;
        if !data.is_empty() && writable.write(&taken.memory, 0, data).is_err() {
            status = Status::IoError;
        }
        if status != Status::Ok {
            self.counters.errors.fetch_add(1, Ordering::Relaxed);
        }
        let written = match writable.len().checked_sub(1) {
            Some(at) => writable.write(&taken.memory, at, &[status as u8]).map(|()| {
                let data_len = if status == Status::Ok { data.len() as u32 } else { 0 };
                data_len + 1
            }),
            None => Err(Broken),
        };
        if written.is_err() {
            self.counters.malformed.fetch_add(1, Ordering::Relaxed);
        }
        self.answer(taken.head, written.unwrap_or(0));
    }

    fn answer(&self, head: u16, written: u32) {
        if self.with_ring(|ring| ring.answer(head, written)).is_err() {
            warn!("a virtual machine's queue is broken: its used ring can't be written");
        }
    }

    /// The second thread: delivers long answers.
    fn finish_all(&self) {
        loop {
            let answer = {
                let mut done = self.done();
                loop {
                    if let Some(answer) = done.pop_front() {
                        break answer;
                    }
                    if self.closed.is_raised() {
                        return;
                    }
                    done = self.done_changed.wait(done).unwrap_or_else(PoisonError::into_inner);
                }
            };
            self.finish(answer);
        }
    }
}

impl Sink for Queue {
    fn complete(&self, completion: Completion) {
        let pending = self.slots.take(completion.token);
        let long = pending.data_len > INLINE_MAX && completion.result.is_ok();
        let answer = Completed { pending, completion };
        if !long {
            return self.finish(answer);
        }
        let mut done = self.done();
        if self.closed.is_raised() {
            // The second thread may have ended.
            drop(done);
            return self.finish(answer);
        }
        assert!(done.len() < IN_FLIGHT_MAX, "more answers than requests");
        done.push_back(answer);
        drop(done);
        self.done_changed.notify_one();
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("slots", &self.slots).finish_non_exhaustive()
    }
}

/// The thread that delivers long answers. Dropping it closes the queue.
#[derive(Debug)]
pub(super) struct Finisher {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl Finisher {
    pub(super) fn start(queue: Arc<Queue>) -> io::Result<Self> {
        let thread = {
            let queue = Arc::clone(&queue);
            thread::Builder::new().name("vhost-done".into()).spawn(move || queue.finish_all())?
        };
        Ok(Self { queue, thread: Some(thread) })
    }
}

impl Drop for Finisher {
    fn drop(&mut self) {
        self.queue.close();
        join(self.thread.take());
    }
}

/// The thread that takes requests. Dropping it pauses the queue; requests taken are still answered.
#[derive(Debug)]
pub(super) struct Taker {
    paused: Arc<Closed>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Taker {
    /// Takes requests now, and whenever `kick` is readable.
    pub(super) fn start(queue: Arc<Queue>, kick: Arc<File>, terms: Terms) -> io::Result<Self> {
        let paused = Arc::new(Closed::default());
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let thread = {
            let (paused, wake) = (Arc::clone(&paused), Arc::clone(&wake));
            let sink: Arc<dyn Sink> = Arc::clone(&queue) as _;
            let run = move || run(&queue, &sink, &kick, &wake, terms, &paused);
            thread::Builder::new().name("vhost-queue".into()).spawn(run)?
        };
        Ok(Self { paused, wake, thread: Some(thread) })
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        self.paused.raise();
        // An eventfd with a small count accepts it.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        join(self.thread.take());
    }
}

fn join(thread: Option<JoinHandle<()>>) {
    if thread.is_some_and(|thread| thread.join().is_err()) {
        warn!("a thread that served a virtual machine had panicked");
    }
}

fn run(
    queue: &Queue,
    sink: &Arc<dyn Sink>,
    mut kick: &File,
    wake: &OwnedFd,
    terms: Terms,
    paused: &Closed,
) {
    while !paused.is_raised() {
        if queue.take_all(sink, terms, || paused.is_raised()).is_err() {
            queue.counters.malformed.fetch_add(1, Ordering::Relaxed);
            warn!("a virtual machine's queue is broken: its rings are invalid");
            return;
        }
        if paused.is_raised() {
            return;
        }
        let mut fds = [PollFd::new(kick, PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return warn!(%error, "poll for a virtual machine's kick"),
        }
        let kicked = fds[0].revents();
        if kicked.contains(PollFlags::IN) {
            // The count has no meaning. The read fails if another reader was faster.
            let _ = kick.read(&mut [0; 8]);
        } else if !kicked.is_empty() {
            return warn!("a virtual machine's kick is no eventfd");
        }
    }
}
