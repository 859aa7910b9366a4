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

mod choice;
mod fencing;
mod pairing;
mod path;
mod port;
mod repeat;

use std::collections::VecDeque;
use std::time::Duration;

use arrayvec::ArrayVec;
use tyche_wire::{
    Accept, AcceptFlags, Body, ChannelId, Control, Echo, Event, Fenced, Flags, HEAD_LEN, Header,
    Kind, Mac, Name, Offer, REQUEST_LEN_MAX, Reason, Reject, Rejection, Status, Uuid,
};

use choice::Chooser;
pub use choice::{ChannelChoice, NodeCounts};
use fencing::Fences;
pub use path::Problem;
use path::{Path, PathEvent};
use port::Port;
pub use port::PortConfig;

use crate::batching::BatchPolicy;
use crate::cache::Cache;
use crate::initiator::{Arrived, Piece};
use crate::operation::{Op, OpId, Operation, Progress};
use crate::outgoing::Outgoing;
use crate::rules::{Rules, Sound};
use crate::stages::Exchange;
use crate::stats::{ChannelStats, RejectCounts};
use crate::time::{Instant, earliest};

/// How often a farewell is said on each path, and how long each is waited for.
const FAREWELLS: u32 = 3;
const FAREWELL_INTERVAL: Duration = Duration::from_millis(50);
/// Channels that a session has at most.
const PATHS_MAX: usize = 64;
/// Silence of a channel with something to do after which it is asked for a sign of life, and all
/// others with it. Each is asked again after that time.
const DOUBT: Duration = Duration::from_millis(100);
/// Silence after which a channel is given up if another is heard. Lower: a target that is busy
/// elsewhere for a moment loses its channels. Higher: requests wait longer on a dead link.
const GIVE_UP: Duration = Duration::from_millis(400);
/// How long a frame may stay without an ack on a channel that is heard, if there is another: what
/// we send may be lost though what the target sends is not.
const STALL: Duration = Duration::from_millis(600);
/// What a request is cut into, at least, when there are channels with nothing to do.
const SHARE_MIN: u32 = 64 << 10;

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
    /// Channels for each pair of a local link and an address of the target, at least 1.
    pub channels: usize,
    /// Which channel a request takes.
    pub choice: ChannelChoice,
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
    /// A channel is live on a local link, by index, to that address of the target.
    Joined(usize, Mac),
    /// A channel was lost; the session lives on others, or has told that it is `Lost`.
    Parted(usize, Mac, Problem),
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

/// A channel that a session has or tries to have, for people.
#[derive(Clone, Copy, Debug)]
pub struct PathReport {
    /// Our index of the channel.
    pub channel: ChannelId,
    /// Index of the local link.
    pub port: usize,
    /// The target's address.
    pub peer: Mac,
    /// Whether it is live.
    pub live: bool,
    /// Longest frame in bytes that was found to get through; zero if that is not known.
    pub frame_len: usize,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Frames that may be in flight.
    pub congestion_window: u32,
    /// Requests in flight.
    pub requests: usize,
    /// Bytes per second that it was seen to move at its busiest lately; zero if it never was busy.
    pub rate: u64,
    /// What it was lost to, or its last attempt failed with.
    pub problem: Option<Problem>,
    /// Its counters.
    pub stats: ChannelStats,
}

/// See the module.
pub struct Session<R = Sound> {
    config: SessionConfig,
    random: Box<dyn FnMut() -> u64 + Send>,
    state: State,
    /// Local links by index; one that was removed leaves a gap that is used again.
    ports: Vec<Option<Port>>,
    /// By our index of the channel.
    paths: Vec<Path<R>>,
    chooser: Chooser,
    /// The target whose offers are taken before it is settled.
    candidate: Option<Uuid>,
    /// The upper half of all cookies.
    mark: u32,
    /// When the channels are looked at again, if one is in doubt.
    doubt_at: Option<Instant>,
    ops: Box<[Op]>,
    /// By operation, if wanted: how the last piece of it to end got through.
    exchanges: Option<Box<[Option<Exchange>]>>,
    free: VecDeque<u32>,
    /// Operations with pieces to be issued, served in turn.
    pending: VecDeque<u32>,
    /// Pieces of lost channels, to be issued again before anything new.
    reissued: VecDeque<Piece>,
    fences: Fences,
    cache: Cache,
    export: Option<ExportState>,
    events: VecDeque<SessionEvent>,
    rejects: RejectCounts,
    past: ChannelStats,
    nodes: NodeCounts,
    now: Instant,
}

impl<R: Rules> Session<R> {
    /// A session that begins to look for its target at once, on all `ports`. `random`: a source of
    /// secrets.
    ///
    /// # Panics
    /// If it shall have no channels.
    pub fn new(
        config: SessionConfig,
        ports: &[PortConfig],
        mut random: Box<dyn FnMut() -> u64 + Send>,
        now: Instant,
    ) -> Self {
        assert!(config.channels > 0, "a session without channels");
        let ops = config.operations_max;
        Self {
            mark: (random() >> 32) as u32,
            random,
            state: State::New,
            ports: ports.iter().map(|&port| Some(Port::new(port, now))).collect(),
            paths: Vec::new(),
            chooser: Chooser::new(config.choice),
            candidate: None,
            doubt_at: None,
            ops: vec![Op::IDLE; ops as usize].into(),
            exchanges: config.stages.then(|| vec![None; ops as usize].into()),
            free: (0..ops).collect(),
            pending: VecDeque::with_capacity(ops as usize),
            reissued: VecDeque::new(),
            fences: Fences::default(),
            cache: Cache::default(),
            export: None,
            events: VecDeque::new(),
            rejects: RejectCounts::default(),
            past: ChannelStats::default(),
            nodes: NodeCounts::default(),
            config,
            now,
        }
    }

    /// Begins to use another local link; returns its index.
    pub fn add_port(&mut self, now: Instant, config: PortConfig) -> usize {
        self.now = now;
        let gap = self.ports.iter().position(Option::is_none);
        let index = gap.unwrap_or_else(|| {
            self.ports.push(None);
            self.ports.len() - 1
        });
        self.ports[index] = Some(Port::new(config, now));
        index
    }

    /// Stops to use a local link. What its channels had in flight goes through others; without
    /// any it waits.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn remove_port(&mut self, now: Instant, port: usize) {
        self.lose_port(now, port, Problem::Removed);
        self.ports[port] = None;
    }

    /// Gives up the channels of a local link that is known not to carry frames any more, or not
    /// such long ones. If it is down and there is no other, it is better to wait: it may come back
    /// before the target has noticed.
    pub fn lose_port(&mut self, now: Instant, port: usize, problem: Problem) {
        self.now = now;
        let is_other = |path: &Path<R>| path.port != port && path.live().is_some();
        if problem == Problem::Down && !self.paths.iter().any(is_other) {
            return;
        }
        for path in 0..self.paths.len() {
            let it = &self.paths[path];
            // The probe of an attempt finds out by itself what the link takes.
            let suffers = it.live().is_some() || (it.is_busy() && problem != Problem::Narrowed);
            if it.port == port && suffers {
                self.lose(path, problem);
            }
        }
        self.issue();
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

    /// How far the attempts to reach the target got.
    pub fn problem(&self) -> Option<Problem> {
        let deaf = self.ports.iter().flatten().any(Port::is_deaf).then_some(Problem::NoOffer);
        self.paths.iter().map(Path::problem).max().unwrap_or_default().max(deaf)
    }

    /// Whether the target could not be heard on a local link lately.
    pub fn is_deaf(&self, port: usize) -> bool {
        self.ports[port].as_ref().is_some_and(Port::is_deaf)
    }

    /// The session's channels, and those that it tries to have.
    pub fn paths(&self) -> impl Iterator<Item = PathReport> {
        let known = self.paths.iter().filter(|path| self.ports[path.port].is_some());
        known.map(|path| {
            let live = path.live();
            PathReport {
                channel: path.id(),
                port: path.port,
                peer: path.peer,
                live: live.is_some(),
                frame_len: path.frame_len(),
                rtt: live.map_or(Duration::ZERO, |it| it.channel.rtt()),
                congestion_window: live.map_or(0, |it| it.channel.congestion_window()),
                requests: live.map_or(0, |it| it.outstanding()),
                rate: live.and_then(|it| it.load.rate()).unwrap_or_default(),
                problem: path.problem(),
                stats: live.map(|it| it.channel.stats).unwrap_or_default(),
            }
        })
    }

    /// How requests went with regard to NUMA nodes; nothing unless channels are chosen by node.
    pub fn node_counts(&self) -> NodeCounts {
        self.nodes
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

    /// Which operation a slot of our channel of that index carries, and where its piece begins
    /// there: how to find the data that an outgoing frame's entries name.
    pub fn locate(&self, channel: ChannelId, slot: u16) -> Option<(OpId, u32)> {
        let path = self.paths.get(usize::from(channel.0))?;
        let piece = path.live()?.piece(slot)?;
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
        self.submit_near(now, operation, None)
    }

    /// Begins an operation whose memory is on the NUMA node `node`.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub fn submit_near(
        &mut self,
        now: Instant,
        operation: Operation,
        node: Option<u16>,
    ) -> Result<OpId, SubmitError> {
        self.now = now;
        if !matches!(self.state, State::New | State::Live | State::Lost(_)) {
            return Err(SubmitError::Over);
        }
        let index = self.free.pop_front().ok_or(SubmitError::Full)?;
        let covers = self.cache.completed();
        self.ops[index as usize] = Op { operation, node, active: true, covers, ..Op::IDLE };
        self.pending.push_back(index);
        if let Some(exchanges) = &mut self.exchanges {
            exchanges[index as usize] = None;
        }
        self.issue();
        Ok(OpId(index))
    }

    /// Asks the target for frames, with a frame of `frame_len` bytes on any live channel; each that
    /// comes is a [`SessionEvent::Echoed`]. Neither is sent again when it is lost. False if no
    /// channel is live, the frames are longer than any carries, or too many wait to be sent.
    ///
    /// # Panics
    /// If the echo is none that a frame can carry.
    pub fn echo(&mut self, echo: Echo, frame_len: usize) -> bool {
        let mut live = self.paths.iter_mut().filter_map(Path::live_mut);
        live.any(|initiator| initiator.echo(echo, frame_len))
    }

    /// Hands pieces to channels while there are both.
    fn issue(&mut self) {
        while let Some(&piece) = self.reissued.front() {
            if !self.issue_piece(piece) {
                return;
            }
            self.reissued.pop_front();
        }
        while let Some(&index) = self.pending.front() {
            let op = &self.ops[index as usize];
            let Operation { opcode, flags, offset, len } = op.operation;
            let (base, rest) = (op.issued, len - op.issued);
            let len = if opcode.has_data() { rest.min(self.share(rest)) } else { rest };
            let offset = offset + u64::from(base);
            let piece = Piece { op: index, base, opcode, flags, offset, len };
            if !self.issue_piece(piece) {
                return;
            }
            let op = &mut self.ops[index as usize];
            op.issued += len.max(1);
            op.pieces += 1;
            self.pending.pop_front();
            if !op.is_issued() {
                self.pending.push_back(index);
            }
        }
    }

    /// How much of an operation with `rest` bytes left a piece takes: all that a request may move,
    /// or a part for each channel that has nothing else to do.
    fn share(&self, rest: u32) -> u32 {
        if rest <= SHARE_MIN || self.pending.len() > 1 {
            return REQUEST_LEN_MAX;
        }
        let live = self.paths.iter().filter_map(Path::live);
        let idle = live.filter(|initiator| initiator.outstanding() == 0).count() as u32;
        rest.div_ceil(idle.max(1)).next_multiple_of(SHARE_MIN).min(REQUEST_LEN_MAX)
    }

    /// Hands a piece to the channel of choice; false if it has to wait.
    fn issue_piece(&mut self, piece: Piece) -> bool {
        let node = self.ops[piece.op as usize].node;
        let chosen = self.chooser.choose(self.now, &self.paths, piece.data_len(), node);
        let Some(path) = chosen else { return false };
        if self.config.choice == ChannelChoice::Node && node.is_some() {
            self.nodes.count(self.paths[path].node() == node);
        }
        let initiator = self.paths[path].live_mut().expect("only live channels are chosen");
        assert!(initiator.submit(self.now, piece), "only channels with room are chosen");
        true
    }

    /// Takes a frame that came on a local link. What is wrong with it is counted.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        port: usize,
        head: &[u8; HEAD_LEN],
        payload: &[u8],
    ) {
        self.now = now;
        if let Err(reject) = self.try_handle_frame(port, head, payload) {
            self.rejects.add(reject);
        }
        self.issue();
    }

    fn try_handle_frame(
        &mut self,
        port: usize,
        head: &[u8; HEAD_LEN],
        payload: &[u8],
    ) -> Result<(), Reject> {
        let (src, header) = (Mac::source(head), Header::parse(head)?);
        if header.kind.on_channel() {
            return self.handle_channel_frame(port, &header, payload);
        }
        let Body::Control(pdu) = Body::parse(&header, payload)? else {
            return Err(Reject::Unexpected);
        };
        self.handle_control(port, src, &header, pdu.decode())
    }

    /// Takes a frame that belongs to no channel.
    fn handle_control(
        &mut self,
        port: usize,
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
        if let Control::Reset(reset) = &control {
            let named = |path: &Path<R>| path.is_reset_by(reset.cookie, reset.channel);
            let path = self.paths.iter().position(named).ok_or(Reject::Unexpected)?;
            self.lose(path, Problem::Reset);
            return Ok(());
        }
        if matches!(self.state, State::Closing { .. }) {
            // A channel that opens now would never be used.
            return Err(Reject::Unexpected);
        }
        match &control {
            Control::Fenced(fenced) => return self.fenced(fenced),
            Control::Offer(offer) => return self.handle_offer(port, src, offer),
            _ => {}
        }
        let asked = |path: &&mut Path<R>| path.port == port && path.has_asked(src, &control);
        let path = self.paths.iter_mut().find(asked).ok_or(Reject::Unexpected)?;
        let index = usize::from(path.id().0);
        match path.handle_control(self.now, header, control, &self.config, &mut self.random)? {
            Some(PathEvent::Accepted(accept)) => self.accepted(index, &accept),
            Some(PathEvent::Rejected(rejection)) => self.rejected(index, rejection),
            None => {}
        }
        Ok(())
    }

    fn handle_offer(&mut self, port: usize, src: Mac, offer: &Offer) -> Result<(), Reject> {
        let wanted = self.config.target.or(self.candidate);
        let ours = wanted.is_none_or(|target| target == offer.target);
        let offers_it = offer.exports.iter().any(|export| export.name == self.config.export);
        let port = self.ports[port].as_mut().ok_or(Reject::Unexpected)?;
        if !ours || !offers_it || !port.has_asked(src, offer.nonce) {
            return Err(Reject::Unexpected);
        }
        self.candidate = Some(offer.target);
        port.hear(self.now, src);
        Ok(())
    }

    /// Begins attempts for all pairs of links and addresses that lack channels and may try again.
    fn pair(&mut self) {
        let heard: Vec<_> = self
            .ports
            .iter()
            .map(|port| port.as_ref().map_or_else(ArrayVec::new, Port::heard))
            .collect();
        let is_heard = |path: &&Path<R>| heard[path.port].contains(&path.peer);
        let kept = self.paths.iter().filter(|path| path.is_busy() || is_heard(path));
        let mut pairs: Vec<_> = kept.map(|path| (path.port, path.peer)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs.extend(pairing::pair(&heard, &pairs));
        for &pair in &pairs {
            let is_member = |path: &&Path<R>| (path.port, path.peer) == pair;
            let members = self.paths.iter().filter(is_member).count();
            for _ in members..self.config.channels {
                self.add_path(pair, &pairs);
            }
        }
        for path in self.paths.iter_mut().filter(|path| path.idle_until().is_some()) {
            let port = self.ports[path.port].as_mut();
            let Some(port) = port.filter(|_| heard[path.port].contains(&path.peer)) else {
                continue;
            };
            match path.idle_until() {
                Some(until) if until > self.now => port.ask_at(until),
                _ => path.begin(self.now, (self.random)()),
            }
        }
    }

    /// Adds a path for a pair, in the place of one that serves none of `pairs` if there is any.
    fn add_path(&mut self, pair: (usize, Mac), pairs: &[(usize, Mac)]) {
        let is_spare = |path: &Path<R>| !path.is_busy() && !pairs.contains(&(path.port, path.peer));
        let Some(port) = &self.ports[pair.0] else { return };
        let spare = self.paths.iter().position(is_spare);
        let index = spare.unwrap_or(self.paths.len());
        if index == PATHS_MAX {
            return;
        }
        let path = Path::new(ChannelId(index as u16), self.mark, pair, port.config);
        match spare {
            Some(index) => self.paths[index] = path,
            None => self.paths.push(path),
        }
    }

    fn handle_channel_frame(
        &mut self,
        port: usize,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), Reject> {
        let path = usize::from(header.channel.0);
        let member = self.paths.get_mut(path).filter(|path| path.port == port);
        let initiator = member.and_then(Path::live_mut).ok_or(Reject::Channel)?;
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
        let joined = &self.paths[path];
        self.events.push_back(SessionEvent::Joined(joined.port, joined.peer));
        self.share_ports();
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
        let other = self.paths.iter().enumerate().any(|(it, other)| it != path && other.is_busy());
        let may_pass = match reason {
            Reason::UnknownExport | Reason::Held => self.state != State::New,
            Reason::NoResources => self.state != State::New || other,
            _ => false,
        };
        if may_pass {
            self.lose(path, Problem::NoAccept);
        } else {
            self.fail(Failure::Rejected(reason));
        }
    }

    /// A channel is gone, or could not be had: what it had in flight has to be sent again.
    fn lose(&mut self, path: usize, problem: Problem) {
        let link = &self.paths[path];
        let (port, peer) = (link.port, link.peer);
        let was_live = link.live().is_some();
        if let (Some(initiator), Some(identity)) = (link.live(), link.identity()) {
            self.past += initiator.channel.stats;
            let is_gone = problem == Problem::Reset;
            let fenced =
                |piece: &Piece| R::FENCE_BEFORE_REISSUE && !is_gone && piece.opcode.modifies();
            self.reissued.extend(initiator.pieces().filter(|piece| !fenced(piece)));
            let pieces: Vec<_> = initiator.pieces().filter(fenced).collect();
            if !pieces.is_empty() {
                self.fences.add(self.now, identity, pieces);
            }
        }
        let delay = match problem {
            Problem::Reset | Problem::Removed => Duration::ZERO,
            _ => self.config.reconnect_delay,
        };
        let is_other = |(it, other): (usize, &Path<R>)| it != path && other.live().is_some();
        let others = self.paths.iter().enumerate().any(is_other);
        self.paths[path].fail(self.now, problem, delay, others);
        if let (Some(port), Some(until)) = (&mut self.ports[port], self.paths[path].idle_until()) {
            port.ask_at(until);
        }
        if !was_live {
            return self.reconsider();
        }
        self.events.push_back(SessionEvent::Parted(port, peer, problem));
        self.share_ports();
        if others {
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

    /// No channel could be had of the target that offered one: another may do better.
    fn reconsider(&mut self) {
        if self.config.target.is_none() && !self.paths.iter().any(Path::is_busy) {
            self.candidate = None;
            self.ports.iter_mut().flatten().for_each(Port::forget);
        }
    }

    /// Channels on the same link share the room for frames that have come.
    fn share_ports(&mut self) {
        for port in 0..self.ports.len() {
            let live = |path: &&mut Path<R>| path.port == port && path.live().is_some();
            let count = self.paths.iter_mut().filter(live).count();
            for path in self.paths.iter_mut().filter(live) {
                let initiator = path.live_mut().expect("it was filtered by that");
                initiator.channel.share_receiver(count);
            }
        }
    }

    /// The target has closed a channel: what it had in flight may be sent again.
    fn fenced(&mut self, fenced: &Fenced) -> Result<(), Reject> {
        let ours = fenced.session == self.config.session;
        let pieces = if ours { self.fences.confirmed(fenced) } else { None };
        self.reissued.extend(pieces.ok_or(Reject::Unexpected)?);
        Ok(())
    }

    /// Composes a question whether a lost channel is closed, if one is due on that port.
    fn poll_fence(&mut self, now: Instant, port: usize, out: &mut Outgoing) -> bool {
        if self.fences.is_empty() {
            return false;
        }
        let live = || self.paths.iter().filter(|path| path.live().is_some());
        let Some(path) = live().find(|path| path.port == port) else { return false };
        let only = live().all(|path| path.port == port);
        let peer = path.peer;
        let session = self.config.session;
        let Some(fence) = self.fences.poll(now, session, port, only) else { return false };
        out.set_control(peer, Header::new(Kind::Fence), Some(Control::Fence(fence)));
        true
    }

    /// Looks for channels that have something to do and are silent, while others are heard. The
    /// target's other interfaces are asked too: if it is the target that is silent, on all of
    /// them, nothing is won by giving up one.
    fn doubt(&mut self, now: Instant) {
        self.doubt_at = None;
        if self.paths.iter().filter(|path| path.live().is_some()).count() < 2 {
            return;
        }
        let mut doubtful = false;
        for path in 0..self.paths.len() {
            let Some(initiator) = self.paths[path].live() else { continue };
            let silent = initiator.silent_for(now);
            // A long queue on the way makes answers late, not lost.
            let patience = initiator.channel.rtt() * 4;
            let others = || self.paths.iter().enumerate().filter(|&(it, _)| it != path);
            let mut heard = others().filter_map(|(_, other)| other.live());
            let problem = if silent >= GIVE_UP.max(patience)
                && initiator.channel.asked_for(now) >= DOUBT * 2
            {
                heard
                    .any(|other| other.channel.unheard_for(now) < DOUBT * 2)
                    .then_some(Problem::Silence)
            } else {
                initiator.channel.is_stalled(now, STALL.max(patience)).then_some(Problem::Stall)
            };
            doubtful |= silent >= DOUBT;
            if let Some(problem) = problem {
                self.lose(path, problem);
            }
        }
        if doubtful {
            for path in &mut self.paths {
                if let Some(initiator) = path.live_mut() {
                    initiator.channel.ask_for_life(now);
                }
            }
            self.doubt_at = Some(now + DOUBT / 2);
        }
    }

    /// When the channels have to be looked at, if nothing is heard of one until then.
    fn doubt_timeout(&self) -> Option<Instant> {
        let mut live = self.paths.iter().filter_map(Path::live);
        if self.doubt_at.is_some() {
            return self.doubt_at;
        }
        let silence = live.clone().filter_map(|it| it.silent_since()).min();
        (live.nth(1).is_some()).then_some(silence? + DOUBT)
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
            path.fail(self.now, Problem::Disconnected, Duration::MAX, false);
        }
        self.pending.clear();
        self.reissued.clear();
        self.fences.clear();
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
        self.doubt(now);
        let again = self.config.reconnect_delay;
        let (mut over, live) = (false, self.is_live());
        for port in self.ports.iter_mut().flatten() {
            over |= port.handle_timeout(now, again, live, &mut self.random);
        }
        if over {
            self.pair();
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
            State::Live => earliest(self.fences.poll_timeout(), self.doubt_timeout()),
            _ => None,
        };
        let ports = self.ports.iter().flatten().map(|port| Some(port.poll_timeout()));
        let paths = self.paths.iter().map(Path::poll_timeout);
        ports.chain(paths).fold(deadline, earliest)
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    /// Composes the next frame for a local link; false if there is none to send now.
    pub fn poll_transmit(&mut self, now: Instant, port: usize, out: &mut Outgoing) -> bool {
        if self.is_over() {
            return false;
        }
        if let State::Closing { round, .. } = self.state {
            let mut paths = self.paths.iter_mut().filter(|path| path.port == port);
            let farewell = paths.find_map(|path| Some((path.farewell(now, round)?, path.peer)));
            let Some((header, peer)) = farewell else { return false };
            out.set_control(peer, header, None);
            return true;
        }
        if self.poll_fence(now, port, out) {
            return true;
        }
        let Some(link) = &mut self.ports[port] else { return false };
        let who = (self.config.host, self.config.export);
        if link.poll_transmit(now, who, out) {
            return true;
        }
        let mut paths = self.paths.iter_mut().filter(|path| path.port == port);
        paths.any(|path| path.poll_transmit(now, out))
    }
}
