//! A target's protocol on one link: it answers discovery and probes, opens and closes channels, and
//! drives them.
//!
//! ```text
//! Gate        bounds what hosts without a channel ask for        gate
//! questions   go to the registry, which all links share          handshake
//! Channels    accepted, open, closing                            channels, open, stalls
//! Answers     to hosts without a channel                         answers, farewells
//! ```
//!
//! One input (`handle_frame`, `complete`, `handle_timeout`), then drain the outputs: `poll_event`
//! until `None`, `serve_requests` if [`Listener::has_requests`], `poll_transmit` until false.

mod answers;
mod channels;
mod farewells;
mod gate;
mod handshake;
mod keyring;
mod open;
mod part;
mod refusals;
mod shares;
mod stalls;

use std::collections::VecDeque;

use tyche_wire::{
    Body, ChannelId, Checksums, Control, Cookie, Event, Flags, Greeting, HEAD_LEN, Header, Kind,
    Mac, Reject, Rejection, Status, Tag, Times, Uuid,
};

use answers::Answers;
pub use channels::ChannelReport;
use channels::Channels;
use gate::{Class, Gate, Question};
use keyring::Keyring;
pub use keyring::TargetKeys;
use part::Cookies;
pub use part::Part;
use refusals::Refusals;
pub use refusals::{Refusal, RefusalCounts};

use crate::channel::body::{RawFrame, open_body, parse_body};
use crate::channel::outgoing::Outgoing;
use crate::channel::protection::Opened;
use crate::channel::stats::{ChannelStats, RejectCounts};
use crate::question;
use crate::rules::{AllRules, Rule, Rules};
use crate::target_end::access::HostId;
use crate::target_end::attempts::Attempts;
use crate::target_end::export::ExportKey;
use crate::target_end::requests::Action;
use crate::time::Instant;

/// A link of a target.
#[derive(Clone, Copy, Debug)]
pub struct ListenerConfig {
    /// Index of the listener among those of the target: each part of a link has one of its own.
    pub link: usize,
    /// Longest frame of the link in bytes.
    pub frame_len_max: usize,
    /// Positions of the receive rings of each channel.
    pub rings: [u16; 2],
    /// Whether the link is reached through routers, without connections, so that anybody may send
    /// from any address: an answer to a Discover is then no longer than the Discover.
    pub routed: bool,
}

/// What happened on a link of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerEvent {
    /// The first frame of a channel has come: it needs memory.
    Opened(Box<OpenedChannel>),
    /// Something is to be done for a request. An [`Action::Place`] refers to the frame that was
    /// handled last.
    Action {
        /// The channel.
        channel: ChannelId,
        /// What to do.
        action: Action,
    },
    /// The channel is closed and has no requests at the disk: its memory may be freed. Its index
    /// may be used again from now on.
    Closed {
        /// The channel.
        channel: ChannelId,
    },
}

/// A channel whose first frame has come. Most events are of requests: so it is apart from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedChannel {
    /// The channel.
    pub channel: ChannelId,
    /// Its export.
    pub export: ExportKey,
    /// The [`generation`](crate::ExportConfig::generation) in the channel's Accept: the export
    /// may have another one by now.
    pub generation: Uuid,
    /// Pages of its `damq`.
    pub damq_pages: u32,
    /// Slots of its `remq`.
    pub queue_size: u16,
    /// Whether the host wants stage times: [`Listener::note_times`].
    pub stages: bool,
    /// The host.
    pub host: HostId,
    /// Its address.
    pub peer: Mac,
    /// Whether the host may place its data in the `damq`: they are neither sealed nor covered
    /// by a checksum.
    pub may_place: bool,
}

/// The target's protocol state machine for one link, without I/O. It owns the link's channels, and
/// leaves to its user the disk, the pages and the [`Registry`](crate::Registry) of all links.
pub struct Listener<R = AllRules> {
    config: ListenerConfig,
    /// UUID of the target.
    identity: Uuid,
    channels: Channels<R>,
    cookies: Cookies,
    gate: Gate,
    /// Those in the clear, and the sealed ones: no flood of the former makes the latters' tickets
    /// live shorter.
    attempts: [Attempts; 2],
    answers: Answers,
    refusals: Refusals,
    events: VecDeque<ListenerEvent>,
    rejects: RejectCounts,
    /// The target's keys, if it has any.
    keyring: Option<Keyring>,
    /// Whether only those are answered who know one of them.
    is_silent: bool,
    /// Whether hosts may place their data in the `damq` by themselves.
    places: bool,
    /// Whether the link ends: nobody without a channel is answered any more.
    is_ending: bool,
}

impl<R: Rules> Listener<R> {
    /// `target`: the target's UUID; `random`: a cryptographic source.
    pub fn new(
        config: ListenerConfig,
        target: Uuid,
        mut random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Self {
        let part = Part::all(1, &mut *random).next().expect("a link has at least one part");
        Self::of_part(config, target, part, random)
    }

    /// As [`new`](Self::new), for a part of a link.
    pub fn of_part(
        config: ListenerConfig,
        target: Uuid,
        part: Part,
        random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Self {
        Self {
            config,
            identity: target,
            channels: Channels::new(),
            cookies: Cookies::new(target, part, random),
            gate: Gate::new(part.key()),
            attempts: Default::default(),
            answers: Answers::new(target),
            refusals: Refusals::new(),
            events: VecDeque::new(),
            rejects: RejectCounts::default(),
            keyring: None,
            is_silent: false,
            places: false,
            is_ending: false,
        }
    }

    /// Sets the longest frame of the link, in bytes, which has grown: channels that are opened from
    /// now on may have such frames.
    pub fn set_frame_len_max(&mut self, frame_len_max: usize) {
        self.config.frame_len_max = frame_len_max;
    }

    /// Has the target take sealed Connects, prove who it is, and say its public key in Offers.
    ///
    /// Keys may be changed while the target runs. Channels of hosts that know the target by another
    /// key than the last of these end with a farewell: the hosts connect again, and are told then.
    /// Those of a key that the target has no more can't. The tokens of Resets are made with the
    /// first key, as long as the target runs.
    pub fn set_keys(&mut self, now: Instant, keys: impl Into<TargetKeys>) {
        let keys = keys.into();
        if self.keyring.is_none() {
            self.answers.set_key(&keys.own, self.config.link);
        }
        let keyring = Keyring::new(keys);
        let lasting = keyring.lasting();
        let is_former =
            |open: &open::Open<R>| open.keys.as_ref().is_some_and(|it| it.known != lasting);
        self.channels.end(now, is_former);
        self.keyring = Some(keyring);
    }

    /// Sets which source addresses count as one where rates and numbers are bounded: those that
    /// `origin` returns the same for. By default each counts as itself.
    pub fn set_origin(&mut self, origin: fn([u8; 6]) -> [u8; 6]) {
        self.gate.set_origin(origin);
    }

    /// Has hosts whose frames are neither sealed nor covered by a checksum place their data in the
    /// `damq` by themselves: all of it is locked from the beginning, and they may use all of it.
    pub fn have_data_placed(&mut self) {
        self.places = true;
    }

    /// Has the target answer only those who know its key.
    ///
    /// # Panics
    /// If it has none.
    pub fn be_silent(&mut self) {
        assert!(self.keyring.is_some(), "a silent target has a key");
        self.is_silent = true;
    }

    /// Takes a frame. A rejected frame is counted. Returns the payload in the clear, in `opened` if
    /// the frame was sealed.
    pub fn handle_frame<'p>(
        &mut self,
        now: Instant,
        frame: impl Into<RawFrame<'p>>,
        opened: &'p mut Opened,
    ) -> &'p [u8] {
        let frame = frame.into();
        self.try_handle_frame(now, &frame, opened).unwrap_or_else(|reject| {
            self.rejects.add(reject);
            frame.payload
        })
    }

    fn try_handle_frame<'p>(
        &mut self,
        now: Instant,
        frame: &RawFrame<'p>,
        opened: &'p mut Opened,
    ) -> Result<&'p [u8], Reject> {
        let RawFrame { head, payload, .. } = *frame;
        let header = Header::parse(head).inspect_err(|&reject| {
            if reject == Reject::Version
                && !self.is_silent()
                && let Some(greeting) = Greeting::parse(head, payload)
                && self.room(HEAD_LEN + payload.len()) >= Rejection::FRAME_LEN
            {
                self.answers.refuse_version(now, Mac::source(head), &greeting);
            }
        })?;
        let src = Mac::source(head);
        if header.kind != Kind::Discover && Mac::destination(head).is_group() {
            return Err(Reject::Destination);
        }
        if header.kind.on_channel() {
            return self.handle_channel_frame((now, src), &header, frame, opened);
        }
        let class = self.class(header.kind, payload);
        if !self.gate.takes(now, src, header.kind, class) {
            return Err(Reject::Busy);
        }
        let Body::Control(pdu) = Body::parse(&header, payload, &Checksums)? else {
            return Err(Reject::Unexpected);
        };
        self.handle_control((now, src, class), &header, pdu.decode()).map(|()| payload)
    }

    /// The most bytes of the answer to a question of `len` bytes whose sender has proved nothing.
    fn room(&self, len: usize) -> usize {
        if self.config.routed && R::keeps(Rule::BoundAnswers) { len } else { usize::MAX }
    }

    /// Whether a question shows that its sender knows a key of the target.
    fn class(&self, kind: Kind, payload: &[u8]) -> Class {
        let asks = matches!(kind, Kind::Discover | Kind::Hello);
        let nonce = payload.first_chunk().filter(|_| asks);
        let is_proof = self.keyring.as_ref().zip(nonce).and_then(|(keyring, nonce)| {
            keyring.find(|key| question::is_proof(key, kind, u64::from_le_bytes(*nonce)))
        });
        if is_proof.is_some() { Class::Acquaintance } else { Class::Stranger }
    }

    /// Whether those who do not know the target's key get no answer.
    fn is_silent(&self) -> bool {
        self.is_silent && R::keeps(Rule::StaySilent)
    }

    /// Checks that whoever asks may know that the target is there.
    ///
    /// # Errors
    /// `Forged` if the question has no proof, `Unexpected` if there is none for its kind.
    fn check_silence(&self, class: Class, control: &Control) -> Result<(), Reject> {
        match control {
            _ if !self.is_silent() => Ok(()),
            Control::Discover(_) | Control::Hello(_) if class == Class::Stranger => {
                Err(Reject::Forged)
            }
            Control::Connect(_) => Err(Reject::Unexpected),
            _ => Ok(()),
        }
    }

    /// Takes a frame that belongs to no channel.
    fn handle_control(
        &mut self,
        (now, src, class): (Instant, Mac, Class),
        header: &Header,
        control: Control,
    ) -> Result<(), Reject> {
        self.check_silence(class, &control)?;
        if self.is_ending {
            return Err(Reject::Unexpected);
        }
        match control {
            Control::Hello(hello) => self.handle_hello(now, src, header, &hello),
            Control::Discover(discover) => {
                if discover.target.is_nil() || discover.target == self.identity {
                    self.gate.ask(Question::Discover(src, class, discover))?;
                }
                Ok(())
            }
            Control::Connect(connect) => {
                if connect.target != self.identity {
                    return Err(Reject::Target);
                }
                self.gate.connect::<R>(now, src, connect)
            }
            Control::SealedConnect(connect) => {
                if connect.target != self.identity {
                    return Err(Reject::Target);
                }
                let keyring = self.keyring.as_ref();
                self.gate.connect_sealed::<R>(now, src, (header.cookie, connect), keyring)
            }
            _ => Err(Reject::Unexpected),
        }
    }

    fn handle_channel_frame<'p>(
        &mut self,
        (now, src): (Instant, Mac),
        header: &Header,
        frame: &RawFrame<'p>,
        opened: &'p mut Opened,
    ) -> Result<&'p [u8], Reject> {
        let payload = frame.payload;
        let known = self.channels.get_mut(header.channel);
        let origin = known.as_ref().map(|open| open.config.check_origin::<R>(src, header));
        let open = match (known, origin) {
            (Some(open), Some(Ok(()))) if !open.closing => open,
            (_, Some(Err(Reject::Source))) => return Err(Reject::Source),
            (Some(_), Some(Ok(()))) => {
                return self.answer_again(src, header, payload).map(|()| payload);
            }
            (known, _) => {
                let reject = if known.is_some() { Reject::Cookie } else { Reject::Channel };
                let answered = self.answer_again(src, header, payload);
                // The target made the cookie: in a former run, or for a channel that is given up.
                if answered.is_err() && !self.is_silent() && self.cookies.are_of(header.cookie) {
                    self.answers.reset(now, src, header);
                }
                return answered.map_err(|_| reject).map(|()| payload);
            }
        };
        let guard = open.keys.as_mut().map(|keys| &mut keys.guard);
        let (payload, body) = open_body::<R>(guard, header, frame, opened)?;
        let (channel, is_first) = (header.channel, open.is_half_open().then_some(open.session));
        let target = open.handle_frame(now, header, &body, &mut self.events)?;
        if frame.is_congested {
            target.channel.note_congestion();
        }
        let (mut asked, mut changed) = (Ok(()), is_first);
        match (header.kind, &body) {
            (Kind::Disconnect, _) => {
                let answer = target.channel.unsequenced(now, Kind::Disconnect, Flags::REPLY);
                target.farewell = Some(answer);
                (open.closing, open.is_done) = (true, true);
                // A sealed answer is sent once: the key goes with the channel.
                if open.keys.is_none() {
                    self.answers.note_farewell(&open.config, answer);
                }
                changed = Some(open.session);
            }
            (Kind::Fence, Body::Control(pdu)) => {
                if let Control::Fence(fence) = pdu.decode() {
                    asked = self.gate.ask(Question::Fence(channel, Box::new(fence)));
                }
            }
            _ => {}
        }
        if let Some(session) = changed {
            self.channels.share(&[session]);
        }
        asked.map(|()| payload)
    }

    /// Answers a repeated farewell on a channel that is closed or closing.
    ///
    /// # Errors
    /// `Channel` if the frame is not a repeated farewell.
    fn answer_again(&mut self, src: Mac, header: &Header, payload: &[u8]) -> Result<(), Reject> {
        let answer = self.answers.repeated_farewell(src, header).ok_or(Reject::Channel)?;
        parse_body::<R>(header, payload)?;
        self.answers.send(src, answer, None);
        Ok(())
    }

    /// Closes a channel: its frames are dropped from now on. It is removed when the disk has
    /// completed its last request.
    pub fn close(&mut self, channel: ChannelId) {
        self.channels.close(channel);
    }

    /// Closes a channel for which there is no memory, and sends a farewell to its host, which
    /// connects again after a pause.
    pub fn turn_away(&mut self, now: Instant, channel: ChannelId) {
        self.channels.end(now, |open| open.id() == channel);
    }

    /// Closes all channels and sends farewells to their hosts, when the target or this link ends.
    /// From now on nobody is let in.
    pub fn shut_down(&mut self, now: Instant) {
        self.is_ending = true;
        self.gate.forget_questions();
        self.channels.end(now, |_| true);
    }

    /// Whether there is no channel, and none that is closing. One that is half-open counts: the
    /// registry knows it.
    pub fn is_idle(&self) -> bool {
        self.channels.iter().next().is_none()
    }

    /// Closes all channels whose frames are sealed: the memory of this machine was put back to an
    /// earlier state, so the packet numbers that are next for their keys may have been used. No
    /// farewell is sent, for it would be sealed: hosts learn of it by the Reset that answers their
    /// next frames.
    pub fn renew_keys(&mut self) {
        self.channels.close_sealed();
    }

    /// Closes the channels whose frames may be longer than `frame_len_max` bytes, which is all that
    /// the link takes now, and sends farewells to their hosts: they find the length by the probes
    /// of their next handshake. Without it, a host that sends only short frames would wait for the
    /// answers to its reads until the keep-alive time is over.
    pub fn narrow(&mut self, now: Instant, frame_len_max: usize) {
        self.channels.end(now, |open| open.config.frame_len > frame_len_max);
    }

    /// Notes the stage times of a request until `now`, right before it [completes](Self::complete).
    /// `transmit_ns` is measured by the listener. Has no effect on a channel without stage times.
    ///
    /// # Panics
    /// If the channel is not open.
    pub fn note_times(&mut self, now: Instant, channel: ChannelId, tag: Tag, times: Times) {
        self.channels.busy(channel).note_times(now, tag, times);
    }

    /// Completes a request that the disk has executed, also on a closed channel, which waits for
    /// that. Returns whether the request keeps its pages, because its data are to be sent; if not,
    /// they are free at once.
    ///
    /// # Panics
    /// If the request was not handed out for execution.
    pub fn complete(&mut self, channel: ChannelId, tag: Tag, status: Status) -> bool {
        self.channels.busy(channel).complete(tag, status)
    }

    /// Closes a channel instead of executing a request that was handed out for that: a fence of it
    /// will say that it was not executed.
    ///
    /// # Panics
    /// If the request was not handed out for execution.
    pub fn close_without(&mut self, channel: ChannelId, tag: Tag) {
        self.channels.busy(channel).withdraw(tag);
        self.channels.close(channel);
    }

    /// Holds a request back that was handed out for execution, until it is [resumed](Self::resume).
    /// It keeps its pages. If its channel is closed meanwhile, it is not executed: a fence says so,
    /// and nothing waits for it.
    ///
    /// # Panics
    /// If the request was not handed out for execution.
    pub fn hold(&mut self, channel: ChannelId, tag: Tag) {
        self.channels.busy(channel).hold(tag);
    }

    /// Hands out a request again that was held back. False if it must not be executed: its channel
    /// is closed, or its export removed.
    ///
    /// # Panics
    /// If the request was not held back, or the end of its channel was
    /// [reported](ListenerEvent::Closed).
    pub fn resume(&mut self, channel: ChannelId, tag: Tag) -> bool {
        self.channels.is_open(channel) && self.channels.busy(channel).resume(tag)
    }

    /// Has a channel that is idle free the pages of answered requests, which it keeps otherwise
    /// until others claim them: for an owner that can make use of them.
    pub fn rest(&mut self, channel: ChannelId) {
        let Self { channels, events, .. } = self;
        let target = channels.get_mut(channel).and_then(|open| open.target.as_mut());
        if let Some(target) = target {
            target.rest(|action| events.push_back(ListenerEvent::Action { channel, action }));
        }
    }

    /// Sends an event to all hosts of an export.
    pub fn notify(&mut self, export: ExportKey, event: Event) {
        self.channels.notify(export, event);
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ListenerEvent> {
        self.events.pop_front()
    }

    /// The channels that are [closed](ListenerEvent::Closed), of the events that were not polled
    /// yet.
    pub fn closed(&self) -> impl Iterator<Item = ChannelId> {
        self.events.iter().filter_map(|event| match event {
            ListenerEvent::Closed { channel } => Some(*channel),
            _ => None,
        })
    }

    /// The next host that was refused, for the log. Some are only counted if there are many.
    pub fn poll_refusal(&mut self) -> Option<Refusal> {
        self.refusals.poll()
    }

    /// Composes the next frame; false if there is none to send now.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Outgoing) -> bool {
        self.answers.poll_transmit(out) || self.channels.poll_transmit(now, out)
    }

    /// Runs the timers that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.channels.handle_timeout(now);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit) if there is no other input before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.channels.poll_timeout()
    }

    /// Numbers of dropped frames, by reason.
    pub fn rejects(&self) -> &RejectCounts {
        &self.rejects
    }

    /// Numbers of refused attempts to connect, by reason.
    pub fn refusals(&self) -> &RefusalCounts {
        self.refusals.counts()
    }

    /// Counters of all channels, the closed ones included.
    pub fn stats(&self) -> ChannelStats {
        self.channels.stats()
    }

    /// The cookie of an open channel's frames to its host. For simulations, which look at sent
    /// frames.
    pub fn peer_cookie(&self, channel: ChannelId) -> Option<Cookie> {
        self.channels.peer_cookie(channel)
    }

    /// The open channels.
    pub fn channels(&self) -> impl Iterator<Item = ChannelReport> {
        self.channels.reports()
    }
}
