//! A target on one link: answers discovery and probes, opens and closes channels, and drives them.
//!
//! One input (`handle_frame`, `complete`, `handle_timeout`), then drain the outputs: `poll_event`
//! until it has nothing more, `serve_requests` if [`Listener::has_requests`], `poll_transmit`.

use std::collections::VecDeque;
use std::time::Duration;

use arrayvec::ArrayVec;
use tyche_wire::{
    Accept, Body, ChannelId, Checksum, Connect, ConnectFlags, Control, Cookie, Discover, Event,
    Fence, Fenced, Flags, HEAD_LEN, Header, Hello, Kind, Mac, Offer, RECORDS_MAX, Reject,
    Rejection, Reset, Status, Tag, Times, Uuid,
};

use crate::channel::ChannelConfig;
use crate::outgoing::Outgoing;
use crate::registry::{Admission, ChannelRef, Grant, Registry};
use crate::rules::{Rules, Sound};
use crate::stats::{ChannelStats, RejectCounts};
use crate::target::{Action, TargetChannel};
use crate::time::{Instant, earliest};

/// Requests of hosts without a channel that wait to be served; more are dropped and asked again.
const REQUESTS_MAX: usize = 64;
/// Frames to hosts without a channel that wait to be sent.
const OUTBOX_MAX: usize = 256;
/// Decisions about connects that are remembered. Fewer: a connect that the network repeats much
/// later is taken for a new one, and displaces whoever is connected by then.
const DECISIONS_MAX: usize = 256;
/// The least time between two resets: garbage must not make us talk.
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

/// What happened on a link of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerEvent {
    /// A channel was opened: it needs memory for `damq_pages` pages.
    Opened {
        /// The channel.
        channel: ChannelId,
        /// Index of its export.
        export: usize,
        /// Whether it may write.
        writer: bool,
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

struct Open<R> {
    target: TargetChannel<R>,
    export: usize,
    accept: Accept,
    /// Frames are dropped; the channel goes when its last request is back from the disk.
    closing: bool,
}

/// What was decided about a connect. Each attempt is decided about once: the network may repeat
/// a connect when its session is long gone.
struct Decision {
    src: Mac,
    attempt: u64,
    verdict: Verdict,
}

enum Verdict {
    /// Other channels have to be closed first.
    Waiting,
    Refused(Rejection),
    /// The channel was opened, or the host has begun another attempt since.
    Over,
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
    requests: VecDeque<(Mac, Control)>,
    /// Connects that were decided about, the newest last.
    decisions: VecDeque<Decision>,
    outbox: VecDeque<(Mac, Flags, Control)>,
    events: VecDeque<ListenerEvent>,
    reset_after: Instant,
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
        random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Self {
        Self {
            config,
            channels: Vec::new(),
            turn: 0,
            random,
            requests: VecDeque::new(),
            decisions: VecDeque::with_capacity(DECISIONS_MAX),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            reset_after: Instant(0),
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
        let (src, header) = (Mac::source(head), Header::parse(head)?);
        if header.kind.on_channel() {
            return self.handle_channel_frame(now, src, &header, payload);
        }
        let Body::Control(pdu) = Body::parse(&header, payload)? else {
            return Err(Reject::Unexpected);
        };
        self.handle_control(src, &header, pdu.decode())
    }

    /// Takes a frame that belongs to no channel.
    fn handle_control(
        &mut self,
        src: Mac,
        header: &Header,
        control: Control,
    ) -> Result<(), Reject> {
        match control {
            Control::Hello(hello) => self.handle_hello(src, header, hello),
            Control::Discover(_) | Control::Connect(_) | Control::Fence(_) => {
                if self.requests.len() < REQUESTS_MAX {
                    self.requests.push_back((src, control));
                }
                Ok(())
            }
            _ => Err(Reject::Unexpected),
        }
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
        let open = match known {
            Some(open) if open.target.channel.check_cookie(header).is_ok() => open,
            known => {
                let reject = if known.is_some() { Reject::Cookie } else { Reject::Channel };
                self.reset(now, src, header);
                return Err(reject);
            }
        };
        if open.closing {
            return Err(Reject::Channel);
        }
        let body = if R::CHECK_PAYLOAD {
            Body::parse(header, payload)?
        } else {
            Body::parse_unchecked(header, payload)?
        };
        if header.kind == Kind::Disconnect {
            let answer = open.target.channel.unsequenced(now, Kind::Disconnect, Flags::REPLY);
            open.target.farewell = Some(answer);
            self.close(header.channel);
            return Ok(());
        }
        let (channel, events) = (header.channel, &mut self.events);
        open.target.handle_frame(now, header, &body, |action| {
            events.push_back(ListenerEvent::Action { channel, action });
        })
    }

    /// A frame for a channel that is not there, though its cookie is one of ours: the host talks
    /// to a former run of this target, or to a channel that was given up.
    fn reset(&mut self, now: Instant, src: Mac, header: &Header) {
        if (header.cookie.0 >> 48) as u16 != self.mark || now < self.reset_after {
            return;
        }
        self.reset_after = now + RESET_INTERVAL;
        let reset = Reset { cookie: header.cookie, channel: header.channel };
        self.post(src, Flags::NONE, Control::Reset(reset));
    }

    fn post(&mut self, to: Mac, flags: Flags, control: Control) {
        if self.outbox.len() < OUTBOX_MAX {
            self.outbox.push_back((to, flags, control));
        }
    }

    fn handle_hello(&mut self, src: Mac, header: &Header, hello: Hello) -> Result<(), Reject> {
        if header.flags.contains(Flags::REPLY) {
            return Err(Reject::Unexpected);
        }
        if hello.frame_len as usize <= self.config.frame_len_max {
            self.post(src, Flags::REPLY, Control::Hello(hello));
        }
        Ok(())
    }

    /// Whether hosts wait for an answer that needs the registry, or channels are to be reported
    /// to it.
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty() || self.channels.iter().flatten().any(Open::is_over)
    }

    /// Answers what needs the registry: discovery and connects; closes what others displaced, and
    /// reports what is closed.
    pub fn serve_requests(&mut self, now: Instant, registry: &mut Registry) {
        while let Some((src, control)) = self.requests.pop_front() {
            match control {
                Control::Discover(discover) => self.offer(src, &discover, registry),
                Control::Connect(connect) => self.connect(now, src, &connect, registry),
                Control::Fence(fence) => self.fence(src, &fence, registry),
                other => unreachable!("{other} is not queued"),
            }
        }
        self.close_displaced(registry);
        self.reap(registry);
    }

    fn close_displaced(&mut self, registry: &mut Registry) {
        for channel in registry.take_closing(self.config.link) {
            self.close(channel);
        }
    }

    /// Lets go of closed channels that have nothing with the disk any more.
    fn reap(&mut self, registry: &mut Registry) {
        let mut closed = false;
        for (index, slot) in self.channels.iter_mut().enumerate() {
            if let Some(open) = slot.take_if(|open| open.is_over()) {
                let channel = ChannelId(index as u16);
                registry.closed(open.export, ChannelRef { link: self.config.link, channel });
                self.past += open.target.channel.stats;
                self.events.push_back(ListenerEvent::Closed { channel });
                closed = true;
            }
        }
        if closed {
            self.share_receiver();
        }
    }

    fn offer(&mut self, src: Mac, discover: &Discover, registry: &Registry) {
        let exports: Vec<_> = registry.offered(discover.host, &discover.export).collect();
        if exports.is_empty() && !discover.export.is_empty() {
            return;
        }
        let total = u16::try_from(exports.len()).unwrap_or(u16::MAX);
        let mut first = 0;
        loop {
            let rest = &exports[usize::from(first)..usize::from(total)];
            let records: ArrayVec<_, RECORDS_MAX> =
                rest.iter().take(RECORDS_MAX).cloned().collect();
            let count = records.len() as u16;
            let target = registry.target();
            let offer = Offer {
                nonce: discover.nonce,
                target: target.uuid,
                name: target.name,
                first,
                total,
                exports: records,
            };
            self.post(src, Flags::NONE, Control::Offer(offer));
            first += count;
            if first >= total {
                return;
            }
        }
    }

    fn connect(&mut self, now: Instant, src: Mac, connect: &Connect, registry: &mut Registry) {
        let repeated = self.channels.iter().flatten().find(|open| {
            open.accept.attempt == connect.attempt
                && open.target.channel.peer() == src
                && !open.closing
        });
        if let Some(open) = repeated {
            let accept = open.accept.clone();
            return self.post(src, Flags::NONE, Control::Accept(accept));
        }
        match &self.decision(src, connect.attempt).verdict {
            Verdict::Waiting => {}
            Verdict::Refused(rejection) => {
                let rejection = rejection.clone();
                return self.post(src, Flags::NONE, Control::Reject(rejection));
            }
            Verdict::Over => return,
        }
        let mut admission = registry.admit::<R>(connect);
        if matches!(admission, Admission::Wait) {
            self.close_displaced(registry);
            self.reap(registry);
            admission = registry.admit::<R>(connect);
        }
        match admission {
            Admission::Wait => {}
            Admission::Refused(reason, detail) => {
                let rejection = Rejection { attempt: connect.attempt, reason, detail };
                self.decision(src, connect.attempt).verdict = Verdict::Refused(rejection.clone());
                self.post(src, Flags::NONE, Control::Reject(rejection));
            }
            Admission::Granted(grant) => {
                self.decision(src, connect.attempt).verdict = Verdict::Over;
                let accept = self.open(now, src, connect, grant, registry);
                self.post(src, Flags::NONE, Control::Accept(accept));
            }
        }
    }

    /// What was decided about an attempt. A new one takes the place of those of the same host that
    /// still wait.
    fn decision(&mut self, src: Mac, attempt: u64) -> &mut Decision {
        let known = self.decisions.iter().position(|it| (it.src, it.attempt) == (src, attempt));
        let index = known.unwrap_or_else(|| {
            for other in self.decisions.iter_mut().filter(|other| other.src == src) {
                if matches!(other.verdict, Verdict::Waiting) {
                    other.verdict = Verdict::Over;
                }
            }
            if self.decisions.len() == DECISIONS_MAX {
                self.decisions.pop_front();
            }
            self.decisions.push_back(Decision { src, attempt, verdict: Verdict::Waiting });
            self.decisions.len() - 1
        });
        &mut self.decisions[index]
    }

    /// Closes a channel for its session. Answers only once it is closed and nothing of it is with
    /// the disk; until then the host asks again. Which requests were executed is not known any
    /// more, and not told: the host repeats them all.
    fn fence(&mut self, src: Mac, fence: &Fence, registry: &mut Registry) {
        let mut closed = !R::CLOSE_BEFORE_FENCED || registry.fence(fence);
        if !closed {
            self.close_displaced(registry);
            self.reap(registry);
            closed = !R::DRAIN_BEFORE_FENCED || registry.fence(fence);
        }
        if closed {
            let Fence { session, cookie, channel, .. } = *fence;
            let outcomes = ArrayVec::new();
            let fenced = Fenced { session, cookie, channel, outcomes };
            self.post(src, Flags::NONE, Control::Fenced(fenced));
        }
    }

    fn open(
        &mut self,
        now: Instant,
        src: Mac,
        connect: &Connect,
        grant: Grant,
        registry: &mut Registry,
    ) -> Accept {
        let gap = self.channels.iter().position(Option::is_none);
        let index = gap.unwrap_or_else(|| {
            self.channels.push(None);
            self.channels.len() - 1
        });
        let channel = ChannelId(index as u16);
        let cookie = Cookie((self.random)() >> 16 | u64::from(self.mark) << 48);
        let checksum = connect.flags.contains(ConnectFlags::CHECKSUM);
        let stages = connect.flags.contains(ConnectFlags::STAGES);
        let (target, export) = (registry.target(), registry.export(grant.export));
        let accept = Accept {
            attempt: connect.attempt,
            target: target.uuid,
            boot: export.boot,
            export: export.uuid,
            size: export.size,
            cookie,
            channel,
            queue_size: grant.queue_size,
            rings: self.config.rings,
            frame_len: connect.frame_len.min(self.config.frame_len_max as u32),
            damq_pages: grant.damq_pages,
            block_size: export.block_size,
            flags: export.accept_flags(grant.writer, checksum, stages),
            keep_alive_ms: connect.keep_alive_ms,
        };
        let config = ChannelConfig {
            own: (channel, cookie),
            peer: (connect.channel, connect.cookie),
            peer_mac: src,
            frame_len: accept.frame_len as usize,
            rx_rings: self.config.rings,
            tx_rings: connect.rings,
            keep_alive_ns: u64::from(connect.keep_alive_ms) * 1_000_000,
            checksum,
            stages,
            batch: registry.target().batch,
        };
        let Grant { export, writer, queue_size, damq_pages } = grant;
        let target = TargetChannel::new(config, queue_size, damq_pages, now);
        self.channels[index] =
            Some(Open { target, export, accept: accept.clone(), closing: false });
        let reference = ChannelRef { link: self.config.link, channel };
        registry.opened(connect, grant, reference, (src, cookie));
        self.share_receiver();
        self.events.push_back(ListenerEvent::Opened {
            channel,
            export,
            writer,
            damq_pages,
            queue_size,
            stages,
        });
        accept
    }

    /// The channels of the link share the room for frames that have come.
    fn share_receiver(&mut self) {
        let open = |open: &&mut Open<R>| !open.closing;
        let count = self.channels.iter_mut().flatten().filter(open).count();
        for open in self.channels.iter_mut().flatten().filter(open) {
            open.target.channel.share_receiver(count);
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
            let farewell = open.target.channel.unsequenced(now, Kind::Disconnect, Flags::NONE);
            open.target.farewell = Some(farewell);
            open.closing = true;
        }
    }

    /// Notes where a request's time went until `now`, right before it [completes](Self::complete);
    /// `transmit_ns` is found out here. Means nothing on a channel without stages.
    ///
    /// # Panics
    /// If the channel is not open.
    pub fn note_times(&mut self, now: Instant, channel: ChannelId, tag: Tag, times: Times) {
        let open = self.channels[usize::from(channel.0)].as_mut();
        open.expect("a channel outlives its requests").target.note_times(now, tag, times);
    }

    /// The disk has executed a request. Completions of closed channels are welcome: they are what
    /// the channel still waits for. Returns whether the request keeps its pages, for its data are
    /// to be sent; if not, they are free at once.
    ///
    /// # Panics
    /// If the request was not handed out for execution.
    pub fn complete(&mut self, channel: ChannelId, tag: Tag, status: Status) -> bool {
        let open = self.channels[usize::from(channel.0)].as_mut();
        open.expect("a channel outlives its requests").target.complete(tag, status)
    }

    /// Tells all channels of an export what happened to it.
    pub fn notify(&mut self, export: usize, event: Event) {
        for open in self.channels.iter_mut().flatten().filter(|open| open.export == export) {
            open.target.notify(event);
        }
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<ListenerEvent> {
        self.events.pop_front()
    }

    /// Composes the next frame; false if there is none to send now.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Outgoing) -> bool {
        if let Some((to, flags, control)) = self.outbox.pop_front() {
            let header = Header { flags, ..Header::new(control.kind()) };
            out.set_control(to, header, Some(control));
            return true;
        }
        let count = self.channels.len();
        for i in 0..count {
            let index = (self.turn + i) % count;
            let Some(open) = &mut self.channels[index] else { continue };
            if let Some(header) = open.target.farewell.take() {
                out.set_control(open.target.channel.peer(), header, None);
                return true;
            }
            if !open.closing && open.target.poll_transmit(now, out) {
                out.channel = Some(ChannelId(index as u16));
                self.turn = index + 1;
                return true;
            }
        }
        false
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        for open in self.channels.iter_mut().flatten().filter(|open| !open.closing) {
            if open.target.channel.handle_timeout(now).is_err() {
                open.closing = true;
            }
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit) if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let open = self.channels.iter().flatten().filter(|open| !open.closing);
        open.map(|open| Some(open.target.channel.poll_timeout())).fold(None, earliest)
    }

    /// Dropped frames.
    pub fn rejects(&self) -> &RejectCounts {
        &self.rejects
    }

    /// Counters of all channels, the closed ones included.
    pub fn stats(&self) -> ChannelStats {
        let mut stats = self.past;
        for open in self.channels.iter().flatten() {
            stats += open.target.channel.stats;
        }
        stats
    }

    /// The open channels.
    pub fn channels(&self) -> impl Iterator<Item = ChannelReport> {
        self.channels.iter().enumerate().filter_map(|(index, open)| {
            let open = open.as_ref().filter(|open| !open.closing)?;
            Some(ChannelReport {
                channel: ChannelId(index as u16),
                export: open.export,
                host: open.target.channel.peer(),
                frame_len: open.accept.frame_len,
                executing: open.target.executing(),
                rtt: open.target.channel.rtt(),
                congestion_window: open.target.channel.congestion_window(),
                stats: open.target.channel.stats,
            })
        })
    }
}

impl<R: Rules> Open<R> {
    fn is_over(&self) -> bool {
        self.closing && self.target.executing() == 0 && self.target.farewell.is_none()
    }
}
