//! The disk that attachments see: a queue of requests for each loop of the session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::atomic::AtomicCell;
use tyche_block::{Arena, Completion, Disk, Errno, Extent, Geometry, Request, Sink};
use tyche_wake::Doorbell;

/// The most requests that wait for a loop. Attachments limit theirs far below; more are refused.
const QUEUE_LEN: usize = 8192;

/// A request on its way to the loop.
pub struct Submission {
    /// The request.
    pub request: Request,
    /// Its submitter's name for it.
    pub token: u64,
    /// The recipient of the answer.
    pub sink: Arc<dyn Sink>,
}

impl Submission {
    /// Answers it.
    pub fn complete(self, result: Result<(), Errno>) {
        let Self { request, token, sink } = self;
        sink.complete(Completion { token, result, buffer: request.buffer });
    }
}

/// An export of a target as a disk of this machine. A request goes to the queue whose memory it
/// uses; without memory, to the first.
pub struct Volume {
    queues: Vec<Arc<VolumeQueue>>,
}

impl Volume {
    /// A disk with a queue for each of `arenas`, of which there is one at least.
    ///
    /// # Errors
    /// The system's error when an eventfd cannot be created.
    pub fn new(arenas: impl IntoIterator<Item = Arena>) -> std::io::Result<Self> {
        let geometry = Arc::new(AtomicCell::new(Geometry::UNKNOWN));
        let queues = arenas.into_iter().map(|arena| {
            let geometry = Arc::clone(&geometry);
            Ok(Arc::new(VolumeQueue {
                requests: ArrayQueue::new(QUEUE_LEN),
                doorbell: Doorbell::new()?,
                arena,
                geometry,
                closed: AtomicBool::new(false),
            }))
        });
        Ok(Self { queues: queues.collect::<std::io::Result<_>>()? })
    }

    /// The queues, for their loops.
    pub fn loops(&self) -> &[Arc<VolumeQueue>] {
        &self.queues
    }
}

impl Disk for Volume {
    fn geometry(&self) -> Geometry {
        self.queues[0].geometry()
    }

    fn arena(&self) -> &Arena {
        self.queues[0].arena()
    }

    fn submit(&self, request: Request, token: u64, sink: &Arc<dyn Sink>) {
        let is_its = |buffer: &Extent| self.queues.iter().position(|it| buffer.is_of(&it.arena));
        let queue = request.buffer.as_ref().and_then(is_its).unwrap_or(0);
        self.queues[queue].submit(request, token, sink);
    }

    fn queues(&self) -> Vec<Arc<dyn Disk>> {
        self.queues.iter().map(|queue| Arc::clone(queue) as Arc<dyn Disk>).collect()
    }
}

/// One queue of a volume, which is a [`Disk`] as well.
pub struct VolumeQueue {
    requests: ArrayQueue<Submission>,
    /// Rung with each request.
    pub doorbell: Doorbell,
    arena: Arena,
    /// The geometry of the whole volume. Attachments read it for each request: reading writes
    /// nothing that queues share.
    geometry: Arc<AtomicCell<Geometry>>,
    /// Whether the loop has ended and takes no more requests.
    closed: AtomicBool,
}

impl VolumeQueue {
    /// Sets the geometry of the whole volume.
    pub fn set_geometry(&self, geometry: Geometry) {
        self.geometry.store(geometry);
    }

    /// Takes the next request.
    pub fn take(&self) -> Option<Submission> {
        self.requests.pop()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Closes the queue: requests in it, and later ones, fail.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.fail_waiting();
    }

    fn fail_waiting(&self) {
        while let Some(submission) = self.requests.pop() {
            submission.complete(Err(Errno::IO));
        }
    }
}

impl Disk for VolumeQueue {
    fn geometry(&self) -> Geometry {
        self.geometry.load()
    }

    fn arena(&self) -> &Arena {
        &self.arena
    }

    fn submit(&self, request: Request, token: u64, sink: &Arc<dyn Sink>) {
        let submission = Submission { request, token, sink: Arc::clone(sink) };
        if let Err(refused) = self.requests.push(submission) {
            return refused.complete(Err(Errno::NOMEM));
        }
        self.doorbell.ring();
        // The loop may have ended between its last check and the push.
        if self.closed.load(Ordering::SeqCst) {
            self.fail_waiting();
        }
    }
}
