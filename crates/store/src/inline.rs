//! Queues of stores that finish within `submit`: completions wait in a list, with room for `depth`,
//! until they are reaped.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use tyche_block::{Arena, Completion, Errno, Geometry, Request};

use crate::{Loan, Queue};

/// A store that serves a request synchronously.
pub(crate) trait Serve: Send + Sync + 'static {
    fn geometry(&self) -> Geometry;

    /// Executes `request`, which has passed [`Request::check`].
    fn serve(&self, request: &mut Request);

    /// See [`Queue::lend`].
    fn lend(&self, _offset: u64, _len: usize) -> Option<Loan> {
        None
    }
}

struct InlineQueue<S> {
    store: Arc<S>,
    ready: Vec<Completion>,
    depth: usize,
}

/// A queue of `store`.
pub(crate) fn queue<S: Serve>(store: &Arc<S>, depth: usize) -> io::Result<Box<dyn Queue>> {
    if depth == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a queue needs a depth above zero",
        ));
    }
    let ready = Vec::with_capacity(depth);
    Ok(Box::new(InlineQueue { store: Arc::clone(store), ready, depth }))
}

/// The geometry of a store without a medium.
///
/// # Errors
/// `InvalidInput` if `block_size` is neither 512 nor 4096, or `size` not a multiple of it.
pub(crate) fn geometry(size: u64, block_size: u32) -> io::Result<Geometry> {
    let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if !Geometry::is_block_size(block_size) {
        return wrong(format!("block size {block_size}: use 512 or 4096"));
    }
    if size == 0 || !size.is_multiple_of(u64::from(block_size)) {
        return wrong(format!("size {size}: use a multiple of the block size, {block_size}"));
    }
    Ok(Geometry { discard: true, ..Geometry::new(size, block_size) })
}

impl<S: Serve> Queue for InlineQueue<S> {
    fn register(&mut self, _: &Arena) {}

    fn unregister(&mut self, _: &Arena) {}

    fn cut(&mut self, _: &Arena, first: usize) -> usize {
        first
    }

    fn submit(&mut self, token: u64, mut request: Request) {
        assert!(self.ready.len() < self.depth, "more than {} requests in flight", self.depth);
        let result: Result<(), Errno> = request.check(&self.store.geometry());
        if result.is_ok() {
            self.store.serve(&mut request);
        }
        self.ready.push(Completion { token, result, buffer: request.buffer });
    }

    fn lend(&mut self, offset: u64, len: usize) -> Option<Loan> {
        self.store.lend(offset, len)
    }

    fn kick(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        out.append(&mut self.ready);
    }

    fn in_flight(&self) -> usize {
        self.ready.len()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
