//! A thread of a link, which joins the link, the protocol and the stores.

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
use crate::clock::now;
use crate::eventloop::{EventLoop, Tenant};
use crate::placed::{self, LinkNodes, Residence};
use crate::ports::Ports;
use crate::protocol::{Frames, Protocol, Received};
use crate::random::secrets;
use crate::tyche::{Composer, head, open_port, rings};

enum Command {
    Report(SyncSender<TargetLinkReport>),
    Notify(usize, Event),
    Stop,
}

/// The only port of a link's thread.
const PORT: usize = 0;

/// The parts and the placement of a link's thread.
pub(super) struct Site {
    /// Index of the thread among those of all links.
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
    /// Index of the thread.
    index: usize,
    thread: JoinHandle<()>,
}

impl LinkThread {
    /// Starts the thread.
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
            let spin = Spin::new(site.spin);
            let (tenant, ports) = Exporter::new(site, target, commands);
            EventLoop::new(tenant, ports, spin).run();
        })?;
        Ok(Self { commands: sender, shared, index, thread })
    }

    fn send(&self, command: Command) {
        // A thread that has ended needs no commands.
        let _ = self.commands.send(command);
        self.shared.caller(self.index).doorbell.ring();
    }

    /// Reports the state of the link; `None` if the thread does not answer within a second.
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

/// The tenant of a link's loop: serves the exports to the hosts on the link.
struct Exporter {
    listener: Listener,
    home: Home,
    shared: Arc<Shared>,
    /// Index of this thread.
    index: usize,
    /// By export.
    disks: Vec<Disk>,
    channels: Channels,
    commands: Receiver<Command>,
    composer: Composer,
    done: Vec<Completion>,
    /// Requests answered.
    requests: u64,
    stopping: bool,
    /// Whether any channel has stages.
    timed: bool,
}

impl Exporter {
    fn new(site: Site, target: Uuid, commands: Receiver<Command>) -> (Self, Ports) {
        let Site { index, link, part, ethertype, home, exports, shared, .. } = site;
        let config = ListenerConfig {
            link: index,
            frame_len_max: link.frame_len_max(),
            rings: rings(&*link),
        };
        let mut ports = Ports::new();
        ports.insert(PORT, open_port(link, home.clone()));
        let exporter = Self {
            listener: Listener::of_part(config, target, part, secrets()),
            home,
            shared,
            index,
            disks: exports.into_iter().map(Disk::new).collect(),
            channels: Channels::default(),
            commands,
            composer: Composer::new(ethertype),
            done: Vec::with_capacity(DEPTH),
            requests: 0,
            stopping: false,
            timed: false,
        };
        (exporter, ports)
    }

    /// Handles all events. `frame`: the received frame that they came of, if any, and when it was
    /// read.
    fn settle(&mut self, frame: Option<(Instant, &Received<'_>)>) {
        while let Some(event) = self.listener.poll_event() {
            match event {
                ListenerEvent::Opened { channel, export, boot, damq_pages, queue_size, stages } => {
                    let arena = placed::channel_arena(&self.home, damq_pages as usize);
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
        self.timed = self.channels.are_timed();
    }

    fn close(&mut self, id: ChannelId) {
        let channel = self.channels.close(id);
        let export = channel.export;
        self.disks[export].unregister(&channel.into_arena());
        self.timed = self.channels.are_timed();
    }

    fn act(&mut self, id: ChannelId, action: Action, frame: Option<(Instant, &Received<'_>)>) {
        let channel = &mut self.channels[id];
        match action {
            Action::Release { slot } => channel.release(slot),
            Action::Claim { slot, page, len } => channel.claim(slot, page, len),
            Action::Place { slot, offset, len, source } => {
                let (_, frame) = frame.expect("data come with a frame");
                channel.place(slot, offset, &frame.payload[source as usize..][..len as usize]);
            }
            Action::Execute { command } => {
                if let Some(stages) = &mut channel.stages
                    && let Some((read, frame)) = frame
                {
                    stages.begun(command.tag.slot, now(), read, frame.waited);
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
        let now = if self.timed { now() } else { Instant(0) };
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

    fn report(&self, ports: &mut Ports) -> TargetLinkReport {
        let (_, port) = ports.iter_mut().next().expect("a link's loop has one port");
        TargetLinkReport {
            link: port.link().name().to_owned(),
            mac: Mac(port.link().mac()),
            problem: port.trouble().map(str::to_owned),
            requests: self.requests,
            port: port.stats(),
            link_counters: port.link().counters(),
            channel: self.listener.stats(),
            rejects: self.listener.rejects().iter().collect(),
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

impl Protocol for Exporter {
    fn handle_frame(&mut self, now: Instant, _: usize, frame: &Received<'_>) {
        self.listener.handle_frame(now, head(frame), frame.payload);
        self.settle(Some((now, frame)));
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.listener.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.listener.poll_timeout()
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

impl Tenant for Exporter {
    fn protocol(&mut self) -> &mut impl Protocol {
        self
    }

    fn obey(&mut self, ports: &mut Ports) -> bool {
        let mut worked = false;
        while let Ok(command) = self.commands.try_recv() {
            worked = true;
            match command {
                Command::Report(to) => {
                    let _ = to.send(self.report(ports));
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

    fn work(&mut self, now: Instant) -> bool {
        self.execute() | self.serve_requests(now)
    }

    fn is_over(&self) -> bool {
        self.stopping && self.channels.is_empty()
    }

    fn may_sleep(&mut self) -> bool {
        let caller = self.shared.caller(self.index);
        caller.doorbell.announce();
        !caller.is_called()
    }

    fn awake(&mut self) {
        self.shared.caller(self.index).doorbell.awake();
    }

    fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let doorbell = self.shared.caller(self.index).doorbell.wait_fd();
        self.disks.iter().filter_map(Disk::wait_fd).chain([doorbell])
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
