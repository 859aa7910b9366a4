//! `--sides`: the time of a request at each side of its way through the host, to hold initiators
//! against each other.
//!
//! ```text
//! submit ── issue ──► send        receive ── completion ──► completed
//! ```
//!
//! The kernel's part is in neither. With one read in flight, the last frame that was sent is its
//! command, and the last that was received its response.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Results, Sender, channel};
use std::time::Instant;

use serde::Serialize;
use tyche_cli::bench::Observe;
use tyche_link::{Link, Receiver, RxBatch, TxBatch, Wrapper};

/// Times of the last frames, in nanoseconds since the start.
struct Stamps {
    start: Instant,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Stamps {
    fn since_start(&self, at: Instant) -> u64 {
        at.duration_since(self.start).as_nanos() as u64
    }

    fn stamp(&self, which: &AtomicU64) {
        which.store(self.since_start(Instant::now()), Ordering::Relaxed);
    }
}

/// Sums of the sides' times.
#[derive(Clone, Copy, Default)]
struct Sums {
    requests: u64,
    issue_ns: u64,
    completion_ns: u64,
}

/// The mean times of both sides, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SidesReport {
    issue_ns: f64,
    completion_ns: f64,
}

impl SidesReport {
    pub(crate) fn text(self) -> String {
        let Self { issue_ns, completion_ns } = self;
        format!("issue side {issue_ns:.0} ns, completion side {completion_ns:.0} ns\n")
    }
}

/// The measurement of `--sides`: a wrapper of the link notes the time of the last frame in each
/// direction, and an observer of requests adds up both sides' times.
pub(crate) struct Sides {
    stamps: Arc<Stamps>,
    sums: Results<Sums>,
}

/// Adds up the times, and hands them over at the end.
struct Summing {
    stamps: Arc<Stamps>,
    sums: Sums,
    to: Sender<Sums>,
}

impl Sides {
    /// Sides, and the observer of the requests.
    pub(crate) fn new() -> (Self, Observe) {
        let (start, zero) = (Instant::now(), AtomicU64::default);
        let stamps = Arc::new(Stamps { start, sent: zero(), received: zero() });
        let (to, sums) = channel();
        let mut summing = Summing { stamps: Arc::clone(&stamps), sums: Sums::default(), to };
        (Self { stamps, sums }, Box::new(move |begun, ended| summing.add(begun, ended)))
    }

    /// The link, with stamps.
    pub(crate) fn link(&self, inner: Box<dyn Link>) -> Box<dyn Link> {
        Box::new(StampLink { inner, stamps: Arc::clone(&self.stamps) })
    }

    /// The report, once the observer has been dropped; `None` if there was no request.
    pub(crate) fn report(self) -> Option<SidesReport> {
        let Sums { requests, issue_ns, completion_ns } = self.sums.recv().ok()?;
        let mean = |sum: u64| sum as f64 / requests as f64;
        let (issue_ns, completion_ns) = (mean(issue_ns), mean(completion_ns));
        (requests > 0).then_some(SidesReport { issue_ns, completion_ns })
    }
}

impl Summing {
    fn add(&mut self, begun: Instant, ended: Instant) {
        let Self { stamps, sums, .. } = self;
        let [sent, received] =
            [&stamps.sent, &stamps.received].map(|it| it.load(Ordering::Relaxed));
        sums.requests += 1;
        sums.issue_ns += sent.saturating_sub(stamps.since_start(begun));
        sums.completion_ns += stamps.since_start(ended).saturating_sub(received);
    }
}

impl Drop for Summing {
    fn drop(&mut self) {
        // Nobody waits if the measurement has failed.
        let _ = self.to.send(self.sums);
    }
}

/// A link that notes when frames pass.
struct StampLink {
    inner: Box<dyn Link>,
    stamps: Arc<Stamps>,
}

impl Wrapper for StampLink {
    type Inner = Box<dyn Link>;

    fn inner(&self) -> &Box<dyn Link> {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut Box<dyn Link> {
        &mut self.inner
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        let received = Link::receive(&mut *self.inner, batch)?;
        if received > 0 {
            self.stamps.stamp(&self.stamps.received);
        }
        Ok(received)
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        self.stamps.stamp(&self.stamps.sent);
        Link::send(&mut *self.inner, batch)
    }

    fn take_receiver(&mut self) -> io::Result<Box<dyn Receiver>> {
        let inner = Link::take_receiver(&mut *self.inner)?;
        Ok(Box::new(StampReceiver { inner, stamps: Arc::clone(&self.stamps) }))
    }
}

struct StampReceiver {
    inner: Box<dyn Receiver>,
    stamps: Arc<Stamps>,
}

impl Receiver for StampReceiver {
    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        let received = self.inner.receive(batch)?;
        if received > 0 {
            self.stamps.stamp(&self.stamps.received);
        }
        Ok(received)
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.inner.wait_fd()
    }
}
