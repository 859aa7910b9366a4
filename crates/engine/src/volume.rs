//! The disk that attachments see: a queue of requests for the session's loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_queue::ArrayQueue;
use tyche_block::{Arena, Completion, Disk, Errno, Geometry, Request, Sink};
use tyche_wake::Doorbell;

/// The most requests that wait for the loop. Attachments limit theirs far below; more are refused,
/// not waited for.
const QUEUE_LEN: usize = 8192;

/// A request on its way to the loop.
pub(crate) struct Submission {
    pub(crate) request: Request,
    pub(crate) token: u64,
    pub(crate) sink: Arc<dyn Sink>,
}

impl Submission {
    fn fail(self, errno: Errno) {
        let Self { request, token, sink } = self;
        sink.complete(Completion { token, result: Err(errno), buffer: request.buffer });
    }
}

/// An export of a target as a disk of this machine.
pub struct Volume {
    queue: ArrayQueue<Submission>,
    pub(crate) doorbell: Doorbell,
    arena: Arena,
    geometry: Mutex<Geometry>,
    /// Whether the session's loop has ended and takes no more requests.
    closed: AtomicBool,
}

impl Volume {
    pub(crate) fn new(arena: Arena) -> std::io::Result<Self> {
        let geometry = Geometry::UNKNOWN;
        Ok(Self {
            queue: ArrayQueue::new(QUEUE_LEN),
            doorbell: Doorbell::new()?,
            arena,
            geometry: Mutex::new(geometry),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn set_geometry(&self, geometry: Geometry) {
        *self.geometry.lock().unwrap_or_else(PoisonError::into_inner) = geometry;
    }

    pub(crate) fn take(&self) -> Option<Submission> {
        self.queue.pop()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Closes the queue: requests in it, and later ones, fail.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.fail_queued();
    }

    fn fail_queued(&self) {
        while let Some(submission) = self.queue.pop() {
            submission.fail(Errno::IO);
        }
    }
}

impl Disk for Volume {
    fn geometry(&self) -> Geometry {
        *self.geometry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arena(&self) -> &Arena {
        &self.arena
    }

    fn submit(&self, request: Request, token: u64, sink: &Arc<dyn Sink>) {
        let submission = Submission { request, token, sink: Arc::clone(sink) };
        if let Err(refused) = self.queue.push(submission) {
            return refused.fail(Errno::NOMEM);
        }
        self.doorbell.ring();
        // The loop may have ended between its last check and the push.
        if self.closed.load(Ordering::SeqCst) {
            self.fail_queued();
        }
    }
}
