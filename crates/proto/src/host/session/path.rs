//! A path of a session, from a local link to an address of the target, and the state of its
//! channel: probed, connected, lost, and probed again.
//!
//! ```text
//! Idle -> Probing -> Connecting -> Live
//!   ^        |           |          |
//!   +--------+-----------+----------+   no answer, or lost
//! ```

use std::time::Duration;

use tyche_wire::{
    Accept, ChannelId, CipherSuite, Connect, ConnectFlags, Content, Control, Cookie, Flags, Header,
    Hello, Kind, Mac, Reason, Reject, Rejection, Reset, ResetToken, SealedAnswer, Ticket, Uuid,
};

use super::config::{ConnectParams, SessionConfig, fits};
use super::port::PortConfig;
use super::probes::{Lengths, PROBE_ROUNDS, Widening, lengths, probe};
use super::problem::Problem;
use super::repeat::Repeat;
use super::sealed_handshake::{ConnectAnswer, SealedHandshake, Sealing};
use super::target_search::ResolvedExport;
use crate::channel::{ChannelConfig, Dead, outgoing::Outgoing, protection::Guard};
use crate::host::initiator::Initiator;
use crate::rules::{Rule, Rules};
use crate::time::Instant;

/// A channel that was live for less has flapped: the pause before the next attempt doubles.
const FLAP: Duration = Duration::from_secs(5);
/// Each flap in a row doubles the pause before the next attempt, up to 2⁶-fold.
const FLAPS_MAX: u32 = 6;

enum State<R> {
    Idle {
        /// Earliest time of the next attempt.
        until: Instant,
    },
    Probing {
        nonce: u64,
        /// Frame lengths to be probed, ascending.
        sizes: Lengths,
        /// Index of the length to be sent next in this round.
        next: usize,
        best: usize,
        /// From the last answer.
        ticket: Ticket,
        repeat: Repeat,
    },
    Connecting {
        nonce: u64,
        connect: Box<Connect>,
        /// The connect as it is sent, by a session with keys.
        sealed: Option<Box<SealedHandshake>>,
        /// Why it has failed, if no answer comes.
        problem: Problem,
        repeat: Repeat,
    },
    Live {
        accept: Box<Accept>,
        initiator: Box<Initiator<R>>,
        /// Opens the target's frames, if they are sealed.
        guard: Option<Box<Guard>>,
        /// Proves that a Reset is the target's, if frames are sealed.
        token: ResetToken,
        since: Instant,
        /// Probes for longer frames.
        widening: Option<Widening>,
    },
    /// Replaced for good by another path, until a third takes its place.
    Retired,
}

/// The effect of a frame on a path. A key: see `SessionEvent::NextKey`.
pub(super) enum PathEvent {
    Accepted(Box<Accept>, Option<super::NextKey>),
    Rejected(Rejection),
    /// It carries longer frames than its channel has.
    Wider,
}

/// A channel that was live and is lost.
pub(super) struct LostChannel<R> {
    /// The target's cookie and index.
    pub(super) identity: (Cookie, ChannelId),
    pub(super) initiator: Box<Initiator<R>>,
}

/// The state machine of one path and of the channel on it. It probes the frame length, connects,
/// and owns the [`Initiator`] while the channel is live; [`Paths`](super::paths::Paths) drives it.
pub(super) struct Path<R> {
    /// Our index of the path's channels.
    id: ChannelId,
    /// The lower half of its cookies, which is first in a frame: links filter a queue's frames by
    /// it.
    mark: u32,
    /// Index and configuration of its local link.
    pub(super) port: usize,
    config: PortConfig,
    /// The target's address.
    pub(super) peer: Mac,
    state: State<R>,
    problem: Option<Problem>,
    frame_len: usize,
    damq_pages: u32,
    /// Target and export of the attempt.
    resolved: Option<ResolvedExport>,
    /// Flaps in a row: see [`FLAP`].
    flaps: u32,
    /// Whether no probe of the last attempt was answered.
    unanswered: bool,
    pub(super) was_live: bool,
    /// Farewells sent.
    farewells: u32,
    /// Index of the path that it replaces once it is live.
    pub(super) replaces: Option<usize>,
}

impl<R: Rules> Path<R> {
    pub(super) fn new(
        id: ChannelId,
        mark: u32,
        (port, peer): (usize, Mac),
        config: PortConfig,
    ) -> Self {
        Self {
            id,
            mark,
            port,
            config,
            peer,
            state: State::Idle { until: Instant(0) },
            problem: None,
            frame_len: 0,
            damq_pages: 0,
            resolved: None,
            flaps: 0,
            unanswered: false,
            was_live: false,
            farewells: 0,
            replaces: None,
        }
    }

    /// Our index of the path's channel.
    pub(super) fn id(&self) -> ChannelId {
        self.id
    }

    /// The NUMA node of its NIC.
    pub(super) fn node(&self) -> Option<u16> {
        self.config.node
    }

    /// The transport of its local link.
    pub(super) fn transport(&self) -> u8 {
        self.config.transport
    }

    pub(super) fn live(&self) -> Option<&Initiator<R>> {
        if let State::Live { initiator, .. } = &self.state { Some(initiator) } else { None }
    }

    pub(super) fn live_mut(&mut self) -> Option<&mut Initiator<R>> {
        self.guarded_mut().map(|(initiator, _)| initiator)
    }

    /// The live channel, and what opens its frames if they are sealed.
    pub(super) fn guarded_mut(&mut self) -> Option<(&mut Initiator<R>, Option<&mut Guard>)> {
        match &mut self.state {
            State::Live { initiator, guard, .. } => Some((initiator, guard.as_deref_mut())),
            _ => None,
        }
    }

    /// The cipher of a live channel whose frames are sealed.
    pub(super) fn cipher(&self) -> Option<CipherSuite> {
        match &self.state {
            State::Live { guard, .. } => guard.as_ref().map(|guard| guard.suite),
            _ => None,
        }
    }

    /// Whether it is live, or an attempt is in progress.
    pub(super) fn is_busy(&self) -> bool {
        !matches!(self.state, State::Idle { .. } | State::Retired)
    }

    /// Whether another has taken its place.
    pub(super) fn is_retired(&self) -> bool {
        matches!(self.state, State::Retired)
    }

    /// Retires an idle path.
    pub(super) fn retire(&mut self) {
        assert!(self.idle_until().is_some(), "a path in use is not replaced");
        (self.state, self.problem, self.replaces) = (State::Retired, None, None);
    }

    /// Pages that its channel asked for.
    pub(super) fn damq_pages(&self) -> u32 {
        self.damq_pages
    }

    /// Probes a live path for frames that are longer than its channel's, up to `longest`.
    pub(super) fn widen(&mut self, longest: usize, nonce: impl FnOnce() -> u64) {
        let State::Live { accept, widening, .. } = &mut self.state else { return };
        *widening = Widening::new(nonce(), accept.frame_len as usize, longest);
    }

    /// When an idle path may try again.
    pub(super) fn idle_until(&self) -> Option<Instant> {
        match self.state {
            State::Idle { until } => Some(until),
            _ => None,
        }
    }

    /// Why the channel was lost, or the last attempt failed.
    pub(super) fn problem(&self) -> Option<Problem> {
        self.problem
    }

    /// Longest frame in bytes that the path carries in both directions; zero before the first
    /// probe.
    pub(super) fn frame_len(&self) -> usize {
        self.frame_len
    }

    /// Gives up the channel or attempt; returns the channel. The next attempt may begin after
    /// `delay`; later if the channel has flapped and `others` are live.
    pub(super) fn fail(
        &mut self,
        now: Instant,
        problem: Problem,
        delay: Duration,
        others: bool,
    ) -> Option<LostChannel<R>> {
        if let State::Live { since, .. } = self.state {
            let flapped = now.since(since) < FLAP;
            self.flaps = if flapped { (self.flaps + 1).min(FLAPS_MAX) } else { 0 };
        }
        let damping = if others { 1 << self.flaps } else { 1 };
        self.problem = Some(problem);
        let idle = State::Idle { until: now + delay.saturating_mul(damping) };
        match std::mem::replace(&mut self.state, idle) {
            State::Live { accept, initiator, .. } => {
                let identity = (accept.cookie, accept.channel);
                Some(LostChannel { identity, initiator })
            }
            _ => None,
        }
    }

    /// Begins an attempt, when the target was heard. The link's configuration may have changed
    /// since the last one. `damq_pages`: pages to request for the `damq`.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        nonce: u64,
        (link, resolved): (PortConfig, ResolvedExport),
        damq_pages: u32,
    ) {
        (self.config, self.resolved, self.damq_pages) = (link, Some(resolved), damq_pages);
        let (ticket, sizes) = (Ticket::NONE, lengths(self.config.frame_len_max));
        let (next, repeat) = (sizes.len(), Repeat::new(now, nonce));
        self.state = State::Probing { nonce, sizes, next, best: 0, ticket, repeat };
    }

    /// The target's answer that has opened a live channel.
    pub(super) fn accept(&self) -> Option<&Accept> {
        if let State::Live { accept, .. } = &self.state { Some(accept) } else { None }
    }

    /// The target's cookie and index of a live channel.
    pub(super) fn identity(&self) -> Option<(Cookie, ChannelId)> {
        self.accept().map(|accept| (accept.cookie, accept.channel))
    }

    /// The generation of the export that a live channel belongs to.
    pub(super) fn generation(&self) -> Option<Uuid> {
        self.accept().map(|accept| accept.generation)
    }

    /// Whether a Reset from `src` comes from this path's target, and names its channel.
    pub(super) fn is_reset_by(&self, src: Mac, reset: &Reset) -> bool {
        let State::Live { guard, token, .. } = &self.state else { return false };
        let target = self.resolved.map(|resolved| resolved.target);
        self.identity() == Some((reset.cookie, reset.channel))
            && (src, Some(reset.target)) == (self.peer, target)
            && (guard.is_none() || *token == reset.token)
    }

    /// Whether a frame from `src` outside of channels answers a Hello or Connect of this path.
    pub(super) fn has_asked(&self, src: Mac, control: &Control) -> bool {
        let (asked, attempt) = match &self.state {
            State::Probing { nonce, .. } => (*nonce, None),
            // Answers to shorter probes may still arrive after that to the longest one.
            State::Connecting { nonce, connect, .. } => (*nonce, Some(connect.attempt)),
            State::Live { widening: Some(widening), .. } => (widening.nonce, None),
            State::Idle { .. } | State::Live { .. } | State::Retired => return false,
        };
        let (answers, from) = match control {
            Control::Hello(hello) => (hello.nonce == asked, hello.target),
            Control::Accept(accept) => (attempt == Some(accept.attempt), accept.target),
            Control::Reject(rejection) => (attempt == Some(rejection.attempt), rejection.target),
            Control::SealedAnswer(answer) => (attempt == Some(answer.attempt), answer.target),
            _ => return false,
        };
        answers && src == self.peer && Some(from) == self.resolved.map(|resolved| resolved.target)
    }

    /// Takes an answer to a Hello or Connect of this path: see [`has_asked`](Self::has_asked).
    pub(super) fn handle_control(
        &mut self,
        now: Instant,
        header: &Header,
        control: Control,
        session: ConnectParams<'_>,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<Option<PathEvent>, Reject> {
        let clear = session.session.keys.is_none() || !R::keeps(Rule::RefuseClear);
        match control {
            Control::Hello(hello) => self.handle_hello(now, header, &hello, session, random),
            Control::Accept(accept) if clear => {
                self.handle_accept(now, &accept, None, session.session).map(Some)
            }
            Control::Reject(rejection) if clear => Ok(Some(PathEvent::Rejected(rejection))),
            Control::Reject(it) if it.reason != Reason::NoKey => Err(Reject::Unexpected),
            Control::Accept(_) | Control::Reject(_) => {
                // Anybody may answer in the clear: it only goes into the report.
                if let State::Connecting { problem, .. } = &mut self.state {
                    let is_reject = matches!(control, Control::Reject(_));
                    *problem = if is_reject { Problem::NoKey } else { Problem::Unsealed };
                }
                Err(Reject::Unexpected)
            }
            Control::SealedAnswer(answer) => {
                self.handle_sealed(now, &answer, session.session).map(Some)
            }
            _ => Err(Reject::Unexpected),
        }
    }

    /// Takes the answer to a sealed connect.
    fn handle_sealed(
        &mut self,
        now: Instant,
        answer: &SealedAnswer,
        session: &SessionConfig,
    ) -> Result<PathEvent, Reject> {
        let answer = match &mut self.state {
            State::Connecting { sealed: Some(handshake), .. } => handshake.open(answer)?,
            _ => return Err(Reject::Unexpected),
        };
        match answer {
            ConnectAnswer::Rejected(it) => Ok(PathEvent::Rejected(it)),
            ConnectAnswer::Accepted(it, sealing) => {
                self.handle_accept(now, &it, Some(*sealing), session)
            }
        }
    }

    fn handle_hello(
        &mut self,
        now: Instant,
        header: &Header,
        hello: &Hello,
        session: ConnectParams<'_>,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<Option<PathEvent>, Reject> {
        let len = hello.frame_len as usize;
        if !header.flags.contains(Flags::REPLY) {
            return Err(Reject::Unexpected);
        }
        let (sizes, best, ticket) = match &mut self.state {
            State::Probing { sizes, best, ticket, .. } => (sizes, best, ticket),
            State::Live { accept, .. } if len > accept.frame_len as usize => {
                return Ok(Some(PathEvent::Wider));
            }
            _ => return Ok(None),
        };
        if !sizes.contains(&len) {
            return Err(Reject::Unexpected);
        }
        (*best, *ticket) = ((*best).max(len), hello.ticket);
        if *best == self.config.frame_len_max {
            self.connect(now, session, random);
        }
        Ok(None)
    }

    /// Settles the frame length, and begins to connect. Only a path that was probed does.
    fn connect(
        &mut self,
        now: Instant,
        params: ConnectParams<'_>,
        random: &mut dyn FnMut() -> u64,
    ) {
        let (State::Probing { nonce, best, ticket, .. }, Some(resolved)) =
            (&self.state, self.resolved)
        else {
            return;
        };
        let (nonce, best, ticket) = (*nonce, *best, *ticket);
        self.unanswered = false;
        let ConnectParams { session, resume } = params;
        self.frame_len = best;
        let mut flags = ConnectFlags::NONE;
        flags.set(ConnectFlags::READ_ONLY, session.read_only || resolved.read_only);
        flags.set(ConnectFlags::CHECKSUM, session.checksum && !self.config.checks_data);
        flags.set(ConnectFlags::RESUME, resume);
        flags.set(ConnectFlags::STAGES, session.stages);
        flags.set(ConnectFlags::BLOCK_STATUS, true);
        let connect = Connect {
            attempt: random(),
            ticket,
            target: resolved.target,
            host: session.host,
            session: session.session,
            device: session.device,
            export: resolved.export,
            host_name: session.host_name,
            // Links filter frames by the mark: see Cookie::first_bytes.
            cookie: Cookie((random() >> 32).max(1) << 32 | u64::from(self.mark)),
            channel: self.id,
            queue_size: session.queue_size,
            rings: self.config.rings,
            frame_len: best as u32,
            damq_pages: self.damq_pages,
            flags,
            keep_alive_ms: session.keep_alive.as_millis() as u32,
        };
        let sealed = SealedHandshake::of(session, &connect, random);
        let (repeat, problem) = (Repeat::new(now, connect.attempt), Problem::NoAccept);
        self.state = State::Connecting { nonce, connect: connect.into(), sealed, problem, repeat };
    }

    fn handle_accept(
        &mut self,
        now: Instant,
        accept: &Accept,
        sealing: Option<Sealing>,
        session: &SessionConfig,
    ) -> Result<PathEvent, Reject> {
        let State::Connecting { connect, repeat, .. } = &self.state else {
            return Err(Reject::Unexpected);
        };
        if !fits(accept, connect) {
            return Err(Reject::Unexpected);
        }
        let config = ChannelConfig {
            own: (connect.channel, connect.cookie),
            peer: (accept.channel, accept.cookie),
            peer_mac: self.peer,
            frame_len: accept.frame_len as usize,
            rx_rings: connect.rings,
            tx_rings: accept.rings,
            keep_alive_ns: u64::from(accept.keep_alive_ms) * 1_000_000,
            checksum: accept.checksum,
            stages: accept.stages,
            block_status: accept.block_status,
            batch: session.batch,
        };
        let mut initiator = Initiator::new(config, accept.queue_size, accept.damq_pages, now);
        initiator.channel.assume_rtt(now.since(repeat.begun()));
        // The target takes memory for the channel with its first frame, so one is sent at once.
        initiator.channel.ask_for_life(now);
        (self.frame_len, self.problem, self.was_live) = (config.frame_len, None, true);
        let (mut guard, mut token, mut next_key) = (None, ResetToken::default(), None);
        if let Some(sealing) = sealing {
            initiator.channel.seal_with(sealing.sealer);
            (guard, token) = (Some(Box::new(sealing.guard)), sealing.token);
            next_key = sealing.next_key;
        }
        let accept = Box::new(accept.clone());
        self.state = State::Live {
            accept: accept.clone(),
            initiator: Box::new(initiator),
            guard,
            token,
            since: now,
            widening: None,
        };
        Ok(PathEvent::Accepted(accept, next_key))
    }

    /// Composes the next frame; false if there is none to send now.
    pub(super) fn poll_transmit(&mut self, now: Instant, out: &mut Outgoing) -> bool {
        match &mut self.state {
            State::Live { initiator, widening, .. } => {
                initiator.poll_transmit(now, out)
                    || widening.is_some() && self.poll_handshake(now, out)
            }
            _ => self.poll_handshake(now, out),
        }
    }

    /// Composes the next frame that finds out lengths, or connects. Not inlined: a path of requests
    /// seldom has one.
    #[cold]
    fn poll_handshake(&mut self, now: Instant, out: &mut Outgoing) -> bool {
        let control = match &mut self.state {
            State::Idle { .. } | State::Retired => return false,
            State::Probing { nonce, sizes, next, best, repeat, .. } => {
                if *next == sizes.len() {
                    if !repeat.due(now) {
                        return false;
                    }
                    // A round probes all lengths above the longest that is known to work.
                    *next = sizes.iter().take_while(|len| *len <= best).count();
                }
                let len = sizes[*next];
                *next += 1;
                probe(self.resolved, *nonce, len)
            }
            State::Connecting { connect, sealed, repeat, .. } => {
                if !repeat.due(now) {
                    return false;
                }
                match sealed {
                    Some(handshake) => {
                        out.set_control(self.peer, Control::SealedConnect(handshake.frame()));
                        out.header.cookie = handshake.cookie();
                        return true;
                    }
                    None => Control::Connect((**connect).clone()),
                }
            }
            State::Live { widening, .. } => {
                match widening.as_mut().and_then(|it| it.next(self.resolved)) {
                    Some(probe) => probe,
                    None => return false,
                }
            }
        };
        out.set_control(self.peer, control);
        true
    }

    /// Runs the timers that have expired. Returns why the channel is dead or the attempt has
    /// failed, if so.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        session: ConnectParams<'_>,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<Problem> {
        match &mut self.state {
            State::Idle { .. } | State::Retired => None,
            State::Probing { best, repeat, next, sizes, .. } => {
                let settled = *best > 0
                    && repeat.sends() >= PROBE_ROUNDS
                    && now >= repeat.next()
                    && *next == sizes.len();
                if settled {
                    self.connect(now, session, random);
                    return None;
                }
                // It may have stopped just after its Offer. Another attempt follows another Offer.
                let is_doubtful = self.was_live && !self.unanswered;
                let problem = if is_doubtful { Problem::Silence } else { Problem::NoHello };
                self.unanswered |= repeat.is_exhausted(now);
                repeat.is_exhausted(now).then_some(problem)
            }
            State::Connecting { repeat, problem, .. } => {
                repeat.is_exhausted(now).then_some(*problem)
            }
            State::Live { initiator, .. } => {
                initiator.channel.handle_timeout(now).err().map(|dead| match dead {
                    Dead::Silence => Problem::Silence,
                    Dead::Stall => Problem::Stall,
                })
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) or
    /// [`poll_transmit`](Self::poll_transmit) has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Idle { .. } | State::Retired => None,
            State::Probing { repeat, .. } | State::Connecting { repeat, .. } => Some(repeat.next()),
            State::Live { initiator, .. } => Some(initiator.channel.poll_timeout()),
        }
    }

    /// Composes a farewell, if the channel is live and none was sent in this `round`, counted from
    /// 1.
    pub(super) fn poll_farewell(&mut self, now: Instant, round: u32, out: &mut Outgoing) -> bool {
        let State::Live { initiator, .. } = &mut self.state else { return false };
        if self.farewells >= round {
            return false;
        }
        self.farewells = round;
        let header = initiator.channel.unsequenced(now, Kind::Disconnect, Flags::NONE);
        initiator.channel.address(out, header, Content::Empty);
        true
    }
}
