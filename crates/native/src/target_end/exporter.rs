//! The exports on one link: joins its listener and the stores, without the loop that drives it.

use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use tyche_block::{Completion, OperationKind, PAGE, Request};
use tyche_engine::{
    Clock, DEPTH, Fault, Frames, Ports, Protocol, Received,
    placed::{self, LinkNodes},
    restore::Restores,
};
use tyche_proto::wire::{self, CREDIT_MIN, ChannelId, Event, Mac, Tag};
use tyche_proto::{
    Action, AllRules, ExportKey, Instant, Listener, ListenerEvent, Opened, OpenedChannel, Outgoing,
    Pace, Part, Refusal, Registry, Rule, Rules, TargetKeys, Visit,
};

use super::channels::{Channel, Channels};
use super::conversion::{block_operation, status};
use super::exports::{Exports, LoopWaker};
use super::lines::{Lines, Turn};
use super::open_disks::OpenDisks;
use super::report::TargetLinkReport;
use super::uses::{Executing, Use, Uses};
use crate::composer::{Composer, raw};
use crate::memory::ChannelMemory;

/// A channel that has not used its memory for so long, and twice that at most, gives it back.
/// Lower: more pages are allocated anew for hosts that pause.
const IDLE: Duration = Duration::from_secs(5);
/// The least time between two messages about channels that were turned away.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);
/// Sessions that have come or gone, and wait for the owner.
const VISITS_MAX: usize = 256;

/// What an exporter gets of its link and its machine.
pub struct ExporterEnv<R: Rules = AllRules> {
    /// Index of the exporter among those of all links: that of its listener.
    pub index: usize,
    /// The link's state of the protocol.
    pub listener: Listener<R>,
    /// The memory of channels.
    pub memory: Box<dyn ChannelMemory>,
    /// EtherType of the frames.
    pub ethertype: u16,
    /// The time.
    pub clock: Clock,
}

/// A change of the open channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelEvent {
    /// A host uses the channel.
    Opened {
        /// The channel.
        channel: ChannelId,
        /// Its export.
        export: ExportKey,
    },
    /// The channel is gone, and with it its memory. No request of it is at a store.
    Closed {
        /// The channel.
        channel: ChannelId,
    },
}

/// The protocol of a link at a target: its listener, the memory of its channels, and a queue to
/// each store. The owner has the link's [`Ports`] receive, calls [`work`](Self::work), has them
/// transmit, and takes `events`.
pub struct Exporter<R: Rules = AllRules> {
    listener: Listener<R>,
    exports: Arc<Exports>,
    index: usize,
    /// The means of other threads to call its loop.
    caller: Arc<LoopWaker>,
    disks: OpenDisks,
    channels: Channels,
    memory: Box<dyn ChannelMemory>,
    composer: Composer,
    /// The payload of a sealed frame, in the clear.
    opened: Opened,
    clock: Clock,
    /// Restores of this machine that its channels outlived.
    restores: Restores,
    /// When to look for channels that do not use their memory.
    looks_at: Option<Instant>,
    /// Those that were found.
    idle: Vec<ChannelId>,
    /// Messages about channels that were turned away.
    complaints: Pace,
    done: Vec<Completion>,
    /// Requests answered.
    requests: u64,
    /// The counters of hosts.
    uses: Uses,
    /// Requests that wait at limits.
    lines: Lines,
    /// The time of the owner's last call.
    now: Instant,
    /// Whether any channel has stages.
    timed: bool,
    /// Changes of the open channels, for the owner.
    pub events: Vec<ChannelEvent>,
    /// Sessions that have come or gone, for the owner.
    pub visits: Vec<Visit>,
}

impl<R: Rules> Exporter<R> {
    /// The exporter of a link, without channels.
    pub fn new(exports: Arc<Exports>, site: ExporterEnv<R>) -> Self {
        let ExporterEnv { index, mut listener, memory, ethertype, clock } = site;
        if memory.places() {
            listener.have_data_placed();
        }
        Self {
            listener,
            index,
            disks: OpenDisks::default(),
            caller: exports.caller(index),
            exports,
            channels: Channels::default(),
            memory,
            composer: Composer::new(ethertype),
            opened: Opened::default(),
            clock,
            restores: Restores::until_now(),
            looks_at: None,
            idle: Vec::new(),
            complaints: Pace::new(COMPLAINT_INTERVAL, 1),
            done: Vec::with_capacity(DEPTH),
            requests: 0,
            uses: Uses::default(),
            lines: Lines::default(),
            now: Instant(0),
            timed: false,
            events: Vec::new(),
            visits: Vec::new(),
        }
    }

    /// The link's state of the protocol.
    pub fn listener(&self) -> &Listener<R> {
        &self.listener
    }

    /// The channel and the tag of a request at a store.
    pub fn request(token: u64) -> (ChannelId, Tag) {
        (ChannelId((token >> 32) as u16), Tag::from_bits(token as u32))
    }

    /// Advances the requests at the stores, and serves all work that needs the registry; false if
    /// there was none.
    pub fn work(&mut self, now: Instant) -> bool {
        self.now = now;
        if self.restores.is_another() {
            self.listener.renew_keys();
        }
        let has_started = self.take_turns(now);
        self.execute(now) | self.serve_requests(now) | has_started
    }

    /// The next host that was refused, for the log.
    pub(super) fn poll_refusal(&mut self) -> Option<Refusal> {
        self.listener.poll_refusal()
    }

    /// Notifies the hosts of an event of an export.
    pub fn notify(&mut self, export: ExportKey, event: Event) {
        self.listener.notify(export, event);
    }

    /// Changes the target's keys.
    pub fn set_keys(&mut self, now: Instant, keys: TargetKeys) {
        self.listener.set_keys(now, keys);
    }

    /// Closes all channels, and lets nobody in any more.
    pub fn shut_down(&mut self, now: Instant) {
        self.listener.shut_down(now);
    }

    /// Whether there is no channel: none has memory, and the registry knows of none.
    pub fn is_idle(&self) -> bool {
        self.channels.is_empty() && self.listener.is_idle()
    }

    /// The counters of hosts.
    pub(super) fn uses(&self) -> Vec<Use> {
        self.uses.all(|line| self.lines.waiting(line))
    }

    /// The means of other threads to call its loop.
    pub(super) fn caller(&self) -> &LoopWaker {
        &self.caller
    }

    /// The descriptors of the stores to wait for.
    pub(super) fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.disks.wait_fds()
    }

    /// Handles all events. `frame`: the received frame that they came of, if any, and when it was
    /// read.
    fn settle(&mut self, frame: Option<(Instant, &Received<'_>)>) {
        while let Some(event) = self.listener.poll_event() {
            match event {
                ListenerEvent::Opened(opened) => self.open(&opened),
                ListenerEvent::Action { channel, action } => self.act(channel, action, frame),
                ListenerEvent::Closed { channel } => self.close(channel),
            }
        }
    }

    /// Opens a channel, if there is memory for it.
    fn open(&mut self, opened: &OpenedChannel) {
        let &OpenedChannel { channel: id, export, generation, damq_pages, host, peer, .. } = opened;
        let peer = opened.may_place.then_some(peer);
        let arena = match self.memory.open(id, damq_pages as usize, peer) {
            Ok(arena) => arena,
            Err(error) => return self.turn_away(id, damq_pages, &error),
        };
        let is_there = |export| self.exports.exported(export).is_some();
        if !self.memory.is_exposed(id) {
            arena.set_usable(CREDIT_MIN as usize);
        }
        let use_index = self.uses.begin(export, host, is_there);
        self.lines.open(use_index, self.exports.limits(export, host));
        let of = (export, use_index, generation);
        let sizes = (opened.queue_size, self.memory.is_exposed(id));
        let channel = Channel::new(of, arena, sizes, opened.stages);
        self.disks.open(export, &channel.arena, &self.exports);
        self.events.push(ChannelEvent::Opened { channel: id, export });
        self.channels.open(id, channel);
        self.timed = self.channels.are_timed();
    }

    /// Ends a channel for which there is no memory, and whose requests are none of the stores'. Its
    /// host is told, and tries again.
    fn turn_away(&mut self, id: ChannelId, damq_pages: u32, error: &io::Error) {
        let now = self.clock.now();
        self.listener.turn_away(now, id);
        if self.complaints.takes(now) {
            let kib = u64::from(damq_pages) * (PAGE as u64 / 1024);
            tracing::error!(%error, "no memory for a channel ({kib} KiB): its host is turned away");
        }
    }

    /// Gives the memory of channels back that have not used it for a while: that of one at a time,
    /// for others wait.
    fn give_back_idle(&mut self, now: Instant) {
        if let Some(id) = self.idle.pop() {
            self.listener.rest(id);
            self.settle(None);
            if let Some(channel) = self.channels.get_mut(id)
                && channel.rest()
            {
                self.disks.give_back(channel.export, &channel.arena, 0);
            }
        } else {
            self.idle = self.channels.look();
        }
        let looks_at = if self.idle.is_empty() { now + IDLE } else { now };
        self.looks_at = self.channels.are_active().then_some(looks_at);
    }

    fn close(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.close(id) else { return };
        let export = channel.export;
        self.uses.end(channel.use_index);
        self.lines.close(channel.use_index, id);
        self.disks.close::<R>(export, &channel.into_arena(), &self.exports);
        self.timed = self.channels.are_timed();
        self.events.push(ChannelEvent::Closed { channel: id });
    }

    fn act(&mut self, id: ChannelId, action: Action, frame: Option<(Instant, &Received<'_>)>) {
        let Some(channel) = self.channels.get_mut(id) else {
            // It was turned away.
            if let Action::Execute { command } = action {
                self.listener.close_without(id, command.tag);
            }
            return;
        };
        match action {
            Action::Release { slot } => channel.release(slot),
            Action::Credit { pages } => {
                let before = channel.arena.usable();
                channel.arena.set_usable(pages as usize);
                if channel.arena.usable() < before {
                    self.disks.give_back(channel.export, &channel.arena, pages as usize);
                }
            }
            Action::Claim { slot, page, len } => {
                channel.claim(slot, page, len);
                self.looks_at.get_or_insert(self.now + IDLE);
            }
            Action::Place { slot, offset, len, source } => {
                let (_, frame) = frame.expect("data come with a frame");
                channel.place(slot, offset, &frame.payload[source as usize..][..len as usize]);
            }
            Action::Execute { command } => {
                if let Some(stages) = &mut channel.stages
                    && let Some((read, frame)) = frame
                {
                    stages.begun(command.tag.slot, self.clock.now(), read, frame.waited);
                }
                if self.lines.passes(self.now, channel.use_index) {
                    return self.start(id, &command);
                }
                self.listener.hold(id, command.tag);
                self.lines.push(self.now, channel.use_index, (id, command));
            }
        }
    }

    /// Starts the requests whose turn has come; false if there was none.
    fn take_turns(&mut self, now: Instant) -> bool {
        self.lines.begin_turn(now);
        let mut has_started = false;
        while let Some(Turn { channel, command, line, waited }) = self.lines.next(now) {
            if !self.listener.resume(channel, command.tag) {
                continue;
            }
            if !waited.is_zero() {
                self.uses.count_wait(line, waited);
            }
            self.start(channel, &command);
            has_started = true;
        }
        has_started
    }

    /// Submits a request to its store, or answers an invalid one at once.
    fn start(&mut self, id: ChannelId, command: &wire::Command) {
        if !command.opcode.returns_data() && self.is_outdated(id) {
            // A write would count for the generation of the channel, and a flush promise that what
            // that generation has lost is durable.
            self.listener.close_without(id, command.tag);
            return self.channels[id].release(command.tag.slot);
        }
        let channel = &mut self.channels[id];
        let request = Request {
            operation: block_operation(command),
            offset: command.offset,
            len: command.len,
            buffer: channel.take(command.tag.slot).filter(|_| command.opcode.has_data()),
        };
        let (operation, len) = (OperationKind::from(request.operation), command.len);
        channel.begin(command.tag.slot, Executing { operation, len, begun: self.now });
        let disk = self.disks.get_mut(channel.export);
        let checked = disk.check(&request, &channel.arena);
        let token = token(id, command.tag);
        let result = match checked {
            Ok(()) => match disk.lend(&request) {
                Some(loan) => {
                    channel.lend(command.tag.slot, loan);
                    Ok(())
                }
                None => return disk.submit(token, request),
            },
            Err(errno) => Err(errno),
        };
        self.done.push(Completion { token, result, buffer: request.buffer });
    }

    /// Whether the export of a channel has lost writes since it was opened. Then the channel is to
    /// be closed: its host opens another, learns of the loss by the Accept, and sends again what
    /// was not answered.
    fn is_outdated(&mut self, id: ChannelId) -> bool {
        let Channel { export, generation, .. } = self.channels[id];
        R::keeps(Rule::OneGeneration) && self.disks.generation(export, &self.exports) != generation
    }

    /// Advances the requests at the stores, and answers finished ones.
    fn execute(&mut self, now: Instant) -> bool {
        self.disks.work(now, &self.exports, &mut self.done);
        let worked = !self.done.is_empty();
        self.requests += self.done.len() as u64;
        let staged_at = if self.timed { self.clock.now() } else { Instant(0) };
        let mut done = mem::take(&mut self.done);
        for Completion { token, result, buffer } in done.drain(..) {
            let (id, tag) = Self::request(token);
            let request = self.channels[id].ended(tag.slot);
            self.uses.count(self.channels[id].use_index, request, result, now);
            let is_flush = request.operation == OperationKind::Flush;
            if is_flush && result.is_ok() && R::keeps(Rule::DoubtFlush) && self.is_outdated(id) {
                // What was lost while it was with the disk may be what it was to make durable.
                self.listener.close(id);
            }
            let channel = &mut self.channels[id];
            if let Some(stages) = &channel.stages {
                let times = stages.ended(tag.slot, staged_at);
                self.listener.note_times(staged_at, id, tag, times);
            }
            let keeps_pages = self.listener.complete(id, tag, status(result));
            match buffer {
                Some(buffer) if keeps_pages => channel.put(tag.slot, buffer),
                _ => channel.release(tag.slot),
            }
        }
        self.done = done;
        worked
    }

    /// Serves all work that needs the registry; false if there was none.
    fn serve_requests(&mut self, now: Instant) -> bool {
        let called = self.caller.is_called();
        let worked = called || self.listener.has_requests();
        if worked {
            let Self { listener, memory, visits, .. } = self;
            let serve = |registry: &mut Registry| {
                listener.serve_requests(now, registry);
                // Others learn that a channel is closed when the registry is free again: nothing
                // of its host may change memory of ours any more then.
                if R::keeps(Rule::EndPlacement) {
                    listener.closed().for_each(|channel| memory.close(channel));
                }
            };
            self.exports.admit::<R>(self.index, serve, |visit| {
                // An owner without a log does not take them.
                if visits.len() < VISITS_MAX {
                    visits.push(visit);
                }
            });
            self.settle(None);
        }
        worked
    }

    /// Reports the state of the link.
    pub(super) fn report(&self, ports: &mut Ports) -> TargetLinkReport {
        let (_, port) = ports.iter_mut().next().expect("a link's loop has one port");
        TargetLinkReport {
            link: port.link().name().to_owned(),
            mac: Mac(port.link().mac()),
            problem: port.trouble().map(str::to_owned),
            requests: self.requests,
            uses: self.uses(),
            by_thread: vec![self.requests],
            port: port.stats(),
            link_counters: port.link().counters(),
            channel: self.listener.stats(),
            rejects: *self.listener.rejects(),
            refusals: *self.listener.refusals(),
            channels: self.listener.channels().collect(),
            nodes: LinkNodes {
                nic: port.home().nic,
                ring: port.link().memory_nodes(),
                channels: self.channels.memory_nodes(),
                cpus: placed::own_cpus(),
            },
        }
    }
}

impl<R: Rules> Protocol for Exporter<R> {
    fn handle_frame(&mut self, now: Instant, _: usize, frame: &Received<'_>) {
        self.now = now;
        let mut opened = mem::take(&mut self.opened);
        let payload = self.listener.handle_frame(now, raw(frame), &mut opened);
        self.settle(Some((now, &Received { payload, ..*frame })));
        self.opened = opened;
    }

    fn handle_fault(&mut self, now: Instant, _: usize, fault: Fault) {
        if let Fault::Narrowed(frame_len_max) = fault {
            self.listener.narrow(now, frame_len_max);
        }
    }

    fn handle_frame_len_max(&mut self, _: usize, frame_len_max: usize) {
        self.listener.set_frame_len_max(frame_len_max);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.looks_at.is_some_and(|at| at <= now) {
            self.give_back_idle(now);
        }
        self.listener.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = [self.disks.watch_at(), self.lines.next_at(), self.looks_at];
        own.into_iter().chain([self.listener.poll_timeout()]).flatten().min()
    }

    fn frames(&mut self, _: usize) -> impl Frames<'_> {
        let Self { listener, channels, composer, .. } = self;
        let data = |out: &Outgoing, part: &Part| {
            channels[out.channel.expect("data belong to a channel")].data(part)
        };
        composer.frames(|now, out| listener.poll_transmit(now, out), data)
    }

    fn is_timed(&self) -> bool {
        self.timed
    }
}

/// The token of a channel's request at its store.
fn token(channel: ChannelId, tag: Tag) -> u64 {
    u64::from(channel.0) << 32 | u64::from(tag.to_bits())
}
