//! Stores of the target over the simulated disks.
//!
//! A store has two ends: the target's, which is a [`Store`] like a file, and the world's, the
//! [`Bus`] to the disk: requests come by it, and completions go back.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tyche_block::{Arena, Completion, Geometry, Request};
use tyche_store::{Queue, ResizeError, Store};

/// The world's end.
pub(crate) struct Bus(Arc<Mutex<State>>);

/// The target's end.
struct SimulatedStore(Arc<Mutex<State>>);

/// A queue of the store, with its number.
struct SimulatedQueue {
    state: Arc<Mutex<State>>,
    number: usize,
    in_flight: usize,
}

struct State {
    geometry: Geometry,
    losses: u64,
    submitted: VecDeque<Submitted>,
    /// By queue.
    completed: Vec<Vec<Completion>>,
}

/// A request for the disk.
pub(crate) struct Submitted {
    /// Number of the queue that it came by.
    pub(crate) queue: usize,
    pub(crate) token: u64,
    pub(crate) request: Request,
}

/// A store of a disk with that geometry, and that many losses.
pub(crate) fn store(geometry: Geometry, losses: u64) -> (Arc<dyn Store>, Bus) {
    let (submitted, completed) = Default::default();
    let state = Arc::new(Mutex::new(State { geometry, losses, submitted, completed }));
    (Arc::new(SimulatedStore(Arc::clone(&state))), Bus(state))
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bus {
    /// The next request for the disk.
    pub(crate) fn take(&self) -> Option<Submitted> {
        lock(&self.0).submitted.pop_front()
    }

    /// Ends a request of a queue.
    pub(crate) fn complete(&self, queue: usize, completion: Completion) {
        lock(&self.0).completed[queue].push(completion);
    }

    /// The disk has another size.
    pub(crate) fn resize(&self, size: u64) {
        lock(&self.0).geometry.size = size;
    }

    /// Sets how often completed writes may have been lost.
    pub(crate) fn set_losses(&self, losses: u64) {
        lock(&self.0).losses = losses;
    }
}

impl Store for SimulatedStore {
    fn geometry(&self) -> Geometry {
        lock(&self.0).geometry
    }

    fn queue(&self, _depth: usize) -> io::Result<Box<dyn Queue>> {
        let mut state = lock(&self.0);
        let number = state.completed.len();
        state.completed.push(Vec::new());
        Ok(Box::new(SimulatedQueue { state: Arc::clone(&self.0), number, in_flight: 0 }))
    }

    fn resize(&self, _size: Option<u64>) -> Result<u64, ResizeError> {
        Ok(self.geometry().size)
    }

    fn losses(&self) -> u64 {
        lock(&self.0).losses
    }
}

impl Queue for SimulatedQueue {
    fn register(&mut self, _arena: &Arena) {}

    fn unregister(&mut self, _arena: &Arena) {}

    fn submit(&mut self, token: u64, request: Request) {
        self.in_flight += 1;
        let submitted = Submitted { queue: self.number, token, request };
        lock(&self.state).submitted.push_back(submitted);
    }

    fn kick(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        let completed = &mut lock(&self.state).completed[self.number];
        self.in_flight -= completed.len();
        out.append(completed);
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
