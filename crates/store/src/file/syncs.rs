//! The syncs of a file or device, which all its queues share.
//!
//! The kernel tells once that it could not write data back: to the first sync that asks through an
//! open file description, or, where a device has lost what its own cache held, to the sync that was
//! with the device. So of two syncs at the same time one may succeed because the other was told.
//!
//! Therefore all syncs go through one file description, and one at a time. A request waits for a
//! sync that begins after it has come, whichever queue runs that, and takes its success only if no
//! sync has failed since the request was submitted: what a failure told of may be a write that this
//! request was to make durable. One failure is counted once, however many queues there are.
//!
//! ```text
//! queue 0   join ─► run n ───────► end n          join, wait ············► woken: end n+1
//! queue 1      join, wait ·············► woken: run n+1 ──────► end n+1
//! ```

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// The most attempts at a sync that the kernel interrupts.
const ATTEMPTS_MAX: u32 = 100;

/// See the [module](self).
pub(super) struct Syncs {
    /// The file description of all syncs.
    file: OwnedFd,
    /// How many have failed. Changes under the lock.
    failures: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether a sync is with the kernel.
    is_running: bool,
    /// The number of the last sync that has begun, and of the last that has ended.
    begun: u64,
    ended: u64,
    /// Attempts of the one that runs.
    attempts: u32,
    /// The errno of the last that has failed.
    errno: i32,
    /// The queues that wait for the one that runs.
    waiting: Vec<Waker>,
}

/// Wakes a queue that waits for the sync of another, or for the status of a range.
#[derive(Clone, Debug)]
pub(super) struct Waker(Arc<OwnedFd>);

/// The part of a queue that wants a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It runs the sync.
    Run,
    /// Another queue runs one, and will wake it.
    Wait,
    /// The sync that it wants has ended.
    Done,
}

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(fd)))
    }

    pub(super) fn wake(&self) {
        // Fails only if the counter is full, and then the queue is woken anyway.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Takes the call; a later one is another.
    pub(super) fn clear(&self) {
        // Fails if there was none.
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Syncs {
    pub(super) fn new(file: OwnedFd) -> Self {
        Self { file, failures: AtomicU64::new(0), state: Mutex::default() }
    }

    /// The file description of all syncs.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of syncs that have failed.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// A queue wants a sync of all that is written by now. Returns its number.
    pub(super) fn join(&self, waker: &Waker) -> (u64, Turn) {
        let mut state = self.state();
        let number = state.begun + 1;
        (number, state.begin(waker))
    }

    /// A queue that waits wants the sync of that number.
    pub(super) fn go_on(&self, number: u64, waker: &Waker) -> Turn {
        let mut state = self.state();
        if state.ended >= number { Turn::Done } else { state.begin(waker) }
    }

    /// Takes the kernel's answer to the sync that the caller runs. Returns whether it is to run it
    /// once more.
    pub(super) fn end(&self, answer: i32) -> bool {
        let mut state = self.state();
        let errno = answer.saturating_neg();
        let is_interrupted = matches!(errno, libc::EINTR | libc::EAGAIN | libc::ECANCELED);
        if is_interrupted && state.attempts < ATTEMPTS_MAX {
            state.attempts += 1;
            return true;
        }
        if answer < 0 {
            state.errno = if is_interrupted { libc::EIO } else { errno };
            self.failures.fetch_add(1, Ordering::AcqRel);
        }
        state.ended = state.begun;
        state.release();
        false
    }

    /// The queue that runs a sync ends, and the kernel has not seen the sync.
    pub(super) fn give_up(&self) {
        self.state().release();
    }

    /// The result of the sync of that number for a request that was submitted after that many
    /// failures: zero or a negative errno; `None` if the sync has not ended.
    pub(super) fn answer(&self, number: u64, failures: u64) -> Option<i32> {
        let state = self.state();
        let is_proof = self.failures() == failures;
        (state.ended >= number).then_some(if is_proof { 0 } else { -state.errno })
    }
}

impl State {
    fn begin(&mut self, waker: &Waker) -> Turn {
        if self.is_running {
            self.waiting.push(waker.clone());
            return Turn::Wait;
        }
        (self.is_running, self.attempts) = (true, 0);
        self.begun += 1;
        Turn::Run
    }

    /// Lets others run a sync.
    fn release(&mut self) {
        self.is_running = false;
        mem::take(&mut self.waiting).iter().for_each(Waker::wake);
    }
}
