//! Queue mode: any thread submits requests to the session's own, and picks up completions.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use rustix::event::{EventfdFlags, eventfd};
use tyche_block::{Arena, Completion, Disk, Geometry, Request, Sink};
use tyche_remote::{HostReport, Notice, Remote};
use tyche_session::{keep_next_key, wait_connected};

use crate::REQUESTS_MAX;
use crate::error::{OpenError, Refusal, Refused};
use crate::wanted::Wanted;

/// One queue of a session whose queues have threads of their own.
pub(crate) struct Queue {
    running: Arc<Running>,
    /// The disk, by way of this queue.
    disk: Arc<dyn Disk>,
    done: Arc<Done>,
    /// `done`, as a sink for the session.
    sink: Arc<dyn Sink>,
    /// Requests taken whose completions have not been returned.
    in_flight: AtomicUsize,
}

/// The session of all queues.
struct Running {
    remote: Remote,
    /// Tells when it is closed.
    closed: Mutex<Receiver<Notice>>,
}

impl Queue {
    /// Connects the session that `start` starts, which tells its notices to the function that it
    /// gets. `start` also returns what looks why the session is not connected yet, the last time
    /// when its time is over: it fails with the reason if there is no use in waiting longer.
    pub(crate) fn connect<C: FnMut(bool) -> Result<(), OpenError>>(
        timeout: Duration,
        start: impl FnOnce(Box<dyn FnMut(Notice) + Send>) -> io::Result<(Remote, C)>,
    ) -> Result<Self, OpenError> {
        let (sender, notices) = channel();
        let (remote, check) = start(Box::new(notifier(sender))).map_err(OpenError::System)?;
        let next = |wait| match notices.recv_timeout(wait) {
            Ok(Notice::Closed) | Err(RecvTimeoutError::Disconnected) => {
                Err(OpenError::from_notice(Notice::Closed))
            }
            Ok(notice) => Ok(Some(notice)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
        };
        wait_connected(timeout, next, check, OpenError::from_notice)?;
        let closed = Mutex::new(notices);
        Self::new(Arc::new(Running { remote, closed }), 0)
    }

    /// A further queue.
    pub(crate) fn join(&self, queue: usize) -> Result<Self, OpenError> {
        Self::new(Arc::clone(&self.running), queue)
    }

    fn new(running: Arc<Running>, queue: usize) -> Result<Self, OpenError> {
        let done = Arc::new(Done::new().map_err(OpenError::System)?);
        let sink: Arc<dyn Sink> = Arc::<Done>::clone(&done);
        let disk = running.remote.disk().queues().swap_remove(queue);
        Ok(Self { running, disk, done, sink, in_flight: AtomicUsize::new(0) })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    pub(crate) fn arena(&self) -> &Arena {
        self.disk.arena()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn submit(&self, request: Request, token: u64) -> Result<(), Refused> {
        let more = |count| (count < REQUESTS_MAX).then_some(count + 1);
        if self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return Err(Refused { reason: Refusal::Full, request });
        }
        self.disk.submit(request, token, &self.sink);
        Ok(())
    }

    /// Never fails: any number of threads may call it.
    pub(crate) fn collect(
        &self,
        wanted: Wanted,
        take: &mut dyn FnMut(Completion),
    ) -> Result<usize, Refusal> {
        let min = wanted.min.min(self.in_flight());
        let mut count = self.done.take(wanted.max, take);
        if count < min {
            let deadline = Instant::now() + wanted.timeout;
            while count < min && self.done.wait(deadline) {
                count += self.done.take(wanted.max - count, take);
            }
        }
        self.in_flight.fetch_sub(count, Ordering::Relaxed);
        Ok(count)
    }

    pub(crate) fn wait_fd(&self) -> BorrowedFd<'_> {
        self.done.arm()
    }

    pub(crate) fn report(&self) -> Option<HostReport> {
        self.running.remote.control().report()
    }

    pub(crate) fn close(self, timeout: Duration) {
        // The last one ends the session.
        if let Some(running) = Arc::into_inner(self.running) {
            running.remote.control().disconnect();
            // If it is not closed by then, dropping the host aborts it.
            let closed = running.closed.into_inner().unwrap_or_else(PoisonError::into_inner);
            let _ = closed.recv_timeout(timeout);
        }
    }
}

/// Tells the notices of a session to the thread that opens it, and from then on its end to the one
/// that closes it.
fn notifier(to: Sender<Notice>) -> impl FnMut(Notice) + Send + 'static {
    let mut is_connected = false;
    move |notice| match notice {
        // No device outlives the process, so there will be no successor.
        Notice::ResumeState(_) => {}
        Notice::NextKey(said) => keep_next_key(&said),
        Notice::Connected(_) | Notice::Rejected(_) | Notice::Failed(_) if !is_connected => {
            is_connected = matches!(notice, Notice::Connected(_));
            // Fails if the volume is given up, as below.
            let _ = to.send(notice);
        }
        Notice::Closed => drop(to.send(notice)),
        notice => tracing::info!(?notice, "session"),
    }
}

/// Completions on their way from the session's thread to the threads that pick them up.
struct Done {
    queue: ArrayQueue<Completion>,
    /// Threads in [`wait`](Self::wait).
    waiters: AtomicUsize,
    lock: Mutex<()>,
    arrived: Condvar,
    /// Whether a thread is about to sleep on `fd`.
    armed: AtomicBool,
    fd: OwnedFd,
}

impl Done {
    fn new() -> io::Result<Self> {
        Ok(Self {
            queue: ArrayQueue::new(REQUESTS_MAX),
            waiters: AtomicUsize::new(0),
            lock: Mutex::new(()),
            arrived: Condvar::new(),
            armed: AtomicBool::new(false),
            fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    fn take(&self, max: usize, take: &mut dyn FnMut(Completion)) -> usize {
        let mut count = 0;
        while count < max
            && let Some(completion) = self.queue.pop()
        {
            take(completion);
            count += 1;
        }
        count
    }

    /// Waits for a completion; false if `deadline` has passed before.
    fn wait(&self, deadline: Instant) -> bool {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.arrived.wait_timeout_while(guard, left, |()| self.queue.is_empty());
        drop(waited);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        !self.queue.is_empty()
    }

    /// Arms the descriptor for the next completion, or signals it at once if one is there.
    fn arm(&self) -> BorrowedFd<'_> {
        let mut count = [0; 8];
        // Clears the descriptor. Fails if it is not readable, which is fine.
        let _ = rustix::io::read(&self.fd, &mut count);
        self.armed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !self.queue.is_empty() {
            self.ring();
        }
        self.fd.as_fd()
    }

    fn ring(&self) {
        if self.armed.swap(false, Ordering::SeqCst) {
            // An eventfd refuses only if it is readable already.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }
}

impl Sink for Done {
    fn complete(&self, completion: Completion) {
        let pushed = self.queue.push(completion);
        assert!(pushed.is_ok(), "no more completions than requests taken");
        // A sleeper registers first and checks the queue second; here the completion is pushed
        // first and the sleepers are checked second. So at least one side sees the other.
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.arrived.notify_all();
        }
        // The completion may have been taken before the descriptor was armed for the next one.
        if self.armed.load(Ordering::SeqCst) && !self.queue.is_empty() {
            self.ring();
        }
    }
}
