//! A session and its links: everything but when to look and who asked.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use tyche_block::{Completion, Errno, Geometry, Operation as BlockOperation, Request, Sink};
use tyche_proto::wire::{Data, Echo, Mac, Status};
use tyche_proto::{
    Instant, OpId, Outgoing, PathConfig, Problem, Session, SessionEvent, SubmitError,
};

use super::{HostLink, HostOptions, HostReport, Notice, PathReport, RequestCounts};
use crate::clock::{self, now};
use crate::conversion::{geometry, operation, result};
use crate::port::Port;
use crate::random::secrets;
use crate::stages::HostStages;
use crate::volume::Submission;

/// A request in progress.
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) token: u64,
    /// Who wants the answer; `None`: whoever drives the session.
    pub(super) sink: Option<Arc<dyn Sink>>,
}

impl From<Submission> for Job {
    fn from(submission: Submission) -> Self {
        let Submission { request, token, sink } = submission;
        Self { request, token, sink: Some(sink) }
    }
}

/// A request that is over.
pub(super) struct Done {
    pub(super) completion: Completion,
    pub(super) sink: Option<Arc<dyn Sink>>,
}

impl Done {
    /// Gives the answer to who asked.
    ///
    /// # Panics
    /// If it was whoever drives the session.
    pub(super) fn answer(self) {
        self.sink.expect("queued requests come with a sink").complete(self.completion);
    }
}

impl Job {
    pub(super) fn done(self, result: Result<(), Errno>) -> Done {
        let Self { request, token, sink } = self;
        Done { completion: Completion { token, result, buffer: request.buffer }, sink }
    }
}

/// See the module. The owner calls [`submit`](Self::submit), then [`receive`](Self::receive) and
/// [`transmit`](Self::transmit) in turn, and takes `done` and `notices` after each.
pub(super) struct Driver {
    session: Session,
    ports: Vec<Port>,
    /// What each operation in progress belongs to.
    operations: Box<[Option<Job>]>,
    counts: RequestCounts,
    out: Outgoing,
    /// Requests that are over.
    pub(super) done: Vec<Done>,
    /// Where the time of requests goes, if that is wanted.
    pub(super) stages: Option<HostStages>,
    /// Answers to echoes.
    pub(super) echoed: Vec<Echo>,
    /// What has happened.
    pub(super) notices: VecDeque<Notice>,
}

impl Driver {
    pub(super) fn new(options: HostOptions) -> Self {
        let HostOptions { session, links, ethertype, .. } = options;
        let (mut ports, mut paths) = (Vec::new(), Vec::new());
        for HostLink { link, target } in links {
            let mut port = Port::new(link, ethertype);
            if session.stages {
                port.stamp_arrivals(true);
            }
            let frame_len_max = port.link().frame_len_max();
            paths.push(PathConfig { frame_len_max, rings: port.rings(), target });
            ports.push(port);
        }
        let operations_max = session.operations_max as usize;
        Self {
            stages: session.stages.then(|| HostStages::new(operations_max)),
            session: Session::new(session, &paths, secrets(), now()),
            ports,
            operations: (0..operations_max).map(|_| None).collect(),
            counts: RequestCounts::default(),
            out: Outgoing::new(),
            done: Vec::with_capacity(operations_max),
            echoed: Vec::new(),
            notices: VecDeque::new(),
        }
    }

    /// The disk, once connected.
    pub(super) fn geometry(&self) -> Option<Geometry> {
        self.session.export().map(geometry)
    }

    /// What the last attempt to connect failed with.
    pub(super) fn problem(&self) -> Option<Problem> {
        (0..self.ports.len()).find_map(|path| self.session.problem(path))
    }

    /// Takes a request, or gives it back: there are as many in progress as there may be. One that
    /// makes no sense is done at once.
    pub(super) fn submit(&mut self, now: Instant, job: Job) -> Result<(), Job> {
        let checked = self.geometry().map_or(Ok(()), |geometry| geometry.check(&job.request));
        let errno = match checked {
            Err(errno) => errno,
            Ok(()) => match self.session.submit(now, operation(&job.request)) {
                Ok(OpId(index)) => {
                    let place = &mut self.operations[index as usize];
                    assert!(place.is_none(), "two requests in one operation");
                    *place = Some(job);
                    if let Some(stages) = &mut self.stages {
                        stages.called(index, now);
                    }
                    return Ok(());
                }
                Err(SubmitError::Full) => return Err(job),
                Err(SubmitError::Over) => Errno::IO,
            },
        };
        self.counts.errors += 1;
        self.done.push(job.done(Err(errno)));
        Ok(())
    }

    /// Asks the target for frames, with a frame of `frame_len` bytes on a live path; false if none
    /// takes it.
    pub(super) fn echo(&mut self, echo: Echo, frame_len: usize) -> bool {
        (0..self.ports.len()).any(|path| self.session.echo(path, echo, frame_len))
    }

    /// Takes what has come, and lets time pass; false if nothing came.
    pub(super) fn receive(&mut self, now: Instant) -> bool {
        let mut frames = 0;
        for path in 0..self.ports.len() {
            let batch = self.ports[path].receive(now);
            let now = if self.stages.is_some() { clock::now() } else { now };
            for index in 0..batch {
                if let Some(stages) = &mut self.stages {
                    stages.read(now, self.ports[path].waited(index));
                }
                let frame = self.ports[path].rx.frame(index);
                self.session.handle_frame(now, path, frame.head, frame.payload);
                self.settle(Some((path, index)));
            }
            self.ports[path].rx.clear();
            frames += batch;
        }
        if self.session.poll_timeout().is_some_and(|at| at <= now) {
            self.session.handle_timeout(now);
            self.settle(None);
        }
        frames > 0
    }

    /// Sends what there is to send; false if there was nothing.
    pub(super) fn transmit(&mut self, now: Instant) -> bool {
        let mut frames = 0;
        for (path, port) in self.ports.iter_mut().enumerate() {
            let (session, out) = (&mut self.session, &mut self.out);
            let now = || if self.stages.is_some() { clock::now() } else { now };
            frames += transmit(now, path, port, session, out, &self.operations);
        }
        frames > 0
    }

    /// Ends the session with a farewell.
    pub(super) fn disconnect(&mut self, now: Instant) {
        self.session.disconnect(now);
        self.settle(None);
    }

    /// Ends the session at once.
    pub(super) fn abort(&mut self, now: Instant) {
        self.session.abort(now);
        self.settle(None);
    }

    /// When there is something to do if nothing comes before.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let ports = self.ports.iter().filter_map(Port::poll_timeout);
        ports.chain(self.session.poll_timeout()).min()
    }

    /// What to wait for.
    pub(super) fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ports.iter().filter_map(Port::wait_fd)
    }

    /// Handles all events; `frame` is the received one that they speak of.
    fn settle(&mut self, frame: Option<(usize, usize)>) {
        while let Some(event) = self.session.poll_event() {
            let notice = match event {
                SessionEvent::Data { op, offset, len, source } => {
                    let (path, index) = frame.expect("data come with a frame");
                    let payload = self.ports[path].rx.frame(index).payload;
                    let data = &payload[source as usize..][..len as usize];
                    place(&mut self.operations, op, offset, data);
                    continue;
                }
                SessionEvent::Completed { op: OpId(op), status } => {
                    let job = self.operations[op as usize].take();
                    let job = job.expect("an operation completes once");
                    self.count(&job.request, status);
                    if let Some(stages) = &mut self.stages
                        && let Some(exchange) = self.session.exchange(OpId(op))
                    {
                        stages.completed(op, exchange, now());
                    }
                    self.done.push(job.done(result(status)));
                    continue;
                }
                SessionEvent::Echoed(echo) => {
                    self.echoed.push(echo);
                    continue;
                }
                SessionEvent::Connected => {
                    Notice::Connected(*self.session.export().expect("known once connected"))
                }
                SessionEvent::Lost(problem) => Notice::Lost(problem),
                SessionEvent::Rejected(rejection) => {
                    Notice::Rejected(rejection.reason, rejection.detail.to_string())
                }
                SessionEvent::Resized(size) => Notice::Resized(size),
                SessionEvent::Failed(failure) => Notice::Failed(failure),
                SessionEvent::CacheLost => Notice::CacheLost,
                SessionEvent::Closed => Notice::Closed,
            };
            self.notices.push_back(notice);
        }
    }

    fn count(&mut self, request: &Request, status: Status) {
        let (counts, len) = (&mut self.counts, u64::from(request.len));
        if status != Status::Success {
            counts.errors += 1;
            return;
        }
        match request.operation {
            BlockOperation::Read => {
                counts.reads += 1;
                counts.read_bytes += len;
            }
            BlockOperation::Write { .. } => {
                counts.writes += 1;
                counts.written_bytes += len;
            }
            BlockOperation::Flush => counts.flushes += 1,
            BlockOperation::Discard | BlockOperation::WriteZeroes { .. } => counts.others += 1,
        }
    }

    /// What the session is doing.
    pub(super) fn report(&mut self, now: Instant) -> HostReport {
        let session = &self.session;
        let paths = self.ports.iter_mut().enumerate().map(|(path, port)| {
            let state = session.path_state(path);
            let problem = port.trouble().map(|kind| kind.to_string());
            PathReport {
                link: port.link().name().to_owned(),
                mac: Mac(port.link().mac()),
                live: state.is_some(),
                frame_len: session.frame_len(path),
                frame_len_max: port.link().frame_len_max(),
                rtt: state.map_or(Duration::ZERO, |(rtt, _)| rtt),
                congestion_window: state.map_or(0, |(_, window)| window),
                problem: problem.or_else(|| session.problem(path).map(|it| it.to_string())),
                port: port.stats(),
                link_counters: port.link().counters(),
            }
        });
        HostReport {
            live: session.is_live(),
            lost_for: session.lost_since().map(|since| now.since(since)),
            time_left: session.time_left(now),
            over: session.is_over(),
            export: session.export().copied(),
            operations: session.operations(),
            channel: session.stats(),
            rejects: session.rejects().iter().collect(),
            requests: self.counts,
            paths: paths.collect(),
        }
    }
}

/// Data of a read have come: they go where the request wants them.
fn place(operations: &mut [Option<Job>], OpId(op): OpId, offset: u32, data: &[u8]) {
    let job = operations[op as usize].as_mut();
    let buffer = job.and_then(|job| job.request.buffer.as_mut());
    let buffer = buffer.expect("a read in progress has a buffer");
    buffer[offset as usize..][..data.len()].copy_from_slice(data);
}

/// Sends what the session has for a path; returns how many frames that was.
fn transmit(
    now: impl Fn() -> Instant,
    path: usize,
    port: &mut Port,
    session: &mut Session,
    out: &mut Outgoing,
    operations: &[Option<Job>],
) -> usize {
    let session = std::cell::RefCell::new(session);
    let data = |_: &Outgoing, part: &Data| {
        let session = session.borrow();
        let (OpId(op), base) = session.locate(path, part.tag.slot).expect("sent while in flight");
        let job = operations[op as usize].as_ref();
        let buffer = job.and_then(|job| job.request.buffer.as_ref());
        let buffer = buffer.expect("a write in progress has a buffer");
        &buffer[(base + part.offset) as usize..][..part.len as usize]
    };
    let poll = |out: &mut Outgoing| session.borrow_mut().poll_transmit(now(), path, out);
    port.transmit(now(), out, poll, data)
}
