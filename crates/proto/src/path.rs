//! One of a session's links to its target: found, probed, connected, lost, and again.
//!
//! ```text
//! Waiting -> Discovering -> Probing -> Connecting -> Live
//!    ^            |            |           |           |
//!    +------------+------------+-----------+-----------+   no answer, or lost
//! ```

use std::time::Duration;

use arrayvec::ArrayVec;
use tyche_wire::{
    Accept, AcceptFlags, ChannelId, Connect, ConnectFlags, Control, Cookie, Discover,
    FRAME_LEN_MIN, Flags, Header, Hello, Kind, Mac, Offer, Reject, Rejection, Uuid,
};

use crate::channel::{ChannelConfig, Dead};
use crate::initiator::Initiator;
use crate::outgoing::Outgoing;
use crate::rules::Rules;
use crate::session::SessionConfig;
use crate::time::Instant;

/// Time until the first repetition of an unanswered frame; doubles each time.
const REPEAT_FIRST: Duration = Duration::from_millis(20);
/// How often an unanswered frame is sent before the attempt is given up: 1.3 s in all.
const SENDS_MAX: u32 = 6;
/// Rounds in which larger frames are probed once a smaller one got through. With 1 % loss each
/// way, a size that works stays unseen in one of 10⁵ cases.
const PROBE_ROUNDS: u32 = 3;
/// Frame lengths worth trying below the link's own: 9000 bytes of payload, one page, standard.
const PROBE_LENS: [usize; 4] = [9014, 4210, 1514, FRAME_LEN_MIN];

/// A local link that may reach the target.
#[derive(Clone, Copy, Debug)]
pub struct PathConfig {
    /// Longest frame of the link in bytes.
    pub frame_len_max: usize,
    /// Positions of the receive rings.
    pub rings: [u16; 2],
    /// The target's address if it is known; otherwise it is asked for by broadcast.
    pub target: Option<Mac>,
}

/// How far the last attempt to reach the target got, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Nobody offered the export.
    NoOffer,
    /// The target offered it, but no probe came back, not even the smallest.
    NoHello,
    /// The target did not answer the connect: it may still be closing a former channel.
    NoAccept,
    /// Nothing was heard for the keep-alive time.
    Silence,
    /// The target is heard, but a frame does not get through to it.
    Stall,
    /// The target said that the channel does not exist: it was restarted.
    Reset,
    /// The target ended the channel.
    Disconnected,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoOffer => "no target offers the export",
            Self::NoHello => "the target is there, but no frame of 1294 bytes gets through",
            Self::NoAccept => "the target does not answer the connect",
            Self::Silence => "nothing is heard of the target",
            Self::Stall => "the target is heard, but long frames do not get through any more",
            Self::Reset => "the target was restarted",
            Self::Disconnected => "the target ended the connection",
        })
    }
}

/// An unanswered frame: when to send it again.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    next: Instant,
    sends: u32,
}

impl Repeat {
    fn new(now: Instant) -> Self {
        Self { next: now, sends: 0 }
    }

    /// Whether it is time; if so, notes that it was sent.
    fn due(&mut self, now: Instant) -> bool {
        if now < self.next || self.sends >= SENDS_MAX {
            return false;
        }
        self.next = now + REPEAT_FIRST * (1 << self.sends);
        self.sends += 1;
        true
    }

    fn is_exhausted(&self, now: Instant) -> bool {
        self.sends >= SENDS_MAX && now >= self.next
    }
}

/// What is known of the target, from its offer.
#[derive(Clone, Copy, Debug)]
struct Offered {
    mac: Mac,
    nonce: u64,
}

enum State<R> {
    Waiting {
        until: Instant,
    },
    Discovering {
        nonce: u64,
        repeat: Repeat,
    },
    Probing {
        offered: Offered,
        sizes: ArrayVec<usize, 5>,
        next: usize,
        best: usize,
        repeat: Repeat,
    },
    Connecting {
        offered: Offered,
        connect: Box<Connect>,
        repeat: Repeat,
    },
    Live {
        accept: Box<Accept>,
        initiator: Box<Initiator<R>>,
    },
}

/// What a frame brought about.
pub(crate) enum PathEvent {
    Accepted(Box<Accept>),
    Rejected(Rejection),
}

/// See the module.
pub(crate) struct Path<R> {
    config: PathConfig,
    state: State<R>,
    problem: Option<Problem>,
    frame_len: usize,
    /// How often farewell was said.
    farewells: u32,
}

impl<R: Rules> Path<R> {
    pub(crate) fn new(config: PathConfig, now: Instant) -> Self {
        Self {
            config,
            state: State::Waiting { until: now },
            problem: None,
            frame_len: 0,
            farewells: 0,
        }
    }

    pub(crate) fn live(&self) -> Option<&Initiator<R>> {
        match &self.state {
            State::Live { initiator, .. } => Some(initiator),
            _ => None,
        }
    }

    pub(crate) fn live_mut(&mut self) -> Option<&mut Initiator<R>> {
        match &mut self.state {
            State::Live { initiator, .. } => Some(initiator),
            _ => None,
        }
    }

    /// What the last attempt failed with.
    pub(crate) fn problem(&self) -> Option<Problem> {
        self.problem
    }

    /// Longest frame that the path carries both ways, once probed.
    pub(crate) fn frame_len(&self) -> usize {
        self.frame_len
    }

    /// Gives up what there is, and tries again after `delay`.
    pub(crate) fn fail(&mut self, now: Instant, problem: Problem, delay: Duration) {
        self.problem = Some(problem);
        self.state = State::Waiting { until: now + delay };
    }

    /// What the target knows a live channel by.
    pub(crate) fn identity(&self) -> Option<(Cookie, ChannelId)> {
        match &self.state {
            State::Live { accept, .. } => Some((accept.cookie, accept.channel)),
            _ => None,
        }
    }

    /// The target's run that a live channel belongs to.
    pub(crate) fn boot(&self) -> Option<Uuid> {
        match &self.state {
            State::Live { accept, .. } => Some(accept.boot),
            _ => None,
        }
    }

    /// Whether a reset speaks of this path's channel.
    pub(crate) fn is_reset_by(&self, cookie: Cookie, channel: ChannelId) -> bool {
        self.identity() == Some((cookie, channel))
    }

    /// Takes a frame that belongs to no channel.
    pub(crate) fn handle_control(
        &mut self,
        now: Instant,
        src: Mac,
        header: &Header,
        control: Control,
        session: &SessionConfig,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<Option<PathEvent>, Reject> {
        match control {
            Control::Offer(offer) => self.handle_offer(now, src, &offer, session, random),
            Control::Hello(hello) => {
                self.handle_hello(now, src, header, &hello, session, random)?;
                Ok(None)
            }
            Control::Accept(accept) => self.handle_accept(now, src, &accept, session),
            Control::Reject(rejection) => match &self.state {
                State::Connecting { connect, offered, .. }
                    if connect.attempt == rejection.attempt && offered.mac == src =>
                {
                    Ok(Some(PathEvent::Rejected(rejection)))
                }
                _ => Err(Reject::Unexpected),
            },
            _ => Err(Reject::Unexpected),
        }
    }

    fn handle_offer(
        &mut self,
        now: Instant,
        src: Mac,
        offer: &Offer,
        session: &SessionConfig,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<Option<PathEvent>, Reject> {
        let State::Discovering { nonce, .. } = self.state else { return Err(Reject::Unexpected) };
        let offers_it = offer.exports.iter().any(|export| export.name == session.export);
        let ours = session.target.is_none_or(|target| target == offer.target);
        if nonce != offer.nonce || !offers_it || !ours {
            return Err(Reject::Unexpected);
        }
        let mut sizes = ArrayVec::new();
        sizes.push(self.config.frame_len_max);
        for len in PROBE_LENS.into_iter().filter(|&len| len < self.config.frame_len_max) {
            sizes.push(len);
        }
        self.state = State::Probing {
            offered: Offered { mac: src, nonce: random() },
            sizes,
            next: 0,
            best: 0,
            repeat: Repeat::new(now),
        };
        Ok(None)
    }

    fn handle_hello(
        &mut self,
        now: Instant,
        src: Mac,
        header: &Header,
        hello: &Hello,
        session: &SessionConfig,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<(), Reject> {
        let State::Probing { offered, sizes, best, .. } = &mut self.state else {
            // Once the longest frame has come through, answers to the others still arrive.
            return match &self.state {
                State::Connecting { offered, .. } if offered.nonce == hello.nonce => Ok(()),
                _ => Err(Reject::Unexpected),
            };
        };
        let len = hello.frame_len as usize;
        let answer = header.flags.contains(Flags::REPLY)
            && offered.nonce == hello.nonce
            && offered.mac == src
            && sizes.contains(&len);
        if !answer {
            return Err(Reject::Unexpected);
        }
        *best = (*best).max(len);
        if *best == self.config.frame_len_max {
            self.connect(now, session, random);
        }
        Ok(())
    }

    /// The frame size is settled.
    fn connect(&mut self, now: Instant, session: &SessionConfig, random: &mut dyn FnMut() -> u64) {
        let State::Probing { offered, best, .. } = self.state else {
            unreachable!("connect follows the probe")
        };
        self.frame_len = best;
        let mut flags = ConnectFlags::NONE;
        flags.set(ConnectFlags::READ_ONLY, session.read_only);
        flags.set(ConnectFlags::CHECKSUM, session.checksum);
        flags.set(ConnectFlags::RESUME, session.target.is_some());
        flags.set(ConnectFlags::STAGES, session.stages);
        let connect = Connect {
            attempt: random(),
            host: session.host,
            session: session.session,
            export: session.export,
            host_name: session.host_name,
            cookie: Cookie(random()),
            channel: ChannelId((random() % u64::from(ChannelId::NONE.0)) as u16),
            queue_size: session.queue_size,
            rings: self.config.rings,
            frame_len: best as u32,
            damq_pages: session.damq_pages,
            flags,
            keep_alive_ms: session.keep_alive.as_millis() as u32,
        };
        self.state =
            State::Connecting { offered, connect: Box::new(connect), repeat: Repeat::new(now) };
    }

    fn handle_accept(
        &mut self,
        now: Instant,
        src: Mac,
        accept: &Accept,
        session: &SessionConfig,
    ) -> Result<Option<PathEvent>, Reject> {
        let State::Connecting { offered, connect, .. } = &self.state else {
            return Err(Reject::Unexpected);
        };
        let stages = accept.flags.contains(AcceptFlags::STAGES);
        let fits = accept.attempt == connect.attempt
            && offered.mac == src
            && accept.queue_size <= connect.queue_size
            && accept.frame_len <= connect.frame_len
            && (!stages || connect.flags.contains(ConnectFlags::STAGES));
        if !fits {
            return Err(Reject::Unexpected);
        }
        let config = ChannelConfig {
            own: (connect.channel, connect.cookie),
            peer: (accept.channel, accept.cookie),
            peer_mac: src,
            frame_len: accept.frame_len as usize,
            rx_rings: connect.rings,
            tx_rings: accept.rings,
            keep_alive_ns: u64::from(accept.keep_alive_ms) * 1_000_000,
            checksum: accept.flags.contains(AcceptFlags::CHECKSUM),
            stages,
            batch: session.batch,
        };
        let initiator = Initiator::new(config, accept.queue_size, accept.damq_pages, now);
        self.frame_len = config.frame_len;
        self.problem = None;
        self.state =
            State::Live { accept: Box::new(accept.clone()), initiator: Box::new(initiator) };
        Ok(Some(PathEvent::Accepted(Box::new(accept.clone()))))
    }

    /// Composes the next frame; false if there is none to send now.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        session: &SessionConfig,
        out: &mut Outgoing,
    ) -> bool {
        let (to, control) = match &mut self.state {
            State::Waiting { .. } => return false,
            State::Discovering { nonce, repeat } => {
                if !repeat.due(now) {
                    return false;
                }
                let discover =
                    Discover { nonce: *nonce, host: session.host, export: session.export };
                (self.config.target.unwrap_or(Mac::BROADCAST), Control::Discover(discover))
            }
            State::Probing { offered, sizes, next, best, repeat } => {
                if *next == 0 && !repeat.due(now) {
                    return false;
                }
                // One round goes through all sizes that are not yet known to work.
                let len = sizes[*next];
                *next = (*next + 1) % sizes.len();
                if sizes[*next] <= *best {
                    *next = 0;
                }
                let hello = Hello { nonce: offered.nonce, frame_len: len as u32 };
                (offered.mac, Control::Hello(hello))
            }
            State::Connecting { offered, connect, repeat } => {
                if !repeat.due(now) {
                    return false;
                }
                (offered.mac, Control::Connect((**connect).clone()))
            }
            State::Live { initiator, .. } => {
                let sent = initiator.poll_transmit(now, out);
                out.channel = Some(initiator.channel.config().own.0);
                return sent;
            }
        };
        out.set_control(to, Header::new(control.kind()), Some(control));
        true
    }

    /// Time has passed. Says what a live channel was lost to.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        session: &SessionConfig,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<Problem> {
        match &mut self.state {
            State::Waiting { until } => {
                if now >= *until {
                    self.state = State::Discovering { nonce: random(), repeat: Repeat::new(now) };
                }
            }
            State::Discovering { repeat, .. } => {
                if repeat.is_exhausted(now) {
                    self.fail(now, Problem::NoOffer, session.reconnect_delay);
                }
            }
            State::Probing { best, repeat, next, .. } => {
                if *best > 0 && repeat.sends >= PROBE_ROUNDS && now >= repeat.next && *next == 0 {
                    self.connect(now, session, random);
                } else if repeat.is_exhausted(now) {
                    self.fail(now, Problem::NoHello, session.reconnect_delay);
                }
            }
            State::Connecting { repeat, .. } => {
                if repeat.is_exhausted(now) {
                    self.fail(now, Problem::NoAccept, session.reconnect_delay);
                }
            }
            State::Live { initiator, .. } => {
                return initiator.channel.handle_timeout(now).err().map(|dead| match dead {
                    Dead::Silence => Problem::Silence,
                    Dead::Stall => Problem::Stall,
                });
            }
        }
        None
    }

    /// When [`handle_timeout`](Self::handle_timeout) or
    /// [`poll_transmit`](Self::poll_transmit) has something to do.
    pub(crate) fn poll_timeout(&self) -> Instant {
        match &self.state {
            State::Waiting { until } => *until,
            State::Discovering { repeat, .. }
            | State::Probing { repeat, .. }
            | State::Connecting { repeat, .. } => repeat.next,
            State::Live { initiator, .. } => initiator.channel.poll_timeout(),
        }
    }

    /// The header of a farewell, if there is a channel to say it on and it was not yet said in
    /// this round, counted from 1.
    pub(crate) fn farewell(&mut self, now: Instant, round: u32) -> Option<(Mac, Header)> {
        let State::Live { initiator, .. } = &mut self.state else { return None };
        if self.farewells >= round {
            return None;
        }
        self.farewells = round;
        let header = initiator.channel.unsequenced(now, Kind::Disconnect, Flags::NONE);
        Some((initiator.channel.peer(), header))
    }
}
