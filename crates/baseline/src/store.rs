//! A store whose requests are executed by a worker thread.
//!
//! This is the completion path of the first Tyche (MSST 2014, section II.C): the receiving thread
//! hands a request to a disk thread, and a work queue hands the completion back. MSST 2015 gave
//! that up, and so does this Tyche, because each hand-over wakes a thread. The wrapper brings the
//! slower path back, to measure its cost.
//!
//! ```text
//! submitting thread                           worker, one for each queue
//! submit .. kick ──► [ orders ] ──eventfd──► submit, kick ──► inner queue
//! reap ◄──────────── [ done ] ◄──eventfd──── reap ◄────────── inner queue
//! ```
//!
//! Both sides spin before they sleep, as the loops of the engine do. Kicked requests are executed
//! even if the queue is dropped right after the kick; requests not yet kicked are dropped.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tyche_block::{Arena, Completion, Geometry, Request};
use tyche_wake::{Inbox, Spin, now_ns, sleep};

use tyche_store::{BackingError, Queue, ResizeError, Store};

/// The longest sleep of a worker: after it, requests that the inner queue could not submit are
/// tried again.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// A store whose queues have worker threads.
pub struct HandOverStore {
    inner: Arc<dyn Store>,
    spin: Duration,
}

impl HandOverStore {
    /// Wraps `inner`; workers spin for up to `spin` before they sleep.
    pub fn new(inner: Arc<dyn Store>, spin: Duration) -> Self {
        Self { inner, spin }
    }
}

impl Store for HandOverStore {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        let inner = self.inner.queue(depth)?;
        Ok(Box::new(HandOverQueue::start(inner, depth, self.spin)?))
    }

    fn resize(&self, size: Option<u64>) -> Result<u64, ResizeError> {
        self.inner.resize(size)
    }

    fn check_backing(&self) -> Result<(), BackingError> {
        self.inner.check_backing()
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.inner.file()
    }

    fn losses(&self) -> u64 {
        self.inner.losses()
    }
}

/// State that a queue and its worker share.
struct Shared {
    orders: Inbox<(u64, Request)>,
    done: Inbox<Completion>,
    /// Arenas to register or unregister. They need no order with the requests, none of which uses
    /// their memory yet, or any more. They are rare, so a lock does no harm.
    registrations: Mutex<Vec<Registration>>,
    /// Whether there are registrations.
    registers: AtomicBool,
    /// Set when the queue is dropped.
    closed: AtomicBool,
    /// Set when the worker ends.
    ended: AtomicBool,
    /// The error of the inner queue's last failed kick.
    failure: Mutex<Option<io::Error>>,
    /// Whether there is a failure that has not been reported.
    failed: AtomicBool,
}

enum Registration {
    Register(Arena),
    Unregister(Arena),
}

/// The submitting thread's side.
struct HandOverQueue {
    shared: Arc<Shared>,
    /// Requests submitted and not yet kicked.
    submitted: Vec<(u64, Request)>,
    depth: usize,
    in_flight: usize,
    worker: Option<JoinHandle<()>>,
}

impl HandOverQueue {
    fn start(inner: Box<dyn Queue>, depth: usize, spin: Duration) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            orders: Inbox::new(depth)?,
            done: Inbox::new(depth)?,
            registrations: Mutex::default(),
            registers: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            failure: Mutex::default(),
            failed: AtomicBool::new(false),
        });
        let worker = Worker {
            inner,
            shared: Arc::clone(&shared),
            done: Vec::with_capacity(depth),
            spin: Spin::new(spin),
        };
        let worker =
            thread::Builder::new().name("tyche-store".into()).spawn(move || worker.run())?;
        let submitted = Vec::with_capacity(depth);
        Ok(Self { shared, submitted, depth, in_flight: 0, worker: Some(worker) })
    }

    fn queue_registration(&self, registration: Registration) {
        let mut list = self.shared.registrations.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(registration);
        self.shared.registers.store(true, Ordering::Release);
    }
}

impl Queue for HandOverQueue {
    fn register(&mut self, arena: &Arena) {
        self.queue_registration(Registration::Register(arena.clone()));
    }

    fn unregister(&mut self, arena: &Arena) {
        self.queue_registration(Registration::Unregister(arena.clone()));
        // The worker keeps the memory until it has unregistered it.
        self.shared.orders.ring();
    }

    fn submit(&mut self, token: u64, request: Request) {
        self.shared.done.awake();
        assert!(self.in_flight < self.depth, "more than {} requests in flight", self.depth);
        self.in_flight += 1;
        self.submitted.push((token, request));
    }

    /// # Errors
    /// Errors of the inner queue are returned by one of the next calls.
    fn kick(&mut self) -> io::Result<()> {
        if !self.submitted.is_empty() {
            for order in self.submitted.drain(..) {
                let ordered = self.shared.orders.push(order);
                assert!(ordered.is_ok(), "there is room for every request");
            }
            self.shared.orders.ring();
        }
        if !self.shared.failed.swap(false, Ordering::Acquire) {
            return Ok(());
        }
        let mut failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take().map_or(Ok(()), Err)
    }

    /// # Panics
    /// If the worker has panicked, as the inner queue would have in this thread.
    fn reap(&mut self, out: &mut Vec<Completion>) {
        self.shared.done.awake();
        while let Some(completion) = self.shared.done.pop() {
            self.in_flight -= 1;
            out.push(completion);
        }
        let has_ended = self.shared.ended.load(Ordering::SeqCst);
        assert!(!has_ended, "the store's worker has panicked");
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.shared.done.wait_fd();
        let Shared { failed, ended, .. } = &*self.shared;
        if failed.load(Ordering::SeqCst) || ended.load(Ordering::SeqCst) {
            self.shared.done.ring();
        }
        Some(fd)
    }
}

impl Drop for HandOverQueue {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.orders.ring();
        if let Some(worker) = self.worker.take() {
            // A panic of the worker has been printed already.
            let _ = worker.join();
        }
    }
}

/// The thread that owns the inner queue.
struct Worker {
    inner: Box<dyn Queue>,
    shared: Arc<Shared>,
    done: Vec<Completion>,
    spin: Spin,
}

impl Worker {
    fn run(mut self) {
        while !self.should_end() {
            if self.run_once() {
                self.spin.worked();
            } else if self.spin.again(now_ns()) {
                // The submitting thread may need the core.
                thread::yield_now();
            } else {
                self.sleep();
            }
        }
    }

    /// Whether to end: the queue is dropped, and all its kicked requests are submitted.
    fn should_end(&self) -> bool {
        self.shared.closed.load(Ordering::SeqCst) && self.shared.orders.is_empty()
    }

    /// Runs one round; false if there was nothing to do.
    fn run_once(&mut self) -> bool {
        self.register();
        let mut worked = false;
        while let Some((token, request)) = self.shared.orders.pop() {
            self.inner.submit(token, request);
            worked = true;
        }
        if self.inner.in_flight() == 0 {
            return worked;
        }
        if let Err(error) = self.inner.kick() {
            // Requests not submitted stay in the inner queue; the round after a sleep tries again.
            worked = false;
            self.fail(error);
        }
        self.inner.reap(&mut self.done);
        if self.done.is_empty() {
            return worked;
        }
        for completion in self.done.drain(..) {
            let handed = self.shared.done.push(completion);
            assert!(handed.is_ok(), "there is room for every completion");
        }
        self.shared.done.ring();
        true
    }

    /// Reports an error to the next kick.
    fn fail(&self, error: io::Error) {
        let mut failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
        *failure = Some(error);
        self.shared.failed.store(true, Ordering::Release);
        drop(failure);
        self.shared.done.ring();
    }

    /// Registers and unregisters memory with the inner queue.
    fn register(&mut self) {
        if !self.shared.registers.swap(false, Ordering::Acquire) {
            return;
        }
        let list = &self.shared.registrations;
        let list = std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner));
        for registration in list {
            match registration {
                Registration::Register(arena) => self.inner.register(&arena),
                Registration::Unregister(arena) => self.inner.unregister(&arena),
            }
        }
    }

    fn sleep(&mut self) {
        self.spin.sleeps();
        let orders = self.shared.orders.wait_fd();
        // A close or registration after `wait_fd` rings the bell; an earlier one is seen here.
        let has_work = self.shared.closed.load(Ordering::SeqCst)
            || self.shared.registers.load(Ordering::SeqCst);
        if !has_work {
            sleep([orders].into_iter().chain(self.inner.wait_fd()), Some(SLEEP_MAX));
        }
        self.shared.orders.awake();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Wakes the submitting thread, which may sleep when the worker panics.
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.done.ring();
    }
}
