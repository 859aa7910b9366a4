//! The thread of one link, which joins the link, the protocol and the stores.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tyche_block::{Completion, Errno, Operation, Request};
use tyche_link::Link;
use tyche_numa::Home;
use tyche_proto::wire::{self, ChannelId, Event, Mac, Tag, Uuid};
use tyche_proto::{
    Action, Instant, LinkPart, Listener, ListenerConfig, ListenerEvent, Outgoing, Part,
};
use tyche_wake::Spin;

use super::TargetLinkReport;
use super::channels::{Channel, Channels};
use super::conversion::{block_operation, status};
use super::disk::{DEPTH, Disk};
use super::exported::Exported;
use super::shared::Shared;
use crate::clock::{self, now};
use crate::placed::{self, LinkNodes, Residence};
use crate::port::Port;
use crate::random::secrets;
use crate::wait::wait;

enum Command {
    Report(SyncSender<TargetLinkReport>),
    Notify(usize, Event),
    Stop,
}

/// The parts and the placement of a link's thread.
pub(super) struct Site {
    /// Index of the link.
    pub(super) index: usize,
    pub(super) link: Box<dyn Link>,
    /// The part of the link that is this thread's.
    pub(super) part: LinkPart,
    pub(super) ethertype: u16,
    pub(super) home: Home,
    /// By export.
    pub(super) exports: Vec<Arc<Exported>>,
    /// The longest spin before sleeping.
    pub(super) spin: Duration,
    pub(super) shared: Arc<Shared>,
}

/// The running thread.
pub(super) struct LinkThread {
    commands: Sender<Command>,
    shared: Arc<Shared>,
    /// Index of its link.
    index: usize,
    thread: JoinHandle<()>,
}

impl LinkThread {
    /// Starts the thread of a link of the target.
    ///
    /// # Errors
    /// The system's error when the thread cannot be created.
    pub(super) fn start(site: Site, target: Uuid) -> io::Result<Self> {
        let (sender, commands) = channel();
        let (index, shared) = (site.index, Arc::clone(&site.shared));
        let name = format!("tyche-link{index}");
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            // First, so that the loop's own memory is near, too.
            Residence::new().move_to(&site.home);
            let _near = placed::near(&site.home);
            TargetLoop::new(site, target, commands).run();
        })?;
        Ok(Self { commands: sender, shared, index, thread })
    }

    fn send(&self, command: Command) {
        // A thread that has ended needs no commands.
        let _ = self.commands.send(command);
        self.shared.caller(self.index).doorbell.ring();
    }

    /// Reports the state of the link; `None` if its thread does not answer within a second.
    pub(super) fn report(&self) -> Option<TargetLinkReport> {
        let (sender, receiver) = sync_channel(1);
        self.send(Command::Report(sender));
        receiver.recv_timeout(Duration::from_secs(1)).ok()
    }

    /// Notifies the hosts of an event of an export.
    pub(super) fn notify(&self, export: usize, event: Event) {
        self.send(Command::Notify(export, event));
    }

    /// Closes all channels; the thread ends when the disk has finished their requests.
    pub(super) fn stop(&self) {
        self.send(Command::Stop);
    }

    /// Waits for the end.
    pub(super) fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("a link's thread panicked");
        }
    }
}

struct TargetLoop {
    listener: Listener,
    port: Port,
    shared: Arc<Shared>,
    /// Index of this link.
    index: usize,
    /// By export.
    disks: Vec<Disk>,
    channels: Channels,
    commands: Receiver<Command>,
    out: Outgoing,
    done: Vec<Completion>,
    /// Requests answered.
    requests: u64,
    spin: Spin,
    stopping: bool,
    /// Whether any channel has stages.
    timed: bool,
    /// The time at which the current frames were read.
    read: Instant,
}

impl TargetLoop {
    fn new(site: Site, target: Uuid, commands: Receiver<Command>) -> Self {
        let Site { index, link, part, ethertype, home, exports, spin, shared } = site;
        let port = Port::new(link, ethertype, home);
        let config = ListenerConfig {
            link: index,
            frame_len_max: port.link().frame_len_max(),
            rings: port.rings(),
        };
        Self {
            listener: Listener::of_part(config, target, part, secrets()),
            port,
            shared,
            index,
            disks: exports.into_iter().map(Disk::new).collect(),
            channels: Channels::default(),
            commands,
            out: Outgoing::new(),
            done: Vec::with_capacity(DEPTH),
            requests: 0,
            spin: Spin::new(spin),
            stopping: false,
            timed: false,
            read: Instant(0),
        }
    }

    fn run(mut self) {
        while !(self.stopping && self.channels.is_empty()) {
            let now = now();
            if self.turn(now) {
                self.spin.worked();
            } else if !self.spin.again(now.0) {
                self.sleep();
            }
        }
    }

    /// Runs one round; false if there was nothing to do.
    fn turn(&mut self, now: Instant) -> bool {
        let mut worked = self.obey();
        worked |= self.receive(now);
        worked |= self.execute();
        if self.listener.poll_timeout().is_some_and(|at| at <= now) {
            self.listener.handle_timeout(now);
        }
        worked |= self.serve_requests(now);
        worked |= self.transmit(now);
        worked
    }

    fn obey(&mut self) -> bool {
        let mut worked = false;
        while let Ok(command) = self.commands.try_recv() {
            worked = true;
            match command {
                Command::Report(to) => {
                    let _ = to.send(self.report());
                }
                Command::Notify(export, event) => self.listener.notify(export, event),
                Command::Stop => {
                    self.stopping = true;
                    self.listener.shut_down(now());
                }
            }
        }
        worked
    }

    /// The current time if a channel has stages; else the time of the round.
    fn fresh(&self, of_turn: Instant) -> Instant {
        if self.timed { now() } else { of_turn }
    }

    fn receive(&mut self, now: Instant) -> bool {
        let frames = self.port.receive(now);
        self.read = self.fresh(now);
        let now = self.read;
        for index in 0..frames {
            let frame = self.port.rx.frame(index);
            self.listener.handle_frame(now, frame.head, frame.payload);
            self.settle(Some(index));
        }
        self.port.rx.clear();
        frames > 0
    }

    /// Handles all events; `frame` is the received frame that they refer to.
    fn settle(&mut self, frame: Option<usize>) {
        while let Some(event) = self.listener.poll_event() {
            match event {
                ListenerEvent::Opened { channel, export, boot, damq_pages, queue_size, stages } => {
                    let arena = placed::channel_arena(self.port.home(), damq_pages as usize);
                    let opened = Channel::new((export, boot), arena, queue_size, stages);
                    self.open(channel, opened);
                }
                ListenerEvent::Action { channel, action } => self.act(channel, action, frame),
                ListenerEvent::Closed { channel } => self.close(channel),
            }
        }
    }

    fn open(&mut self, id: ChannelId, channel: Channel) {
        if let Err(error) = self.disks[channel.export].register(&channel.arena) {
            // Requests of this channel fail: the host gets I/O errors instead of timeouts.
            tracing::error!(%error, "cannot open a queue to the store");
        }
        self.channels.open(id, channel);
        self.tell_times();
    }

    fn close(&mut self, id: ChannelId) {
        let channel = self.channels.close(id);
        let export = channel.export;
        self.disks[export].unregister(&channel.into_arena());
        self.tell_times();
    }

    /// Turns stage times on or off as the open channels need.
    fn tell_times(&mut self) {
        let timed = self.channels.are_timed();
        if timed != self.timed {
            self.timed = timed;
            self.port.stamp_arrivals(timed);
        }
    }

    fn act(&mut self, id: ChannelId, action: Action, frame: Option<usize>) {
        let channel = &mut self.channels[id];
        match action {
            Action::Release { slot } => channel.release(slot),
            Action::Claim { slot, page, len } => channel.claim(slot, page, len),
            Action::Place { slot, offset, len, source } => {
                let frame = self.port.rx.frame(frame.expect("data come with a frame"));
                channel.place(slot, offset, &frame.payload[source as usize..][..len as usize]);
            }
            Action::Execute { command } => {
                if let Some(stages) = &mut channel.stages {
                    let waited = frame.map_or(Duration::ZERO, |index| self.port.waited(index));
                    stages.begun(command.tag.slot, now(), self.read, waited);
                }
                self.start(id, &command);
            }
        }
    }

    /// Submits a request to its store, or answers an invalid one at once.
    fn start(&mut self, id: ChannelId, command: &wire::Command) {
        let channel = &mut self.channels[id];
        let request = Request {
            operation: block_operation(command),
            offset: command.offset,
            len: command.len,
            buffer: channel.take(command.tag.slot).filter(|_| command.opcode.has_data()),
        };
        let export = channel.export;
        let disk = &mut self.disks[export];
        let checked = if is_durable(&request)
            && channel.generation != disk.generation(export, &self.shared)
        {
            // Success would promise that all completed writes are durable. Some may be lost, and
            // the host does not know yet.
            Err(Errno::IO)
        } else {
            disk.check(&request)
        };
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

    /// Advances the requests at the stores, and answers finished ones.
    fn execute(&mut self) -> bool {
        for (export, disk) in self.disks.iter_mut().enumerate() {
            let before = self.done.len();
            disk.work(&mut self.done);
            if self.done[before..].iter().any(|completion| completion.result.is_err()) {
                // A loss is on stable storage before the failure is reported: otherwise it would be
                // forgotten if the target died now and the host flushed again.
                disk.generation(export, &self.shared);
            }
        }
        let worked = !self.done.is_empty();
        self.requests += self.done.len() as u64;
        let now = self.fresh(Instant(0));
        for Completion { token, result, buffer } in self.done.drain(..) {
            let (id, tag) = split(token);
            let channel = &mut self.channels[id];
            if let Some(stages) = &channel.stages {
                self.listener.note_times(now, id, tag, stages.ended(tag.slot, now));
            }
            let keeps_pages = self.listener.complete(id, tag, status(result));
            match buffer {
                Some(buffer) if keeps_pages => channel.put(tag.slot, buffer),
                _ => channel.release(tag.slot),
            }
        }
        worked
    }

    /// Serves all work that needs the registry; false if there was none.
    fn serve_requests(&mut self, now: Instant) -> bool {
        let called = self.shared.caller(self.index).is_called();
        let worked = called || self.listener.has_requests();
        if worked {
            let listener = &mut self.listener;
            self.shared.admit(self.index, |registry| listener.serve_requests(now, registry));
            self.settle(None);
        }
        worked
    }

    fn transmit(&mut self, now: Instant) -> bool {
        let (listener, channels) = (&mut self.listener, &self.channels);
        let data = |out: &Outgoing, part: &Part| {
            channels[out.channel.expect("data belong to a channel")].data(part)
        };
        let timed = self.timed;
        let moment = || if timed { clock::now() } else { now };
        let poll = |out: &mut Outgoing| listener.poll_transmit(moment(), out);
        self.port.transmit(now, &mut self.out, poll, data) > 0
    }

    fn sleep(&mut self) {
        self.spin.sleeps();
        let shared = Arc::clone(&self.shared);
        let caller = shared.caller(self.index);
        caller.doorbell.announce();
        // Work that came before the announcement has not rung.
        if !self.obey() && !caller.is_called() {
            self.await_work(caller.doorbell.wait_fd());
        }
        caller.doorbell.awake();
    }

    fn await_work(&self, doorbell: BorrowedFd<'_>) {
        let deadline = match (self.listener.poll_timeout(), self.port.poll_timeout()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let stores = self.disks.iter().filter_map(Disk::wait_fd);
        let sources = self.port.wait_fd().into_iter().chain(stores).chain([doorbell]);
        wait(sources, now(), deadline);
    }

    fn report(&mut self) -> TargetLinkReport {
        TargetLinkReport {
            link: self.port.link().name().to_owned(),
            mac: Mac(self.port.link().mac()),
            problem: self.port.trouble().map(str::to_owned),
            requests: self.requests,
            port: self.port.stats(),
            link_counters: self.port.link().counters(),
            channel: self.listener.stats(),
            rejects: self.listener.rejects().iter().collect(),
            channels: self.listener.channels().collect(),
            nodes: LinkNodes {
                nic: self.port.home().nic,
                ring: self.port.link().memory_nodes(),
                channels: self.channels.memory_nodes(),
                cpus: placed::own_cpus(),
            },
        }
    }
}

/// Whether success promises that data are on stable storage.
fn is_durable(request: &Request) -> bool {
    matches!(
        request.operation,
        Operation::Flush
            | Operation::Write { fua: true }
            | Operation::WriteZeroes { fua: true, .. }
    )
}

/// The token of a channel's request at its store.
fn token(channel: ChannelId, tag: Tag) -> u64 {
    u64::from(channel.0) << 32 | u64::from(tag.to_bits())
}

fn split(token: u64) -> (ChannelId, Tag) {
    (ChannelId((token >> 32) as u16), Tag::from_bits(token as u32))
}
