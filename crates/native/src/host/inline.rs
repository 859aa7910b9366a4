//! Inline mode: the thread that submits requests drives the session.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use tyche_block::{Arena, Completion, Geometry, Request};
use tyche_engine::{EventLoop, Job, Ports, Service, now};
use tyche_proto::wire::Echo;
use tyche_proto::{Instant, Problem, QueueHandle, Session, SessionShared};
use tyche_remote::{HostReport, Notice};
use tyche_wake::Spin;

use super::HostOptions;
use super::driver::Driver;
use crate::stages::{HostStages, StageTimes};

/// A session without a thread: it makes progress only in [`poll`](Self::poll) and
/// [`wait`](Self::wait). Call one of them a few times a second at least, or when
/// [`poll_timeout`](Self::poll_timeout) says, or the target takes the host for lost.
pub struct InlineHost {
    inner: EventLoop<Driver>,
    /// Its place among the queues.
    handle: QueueHandle,
    arena: Arena,
}

impl InlineHost {
    /// A session that is not yet connected: call [`connect`](Self::connect) next.
    ///
    /// # Panics
    /// Without a link.
    pub fn new(options: HostOptions) -> Self {
        Self::with_queues(options, 1)
    }

    /// The first of `queues` queues of a session; other threads [join](Self::join) when it is
    /// connected.
    ///
    /// # Panics
    /// Without a link, or unless there are 1 to [`QUEUES_MAX`](tyche_proto::QUEUES_MAX) queues.
    pub fn with_queues(options: HostOptions, queues: usize) -> Self {
        let shared = <Session>::shared(&options.session, queues);
        Self::join(options, shared.handle(0))
    }

    /// A further queue of a session, to be driven by another thread: not yet connected, as after
    /// [`new`](Self::new). The options are those of the first queue, with links of its own.
    ///
    /// # Panics
    /// Without a link.
    pub fn join(options: HostOptions, handle: QueueHandle) -> Self {
        assert!(!options.links.is_empty(), "a session needs a link");
        let (queues, size) = (handle.shared().queues(), options.arena_size.all.into());
        let arena = options.arena(handle.queue(), queues, size);
        let spin = Spin::new(options.spin);
        let (driver, ports) = Driver::new(options, handle.clone());
        Self { inner: EventLoop::new(driver, ports, spin), handle, arena }
    }

    /// Waits until the session is connected.
    ///
    /// # Errors
    /// The notice of the reason why it never will be, or the error of the last attempt when
    /// `timeout` has passed.
    pub fn connect(&mut self, timeout: Duration) -> Result<Geometry, ConnectError> {
        let (mut result, mut refusal) = (None, None);
        // For the owner, who polls them later.
        let mut others = Vec::new();
        self.inner.run_until(now() + timeout, |driver, _| {
            while result.is_none()
                && let Some(notice) = driver.notices.pop_front()
            {
                match notice {
                    Notice::Connected(_) => {
                        result = Some(Ok(driver.geometry().expect("known once connected")));
                    }
                    Notice::Rejected(..) => refusal = Some(notice),
                    Notice::Failed(_) => {
                        let refusal = Box::new(refusal.take().unwrap_or(notice));
                        result = Some(Err(ConnectError::Refused(refusal)));
                    }
                    other => others.push(other),
                }
            }
            result.is_some()
        });
        let (driver, _) = self.inner.parts();
        others.into_iter().rev().for_each(|notice| driver.notices.push_front(notice));
        let problem = self.inner.service().problem();
        result.unwrap_or(Err(ConnectError::TimedOut(problem)))
    }

    /// The disk.
    ///
    /// # Panics
    /// Before the session is connected.
    pub fn geometry(&self) -> Geometry {
        self.inner.service().geometry().expect("the session is connected")
    }

    /// The state that the session's queues share, with a handle for each.
    pub fn shared(&self) -> &Arc<SessionShared> {
        self.handle.shared()
    }

    /// The memory for the buffers of requests.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Takes a request; it is sent with the next [`poll`](Self::poll).
    ///
    /// # Errors
    /// Gives the request back if the limit of requests in progress is reached.
    pub fn submit(&mut self, request: Request, token: u64) -> Result<(), Request> {
        let job = Job { request, token, sink: None };
        self.inner.parts().0.submit(now(), job).map(drop).map_err(|job| job.request)
    }

    /// Sends submitted requests, handles received frames, and appends finished requests to `done`.
    /// Never waits. Returns whether there was anything to do.
    pub fn poll(&mut self, done: &mut Vec<Completion>) -> bool {
        let (driver, ports) = self.inner.parts();
        round(driver, ports, now(), done)
    }

    /// As [`poll`](Self::poll), until a request has finished or `timeout` has passed; spins, then
    /// sleeps.
    pub fn wait(&mut self, done: &mut Vec<Completion>, timeout: Duration) {
        let before = done.len();
        self.inner.drive(Some(now() + timeout), |driver, ports, now| {
            let worked = round(driver, ports, now, done);
            (worked, done.len() > before)
        });
    }

    /// The descriptors of its links, readable when frames have arrived: for a thread that drives
    /// many sessions and [polls](Self::poll) those that have something to do. A link that was down
    /// may have another one afterwards.
    pub fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.inner.wait_fds()
    }

    /// When to [poll](Self::poll) it if none of [`wait_fds`](Self::wait_fds) is readable before.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        self.inner.poll_timeout()
    }

    /// The stage times of the requests that the last [`poll`](Self::poll) or [`wait`](Self::wait)
    /// returned; empty unless the session asked for [stages](tyche_proto::SessionConfig::stages)
    /// and its target measures them. Failed requests may be missing.
    pub fn stage_times(&mut self) -> impl Iterator<Item = StageTimes> {
        self.inner.parts().0.stages.iter_mut().flat_map(HostStages::take)
    }

    /// Sends an echo request of `frame_len` bytes, to measure the links and both loops without
    /// requests. It is sent with the next [`wait_echoes`](Self::wait_echoes). False if no channel
    /// is live, the frames exceed its frame length, or too many wait to be sent.
    ///
    /// # Panics
    /// If the echo fits no frame.
    pub fn echo(&mut self, echo: Echo, frame_len: usize) -> bool {
        self.inner.parts().0.echo(echo, frame_len)
    }

    /// As [`wait`](Self::wait), for replies to echoes, one for each received frame. No requests may
    /// be in progress.
    ///
    /// # Panics
    /// If a request has ended meanwhile.
    pub fn wait_echoes(&mut self, answers: &mut Vec<Echo>, timeout: Duration) {
        let before = answers.len();
        self.inner.drive(Some(now() + timeout), |driver, ports, now| {
            let worked = ports.transmit(now, driver) | ports.receive(now, driver);
            assert!(driver.done.is_empty(), "a request in the middle of echoes");
            answers.append(&mut driver.echoed);
            (worked, answers.len() > before)
        });
    }

    /// Returns the next notice.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.inner.parts().0.notices.pop_front()
    }

    /// Reports the state of the session.
    pub fn report(&mut self) -> HostReport {
        let (driver, ports) = self.inner.parts();
        driver.report(now(), ports, &self.arena)
    }

    /// Ends this queue: tells the target, and waits up to `timeout` for its answer. Other queues of
    /// the session go on, unless requests are in progress on this one: these fail, and the session
    /// with them.
    pub fn disconnect(mut self, timeout: Duration) {
        let now = now();
        self.inner.parts().0.leave(now);
        self.inner.run_until(now + timeout, |driver, _| driver.is_over());
    }
}

/// Sends first, unlike a round of the loop: what was submitted has not to wait. Then receives, and
/// appends finished requests to `done`. False if there was nothing to do.
fn round(driver: &mut Driver, ports: &mut Ports, now: Instant, done: &mut Vec<Completion>) -> bool {
    if let Some(stages) = &mut driver.stages {
        stages.forget();
    }
    let sent = ports.transmit(now, driver);
    let received = ports.receive(now, driver);
    if let Some(stages) = &mut driver.stages {
        stages.returned(tyche_engine::now());
    }
    done.extend(driver.done.drain(..).map(|done| done.completion));
    driver.answered();
    // Late answers have no recipient.
    driver.echoed.clear();
    sent | received
}

impl Drop for InlineHost {
    /// Ends the session for all of its queues, without a farewell: requests of this queue may still
    /// be executed.
    fn drop(&mut self) {
        self.inner.parts().0.abort(now());
    }
}

/// Reasons why a session could not connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The target refused, or another reason makes further attempts pointless.
    Refused(Box<Notice>),
    /// The time is over; with the problem of the last attempt.
    TimedOut(Option<Problem>),
}
