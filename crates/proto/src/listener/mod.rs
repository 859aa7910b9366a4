//! A target's protocol on one link: it answers discovery and probes, opens and closes channels, and
//! drives them.
//!
//! One input (`handle_frame`, `complete`, `handle_timeout`), then drain the outputs: `poll_event`
//! until `None`, `serve_requests` if [`Listener::has_requests`], `poll_transmit` until false.

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

/// Questions of hosts without a channel that wait for the registry at once, and as many fences.
/// More are dropped, and their hosts repeat them.
const REQUESTS_MAX: usize = 64;
/// The least time between two frames of a kind that are taken, on average. Lower: sessions get less
/// of the link's thread in a flood. Higher: new hosts wait longer in a flood. A Connect costs most;
/// a Hello does not need the registry.
const DISCOVER_INTERVAL: Duration = Duration::from_micros(100);
const HELLO_INTERVAL: Duration = Duration::from_micros(50);
const CONNECT_INTERVAL: Duration = Duration::from_micros(200);
/// Frames of a kind that may come at once.
const BURST: u32 = 64;
/// Frames that wait to be sent outside of channels, or on channels that are gone.
const OUTBOX_MAX: usize = 256;
/// Answers to fences that wait on a channel.
const FENCES_MAX: usize = 8;
/// Half-open channels of a link at once. If there are more, the oldest is closed: it has no memory,
/// and its host connects again.
const HALF_OPEN_MAX: usize = 32;
/// How long a channel may be half-open. A host sends a frame at once, and repeats it.
const HALF_OPEN_LIFE: Duration = Duration::from_secs(2);
/// The least time between two Resets or refusals of another version, so that invalid frames do not
/// cause a flood of answers.
const RESET_INTERVAL: Duration = Duration::from_millis(5);

/// A link of a target.
#[derive(Clone, Copy, Debug)]
pub struct ListenerConfig {
    /// Index of the listener among those of the target: each part of a link has one of its own.
    pub link: usize,
    /// Longest frame of the link in bytes.
    pub frame_len_max: usize,
    /// Positions of the receive rings of each channel.
    pub rings: [u16; 2],
}

/// The part of a link that a listener serves, if several share the link. A frame of a channel
/// belongs to the part that the first byte of its cookie names, modulo the number of parts; a
/// Connect to the one that the first byte of the host's cookie names. All other frames belong to
/// the first part.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    index: u8,
    of: u8,
    /// The key of the link's tickets.
    key: u128,
}

impl Part {
    /// All parts of a link. `random`: a cryptographic source.
    ///
    /// # Panics
    /// If `of` is 0.
    pub fn all(of: u8, random: &mut dyn FnMut() -> u64) -> impl Iterator<Item = Self> {
        assert!(of > 0, "a link needs at least one part");
        let key = u128::from(random()) << 64 | u128::from(random());
        (0..of).map(move |index| Self { index, of, key })
    }

    /// Number of the part, from 0 on.
    pub fn index(&self) -> u8 {
        self.index
    }

    /// Number of parts.
    pub fn of(&self) -> u8 {
        self.of
    }

    /// Makes a cookie of this part from a random number.
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
    /// The first frame of a channel has come: the channel needs memory for `damq_pages` pages.
    Opened {
        /// The channel.
        channel: ChannelId,
        /// Index of its export.
        export: usize,
        /// The [`boot`](crate::ExportConfig::boot) in the channel's Accept: the export may have
        /// another one by now.
        boot: Uuid,
        /// Pages of its `damq`.
        damq_pages: u32,
        /// Slots of its `remq`.
        queue_size: u16,
        /// Whether the host wants stage times: [`Listener::note_times`].
        stages: bool,
    },
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

/// State of a channel, for statistics.
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
    /// Requests at the disk.
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
    /// Channels by index; a removed one leaves a gap that is used again.
    channels: Vec<Option<Open<R>>>,
    /// Index of the channel that is polled first for a frame (round robin).
    turn: usize,
    /// Cryptographic source, for cookies.
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
    /// UUID of the target.
    identity: Uuid,
    /// The upper 16 bits of the target's cookies, the same in every run.
    mark: u16,
    rejects: RejectCounts,
    /// Counters of channels that are closed.
    past: ChannelStats,
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

    /// Takes a frame. A rejected frame is counted.
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
        // Before the payload is parsed, so that a flood costs little.
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

    /// Answers the Discover of a host that speaks another version.
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
                // After the ticket: only hosts that can receive an answer use up the rate.
                if !self.connects.takes(now) {
                    return Err(Reject::Busy);
                }
                self.ask(Question::Connect(src, issued, Box::new(connect)))
            }
            _ => Err(Reject::Unexpected),
        }
    }

    /// Queues a question if there is room. Fences have room of their own, because writes wait for
    /// them.
    ///
    /// # Errors
    /// `Busy` if there is no room.
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

    /// Answers a repeated farewell on a channel that is closed or closing.
    ///
    /// # Errors
    /// `Channel` if the frame is not a repeated farewell.
    fn answer_again(&mut self, src: Mac, header: &Header, payload: &[u8]) -> Result<(), Reject> {
        let answer = self.farewells.repeated(src, header).ok_or(Reject::Channel)?;
        parse_body::<R>(header, payload)?;
        self.send(src, answer, None);
        Ok(())
    }

    /// Answers a frame for an unknown channel with a Reset, if the cookie was made by this target:
    /// in a former run, or for a channel that was given up.
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

    /// Divides the receive window among the channels of the link.
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

    /// Closes a channel: its frames are dropped from now on. It is removed when the disk has
    /// completed its last request.
    pub fn close(&mut self, channel: ChannelId) {
        if let Some(Some(open)) = self.channels.get_mut(usize::from(channel.0)) {
            open.closing = true;
        }
    }

    /// Closes all channels and sends farewells to their hosts, when the target ends.
    pub fn shut_down(&mut self, now: Instant) {
        for open in self.channels.iter_mut().flatten().filter(|open| !open.closing) {
            open.closing = true;
            if let Some(target) = &mut open.target {
                let farewell = target.channel.unsequenced(now, Kind::Disconnect, Flags::NONE);
                target.farewell = Some(farewell);
            }
        }
    }

    /// The channel of a request that is at the disk.
    fn busy(&mut self, channel: ChannelId) -> &mut TargetChannel<R> {
        let open = self.channels[usize::from(channel.0)].as_mut();
        let target = open.and_then(|open| open.target.as_mut());
        target.expect("a channel outlives its requests")
    }

    /// Notes the stage times of a request until `now`, right before it [completes](Self::complete).
    /// `transmit_ns` is measured by the listener. Has no effect on a channel without stage times.
    ///
    /// # Panics
    /// If the channel is not open.
    pub fn note_times(&mut self, now: Instant, channel: ChannelId, tag: Tag, times: Times) {
        self.busy(channel).note_times(now, tag, times);
    }

    /// Completes a request that the disk has executed, also on a closed channel, which waits for
    /// that. Returns whether the request keeps its pages, because its data are to be sent; if not,
    /// they are free at once.
    ///
    /// # Panics
    /// If the request was not handed out for execution.
    pub fn complete(&mut self, channel: ChannelId, tag: Tag, status: Status) -> bool {
        self.busy(channel).complete(tag, status)
    }

    /// Sends an event to all hosts of an export.
    pub fn notify(&mut self, export: usize, event: Event) {
        let channels = self.channels.iter_mut().flatten();
        for open in channels.filter(|open| open.grant.export == export) {
            match &mut open.target {
                Some(target) => target.notify(event),
                None => open.missed = Some(event),
            }
        }
    }

    /// The next event.
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

    /// Runs the timers that have expired.
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
    /// [`poll_transmit`](Self::poll_transmit) if there is no other input before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let open = self.channels.iter().flatten().filter(|open| !open.closing);
        open.map(|open| match &open.target {
            Some(target) => earliest(Some(target.channel.poll_timeout()), open.stalls_at()),
            None => Some(open.accepted_at + HALF_OPEN_LIFE),
        })
        .fold(None, earliest)
    }

    /// Numbers of dropped frames, by reason.
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
