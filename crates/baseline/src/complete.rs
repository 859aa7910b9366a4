//! A disk whose answers a thread of its own delivers, instead of the session's.
//!
//! This is how the first Tyche completed at the host, with a work queue (MSST 2014, Fig. 7). It
//! costs a hand-over, and is kept to measure that cost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tyche_block::{Arena, Completion, Disk, Geometry, Request, Sink};
use tyche_wake::{Inbox, Spin, now_ns, sleep};

/// The most answers that wait. Beyond it the session's thread, which never waits, delivers them.
const QUEUE_LEN: usize = 1024;
/// The longest sleep of the thread.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A disk with a completion thread for each of its queues. A thread ends when its queue is dropped
/// and all requests are answered.
pub struct HandOverDisk {
    inner: Arc<dyn Disk>,
    work_queue: Arc<WorkQueue>,
    queues: Vec<Arc<Self>>,
}

impl HandOverDisk {
    /// Wraps `inner`; threads spin for up to `spin` before they sleep.
    ///
    /// # Errors
    /// The system's error when a thread or an eventfd cannot be created.
    pub fn start(inner: Arc<dyn Disk>, spin: Duration) -> io::Result<Self> {
        let wrap = |queue| Self::start(queue, spin).map(Arc::new);
        let queues = inner.queues().into_iter().map(wrap).collect::<io::Result<Vec<_>>>()?;
        let work_queue = match queues.first() {
            Some(queue) => Arc::clone(&queue.work_queue),
            None => Arc::new(WorkQueue::start(spin)?),
        };
        Ok(Self { inner, work_queue, queues })
    }
}

impl Disk for HandOverDisk {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn arena(&self) -> &Arena {
        self.inner.arena()
    }

    fn submit(&self, request: Request, token: u64, sink: &Arc<dyn Sink>) {
        let work_queue = Arc::clone(&self.work_queue);
        let sink: Arc<dyn Sink> = Arc::new(HandOverSink { work_queue, sink: Arc::clone(sink) });
        self.inner.submit(request, token, &sink);
    }

    fn queues(&self) -> Vec<Arc<dyn Disk>> {
        self.queues.iter().map(|queue| Arc::clone(queue) as Arc<dyn Disk>).collect()
    }
}

/// The sink of a request, which passes its completion on.
struct HandOverSink {
    work_queue: Arc<WorkQueue>,
    sink: Arc<dyn Sink>,
}

impl Sink for HandOverSink {
    fn complete(&self, completion: Completion) {
        let inbox = &self.work_queue.0.inbox;
        match inbox.push((Arc::clone(&self.sink), completion)) {
            Ok(()) => inbox.ring(),
            Err((sink, completion)) => sink.complete(completion),
        }
    }
}

/// The use of a thread that delivers completions. It ends when the disk and all sinks that use it
/// are gone, so that none of their completions comes later.
struct WorkQueue(Arc<Shared>);

struct Shared {
    inbox: Inbox<(Arc<dyn Sink>, Completion)>,
    closed: AtomicBool,
}

impl WorkQueue {
    fn start(spin: Duration) -> io::Result<Self> {
        let inbox = Inbox::new(QUEUE_LEN)?;
        let shared = Arc::new(Shared { inbox, closed: AtomicBool::new(false) });
        let theirs = Arc::clone(&shared);
        thread::Builder::new()
            .name("tyche-complete".into())
            .spawn(move || theirs.run(Spin::new(spin)))?;
        Ok(Self(shared))
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::SeqCst);
        self.0.inbox.ring();
    }
}

impl Shared {
    fn run(&self, mut spin: Spin) {
        // The session's thread logs the same.
        if let Err(error) = tyche_block::avoid_reclaim_io() {
            tracing::debug!(%error, "completions without protection from memory reclaim");
        }
        loop {
            // Loaded first: answers handed over before the end are delivered.
            let closed = self.closed.load(Ordering::SeqCst);
            let mut worked = false;
            while let Some((sink, completion)) = self.inbox.pop() {
                sink.complete(completion);
                worked = true;
            }
            if worked {
                spin.worked();
            } else if closed {
                return;
            } else if spin.again(now_ns()) {
                // The session's thread may need the core.
                thread::yield_now();
            } else {
                spin.sleeps();
                let fd = self.inbox.wait_fd();
                if !self.closed.load(Ordering::SeqCst) {
                    sleep([fd], Some(SLEEP_MAX));
                }
                self.inbox.awake();
            }
        }
    }
}
