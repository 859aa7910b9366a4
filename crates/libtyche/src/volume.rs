//! An open export.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tyche_block::{Arena, Completion, Geometry, Request};
use tyche_engine::{HostOptions, HostReport};

use crate::REQUESTS_MAX;
use crate::error::{OpenError, Refused, Why};
use crate::inline::Inline;
use crate::queue::Queue;

/// The thread that drives the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The calling thread: the shortest path, for one thread that polls.
    #[default]
    Inline,
    /// A thread of the volume's own, to which any number of threads submit requests.
    Queue,
}

/// An open export: takes requests, each with a token of the caller's choice, and returns their
/// completions in the order in which they end.
///
/// It may be shared between threads in either mode; in inline mode a call fails with [`Why::Busy`]
/// during another thread's call. Dropping it ends the session without telling the target, which
/// notices after a while. [`close`](Self::close) is better.
pub struct Volume {
    session: Session,
    /// Requests taken whose completions have not been returned.
    in_flight: AtomicUsize,
}

enum Session {
    Inline(Box<Inline>),
    Queue(Queue),
}

impl Volume {
    pub(crate) fn connect(
        options: HostOptions,
        mode: Mode,
        timeout: Duration,
    ) -> Result<Self, OpenError> {
        let session = match mode {
            Mode::Inline => Session::Inline(Box::new(Inline::connect(options, timeout)?)),
            Mode::Queue => Session::Queue(Queue::connect(options, timeout)?),
        };
        Ok(Self { session, in_flight: AtomicUsize::new(0) })
    }

    /// The current geometry of the disk. The size may grow while it is open.
    pub fn geometry(&self) -> Geometry {
        match &self.session {
            Session::Inline(inline) => inline.geometry(),
            Session::Queue(queue) => queue.geometry(),
        }
    }

    /// The volume's memory for the buffers of requests. An extent of any other arena works as well.
    pub fn arena(&self) -> &Arena {
        match &self.session {
            Session::Inline(inline) => inline.arena(),
            Session::Queue(queue) => queue.arena(),
        }
    }

    /// Requests taken whose completions have not been returned.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Takes a request. Its completion comes out of [`poll`](Self::poll) or [`wait`](Self::wait)
    /// with the same `token`, even if the request is invalid. In inline mode the next such call
    /// sends it.
    ///
    /// # Errors
    /// Gives the request back: see [`Why`].
    pub fn submit(&self, request: Request, token: u64) -> Result<(), Refused> {
        let more = |count| (count < REQUESTS_MAX).then_some(count + 1);
        if self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return Err(Refused { why: Why::Full, request });
        }
        let taken = match &self.session {
            Session::Inline(inline) => inline.submit(request, token),
            Session::Queue(queue) => {
                queue.submit(request, token);
                Ok(())
            }
        };
        if taken.is_err() {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    /// Appends up to `max` completions to `done`, and returns their number. Never waits. In inline
    /// mode this sends submitted requests and handles received frames, also with a `max` of zero.
    ///
    /// # Errors
    /// [`Why::Busy`].
    pub fn poll(&self, done: &mut Vec<Completion>, max: usize) -> Result<usize, Why> {
        self.collect(0, max, Duration::ZERO, &mut |completion| done.push(completion))
    }

    /// As [`poll`](Self::poll), but waits until `min` completions are there, or as many as there
    /// are requests in flight, or `timeout` has passed. If several threads wait, one may take
    /// another's completion, and the other waits for its timeout: let each wait for one.
    ///
    /// # Errors
    /// [`Why::Busy`].
    pub fn wait(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        max: usize,
        timeout: Duration,
    ) -> Result<usize, Why> {
        self.collect(min, max, timeout, &mut |completion| done.push(completion))
    }

    /// Hands up to `max` completions to `take`, which must not call the volume.
    pub(crate) fn collect(
        &self,
        min: usize,
        max: usize,
        timeout: Duration,
        take: &mut dyn FnMut(Completion),
    ) -> Result<usize, Why> {
        let min = min.min(max).min(self.in_flight());
        let taken = match &self.session {
            Session::Inline(inline) => inline.collect(min, max, timeout, take)?,
            Session::Queue(queue) => queue.collect(min, max, timeout, take),
        };
        self.in_flight.fetch_sub(taken, Ordering::Relaxed);
        Ok(taken)
    }

    /// A descriptor that becomes readable when a completion is there, for `poll(2)` and the like.
    /// Call this before every sleep: the call arms the descriptor, which is silent otherwise, so
    /// that only sleepers pay for it. Spurious wake-ups are possible. `None` in inline mode, where
    /// sleeping would stop the session: use [`wait`](Self::wait).
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.session {
            Session::Inline(_) => None,
            Session::Queue(queue) => Some(queue.wait_fd()),
        }
    }

    /// A report on the session, for people; `None` while it is not available.
    pub fn report(&self) -> Option<HostReport> {
        match &self.session {
            Session::Inline(inline) => inline.report(),
            Session::Queue(queue) => queue.report(),
        }
    }

    /// Ends the session, and waits up to `timeout` for the target's confirmation. Completions that
    /// have not been returned are lost, and the outcome of requests in flight is unknown.
    pub fn close(self, timeout: Duration) {
        match self.session {
            Session::Inline(inline) => inline.close(timeout),
            Session::Queue(queue) => queue.close(timeout),
        }
    }
}
