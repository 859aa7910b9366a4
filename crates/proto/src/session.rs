//! A host's connection to one export, over one or more paths.
//!
//! The session takes operations of any length, cuts them into pieces of at most 1 MiB, spreads
//! the pieces over its live channels, and answers each operation once. What a lost channel had in
//! flight is sent again on another, or on its successor; modifications not before the target has
//! confirmed that the lost channel is closed (*fence before reissue*). While no channel is live,
//! everything waits. After `ctrl_loss_tmo` without success it fails.
//!
//! One input ([`Session::submit`], [`Session::handle_frame`], [`Session::handle_timeout`], ...),
//! then drain the outputs: [`Session::poll_event`] until there is nothing more, then
//! [`Session::poll_transmit`] for each path.

use std::collections::VecDeque;
use std::time::Duration;

use arrayvec::ArrayVec;
use tyche_wire::{
    Accept, AcceptFlags, Body, ChannelId, Control, Cookie, Echo, Event, Fence, Fenced, Flags,
    HEAD_LEN, Header, Kind, Mac, Name, REQUEST_LEN_MAX, Reason, Reject, Rejection, Status, Uuid,
};

use crate::batching::BatchPolicy;
use crate::cache::Cache;
use crate::initiator::{Arrived, Piece};
use crate::operation::{Op, OpId, Operation, Progress};
use crate::outgoing::Outgoing;
use crate::path::{Path, PathConfig, PathEvent, Problem};
use crate::rules::{Rules, Sound};
use crate::stages::Exchange;
use crate::stats::{ChannelStats, RejectCounts};
use crate::time::{Instant, earliest};

/// How often a farewell is said on each path, and how long each is waited for.
const FAREWELLS: u32 = 3;
const FAREWELL_INTERVAL: Duration = Duration::from_millis(50);
/// Time until the target is asked again whether a lost channel is closed: it answers once the
/// channel's last request is back from the disk.
const FENCE_INTERVAL: Duration = Duration::from_millis(20);
const FENCE_INTERVAL_MAX: Duration = Duration::from_millis(640);

/// What a session wants.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Identity of this host, the same after a restart.
    pub host: Uuid,
    /// Its name, for people.
    pub host_name: Name,
    /// Identity of the session, new for each.
    pub session: Uuid,
    /// The export.
    pub export: Name,
    /// The target that must offer it. Set by itself once connected: a session stays with its
    /// target.
    pub target: Option<Uuid>,
    /// Requests in flight on each channel, 1 to 1024.
    pub queue_size: u16,
    /// Pages wanted for the target's data queue of each channel.
    pub damq_pages: u32,
    /// Operations in progress at once.
    pub operations_max: u32,
    /// Never write.
    pub read_only: bool,
    /// Cover data with checksums.
    pub checksum: bool,
    /// Find out where the time of operations goes: [`Session::exchange`].
    pub stages: bool,
    /// Silence after which a channel is dead; at least 100 ms.
    pub keep_alive: Duration,
    /// Pause between two attempts to connect.
    pub reconnect_delay: Duration,
    /// How long to try to get back to a lost target before everything fails; `None`: for ever.
    pub ctrl_loss_tmo: Option<Duration>,
    /// How requests share frames.
    pub batch: BatchPolicy,
}

/// Why an operation is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// `operations_max` are in progress: come back after a completion.
    Full,
    /// The session has failed or is closed: it takes nothing any more.
    Over,
}

/// What a session knows of its export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportState {
    /// Identity of the target.
    pub target: Uuid,
    /// Identity of the export.
    pub uuid: Uuid,
    /// Bytes.
    pub size: u64,
    /// 512 or 4096.
    pub block_size: u32,
    /// Writes are refused, by the target or by our own wish.
    pub read_only: bool,
    /// Completed writes may be volatile until the next flush.
    pub write_cache: bool,
    /// Discard does something.
    pub discard: bool,
    boot: Uuid,
}

/// Why a session is over for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// `ctrl_loss_tmo` has passed without the target coming back.
    TargetLost,
    /// The target refused the channel.
    Rejected(Reason),
    /// The export of that name is another disk than before.
    ExportChanged,
    /// The target removed the export.
    ExportRemoved,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TargetLost => f.write_str("the target did not come back in time"),
            Self::Rejected(reason) => reason.fmt(f),
            Self::ExportChanged => f.write_str("the export is not the same disk any more"),
            Self::ExportRemoved => f.write_str("the target removed the export"),
        }
    }
}

/// What happened to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// Data of a read have come: `len` bytes from `source` in the data section of the frame that
    /// was handled last belong at `offset` of the operation.
    Data {
        /// The operation.
        op: OpId,
        /// First byte within the operation.
        offset: u32,
        /// Bytes.
        len: u32,
        /// First byte within the frame's data section.
        source: u32,
    },
    /// The operation has ended.
    Completed {
        /// The operation.
        op: OpId,
        /// How.
        status: Status,
    },
    /// A channel is live, for the first time or again; the export is known.
    Connected,
    /// The last live channel was lost: operations wait.
    Lost(Problem),
    /// A connect was refused. The session goes on trying unless it also fails.
    Rejected(Box<Rejection>),
    /// An answer to an [echo](Session::echo) has come.
    Echoed(Echo),
    /// The export has another size.
    Resized(u64),
    /// The session is over: everything has failed.
    Failed(Failure),
    /// The target has lost writes that it had completed: the next flush fails.
    CacheLost,
    /// The farewell is said.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Never connected.
    New,
    Live,
    /// Lost at that time.
    Lost(Instant),
    Failed,
    /// Saying farewell.
    Closing {
        round: u32,
        next: Instant,
    },
    Closed,
}

/// A lost channel that the target may still have open: what it had in flight may still take
/// effect, and must not be sent again before the target has confirmed that it is closed.
#[derive(Debug)]
struct Fencing {
    cookie: Cookie,
    channel: ChannelId,
    /// What waits for the confirmation.
    pieces: Vec<Piece>,
    /// When to ask (again).
    next: Instant,
    /// How long to wait after that; doubles each time.
    pause: Duration,
    /// The path that was asked through last.
    asked: Option<usize>,
}

/// See the module.
pub struct Session<R = Sound> {
    config: SessionConfig,
    random: Box<dyn FnMut() -> u64 + Send>,
    state: State,
    paths: Vec<Path<R>>,
    ops: Box<[Op]>,
    /// By operation, if wanted: how the last piece of it to end got through.
    exchanges: Option<Box<[Option<Exchange>]>>,
    free: VecDeque<u32>,
    /// Operations with pieces to be issued, served in turn.
    pending: VecDeque<u32>,
    /// Pieces of lost channels, to be issued again before anything new.
    reissued: VecDeque<Piece>,
    fencing: Vec<Fencing>,
    cache: Cache,
    export: Option<ExportState>,
    events: VecDeque<SessionEvent>,
    rejects: RejectCounts,
    past: ChannelStats,
    now: Instant,
}

impl<R: Rules> Session<R> {
    /// A session that begins to look for its target at once. `random`: a source of secrets.
    pub fn new(
        config: SessionConfig,
        paths: &[PathConfig],
        random: Box<dyn FnMut() -> u64 + Send>,
        now: Instant,
    ) -> Self {
        let ops = config.operations_max;
        Self {
            random,
            state: State::New,
            paths: paths.iter().map(|&path| Path::new(path, now)).collect(),
            ops: vec![Op::IDLE; ops as usize].into(),
            exchanges: config.stages.then(|| vec![None; ops as usize].into()),
            free: (0..ops).collect(),
            pending: VecDeque::with_capacity(ops as usize),
            reissued: VecDeque::new(),
            fencing: Vec::new(),
            cache: Cache::default(),
            export: None,
            events: VecDeque::new(),
            rejects: RejectCounts::default(),
            past: ChannelStats::default(),
            config,
            now,
        }
    }

    /// What the session wants.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// The export, once connected.
    pub fn export(&self) -> Option<&ExportState> {
        self.export.as_ref()
    }

    /// Whether a channel is live.
    pub fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Whether nothing will ever succeed any more.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Failed | State::Closed)
    }

    /// How long the target may stay away before everything fails: `None` while it is here, or if
    /// it may stay away for ever.
    pub fn time_left(&self, now: Instant) -> Option<Duration> {
        let State::Lost(since) = self.state else { return None };
        self.config.ctrl_loss_tmo.map(|timeout| (since + timeout).since(now))
    }

    /// Since when the target is lost.
    pub fn lost_since(&self) -> Option<Instant> {
        match self.state {
            State::Lost(since) => Some(since),
            _ => None,
        }
    }

    /// What the path's last attempt to connect failed with.
    pub fn problem(&self, path: usize) -> Option<Problem> {
        self.paths[path].problem()
    }

    /// Longest frame in bytes that the path was found to carry; zero before that is known.
    pub fn frame_len(&self, path: usize) -> usize {
        self.paths[path].frame_len()
    }

    /// Smoothed round-trip time of a live path, and how many frames may be in flight on it.
    pub fn path_state(&self, path: usize) -> Option<(Duration, u32)> {
        let initiator = self.paths[path].live()?;
        Some((initiator.channel.rtt(), initiator.channel.congestion_window()))
    }

    /// Operations in progress.
    pub fn operations(&self) -> usize {
        self.ops.len() - self.free.len()
    }

    /// Counters of all channels there have been.
    pub fn stats(&self) -> ChannelStats {
        let mut stats = self.past;
        for initiator in self.paths.iter().filter_map(Path::live) {
            stats += initiator.channel.stats;
        }
        stats
    }

    /// Dropped frames.
    pub fn rejects(&self) -> &RejectCounts {
        &self.rejects
    }

    /// Which operation a slot of a path's channel carries, and where its piece begins there: how
    /// to find the data that an outgoing frame's entries name.
    pub fn locate(&self, path: usize, slot: u16) -> Option<(OpId, u32)> {
        let piece = self.paths[path].live()?.piece(slot)?;
        Some((OpId(piece.op), piece.base))
    }

    /// How an operation that has completed got through, if that is wanted and its target tells.
    /// Known until the next [`submit`](Self::submit).
    pub fn exchange(&self, OpId(op): OpId) -> Option<Exchange> {
        self.exchanges.as_ref()?[op as usize]
    }

    /// Begins an operation.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub fn submit(&mut self, now: Instant, operation: Operation) -> Result<OpId, SubmitError> {
        self.now = now;
        if !matches!(self.state, State::New | State::Live | State::Lost(_)) {
            return Err(SubmitError::Over);
        }
        let index = self.free.pop_front().ok_or(SubmitError::Full)?;
        let covers = self.cache.completed();
        self.ops[index as usize] = Op { operation, active: true, covers, ..Op::IDLE };
        self.pending.push_back(index);
        if let Some(exchanges) = &mut self.exchanges {
            exchanges[index as usize] = None;
        }
        self.issue();
        Ok(OpId(index))
    }

    /// Asks the target for frames, with a frame of `frame_len` bytes on a path; each that comes is
    /// a [`SessionEvent::Echoed`]. Neither is sent again when it is lost. False if the path is not
    /// live, the frames are longer than it carries, or too many wait to be sent.
    ///
    /// # Panics
    /// If the echo is none that a frame can carry.
    pub fn echo(&mut self, path: usize, echo: Echo, frame_len: usize) -> bool {
        let initiator = self.paths[path].live_mut();
        initiator.is_some_and(|initiator| initiator.echo(echo, frame_len))
    }

    /// Hands pieces to channels while there are both.
    fn issue(&mut self) {
        while let Some(piece) = self.reissued.front() {
            if !submit_to_any(&mut self.paths, self.now, *piece) {
                return;
            }
            self.reissued.pop_front();
        }
        while let Some(&index) = self.pending.front() {
            let op = &mut self.ops[index as usize];
            let Operation { opcode, flags, offset, len } = op.operation;
            let rest = len - op.issued;
            let len = if opcode.has_data() { rest.min(REQUEST_LEN_MAX) } else { rest };
            let offset = offset + u64::from(op.issued);
            let piece = Piece { op: index, base: op.issued, opcode, flags, offset, len };
            if !submit_to_any(&mut self.paths, self.now, piece) {
                return;
            }
            op.issued += len.max(1);
            op.pieces += 1;
            self.pending.pop_front();
            if !op.is_issued() {
                self.pending.push_back(index);
            }
        }
    }

    /// Takes a frame that came on a path. What is wrong with it is counted.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        path: usize,
        head: &[u8; HEAD_LEN],
        payload: &[u8],
    ) {
        self.now = now;
        if let Err(reject) = self.try_handle_frame(path, head, payload) {
            self.rejects.add(reject);
        }
        self.issue();
    }

    fn try_handle_frame(
        &mut self,
        path: usize,
        head: &[u8; HEAD_LEN],
        payload: &[u8],
    ) -> Result<(), Reject> {
        let (src, header) = (Mac::source(head), Header::parse(head)?);
        if header.kind.on_channel() {
            return self.handle_channel_frame(path, &header, payload);
        }
        let Body::Control(pdu) = Body::parse(&header, payload)? else {
            return Err(Reject::Unexpected);
        };
        self.handle_control(path, src, &header, pdu.decode())
    }

    /// Takes a frame that belongs to no channel.
    fn handle_control(
        &mut self,
        path: usize,
        src: Mac,
        header: &Header,
        control: Control,
    ) -> Result<(), Reject> {
        if matches!(control, Control::Discover(_)) {
            // Other hosts ask everybody.
            return Ok(());
        }
        if self.is_over() {
            return Err(Reject::Unexpected);
        }
        let closing = matches!(self.state, State::Closing { .. });
        if let Control::Reset(reset) = &control {
            if !self.paths[path].is_reset_by(reset.cookie, reset.channel) {
                return Err(Reject::Unexpected);
            }
            self.lose(path, Problem::Reset);
            return Ok(());
        }
        if closing {
            // A channel that opens now would never be used.
            return Err(Reject::Unexpected);
        }
        if let Control::Fenced(fenced) = &control {
            return self.fenced(fenced);
        }
        let (now, link) = (self.now, &mut self.paths[path]);
        match link.handle_control(now, src, header, control, &self.config, &mut self.random)? {
            Some(PathEvent::Accepted(accept)) => self.accepted(path, &accept),
            Some(PathEvent::Rejected(rejection)) => self.rejected(path, rejection),
            None => {}
        }
        Ok(())
    }

    fn handle_channel_frame(
        &mut self,
        path: usize,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), Reject> {
        let initiator = self.paths[path].live_mut().ok_or(Reject::Channel)?;
        if initiator.channel.config().own.0 != header.channel {
            return Err(Reject::Channel);
        }
        initiator.channel.check_cookie(header)?;
        let body = if R::CHECK_PAYLOAD {
            Body::parse(header, payload)?
        } else {
            Body::parse_unchecked(header, payload)?
        };
        if header.kind == Kind::Disconnect {
            self.handle_disconnect(path, header);
            return Ok(());
        }
        let (events, ops, cache) = (&mut self.events, &mut self.ops, &mut self.cache);
        let (free, pending) = (&mut self.free, &mut self.pending);
        let exchanges = &mut self.exchanges;
        let export = self.export.as_mut();
        let (mut resized, mut removed, mut failed) = (None, false, false);
        let result = initiator.handle_frame(self.now, header, &body, |arrived| match arrived {
            Arrived::Data { op, offset, len, source } => {
                events.push_back(SessionEvent::Data { op: OpId(op), offset, len, source });
            }
            Arrived::Done(piece, status, exchange) => {
                failed |= status != Status::Success;
                if let Some(exchanges) = exchanges {
                    exchanges[piece.op as usize] = exchange;
                }
                match ops[piece.op as usize].done(status, cache) {
                    Progress::Pending => {}
                    Progress::Redo => pending.push_back(piece.op),
                    Progress::Completed(status) => {
                        free.push_back(piece.op);
                        events.push_back(SessionEvent::Completed { op: OpId(piece.op), status });
                    }
                }
            }
            Arrived::Event(Event::Resized(size)) => resized = Some(size),
            Arrived::Event(Event::Removed) => removed = true,
            Arrived::Echo(echo) => events.push_back(SessionEvent::Echoed(echo)),
        });
        if let (Some(export), Some(size)) = (export, resized) {
            export.size = size;
            self.events.push_back(SessionEvent::Resized(size));
        }
        if failed {
            // What has failed in one piece is not issued any further.
            self.pending.retain(|&index| !self.ops[index as usize].is_issued());
        }
        if removed {
            self.fail(Failure::ExportRemoved);
        }
        result
    }

    fn handle_disconnect(&mut self, path: usize, header: &Header) {
        // Only a session that says farewell awaits an answer to it.
        if header.flags.contains(Flags::REPLY) && !matches!(self.state, State::Closing { .. }) {
            return;
        }
        self.lose(path, Problem::Disconnected);
    }

    fn accepted(&mut self, path: usize, accept: &Accept) {
        // Channels of a former run are gone. What still arrives of them must not count as
        // completed in this run, whose cache never held it.
        for other in (0..self.paths.len()).filter(|&other| other != path) {
            if self.paths[other].boot().is_some_and(|boot| boot != accept.boot) {
                self.lose(other, Problem::Reset);
            }
        }
        let flag = |flag| accept.flags.contains(flag);
        let state = ExportState {
            target: accept.target,
            uuid: accept.export,
            size: accept.size,
            block_size: accept.block_size,
            read_only: flag(AcceptFlags::READ_ONLY),
            write_cache: flag(AcceptFlags::WRITE_CACHE),
            discard: flag(AcceptFlags::DISCARD),
            boot: accept.boot,
        };
        if let Some(before) = self.export {
            if before.uuid != state.uuid || before.block_size != state.block_size {
                return self.fail(Failure::ExportChanged);
            }
            if before.boot != state.boot && before.write_cache {
                self.lose_cache();
            }
            if before.size != state.size {
                self.events.push_back(SessionEvent::Resized(state.size));
            }
        }
        self.export = Some(state);
        self.config.target = Some(accept.target);
        if self.state != State::Live {
            self.state = State::Live;
            self.events.push_back(SessionEvent::Connected);
        }
    }

    /// The target's cache may be lost, and with it writes that no flush has covered.
    fn lose_cache(&mut self) {
        for op in &mut self.ops {
            op.redo |= std::mem::take(&mut op.volatile);
        }
        if self.cache.is_dirty() {
            self.cache.forget();
            if R::LOST_CACHE_FAILS_FLUSH {
                self.cache.note_loss();
                self.events.push_back(SessionEvent::CacheLost);
            }
        }
    }

    fn rejected(&mut self, path: usize, rejection: Rejection) {
        let reason = rejection.reason;
        self.events.push_back(SessionEvent::Rejected(Box::new(rejection)));
        let may_pass = matches!(reason, Reason::UnknownExport | Reason::Held | Reason::NoResources);
        if may_pass && self.state != State::New {
            self.paths[path].fail(self.now, Problem::NoAccept, self.config.reconnect_delay);
        } else {
            self.fail(Failure::Rejected(reason));
        }
    }

    /// A channel is gone: what it had in flight has to be sent again.
    fn lose(&mut self, path: usize, problem: Problem) {
        let link = &self.paths[path];
        let (Some(initiator), Some((cookie, channel))) = (link.live(), link.identity()) else {
            return;
        };
        self.past += initiator.channel.stats;
        let is_gone = problem == Problem::Reset;
        let fenced = |piece: &Piece| R::FENCE_BEFORE_REISSUE && !is_gone && piece.opcode.modifies();
        self.reissued.extend(initiator.pieces().filter(|piece| !fenced(piece)));
        let pieces: Vec<_> = initiator.pieces().filter(fenced).collect();
        if !pieces.is_empty() {
            let (next, pause) = (self.now, FENCE_INTERVAL);
            self.fencing.push(Fencing { cookie, channel, pieces, next, pause, asked: None });
        }
        let delay = match problem {
            Problem::Reset => Duration::ZERO,
            _ => self.config.reconnect_delay,
        };
        self.paths[path].fail(self.now, problem, delay);
        if self.paths.iter().any(|path| path.live().is_some()) {
            return;
        }
        match self.state {
            State::Closing { .. } => self.end(),
            _ => {
                self.state = State::Lost(self.now);
                self.events.push_back(SessionEvent::Lost(problem));
            }
        }
    }

    /// The target has closed a channel: what it had in flight may be sent again.
    fn fenced(&mut self, fenced: &Fenced) -> Result<(), Reject> {
        let identity = (self.config.session, fenced.cookie, fenced.channel);
        let named =
            |fencing: &Fencing| identity == (fenced.session, fencing.cookie, fencing.channel);
        let index = self.fencing.iter().position(named).ok_or(Reject::Unexpected)?;
        self.reissued.extend(self.fencing.remove(index).pieces);
        Ok(())
    }

    /// Composes a question whether a lost channel is closed, if one is due. The paths take turns,
    /// for one of them may be as dead as the channel.
    fn poll_fence(&mut self, now: Instant, path: usize, out: &mut Outgoing) -> bool {
        let Some(initiator) = self.paths[path].live() else { return false };
        let only = self.paths.iter().filter(|path| path.live().is_some()).count() == 1;
        let due =
            |fencing: &&mut Fencing| fencing.next <= now && (only || fencing.asked != Some(path));
        let Some(fencing) = self.fencing.iter_mut().find(due) else { return false };
        (fencing.asked, fencing.next) = (Some(path), now + fencing.pause);
        fencing.pause = (fencing.pause * 2).min(FENCE_INTERVAL_MAX);
        let Fencing { cookie, channel, .. } = *fencing;
        let tags = ArrayVec::new();
        let fence = Fence { session: self.config.session, cookie, channel, tags };
        let header = Header::new(Kind::Fence);
        out.set_control(initiator.channel.peer(), header, Some(Control::Fence(fence)));
        true
    }

    fn fail(&mut self, failure: Failure) {
        if self.is_over() {
            return;
        }
        self.state = State::Failed;
        self.fail_operations();
        self.events.push_back(SessionEvent::Failed(failure));
    }

    /// Everything in progress ends with an I/O error, and no channel knows of it any more.
    fn fail_operations(&mut self) {
        for initiator in self.paths.iter().filter_map(Path::live) {
            self.past += initiator.channel.stats;
        }
        for path in &mut self.paths {
            path.fail(self.now, Problem::Disconnected, Duration::MAX);
        }
        self.pending.clear();
        self.reissued.clear();
        self.fencing.clear();
        for (index, op) in self.ops.iter_mut().enumerate().filter(|(_, op)| op.active) {
            op.active = false;
            let index = index as u32;
            self.free.push_back(index);
            let completed = SessionEvent::Completed { op: OpId(index), status: Status::Io };
            self.events.push_back(completed);
        }
    }

    /// Ends the session: operations in progress fail, and the target is told. A session that has
    /// failed has nobody to tell, and ends at once.
    pub fn disconnect(&mut self, now: Instant) {
        self.now = now;
        match self.state {
            State::Closed | State::Closing { .. } => {}
            State::Live => self.state = State::Closing { round: 1, next: now + FAREWELL_INTERVAL },
            _ => self.end(),
        }
    }

    /// The session is over because that was wanted.
    fn end(&mut self) {
        self.state = State::Closed;
        self.fail_operations();
        self.events.push_back(SessionEvent::Closed);
    }

    /// Ends the session at once, without a farewell.
    pub fn abort(&mut self, now: Instant) {
        self.now = now;
        if self.state != State::Closed {
            self.end();
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.is_over() {
            return;
        }
        if let State::Closing { round, next } = self.state {
            if now >= next && round == FAREWELLS {
                self.end();
            } else if now >= next {
                self.state = State::Closing { round: round + 1, next: now + FAREWELL_INTERVAL };
            }
            return;
        }
        for path in 0..self.paths.len() {
            let link = &mut self.paths[path];
            if let Some(problem) = link.handle_timeout(now, &self.config, &mut self.random) {
                self.lose(path, problem);
            }
        }
        if self.time_left(now) == Some(Duration::ZERO) {
            self.fail(Failure::TargetLost);
        }
        self.issue();
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit) if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let deadline = match self.state {
            State::Closing { next, .. } => return Some(next),
            State::Lost(since) => self.config.ctrl_loss_tmo.map(|timeout| since + timeout),
            State::Live => self.fencing.iter().map(|fencing| fencing.next).min(),
            _ => None,
        };
        self.paths.iter().map(|path| Some(path.poll_timeout())).fold(deadline, earliest)
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    /// Composes the next frame for a path; false if there is none to send now.
    pub fn poll_transmit(&mut self, now: Instant, path: usize, out: &mut Outgoing) -> bool {
        if self.is_over() {
            return false;
        }
        if let State::Closing { round, .. } = self.state {
            let Some((target, header)) = self.paths[path].farewell(now, round) else {
                return false;
            };
            out.set_control(target, header, None);
            return true;
        }
        self.poll_fence(now, path, out) || self.paths[path].poll_transmit(now, &self.config, out)
    }
}

/// Hands a piece to the live channel with the least in flight that has room.
fn submit_to_any<R: Rules>(paths: &mut [Path<R>], now: Instant, piece: Piece) -> bool {
    let live = paths.iter_mut().filter_map(Path::live_mut);
    live.min_by_key(|initiator| initiator.outstanding())
        .is_some_and(|initiator| initiator.submit(now, piece))
}
