//! The queues of a session: each is a state machine of its own, driven as by its own thread.
//!
//! The number of an operation contains the number of its queue, so that it is unique in the
//! session. A queue's thread may pause for a while, as if the processor were busy elsewhere: frames
//! for it are lost meanwhile, and the others go on.

use std::sync::Arc;
use std::time::Duration;

use tyche_proto::{
    Association, ChannelStats, Exchange, ExportState, Former, Instant, OpId, Operation, Outgoing,
    PathReport, PortConfig, Problem, Rules, Session, SessionConfig, SessionEvent, SubmitError,
};
use tyche_wire::{ChannelId, HEAD_LEN, Header};

use crate::random::Random;

/// Bits of an operation's number below the number of its queue.
const OP_BITS: u32 = 16;
/// Longest pause of a thread.
const PAUSE_MAX_MS: u64 = 400;
/// Channels of a queue at most. Each queue has a range of as many channel indices.
const CHANNELS: usize = 64;

/// See the module.
pub(crate) struct Queues<R> {
    association: Arc<Association>,
    config: SessionConfig,
    /// The queues that have begun: the others wait until the first is connected.
    sessions: Vec<Session<R>>,
    /// The end of the pause of each thread.
    still_until: Vec<Instant>,
    /// Probability that a frame begins a pause of its thread.
    pauses: f64,
    /// The ports of each queue; one that was removed leaves a gap.
    ports: Vec<Option<PortConfig>>,
    now: Instant,
    random: Random,
}

/// The queue of an operation.
pub(crate) fn queue_of(OpId(op): OpId) -> usize {
    (op >> OP_BITS) as usize
}

fn named(queue: usize, OpId(op): OpId) -> OpId {
    OpId((queue as u32) << OP_BITS | op)
}

fn unnamed(op: OpId) -> OpId {
    OpId(op.0 & ((1 << OP_BITS) - 1))
}

impl<R: Rules> Queues<R> {
    /// A session with `queues` queues, over these ports.
    pub(crate) fn new(
        config: SessionConfig,
        (queues, pauses): (usize, f64),
        ports: &[PortConfig],
        random: Random,
        now: Instant,
    ) -> Self {
        let association = Session::<R>::association(&config, queues);
        let ports = ports.iter().copied().map(Some).collect();
        let (sessions, still_until) = (Vec::new(), vec![Instant(0); queues]);
        let mut this =
            Self { association, config, sessions, still_until, pauses, ports, now, random };
        this.begin();
        if this.config.resumes.is_some() {
            this.begin_others();
        }
        this
    }

    fn begin(&mut self) {
        let mut random = self.random.fork();
        let seat = self.association.seat(self.sessions.len());
        let known = self.ports.iter().flatten().next();
        let unused = || *known.expect("a session has a port");
        let ports: Vec<_> = self.ports.iter().map(|port| port.unwrap_or_else(unused)).collect();
        let random = Box::new(move || random.next());
        let mut session = Session::with_seat(self.config.clone(), seat, &ports, random, self.now);
        for gap in (0..ports.len()).filter(|&port| self.ports[port].is_none()) {
            session.remove_port(self.now, gap);
        }
        self.sessions.push(session);
    }

    fn begin_others(&mut self) {
        while self.sessions.len() < self.association.queues() {
            self.begin();
        }
    }

    /// The configuration of the session.
    pub(crate) fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Gives a frame to its queue, or to all if it belongs to no channel.
    pub(crate) fn handle_frame(
        &mut self,
        now: Instant,
        port: usize,
        head: &[u8; HEAD_LEN],
        payload: &[u8],
    ) {
        self.now = now;
        let channel = Header::parse(head).ok().filter(|header| header.kind.on_channel());
        let queue = channel.map(|header| usize::from(header.channel.0) / CHANNELS);
        for (number, session) in self.sessions.iter_mut().enumerate() {
            let is_its = queue.is_none_or(|queue| queue == number);
            if !is_its || now < self.still_until[number] {
                continue;
            }
            session.handle_frame(now, port, head, payload);
            if self.random.hits(self.pauses) {
                let pause = Duration::from_millis(self.random.between(1, PAUSE_MAX_MS));
                self.still_until[number] = now + pause;
            }
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        for (session, still_until) in self.sessions.iter_mut().zip(&self.still_until) {
            // Each thread has its own timer, or is woken because another queue has failed.
            if now >= *still_until {
                session.handle_timeout(now);
            }
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let is_ending = self.is_ending() && !self.is_over();
        let wake = |(session, still_until): (&Session<R>, &Instant)| {
            let due = if is_ending { Some(self.now) } else { session.poll_timeout() };
            due.filter(|_| !session.is_over()).map(|due| due.max(*still_until))
        };
        self.sessions.iter().zip(&self.still_until).filter_map(wake).min()
    }

    /// The next event, with its queue.
    pub(crate) fn poll_event(&mut self) -> Option<(usize, SessionEvent)> {
        let mut sessions = self.sessions.iter_mut().enumerate();
        let (queue, event) = sessions.find_map(|(queue, it)| Some((queue, it.poll_event()?)))?;
        let event = match event {
            SessionEvent::Data { op, offset, len, source } => {
                SessionEvent::Data { op: named(queue, op), offset, len, source }
            }
            SessionEvent::Completed { op, status } => {
                SessionEvent::Completed { op: named(queue, op), status }
            }
            other => other,
        };
        if event == SessionEvent::Connected {
            self.begin_others();
        }
        Some((queue, event))
    }

    /// Composes the next frame of any queue for a port.
    pub(crate) fn poll_transmit(&mut self, now: Instant, port: usize, out: &mut Outgoing) -> bool {
        let awake = self.still_until.iter().map(|until| now >= *until).collect::<Vec<_>>();
        let sessions = self.sessions.iter_mut().enumerate();
        let mut sessions = sessions.filter(|(queue, _)| awake[*queue]);
        let sent =
            sessions.find_map(|(queue, it)| it.poll_transmit(now, port, out).then_some(queue));
        let Some(queue) = sent else { return false };
        for part in &mut out.parts {
            part.request = named(queue, OpId(part.request)).0;
        }
        true
    }

    /// See [`Session::locate`].
    pub(crate) fn locate(&self, channel: ChannelId, slot: u16) -> Option<(OpId, u32)> {
        let queue = usize::from(channel.0) / CHANNELS;
        let (op, base) = self.sessions.get(queue)?.locate(channel, slot)?;
        Some((named(queue, op), base))
    }

    /// Begins an operation on one of the queues.
    pub(crate) fn submit(
        &mut self,
        now: Instant,
        operation: Operation,
    ) -> Result<OpId, SubmitError> {
        self.now = now;
        let queue = match self.sessions.len() {
            1 => 0,
            queues => self.random.below(queues as u64) as usize,
        };
        self.sessions[queue].submit(now, operation).map(|op| named(queue, op))
    }

    pub(crate) fn exchange(&self, op: OpId) -> Option<Exchange> {
        self.sessions[queue_of(op)].exchange(unnamed(op))
    }

    /// Whether a queue has failed or ended: no operation can begin any more.
    pub(crate) fn is_ending(&self) -> bool {
        self.sessions.iter().any(Session::is_over)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.sessions.iter().all(Session::is_over)
    }

    /// Whether the queue of an operation is over.
    pub(crate) fn is_over_for(&self, op: OpId) -> bool {
        self.sessions[queue_of(op)].is_over()
    }

    /// Whether each queue has a channel.
    pub(crate) fn is_live(&self) -> bool {
        self.sessions.iter().all(Session::is_live)
    }

    /// When a queue has lost the target, if one has.
    pub(crate) fn lost_since(&self) -> Option<Instant> {
        self.sessions.iter().filter_map(Session::lost_since).min()
    }

    /// The export as the first queue knows it.
    pub(crate) fn export(&self) -> Option<ExportState> {
        self.export_of(0)
    }

    pub(crate) fn export_of(&self, queue: usize) -> Option<ExportState> {
        self.sessions[queue].export()
    }

    pub(crate) fn former(&self) -> Option<Former> {
        self.sessions[0].former()
    }

    pub(crate) fn operations(&self) -> usize {
        self.sessions.iter().map(Session::operations).sum()
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = PathReport> {
        self.sessions.iter().flat_map(Session::paths)
    }

    pub(crate) fn stats(&self) -> ChannelStats {
        let mut stats = ChannelStats::default();
        self.sessions.iter().for_each(|session| stats += session.stats());
        stats
    }

    /// Number of dropped frames.
    pub(crate) fn rejects(&self) -> u64 {
        self.sessions.iter().map(|session| session.rejects().total()).sum()
    }

    pub(crate) fn remove_port(&mut self, now: Instant, port: usize) {
        self.now = now;
        self.ports[port] = None;
        self.sessions.iter_mut().for_each(|session| session.remove_port(now, port));
    }

    pub(crate) fn lose_port(&mut self, now: Instant, port: usize, problem: Problem) {
        self.now = now;
        self.sessions.iter_mut().for_each(|session| session.lose_port(now, port, problem));
    }

    pub(crate) fn add_port(&mut self, now: Instant, config: PortConfig) -> usize {
        self.now = now;
        let mut added: Vec<_> =
            self.sessions.iter_mut().map(|session| session.add_port(now, config)).collect();
        added.dedup();
        assert_eq!(added.len(), 1, "the queues have the same ports");
        let port = added[0];
        self.ports.resize(self.ports.len().max(port + 1), None);
        self.ports[port] = Some(config);
        port
    }

    pub(crate) fn disconnect(&mut self, now: Instant) {
        self.now = now;
        self.sessions.iter_mut().for_each(|session| session.disconnect(now));
    }
}
