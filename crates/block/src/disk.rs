//! The interface between an attachment, which presents a disk, and a session, which serves it.

use std::sync::Arc;

use crate::{Arena, Completion, Geometry, Request};

/// A disk that takes requests from any thread and answers each exactly once through a [`Sink`].
pub trait Disk: Send + Sync {
    /// The current geometry. The size may grow while the disk is in use.
    fn geometry(&self) -> Geometry;

    /// The memory for the buffers of requests.
    fn arena(&self) -> &Arena;

    /// Submits a request. Never waits for the network. The answer comes as `sink.complete(..)` with
    /// the same `token`, possibly before this call returns, on this or any other thread. The disk
    /// does not interpret `token`.
    fn submit(&self, request: Request, token: u64, sink: &Arc<dyn Sink>);

    /// The queues of the disk. Each is a disk with its own memory, served by its own thread, so
    /// requests of different queues share nothing. Empty if the disk itself is its only queue.
    fn queues(&self) -> Vec<Arc<dyn Disk>> {
        Vec::new()
    }
}

/// The queues of a disk, at least one: a disk that names none is its own only queue.
pub fn queues(disk: &Arc<dyn Disk>) -> Vec<Arc<dyn Disk>> {
    let queues = disk.queues();
    if queues.is_empty() { vec![Arc::clone(disk)] } else { queues }
}

/// The receiver of completions. It is called on the data path's own thread, so it must not wait.
pub trait Sink: Send + Sync {
    /// Takes the completion of one request.
    fn complete(&self, completion: Completion);
}
