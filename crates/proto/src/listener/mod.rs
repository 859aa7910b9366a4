//! A target on one link: answers discovery and probes, opens and closes channels, and drives them.
//!
//! One input (`handle_frame`, `complete`, `handle_timeout`), then drain the outputs: `poll_event`
//! until it has nothing more, `serve_requests` if [`Listener::has_requests`], `poll_transmit`.

mod farewells;
mod handshake;
mod open;
mod pace;
mod stalls;

use std::collections::VecDeque;
use std::time::Duration;

use tyche_wire::{
    Body, ChannelId, Checksum, Checksums, Content, Control, Event, Flags, Greeting, HEAD_LEN,
    Header, Kind, Mac, Reject, Reset, Status, Tag, Times, Uuid,
};

use farewells::Farewells;
use handshake::Question;
use open::Open;
use pace::Pace;

use crate::attempts::Attempts;
use crate::channel::parse_body;
use crate::outgoing::Outgoing;
use crate::rules::{Rules, Sound};
use crate::stats::{ChannelStats, RejectCounts};
use crate::target::{Action, TargetChannel};
use crate::ticket::Tickets;
use crate::time::{Instant, earliest};

/// Requests of hosts without a channel that wait to be served, and fences of those with one; more
/// are dropped and asked again.
const REQUESTS_MAX: usize = 64;
/// The least time between two frames of a kind that are taken, on average. Lower: in a flood
/// sessions get less of the link's thread. Higher: new hosts wait longer in one. A Connect costs
/// most, a Hello takes no look at the registry.
const DISCOVER_INTERVAL: Duration = Duration::from_micros(100);
const HELLO_INTERVAL: Duration = Duration::from_micros(50);
const CONNECT_INTERVAL: Duration = Duration::from_micros(200);
/// How many of a kind may come at once.
const BURST: u32 = 64;
/// Frames outside of channels, or of channels that are gone, that wait to be sent.
const OUTBOX_MAX: usize = 256;
/// Fences of a channel that wait to be answered.
const FENCES_MAX: usize = 8;
/// Channels of a link at once that no frame has come for. More are closed, the oldest first: they
/// have cost nothing, and their hosts ask again.
const HALF_OPEN_MAX: usize = 32;
/// How long a channel waits for its first frame. A host sends one at once, and again.
const HALF_OPEN_LIFE: Duration = Duration::from_secs(2);
/// The least time between two resets, and between two refusals of another version: garbage must
/// not make us talk.
const RESET_INTERVAL: Duration = Duration::from_millis(5);

/// A link of a target.
#[derive(Clone, Copy, Debug)]
pub struct ListenerConfig {
    /// Index of the link among those of the target.
    pub link: usize,
    /// Longest frame of the link in bytes.
    pub frame_len_max: usize,
    /// Positions of the receive rings of each channel.
    pub rings: [u16; 2],
}

/// The part of a link that a listener serves, if several share it: channels whose cookies have its
/// number in their first byte, and connects with that in the first byte of the host's cookie. Those
/// are meant modulo the number of listeners. All other frames are the first's.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    index: u8,
    of: u8,
    /// The key of the link's tickets.
    key: u128,
}

impl Part {
    /// The parts of a link. `random`: a source of secrets.
    ///
    /// # Panics
    /// Unless there is one at least.
    pub fn all(of: u8, random: &mut dyn FnMut() -> u64) -> impl Iterator<Item = Self> {
        assert!(of > 0, "a link in no parts");
        let key = u128::from(random()) << 64 | u128::from(random());
        (0..of).map(move |index| Self { index, of, key })
    }

    /// Its number.
    pub fn index(&self) -> u8 {
        self.index
    }

    /// Number of parts.
    pub fn of(&self) -> u8 {
        self.of
    }

    /// A cookie of this part, made of a random one.
    fn cookie(self, random: u64) -> u64 {
        let first = random as u8;
        let own = first - first % self.of;
        let own = own.checked_add(self.index).unwrap_or(self.index);
        random & !0xff | u64::from(own)
    }
}

/// What happened on a link of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerEvent {
    /// The first frame of a channel has come: it needs memory for `damq_pages` pages.
    Opened {
        /// The channel.
        channel: ChannelId,
        /// Index of its export.
        export: usize,
        /// The [`boot`](crate::ExportConfig::boot) that its host was told when it was accepted: the
        /// export may have another one by now.
        boot: Uuid,
        /// Pages of its `damq`.
        damq_pages: u32,
        /// Slots of its `remq`.
        queue_size: u16,
        /// Whether the host wants to know where the time of its requests goes:
        /// [`Listener::note_times`].
        stages: bool,
    },
    /// Something is to be done for a request. A [`Action::Place`] speaks of the frame that was
    /// handled last.
    Action {
        /// The channel.
        channel: ChannelId,
        /// What to do.
        action: Action,
    },
    /// The channel is closed and nothing of it is with the disk: its memory may go. Its index may
    /// be used again from now on.
    Closed {
        /// The channel.
        channel: ChannelId,
    },
}

/// What a channel looks like, for statistics.
#[derive(Clone, Copy, Debug)]
pub struct ChannelReport {
    /// The channel.
    pub channel: ChannelId,
    /// Index of its export.
    pub export: usize,
    /// The host's address.
    pub host: Mac,
    /// Longest frame in bytes.
    pub frame_len: u32,
    /// Requests with the disk.
    pub executing: usize,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Frames that may be in flight.
    pub congestion_window: u32,
    /// Counters.
    pub stats: ChannelStats,
}

/// See the module.
pub struct Listener<R = Sound> {
    config: ListenerConfig,
    /// Channels by index; a closed one leaves a gap that is used again.
    channels: Vec<Option<Open<R>>>,
    /// The channel to be asked first for a frame, so that each gets its turn.
    turn: usize,
    /// Makes cookies.
    random: Box<dyn FnMut() -> u64 + Send>,
    questions: VecDeque<Question>,
    tickets: Tickets,
    part: Part,
    attempts: Attempts,
    outbox: VecDeque<(Mac, Header, Option<Control>)>,
    farewells: Farewells,
    events: VecDeque<ListenerEvent>,
    reset_after: Instant,
    discovers: Pace,
    hellos: Pace,
    connects: Pace,
    /// The target.
    identity: Uuid,
    /// Bits by which the target knows cookies of its own, also of a former run.
    mark: u16,
    rejects: RejectCounts,
    /// Counters of channels that are closed.
    past: ChannelStats,
}

impl<R: Rules> Listener<R> {
    /// `target`: the target's identity; `random`: a source of secrets.
    pub fn new(
        config: ListenerConfig,
        target: Uuid,
        mut random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Self {
        let part = Part::all(1, &mut *random).next().expect("there is one");
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
            channels: Vec::new(),
            turn: 0,
            tickets: Tickets::new(part.key),
            part,
            random,
            questions: VecDeque::new(),
            attempts: Attempts::default(),
            identity: target,
            outbox: VecDeque::new(),
            farewells: Farewells::default(),
            events: VecDeque::new(),
            reset_after: Instant(0),
            discovers: Pace::new(DISCOVER_INTERVAL, BURST),
            hellos: Pace::new(HELLO_INTERVAL, BURST),
            connects: Pace::new(CONNECT_INTERVAL, BURST),
            mark: Checksum::of(target.as_bytes()) as u16,
            rejects: RejectCounts::default(),
            past: ChannelStats::default(),
        }
    }

    /// Takes a frame. What is wrong with it is counted.
    pub fn handle_frame(&mut self, now: Instant, head: &[u8; HEAD_LEN], payload: &[u8]) {
        if let Err(reject) = self.try_handle_frame(now, head, payload) {
            self.rejects.add(reject);
        }
    }

    fn try_handle_frame(
        &mut self,
        now: Instant,
        head: &[u8; HEAD_LEN],
        payload: &[u8],
    ) -> Result<(), Reject> {
        let header = Header::parse(head).inspect_err(|&reject| {
            if reject == Reject::Version {
                self.refuse_version(now, head, payload);
            }
        })?;
        let src = Mac::source(head);
        if header.kind != Kind::Discover && Mac::destination(head).is_group() {
            return Err(Reject::Destination);
        }
        // Before a look at the rest, so that a flood costs as little as can be.
        let is_taken = match header.kind {
            Kind::Discover => self.discovers.takes(now),
            Kind::Hello => self.hellos.takes(now),
            kind if kind.on_channel() => {
                return self.handle_channel_frame(now, src, &header, payload);
            }
            _ => true,
        };
        if !is_taken {
            return Err(Reject::Busy);
        }
        let Body::Control(pdu) = Body::parse(&header, payload, &Checksums)? else {
            return Err(Reject::Unexpected);
        };
        self.handle_control(now, src, &header, pdu.decode())
    }

    /// Tells a host that speaks another version which one this is.
    fn refuse_version(&mut self, now: Instant, head: &[u8; HEAD_LEN], payload: &[u8]) {
        let greeting = Greeting::parse(head, payload).filter(|it| it.kind == Kind::Discover);
        if let Some(greeting) = greeting.filter(|_| now >= self.reset_after) {
            self.reset_after = now + RESET_INTERVAL;
            let refusal = greeting.refusal(self.identity);
            self.post(Mac::source(head), Flags::NONE, Control::Reject(refusal));
        }
    }

    /// Takes a frame that belongs to no channel.
    fn handle_control(
        &mut self,
        now: Instant,
        src: Mac,
        header: &Header,
        control: Control,
    ) -> Result<(), Reject> {
        match control {
            Control::Hello(hello) => self.handle_hello(now, src, header, &hello),
            Control::Discover(discover) => {
                if discover.target.is_nil() || discover.target == self.identity {
                    self.ask(Question::Discover(src, discover))?;
                }
                Ok(())
            }
            Control::Connect(connect) => {
                if connect.target != self.identity {
                    return Err(Reject::Target);
                }
                let issued = match self.tickets.check(now, src, &connect.ticket) {
                    Err(_) if !R::CHECK_TICKET => now,
                    checked => checked?,
                };
                // After the ticket: only those that can receive an answer take of the time.
                if !self.connects.takes(now) {
                    return Err(Reject::Busy);
                }
                self.ask(Question::Connect(src, issued, Box::new(connect)))
            }
            _ => Err(Reject::Unexpected),
        }
    }

    /// Takes a question if there is room. Those who have no channel take none of the room for
    /// fences, which writes wait for.
    ///
    /// # Errors
    /// `Busy` if there is none.
    fn ask(&mut self, question: Question) -> Result<(), Reject> {
        let of_channel = |it: &Question| matches!(it, Question::Fence(..));
        let alike = self.questions.iter().filter(|it| of_channel(it) == of_channel(&question));
        if alike.count() >= REQUESTS_MAX {
            return Err(Reject::Busy);
        }
        self.questions.push_back(question);
        Ok(())
    }

    fn handle_channel_frame(
        &mut self,
        now: Instant,
        src: Mac,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), Reject> {
        let index = usize::from(header.channel.0);
        let known = self.channels.get_mut(index).and_then(Option::as_mut);
        let origin = known.as_ref().map(|open| open.config.check_origin::<R>(src, header));
        let open = match (known, origin) {
            (Some(open), Some(Ok(()))) if !open.closing => open,
            (_, Some(Err(Reject::Source))) => return Err(Reject::Source),
            (Some(_), Some(Ok(()))) => return self.answer_again(src, header, payload),
            (known, _) => {
                let reject = if known.is_some() { Reject::Cookie } else { Reject::Channel };
                let answered = self.answer_again(src, header, payload);
                if answered.is_err() {
                    self.reset(now, src, header);
                }
                return answered.map_err(|_| reject);
            }
        };
        let body = parse_body::<R>(header, payload)?;
        let channel = header.channel;
        let target = open.handle_frame(now, header, &body, &mut self.events)?;
        match (header.kind, &body) {
            (Kind::Disconnect, _) => {
                let answer = target.channel.unsequenced(now, Kind::Disconnect, Flags::REPLY);
                target.farewell = Some(answer);
                (open.closing, open.is_done) = (true, true);
                self.farewells.note(&open.config, answer);
                self.share_receiver();
            }
            (Kind::Fence, Body::Control(pdu)) => {
                if let Control::Fence(fence) = pdu.decode() {
                    self.ask(Question::Fence(channel, Box::new(fence)))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Answers a farewell on a channel that is closed or closing, if the host repeats it.
    ///
    /// # Errors
    /// `Channel` if the frame is none.
    fn answer_again(&mut self, src: Mac, header: &Header, payload: &[u8]) -> Result<(), Reject> {
        let answer = self.farewells.repeated(src, header).ok_or(Reject::Channel)?;
        parse_body::<R>(header, payload)?;
        self.send(src, answer, None);
        Ok(())
    }

    /// A frame for a channel that is not there, though its cookie is one of ours: the host talks
    /// to a former run of this target, or to a channel that was given up.
    fn reset(&mut self, now: Instant, src: Mac, header: &Header) {
        if (header.cookie.0 >> 48) as u16 != self.mark || now < self.reset_after {
            return;
        }
        self.reset_after = now + RESET_INTERVAL;
        let (cookie, channel, target) = (header.cookie, header.channel, self.identity);
        let reset = Reset { cookie, channel, target };
        self.post(src, Flags::NONE, Control::Reset(reset));
    }

    fn post(&mut self, to: Mac, flags: Flags, control: Control) {
        self.send(to, Header { flags, ..Header::new(control.kind()) }, Some(control));
    }

    fn send(&mut self, to: Mac, header: Header, control: Option<Control>) {
        if self.outbox.len() < OUTBOX_MAX {
            self.outbox.push_back((to, header, control));
        }
    }

    /// The channels of the link share the room for frames that have come.
    fn share_receiver(&mut self) {
        let open = |open: &&mut Open<R>| !open.closing;
        let targets = self.channels.iter_mut().flatten().filter(open);
        let targets = targets.filter_map(|open| open.target.as_mut());
        let count = targets.count();
        let targets = self.channels.iter_mut().flatten().filter(open);
        for target in targets.filter_map(|open| open.target.as_mut()) {
            target.channel.share_receiver(count);
        }
    }

    /// Closes a channel: its frames are dropped from now on. It is gone when its last request is
    /// back from the disk.
    pub fn close(&mut self, channel: ChannelId) {
        if let Some(Some(open)) = self.channels.get_mut(usize::from(channel.0)) {
            open.closing = true;
        }
    }

    /// Closes all channels, and tells their hosts: the target ends.
    pub fn shut_down(&mut self, now: Instant) {
        for open in self.channels.iter_mut().flatten().filter(|open| !open.closing) {
            open.closing = true;
            if let Some(target) = &mut open.target {
                let farewell = target.channel.unsequenced(now, Kind::Disconnect, Flags::NONE);
                target.farewell = Some(farewell);
            }
        }
    }

    /// The channel of a request that is with the disk.
    fn busy(&mut self, channel: ChannelId) -> &mut TargetChannel<R> {
        let open = self.channels[usize::from(channel.0)].as_mut();
        let target = open.and_then(|open| open.target.as_mut());
        target.expect("a channel outlives its requests")
    }

    /// Notes where a request's time went until `now`, right before it [completes](Self::complete);
    /// `transmit_ns` is found out here. Means nothing on a channel without stages.
    ///
    /// # Panics
    /// If the channel is not open.
    pub fn note_times(&mut self, now: Instant, channel: ChannelId, tag: Tag, times: Times) {
        self.busy(channel).note_times(now, tag, times);
    }

    /// The disk has executed a request. Completions of closed channels are welcome: they are what
    /// the channel still waits for. Returns whether the request keeps its pages, for its data are
    /// to be sent; if not, they are free at once.
    ///
    /// # Panics
    /// If the request was not handed out for execution.
    pub fn complete(&mut self, channel: ChannelId, tag: Tag, status: Status) -> bool {
        self.busy(channel).complete(tag, status)
    }

    /// Tells all channels of an export what happened to it.
    pub fn notify(&mut self, export: usize, event: Event) {
        let channels = self.channels.iter_mut().flatten();
        for open in channels.filter(|open| open.grant.export == export) {
            match &mut open.target {
                Some(target) => target.notify(event),
                None => open.missed = Some(event),
            }
        }
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<ListenerEvent> {
        self.events.pop_front()
    }

    /// Composes the next frame; false if there is none to send now.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Outgoing) -> bool {
        if let Some((to, header, control)) = self.outbox.pop_front() {
            out.set(to, header, control.map_or(Content::Empty, Content::Control));
            return true;
        }
        let count = self.channels.len();
        for i in 0..count {
            let index = (self.turn + i) % count;
            let Some(open) = &mut self.channels[index] else { continue };
            let Some(target) = &mut open.target else { continue };
            if let Some(header) = target.farewell.take() {
                target.channel.address(out, header, Content::Empty);
                return true;
            }
            if open.closing {
                continue;
            }
            if let Some(fenced) = open.fenced.pop() {
                let header = target.channel.unsequenced(now, Kind::Fenced, Flags::NONE);
                let fenced = Content::Control(Control::Fenced(fenced));
                target.channel.address(out, header, fenced);
                return true;
            }
            if target.poll_transmit(now, out) {
                self.turn = index + 1;
                return true;
            }
        }
        false
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        for open in self.channels.iter_mut().flatten().filter(|open| !open.closing) {
            open.closing = match &mut open.target {
                Some(target) => target.channel.handle_timeout(now).is_err(),
                None => now >= open.accepted_at + HALF_OPEN_LIFE,
            };
        }
        self.doubt_stalled(now);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit) if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let open = self.channels.iter().flatten().filter(|open| !open.closing);
        open.map(|open| match &open.target {
            Some(target) => earliest(Some(target.channel.poll_timeout()), open.stalls_at()),
            None => Some(open.accepted_at + HALF_OPEN_LIFE),
        })
        .fold(None, earliest)
    }

    /// Dropped frames.
    pub fn rejects(&self) -> &RejectCounts {
        &self.rejects
    }

    /// Counters of all channels, the closed ones included.
    pub fn stats(&self) -> ChannelStats {
        let mut stats = self.past;
        let targets = self.channels.iter().flatten().filter_map(|open| open.target.as_ref());
        for target in targets {
            stats += target.channel.stats;
        }
        stats
    }

    /// The open channels.
    pub fn channels(&self) -> impl Iterator<Item = ChannelReport> {
        self.channels.iter().enumerate().filter_map(|(index, open)| {
            let open = open.as_ref().filter(|open| !open.closing)?;
            let target = open.target.as_ref()?;
            Some(ChannelReport {
                channel: ChannelId(index as u16),
                export: open.grant.export,
                host: target.channel.peer(),
                frame_len: open.accept.frame_len,
                executing: target.executing(),
                rtt: target.channel.rtt(),
                congestion_window: target.channel.congestion_window(),
                stats: target.channel.stats,
            })
        })
    }
}
