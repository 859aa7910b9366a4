//! A session's loop: submissions, frames and timers of one host session, in one thread.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tyche_block::{Arena, Errno, Geometry, Operation as BlockOperation};
use tyche_link::Link;
use tyche_proto::wire::{CommandFlags, Data, Mac, Opcode, Reason, Reject, Status};
use tyche_proto::{
    ChannelStats, ExportState, Failure, Instant, OpId, Operation, Outgoing, PathConfig, Problem,
    Session, SessionConfig, SessionEvent, SubmitError,
};

use crate::clock::now;
use crate::port::{Port, PortStats};
use crate::random::secrets;
use crate::spin::Spin;
use crate::volume::{Submission, Volume};
use crate::wait::wait;

/// A link that may reach the target.
pub struct HostLink {
    /// The link.
    pub link: Box<dyn Link>,
    /// The target's address, if it is known.
    pub target: Option<Mac>,
}

/// How to run a session.
pub struct HostOptions {
    /// What the session wants.
    pub session: SessionConfig,
    /// The links to use, at least one.
    pub links: Vec<HostLink>,
    /// EtherType of the frames.
    pub ethertype: u16,
    /// Pages of memory for the data of requests.
    pub arena_pages: usize,
    /// The longest time to spin before sleeping; zero: never.
    pub spin: Duration,
}

/// What a session tells its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A channel is live, for the first time or again.
    Connected(ExportState),
    /// The last live channel was lost; requests wait.
    Lost(Problem),
    /// The target refused a channel.
    Rejected(Reason, String),
    /// The export has another size.
    Resized(u64),
    /// The target has lost completed writes: the next flush fails.
    CacheLost,
    /// Everything has failed, and will.
    Failed(Failure),
    /// The session has ended.
    Closed,
}

/// One of the session's links, for people.
#[derive(Clone, Debug)]
pub struct PathReport {
    /// Name of the link.
    pub link: String,
    /// Its address.
    pub mac: Mac,
    /// Whether a channel is live on it.
    pub live: bool,
    /// Longest frame in bytes that was found to get through; zero if that is not known yet.
    pub frame_len: usize,
    /// Longest frame in bytes that the link itself takes.
    pub frame_len_max: usize,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Frames that may be in flight.
    pub congestion_window: u32,
    /// What the last attempt to connect failed with, or what the link suffers from.
    pub problem: Option<String>,
    /// Counters.
    pub port: PortStats,
}

/// What a session is doing, for people.
#[derive(Clone, Debug)]
pub struct HostReport {
    /// Whether a channel is live.
    pub live: bool,
    /// For how long the target has been lost.
    pub lost_for: Option<Duration>,
    /// How long it may stay lost before everything fails.
    pub time_left: Option<Duration>,
    /// Whether everything has failed.
    pub over: bool,
    /// The export, once connected.
    pub export: Option<ExportState>,
    /// Operations in progress.
    pub operations: usize,
    /// Counters of the protocol.
    pub channel: ChannelStats,
    /// Dropped frames by reason.
    pub rejects: Vec<(Reject, u64)>,
    /// Requests answered, and bytes moved by them: reads, writes, others.
    pub requests: RequestCounts,
    /// The links.
    pub paths: Vec<PathReport>,
}

/// What was asked of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Reads answered.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes answered.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes answered.
    pub flushes: u64,
    /// Discards and write-zeroes answered.
    pub others: u64,
    /// Requests that ended with an error.
    pub errors: u64,
}

enum Command {
    Report(SyncSender<HostReport>),
    Disconnect,
    Abort,
}

/// The running session. Dropping it aborts the session.
pub struct Host {
    volume: Arc<Volume>,
    commands: Sender<Command>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Starts the session's thread, which begins to look for the target at once, and calls
    /// `notify` with what happens, in order. `notify` must not wait.
    ///
    /// # Errors
    /// What the system says when there is no thread or no eventfd to be had.
    ///
    /// # Panics
    /// Without a link.
    pub fn start(
        options: HostOptions,
        notify: impl FnMut(Notice) + Send + 'static,
    ) -> io::Result<Self> {
        assert!(!options.links.is_empty(), "a session needs a link");
        let volume = Arc::new(Volume::new(Arena::new(options.arena_pages))?);
        let (commands, receiver) = channel();
        let notify = Box::new(notify);
        let body = HostLoop::new(options, Arc::clone(&volume), receiver, notify);
        let thread =
            std::thread::Builder::new().name("tyche-session".into()).spawn(move || body.run())?;
        Ok(Self { volume, commands, thread: Some(thread) })
    }

    /// The disk. Its geometry is known after the first [`Notice::Connected`].
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// A handle for other threads.
    pub fn control(&self) -> HostControl {
        HostControl { volume: Arc::clone(&self.volume), commands: self.commands.clone() }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.control().abort();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the session's thread panicked");
        }
    }
}

/// Steers a session from any thread.
#[derive(Clone)]
pub struct HostControl {
    volume: Arc<Volume>,
    commands: Sender<Command>,
}

impl HostControl {
    fn send(&self, command: Command) {
        // Nobody listens any more once the session is over: then there is nothing to steer.
        let _ = self.commands.send(command);
        self.volume.doorbell.ring();
    }

    /// Ends the session with a farewell to the target. [`Notice::Closed`] follows.
    pub fn disconnect(&self) {
        self.send(Command::Disconnect);
    }

    /// Ends the session at once: everything in progress fails. [`Notice::Closed`] follows.
    pub fn abort(&self) {
        self.send(Command::Abort);
    }

    /// What the session is doing; `None` if it has ended or does not answer within a second.
    pub fn report(&self) -> Option<HostReport> {
        let (sender, receiver) = sync_channel(1);
        self.send(Command::Report(sender));
        receiver.recv_timeout(Duration::from_secs(1)).ok()
    }
}

struct HostLoop {
    session: Session,
    ports: Vec<Port>,
    volume: Arc<Volume>,
    /// What each operation in progress belongs to.
    operations: Box<[Option<Submission>]>,
    /// Taken from the queue when the session was full.
    held: Option<Submission>,
    commands: Receiver<Command>,
    notify: Box<dyn FnMut(Notice) + Send>,
    counts: RequestCounts,
    out: Outgoing,
    spin: Spin,
    closed: bool,
}

impl HostLoop {
    fn new(
        options: HostOptions,
        volume: Arc<Volume>,
        commands: Receiver<Command>,
        notify: Box<dyn FnMut(Notice) + Send>,
    ) -> Self {
        let HostOptions { session, links, ethertype, spin, .. } = options;
        let (mut ports, mut paths) = (Vec::new(), Vec::new());
        for HostLink { link, target } in links {
            let port = Port::new(link, ethertype);
            let frame_len_max = port.link().frame_len_max();
            paths.push(PathConfig { frame_len_max, rings: port.rings(), target });
            ports.push(port);
        }
        let operations = (0..session.operations_max).map(|_| None).collect();
        Self {
            session: Session::new(session, &paths, secrets(), now()),
            ports,
            volume,
            operations,
            held: None,
            commands,
            notify,
            counts: RequestCounts::default(),
            out: Outgoing::new(),
            spin: Spin::new(spin),
            closed: false,
        }
    }

    fn run(mut self) {
        // Without the privilege there is no protection, but the disk works.
        if let Err(error) = tyche_attach::avoid_reclaim_io() {
            tracing::debug!(%error, "session without protection from memory reclaim");
        }
        while !self.closed {
            if self.turn() {
                self.spin.worked();
            } else if !self.spin.again(now().0) {
                self.sleep();
            }
        }
        self.volume.close();
        if let Some(submission) = self.held.take() {
            submission.complete(Err(Errno::IO));
        }
    }

    /// Does what there is to do; false if there was nothing.
    fn turn(&mut self) -> bool {
        let now = now();
        let mut worked = self.obey(now);
        worked |= self.take_submissions(now);
        for path in 0..self.ports.len() {
            worked |= self.receive(now, path);
        }
        if self.session.poll_timeout().is_some_and(|at| at <= now) {
            self.session.handle_timeout(now);
            self.settle();
        }
        for (path, port) in self.ports.iter_mut().enumerate() {
            worked |= transmit(now, path, port, &mut self.session, &mut self.out, &self.operations);
        }
        worked
    }

    fn obey(&mut self, now: Instant) -> bool {
        let mut worked = false;
        while let Ok(command) = self.commands.try_recv() {
            worked = true;
            match command {
                Command::Report(to) => {
                    let _ = to.send(self.report(now));
                }
                Command::Disconnect => self.session.disconnect(now),
                Command::Abort => self.session.abort(now),
            }
            self.settle();
        }
        worked
    }

    fn take_submissions(&mut self, now: Instant) -> bool {
        let mut worked = false;
        while let Some(submission) = self.held.take().or_else(|| self.volume.take()) {
            if let Err(errno) = self.volume_check(&submission) {
                self.counts.errors += 1;
                submission.complete(Err(errno));
                continue;
            }
            match self.session.submit(now, operation(&submission)) {
                Ok(OpId(index)) => {
                    let place = &mut self.operations[index as usize];
                    assert!(place.is_none(), "two submissions in one operation");
                    *place = Some(submission);
                }
                Err(SubmitError::Full) => {
                    self.held = Some(submission);
                    return worked;
                }
                Err(SubmitError::Over) => {
                    self.counts.errors += 1;
                    submission.complete(Err(Errno::IO));
                }
            }
            worked = true;
        }
        worked
    }

    fn volume_check(&self, submission: &Submission) -> Result<(), Errno> {
        let Some(export) = self.session.export() else { return Ok(()) };
        geometry(export).check(&submission.request)
    }

    fn receive(&mut self, now: Instant, path: usize) -> bool {
        let frames = self.ports[path].receive(now);
        for index in 0..frames {
            let frame = self.ports[path].rx.frame(index);
            self.session.handle_frame(now, path, frame.head, frame.payload);
            while let Some(event) = self.session.poll_event() {
                let SessionEvent::Data { op, offset, len, source } = event else {
                    self.handle_event(event);
                    continue;
                };
                let payload = self.ports[path].rx.frame(index).payload;
                let data = &payload[source as usize..][..len as usize];
                place(&mut self.operations, op, offset, data);
            }
        }
        frames > 0
    }

    /// Handles all events; none of them speaks of a frame.
    fn settle(&mut self) {
        while let Some(event) = self.session.poll_event() {
            self.handle_event(event);
        }
    }

    fn handle_event(&mut self, event: SessionEvent) {
        let notice = match event {
            SessionEvent::Data { .. } => unreachable!("data come with a frame"),
            SessionEvent::Completed { op: OpId(op), status } => {
                let submission = self.operations[op as usize].take();
                let submission = submission.expect("an operation completes once");
                self.count(&submission, status);
                submission.complete(result(status));
                return;
            }
            SessionEvent::Connected => {
                let export = *self.session.export().expect("known once connected");
                self.volume.set_geometry(geometry(&export));
                Notice::Connected(export)
            }
            SessionEvent::Lost(problem) => Notice::Lost(problem),
            SessionEvent::Rejected(rejection) => {
                Notice::Rejected(rejection.reason, rejection.detail.to_string())
            }
            SessionEvent::Resized(size) => {
                if let Some(export) = self.session.export() {
                    self.volume.set_geometry(geometry(export));
                }
                Notice::Resized(size)
            }
            SessionEvent::Failed(failure) => Notice::Failed(failure),
            SessionEvent::CacheLost => Notice::CacheLost,
            SessionEvent::Closed => {
                self.closed = true;
                Notice::Closed
            }
        };
        (self.notify)(notice);
    }

    fn count(&mut self, submission: &Submission, status: Status) {
        let (counts, len) = (&mut self.counts, u64::from(submission.request.len));
        if status != Status::Success {
            counts.errors += 1;
            return;
        }
        match submission.request.operation {
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

    fn sleep(&mut self) {
        self.spin.sleeps();
        let doorbell = &self.volume.doorbell;
        doorbell.announce();
        // A held submission waits for a completion, so a full queue behind it is no work.
        let idle = self.held.is_some() || self.volume.is_empty();
        if idle {
            let deadline = self.ports.iter().filter_map(Port::poll_timeout).min();
            let deadline = match (deadline, self.session.poll_timeout()) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            let links = self.ports.iter().filter_map(Port::wait_fd);
            wait(links.chain([doorbell.wait_fd()]), now(), deadline);
        }
        doorbell.awake();
    }

    fn report(&mut self, now: Instant) -> HostReport {
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
fn place(operations: &mut [Option<Submission>], OpId(op): OpId, offset: u32, data: &[u8]) {
    let submission = operations[op as usize].as_mut();
    let buffer = submission.and_then(|submission| submission.request.buffer.as_mut());
    let buffer = buffer.expect("a read in progress has a buffer");
    buffer[offset as usize..][..data.len()].copy_from_slice(data);
}

/// Sends what the session has for a path; false if there was nothing.
fn transmit(
    now: Instant,
    path: usize,
    port: &mut Port,
    session: &mut Session,
    out: &mut Outgoing,
    operations: &[Option<Submission>],
) -> bool {
    let session = std::cell::RefCell::new(session);
    let data = |_: &Outgoing, part: &Data| {
        let session = session.borrow();
        let (OpId(op), base) = session.locate(path, part.tag.slot).expect("sent while in flight");
        let submission = operations[op as usize].as_ref();
        let buffer = submission.and_then(|submission| submission.request.buffer.as_ref());
        let buffer = buffer.expect("a write in progress has a buffer");
        &buffer[(base + part.offset) as usize..][..part.len as usize]
    };
    let poll = |out: &mut Outgoing| session.borrow_mut().poll_transmit(now, path, out);
    port.transmit(now, out, poll, data) > 0
}

fn geometry(export: &ExportState) -> Geometry {
    Geometry {
        size: export.size,
        block_size: export.block_size,
        read_only: export.read_only,
        write_cache: export.write_cache,
        discard: export.discard,
    }
}

fn operation(submission: &Submission) -> Operation {
    let request = &submission.request;
    let mut flags = CommandFlags::NONE;
    let opcode = match request.operation {
        BlockOperation::Read => Opcode::Read,
        BlockOperation::Write { fua } => {
            flags.0 |= if fua { CommandFlags::FUA.0 } else { 0 };
            Opcode::Write
        }
        BlockOperation::Flush => Opcode::Flush,
        BlockOperation::Discard => Opcode::Discard,
        BlockOperation::WriteZeroes { fua, may_unmap } => {
            flags.0 |= if fua { CommandFlags::FUA.0 } else { 0 };
            flags.0 |= if may_unmap { CommandFlags::MAY_UNMAP.0 } else { 0 };
            Opcode::WriteZeroes
        }
    };
    let flush = opcode == Opcode::Flush;
    let (offset, len) = if flush { (0, 0) } else { (request.offset, request.len) };
    Operation { opcode, flags, offset, len }
}

fn result(status: Status) -> Result<(), Errno> {
    Err(match status {
        Status::Success => return Ok(()),
        Status::Io => Errno::IO,
        Status::Invalid => Errno::INVAL,
        Status::ReadOnly => Errno::ROFS,
        Status::NoSpace => Errno::NOSPC,
        Status::Unsupported => Errno::OPNOTSUPP,
        Status::NoMemory => Errno::NOMEM,
    })
}
