//! The seam between what presents a disk (an attachment) and what serves it (a session).

use std::sync::Arc;

use crate::{Arena, Completion, Geometry, Request};

/// A disk that takes requests from any thread and answers each exactly once through a [`Sink`].
pub trait Disk: Send + Sync {
    /// What the disk is like now. The size may grow while the disk is in use.
    fn geometry(&self) -> Geometry;

    /// The memory to take buffers for requests from.
    fn arena(&self) -> &Arena;

    /// Hands over a request. Never waits for the network. The answer comes as
    /// `sink.complete(..)` with the same `token`, possibly before this call returns, on this or
    /// any other thread. `token` means nothing to the disk.
    fn submit(&self, request: Request, token: u64, sink: &Arc<dyn Sink>);
}

/// Where the answers to requests go. Called on the data path's own thread: it must not wait.
pub trait Sink: Send + Sync {
    /// Takes the end of one request.
    fn complete(&self, completion: Completion);
}
