//! A wrapper that receives in a thread of its own.
//!
//! This is the receive path of the first Tyche (MSST 2014, section II.C): a thread takes frames off
//! the network, and hands them to the one that runs the protocol. MSST 2015 gave that up, and so
//! have we, because each hand-over wakes a thread. The wrapper is kept to measure the cost.
//!
//! ```text
//!             receive thread                      the user of the link
//! socket ──► fills a batch ──► [ filled ] ──eventfd──► swaps it for its own
//!                   ▲                                        │
//!                   └────────────── [ empty ] ◄──────────────┘
//! ```
//!
//! The thread copies frames out of the socket's ring, and whole batches change hands. There are
//! [`BATCHES`] of them; while all are filled, frames wait in the ring, as without the thread. Both
//! sides spin before they sleep, as the loops of the engine do, and yield the core while they spin:
//! the other thread may need it.
//!
//! One thread receives for one link, or for several: MSST 2014 compares the two in Fig. 11.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tyche_wake::{Doorbell, Inbox, SOURCES_MAX, Spin, now_ns, sleep};

use tyche_link::{Link, Receiver, RxBatch, TxBatch};

/// Batches in circulation between the thread and the user of a link, besides the user's own.
pub const BATCHES: usize = 4;

/// The longest sleep of the thread, and the pause before a link that is down is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// A link whose frames another thread receives. All batches received into must have the shape of
/// the first.
pub struct HandOverLink {
    inner: Box<dyn Link>,
    belt: Arc<Belt>,
    /// Whether the batches in circulation have been made.
    lent: bool,
    /// Dropped after `inner`; the last link of a thread waits for its end.
    thread: Arc<ReceiveThread>,
}

/// Starts one thread that receives for all `links`; it spins for up to `spin` before it sleeps. For
/// a thread per link, call it for each link.
///
/// # Errors
/// `Unsupported` if a link can't be received from in another thread (TCP); the system's error when
/// a thread or an eventfd can't be created.
///
/// # Panics
/// If the links are too many for one thread to wait for.
pub fn hand_over(mut links: Vec<Box<dyn Link>>, spin: Duration) -> io::Result<Vec<HandOverLink>> {
    assert!(links.len() < SOURCES_MAX, "{} links for one thread", links.len());
    let (mut lanes, mut belts) = (Vec::new(), Vec::new());
    for link in &mut links {
        let belt = Arc::new(Belt::new()?);
        lanes.push(Lane::new(link.take_receiver()?, Arc::clone(&belt)));
        belts.push(belt);
    }
    let thread = Arc::new(ReceiveThread::start(lanes, spin)?);
    let wrap = |(inner, belt)| HandOverLink { inner, belt, lent: false, thread: thread.clone() };
    Ok(links.into_iter().zip(belts).map(wrap).collect())
}

impl HandOverLink {
    /// Gives a batch to the thread to fill.
    fn lend(&self, batch: RxBatch) {
        let lent = self.belt.empty.push(batch);
        assert!(lent.is_ok(), "no more batches than there are");
        self.belt.empty.ring();
    }
}

impl tyche_link::Wrapper for HandOverLink {
    type Inner = Box<dyn Link>;

    fn inner(&self) -> &Box<dyn Link> {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut Box<dyn Link> {
        &mut self.inner
    }

    /// The belts have room for the frames of the beginning.
    fn look_after(&mut self) -> Option<usize> {
        None
    }

    /// # Panics
    /// If the batch does not have the first one's shape.
    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        self.belt.filled.awake();
        batch.clear();
        if !self.lent {
            self.lent = true;
            for _ in 0..BATCHES {
                self.lend(batch.alike());
            }
        }
        let Some(mut filled) = self.belt.filled.pop() else {
            thread::yield_now();
            return self.belt.trouble();
        };
        let shape = |batch: &RxBatch| (batch.capacity(), batch.head_len(), batch.payload_max());
        assert_eq!(shape(batch), shape(&filled), "batches of one shape");
        std::mem::swap(batch, &mut filled);
        self.lend(filled);
        Ok(batch.len())
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        self.belt.filled.awake();
        Link::send(&mut *self.inner, batch)
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        let fd = self.belt.filled.wait_fd();
        // Ready, like a socket with an error, if the link is down; also if it waits for a first
        // call to learn the shape of batches.
        if !self.lent || self.belt.is_down.load(Ordering::SeqCst) {
            self.belt.filled.ring();
        }
        fd
    }
}

impl Drop for HandOverLink {
    fn drop(&mut self) {
        self.belt.closed.store(true, Ordering::SeqCst);
        self.thread.bell.ring();
    }
}

impl std::fmt::Debug for HandOverLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HandOverLink({})", self.inner.name())
    }
}

/// State shared by a link and its receive thread.
struct Belt {
    /// Batches with frames, to the link.
    filled: Inbox<RxBatch>,
    /// Batches to fill, to the thread.
    empty: Inbox<RxBatch>,
    /// The error of the last attempt to receive.
    failure: Mutex<Option<io::Error>>,
    /// Whether there is a failure.
    is_down: AtomicBool,
    /// Whether the link was dropped.
    closed: AtomicBool,
}

impl Belt {
    fn new() -> io::Result<Self> {
        Ok(Self {
            filled: Inbox::new(BATCHES)?,
            empty: Inbox::new(BATCHES)?,
            failure: Mutex::new(None),
            is_down: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        })
    }

    fn failure(&self) -> MutexGuard<'_, Option<io::Error>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets or clears the failure. The link reads it at the latest when it is rung.
    fn set_failure(&self, failure: Option<io::Error>) {
        self.is_down.store(failure.is_some(), Ordering::SeqCst);
        *self.failure() = failure;
        self.filled.ring();
    }

    /// Returns the failure, to every caller; zero frames if there is none.
    fn trouble(&self) -> io::Result<usize> {
        if !self.is_down.load(Ordering::SeqCst) {
            return Ok(0);
        }
        let failure = self.failure();
        let copy = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        failure.as_ref().map_or(Ok(0), |error| Err(copy(error)))
    }
}

/// The running thread. It ends with its links; dropping this waits for its end.
struct ReceiveThread {
    bell: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

impl ReceiveThread {
    fn start(lanes: Vec<Lane>, spin: Duration) -> io::Result<Self> {
        let bell = Arc::new(Doorbell::new()?);
        let body = ReceiveLoop { lanes, bell: Arc::clone(&bell), spin: Spin::new(spin) };
        let thread =
            thread::Builder::new().name("tyche-receive".into()).spawn(move || body.run())?;
        Ok(Self { bell, thread: Some(thread) })
    }
}

impl Drop for ReceiveThread {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The panic message has been printed.
            let _ = thread.join();
        }
    }
}

struct ReceiveLoop {
    lanes: Vec<Lane>,
    /// Rung when a link is dropped.
    bell: Arc<Doorbell>,
    spin: Spin,
}

impl ReceiveLoop {
    fn run(mut self) {
        while !self.lanes.is_empty() {
            let mut worked = false;
            for lane in &mut self.lanes {
                worked |= lane.turn();
            }
            if worked {
                self.spin.worked();
            } else if self.spin.again(now_ns()) {
                thread::yield_now();
            } else {
                self.sleep();
            }
        }
    }

    fn sleep(&mut self) {
        self.spin.sleeps();
        self.bell.announce();
        self.lanes.retain(|lane| !lane.belt.closed.load(Ordering::SeqCst));
        if !self.lanes.is_empty() {
            let lanes = self.lanes.iter().filter_map(Lane::wait_fd);
            sleep(lanes.chain([self.bell.wait_fd()]), Some(PAUSE));
        }
        for lane in &self.lanes {
            lane.belt.empty.awake();
        }
        self.bell.awake();
    }
}

impl Drop for ReceiveLoop {
    fn drop(&mut self) {
        // A loop that ends normally has no lanes left.
        for lane in &self.lanes {
            lane.belt.set_failure(Some(io::Error::other("the receive thread has panicked")));
        }
    }
}

/// The thread's side of one link.
struct Lane {
    receiver: Box<dyn Receiver>,
    belt: Arc<Belt>,
    /// The batch to fill next.
    spare: Option<RxBatch>,
    /// The error of the last attempt, and the time of the next.
    down: Option<(io::ErrorKind, Instant)>,
}

impl Lane {
    fn new(receiver: Box<dyn Receiver>, belt: Arc<Belt>) -> Self {
        Self { receiver, belt, spare: None, down: None }
    }

    /// Receives once and hands the frames over; false if there were none, or no room for them.
    fn turn(&mut self) -> bool {
        if self.down.is_some_and(|(_, until)| Instant::now() < until) {
            return false;
        }
        let Some(mut batch) = self.spare.take().or_else(|| self.belt.empty.pop()) else {
            return false;
        };
        let received = self.receiver.receive(&mut batch);
        match received {
            Ok(_) => {
                batch.settle();
                if self.down.take().is_some() {
                    self.belt.set_failure(None);
                }
            }
            Err(error) => {
                let kind = error.kind();
                if self.down.is_none_or(|(known, _)| known != kind) {
                    self.belt.set_failure(Some(error));
                }
                self.down = Some((kind, Instant::now() + PAUSE));
                batch.clear();
            }
        }
        if batch.is_empty() {
            self.spare = Some(batch);
            return false;
        }
        let handed = self.belt.filled.push(batch);
        assert!(handed.is_ok(), "there is room for every batch");
        self.belt.filled.ring();
        true
    }

    /// The descriptor to wait for: of frames, or of an empty batch. `None` while the link is down.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match (&self.down, &self.spare) {
            (Some(_), _) => None,
            (None, Some(_)) => Some(self.receiver.wait_fd()),
            (None, None) => Some(self.belt.empty.wait_fd()),
        }
    }
}
