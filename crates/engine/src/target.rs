//! A target: one loop for each of its links, joining the link, the protocol and the stores.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tyche_block::{Arena, Completion, Errno, Extent, Geometry, Request};
use tyche_link::Link;
use tyche_proto::wire::{self, ChannelId, Data, Mac, Name, Reject, Tag, Uuid};
use tyche_proto::{
    Action, ChannelReport, ChannelStats, ExportConfig, Instant, Listener, ListenerConfig,
    ListenerEvent, Outgoing, Registry, TargetConfig,
};
use tyche_store::{Queue, Store};
use tyche_wake::{Doorbell, Spin};

use crate::clock::{self, now};
use crate::conversion::{block_operation, status};
use crate::port::{Port, PortStats};
use crate::random::secrets;
use crate::stages::TargetStages;
use crate::wait::wait;

/// Requests that one loop has with one store at once; more wait in the loop.
const STORE_DEPTH: usize = 1024;

/// A disk to export.
pub struct TargetExport {
    /// Its name, unique at the target.
    pub name: Name,
    /// Its identity, the same as long as it is the same disk.
    pub uuid: Uuid,
    /// Its blocks.
    pub store: Arc<dyn Store>,
    /// Several hosts may write at once.
    pub shared: bool,
    /// The hosts that may connect; empty: all.
    pub hosts: Vec<Uuid>,
    /// The session that was last let in for writing, before this process.
    pub last_writer: Option<Uuid>,
}

/// Keeps, over restarts, which session was last let in to write an export (by index). Called
/// before that session learns that it is in, and may wait for a disk.
pub type RememberWriter = Box<dyn FnMut(usize, Uuid) + Send>;

/// How to run a target.
pub struct TargetOptions {
    /// Who it is, and its limits.
    pub target: TargetConfig,
    /// The disks.
    pub exports: Vec<TargetExport>,
    /// The links to serve, each by a thread of its own.
    pub links: Vec<Box<dyn Link>>,
    /// EtherType of the frames.
    pub ethertype: u16,
    /// The longest time to spin before sleeping; zero: never.
    pub spin: Duration,
    /// Keeps who wrote last.
    pub remember_writer: RememberWriter,
}

/// What the loops of a target share: asked in handshakes only.
struct Shared {
    registry: Registry,
    remember_writer: RememberWriter,
    /// What was remembered last, by export.
    remembered: Vec<Option<Uuid>>,
}

impl Shared {
    /// Remembers who was let in since the last call.
    fn remember(&mut self) {
        for (export, remembered) in self.remembered.iter_mut().enumerate() {
            let last = self.registry.last_writer(export);
            if let Some(session) = last.filter(|_| last != *remembered) {
                (self.remember_writer)(export, session);
                *remembered = last;
            }
        }
    }
}

/// A channel of the target, for people.
#[derive(Clone, Debug)]
pub struct SessionReport {
    /// Name of the export.
    pub export: String,
    /// The session.
    pub session: Uuid,
    /// Its host.
    pub host: Uuid,
    /// The host's name.
    pub host_name: String,
    /// Whether it may write.
    pub writer: bool,
}

/// A link of the target, for people.
#[derive(Clone, Debug)]
pub struct TargetLinkReport {
    /// Its name.
    pub link: String,
    /// Its address.
    pub mac: Mac,
    /// What is wrong with it, if anything.
    pub problem: Option<String>,
    /// Requests answered.
    pub requests: u64,
    /// Frames and bytes.
    pub port: PortStats,
    /// What went wrong on the link, by name.
    pub link_counters: Vec<(&'static str, u64)>,
    /// Counters of the protocol.
    pub channel: ChannelStats,
    /// Dropped frames by reason.
    pub rejects: Vec<(Reject, u64)>,
    /// The open channels.
    pub channels: Vec<ChannelReport>,
}

/// What a target is doing, for people.
#[derive(Clone, Debug)]
pub struct TargetReport {
    /// The exports.
    pub exports: Vec<ExportConfig>,
    /// Who is connected.
    pub sessions: Vec<SessionReport>,
    /// The links.
    pub links: Vec<TargetLinkReport>,
}

enum Command {
    Report(SyncSender<TargetLinkReport>),
    Notify(usize, wire::Event),
    Stop,
}

/// How other threads reach a link's loop.
struct Caller {
    doorbell: Doorbell,
    /// The registry names channels of this link that are to be closed. Changes only while the
    /// registry is locked, and spares the loop from locking it to see that there are none.
    displaced: AtomicBool,
}

impl Caller {
    fn new() -> io::Result<Self> {
        Ok(Self { doorbell: Doorbell::new()?, displaced: AtomicBool::new(false) })
    }

    /// What the flag stands for is behind the registry's lock, so the flag orders nothing.
    fn is_displaced(&self) -> bool {
        self.displaced.load(Ordering::Relaxed)
    }
}

struct Worker {
    commands: Sender<Command>,
    /// Those of all links.
    callers: Arc<[Caller]>,
    /// Of this link.
    index: usize,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn send(&self, command: Command) {
        // A worker that is gone has nothing to be told.
        let _ = self.commands.send(command);
        self.callers[self.index].doorbell.ring();
    }
}

/// The running target. Dropping it stops it: channels are closed once their requests are back
/// from the disk.
pub struct Target {
    shared: Arc<Mutex<Shared>>,
    stores: Arc<[Arc<dyn Store>]>,
    workers: Vec<Worker>,
}

impl Target {
    /// Starts a thread for each link.
    ///
    /// # Errors
    /// What the system says when there is no thread or no eventfd to be had.
    pub fn start(options: TargetOptions) -> io::Result<Self> {
        let TargetOptions { target, exports, links, ethertype, spin, remember_writer } = options;
        let identity = target.uuid;
        let mut registry = Registry::new(target);
        let (mut stores, mut remembered) = (Vec::new(), Vec::new());
        for export in exports {
            let index = registry.add_export(export_config(&export));
            registry.restore_last_writer(index, export.last_writer);
            remembered.push(export.last_writer);
            stores.push(export.store);
        }
        let shared = Arc::new(Mutex::new(Shared { registry, remember_writer, remembered }));
        let stores = Arc::<[_]>::from(stores);
        let callers = links.iter().map(|_| Caller::new()).collect::<io::Result<Arc<[_]>>>()?;
        let mut workers = Vec::new();
        for (index, link) in links.into_iter().enumerate() {
            let (sender, commands) = channel();
            let port = Port::new(link, ethertype);
            let body = TargetLoop {
                listener: Listener::new(
                    ListenerConfig {
                        link: index,
                        frame_len_max: port.link().frame_len_max(),
                        rings: port.rings(),
                    },
                    identity,
                    secrets(),
                ),
                port,
                shared: Arc::clone(&shared),
                callers: Arc::clone(&callers),
                index,
                disks: stores.iter().map(|store| StoreSide::new(Arc::clone(store))).collect(),
                channels: Vec::new(),
                commands,
                out: Outgoing::new(),
                done: Vec::with_capacity(STORE_DEPTH),
                requests: 0,
                spin: Spin::new(spin),
                stopping: false,
                timed: false,
                read: Instant(0),
            };
            let thread = std::thread::Builder::new()
                .name(format!("tyche-link{index}"))
                .spawn(move || body.run())?;
            let callers = Arc::clone(&callers);
            workers.push(Worker { commands: sender, callers, index, thread: Some(thread) });
        }
        Ok(Self { shared, stores, workers })
    }

    /// What the target is doing. Links whose thread does not answer within a second are left out.
    pub fn report(&self) -> TargetReport {
        let links = self.workers.iter().filter_map(|worker| {
            let (sender, receiver) = sync_channel(1);
            worker.send(Command::Report(sender));
            receiver.recv_timeout(Duration::from_secs(1)).ok()
        });
        let links = links.collect();
        let registry = &lock(&self.shared).registry;
        let sessions = registry.exports().enumerate().flat_map(|(index, export)| {
            registry.sessions(index).iter().map(|session| SessionReport {
                export: export.name.to_string(),
                session: session.session,
                host: session.host,
                host_name: session.host_name.to_string(),
                writer: session.writer,
            })
        });
        let sessions = sessions.collect();
        TargetReport { exports: registry.exports().cloned().collect(), sessions, links }
    }

    /// Takes over the size of an export's store, and tells the hosts. Returns the size in bytes.
    ///
    /// # Panics
    /// If there is no such export.
    pub fn refresh_size(&self, export: usize) -> u64 {
        let size = self.stores[export].geometry().size;
        let registry = &mut lock(&self.shared).registry;
        if registry.export(export).size != size {
            registry.resize(export, size);
            for worker in &self.workers {
                worker.send(Command::Notify(export, wire::Event::Resized(size)));
            }
        }
        size
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.send(Command::Stop);
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take()
                && thread.join().is_err()
            {
                tracing::error!("a link's thread panicked");
            }
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn export_config(export: &TargetExport) -> ExportConfig {
    let Geometry { size, block_size, read_only, write_cache, discard } = export.store.geometry();
    ExportConfig {
        name: export.name,
        uuid: export.uuid,
        boot: Uuid::from_u128(export.store.generation().into()),
        size,
        block_size,
        read_only,
        write_cache,
        discard,
        shared: export.shared,
        hosts: export.hosts.clone(),
    }
}

/// One loop's way to one store, opened when the first channel needs it.
struct StoreSide {
    store: Arc<dyn Store>,
    queue: Option<Box<dyn Queue>>,
    /// Requests that the queue had no room for.
    waiting: VecDeque<(u64, Request)>,
}

impl StoreSide {
    fn new(store: Arc<dyn Store>) -> Self {
        Self { store, queue: None, waiting: VecDeque::new() }
    }

    fn open(&mut self) -> io::Result<&mut dyn Queue> {
        let queue = match self.queue.take() {
            Some(queue) => queue,
            None => self.store.queue(STORE_DEPTH)?,
        };
        Ok(&mut **self.queue.insert(queue))
    }

    fn submit(&mut self, token: u64, request: Request) {
        let queue = self.queue.as_mut().expect("open while a channel needs it");
        if queue.in_flight() < STORE_DEPTH {
            queue.submit(token, request);
        } else {
            self.waiting.push_back((token, request));
        }
    }

    /// Hands waiting requests over, and all new ones to the kernel; then collects what is done.
    fn work(&mut self, done: &mut Vec<Completion>) {
        let Some(queue) = &mut self.queue else { return };
        while queue.in_flight() < STORE_DEPTH {
            let Some((token, request)) = self.waiting.pop_front() else { break };
            queue.submit(token, request);
        }
        if queue.in_flight() == 0 {
            return;
        }
        if let Err(error) = queue.kick() {
            tracing::error!(%error, "cannot hand requests to the store, trying again");
        }
        queue.reap(done);
    }
}

/// The memory of a channel.
struct ChannelMemory {
    export: usize,
    writer: bool,
    /// The `damq`.
    arena: Arena,
    /// What each slot holds of it, unless the store has it at the moment.
    slots: Box<[Option<Extent>]>,
    /// Where the time of its requests goes, if its host wants to know.
    stages: Option<TargetStages>,
}

struct TargetLoop {
    listener: Listener,
    port: Port,
    shared: Arc<Mutex<Shared>>,
    callers: Arc<[Caller]>,
    /// Of this link.
    index: usize,
    disks: Vec<StoreSide>,
    channels: Vec<Option<ChannelMemory>>,
    commands: Receiver<Command>,
    out: Outgoing,
    done: Vec<Completion>,
    /// Requests answered.
    requests: u64,
    spin: Spin,
    stopping: bool,
    /// Whether any channel has stages.
    timed: bool,
    /// When the frames at hand were read.
    read: Instant,
}

impl TargetLoop {
    fn run(mut self) {
        while !(self.stopping && self.channels.iter().all(Option::is_none)) {
            let now = now();
            if self.turn(now) {
                self.spin.worked();
            } else if !self.spin.again(now.0) {
                self.sleep();
            }
        }
    }

    /// Does what there is to do; false if there was nothing.
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

    /// The time now where anybody wants to know it to the step; else that of the turn.
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
        frames > 0
    }

    /// Handles all events; `frame` is the received frame that they speak of.
    fn settle(&mut self, frame: Option<usize>) {
        while let Some(event) = self.listener.poll_event() {
            match event {
                ListenerEvent::Opened {
                    channel,
                    export,
                    writer,
                    damq_pages,
                    queue_size,
                    stages,
                } => {
                    let stages = stages.then(|| TargetStages::new(queue_size));
                    self.open(channel, export, writer, (damq_pages, queue_size), stages);
                }
                ListenerEvent::Action { channel, action } => self.act(channel, action, frame),
                ListenerEvent::Closed { channel } => self.close(channel),
            }
        }
    }

    fn open(
        &mut self,
        channel: ChannelId,
        export: usize,
        writer: bool,
        sizes: (u32, u16),
        stages: Option<TargetStages>,
    ) {
        let (damq_pages, queue_size) = sizes;
        let arena = Arena::new(damq_pages as usize);
        match self.disks[export].open() {
            Ok(queue) => queue.register(&arena),
            Err(error) => {
                // Requests of this channel fail; the host sees I/O errors rather than silence.
                tracing::error!(%error, "cannot open a queue to the store");
            }
        }
        let index = usize::from(channel.0);
        if self.channels.len() <= index {
            self.channels.resize_with(index + 1, || None);
        }
        let slots = (0..queue_size).map(|_| None).collect();
        self.channels[index] = Some(ChannelMemory { export, writer, arena, slots, stages });
        self.tell_times();
    }

    fn close(&mut self, channel: ChannelId) {
        let memory = self.channels[usize::from(channel.0)].take();
        let ChannelMemory { export, arena, slots, .. } = memory.expect("closed once");
        drop(slots);
        if let Some(queue) = &mut self.disks[export].queue {
            queue.unregister(&arena);
        }
        self.tell_times();
    }

    /// Looks at the clock as often as the open channels want it.
    fn tell_times(&mut self) {
        let timed = self.channels.iter().flatten().any(|memory| memory.stages.is_some());
        if timed != self.timed {
            self.timed = timed;
            self.port.stamp_arrivals(timed);
        }
    }

    fn act(&mut self, channel: ChannelId, action: Action, frame: Option<usize>) {
        let memory = self.channels[usize::from(channel.0)].as_mut();
        let memory = memory.expect("only open channels act");
        match action {
            Action::Release { slot } => memory.slots[usize::from(slot)] = None,
            Action::Claim { slot, page, len } => {
                let extent = memory.arena.claim(page as usize, len as usize);
                let extent = extent.expect("the protocol keeps requests' pages apart");
                memory.slots[usize::from(slot)] = Some(extent);
            }
            Action::Place { slot, offset, len, source } => {
                let frame = self.port.rx.frame(frame.expect("data come with a frame"));
                let extent = memory.slots[usize::from(slot)].as_mut();
                extent.expect("claimed before data are placed")[offset as usize..][..len as usize]
                    .copy_from_slice(&frame.payload[source as usize..][..len as usize]);
            }
            Action::Execute { command } => {
                if let Some(stages) = &mut memory.stages {
                    let waited = frame.map_or(Duration::ZERO, |index| self.port.waited(index));
                    stages.begun(command.tag.slot, now(), self.read, waited);
                }
                self.start(channel, &command);
            }
        }
    }

    /// Hands a request to its store, or answers it at once if it makes no sense.
    fn start(&mut self, channel: ChannelId, command: &wire::Command) {
        let memory = self.channels[usize::from(channel.0)].as_mut();
        let memory = memory.expect("only open channels act");
        let request = Request {
            operation: block_operation(command),
            offset: command.offset,
            len: command.len,
            buffer: memory.slots[usize::from(command.tag.slot)]
                .take()
                .filter(|_| command.opcode.has_data()),
        };
        let disk = &mut self.disks[memory.export];
        let checked = if command.opcode.modifies() && !memory.writer {
            Err(Errno::ROFS)
        } else if disk.queue.is_none() {
            Err(Errno::IO)
        } else {
            disk.store.geometry().check(&request)
        };
        let token = token(channel, command.tag);
        match checked {
            Ok(()) => disk.submit(token, request),
            Err(errno) => {
                let buffer = request.buffer;
                self.done.push(Completion { token, result: Err(errno), buffer });
            }
        }
    }

    /// Moves requests through the stores, and answers those that are done.
    fn execute(&mut self) -> bool {
        for disk in &mut self.disks {
            disk.work(&mut self.done);
        }
        let worked = !self.done.is_empty();
        self.requests += self.done.len() as u64;
        let now = self.fresh(Instant(0));
        for Completion { token, result, buffer } in self.done.drain(..) {
            let (channel, tag) = split(token);
            let memory = self.channels[usize::from(channel.0)].as_mut();
            let memory = memory.expect("a channel outlives its requests");
            if let Some(stages) = &memory.stages {
                self.listener.note_times(now, channel, tag, stages.ended(tag.slot, now));
            }
            let keeps_pages = self.listener.complete(channel, tag, status(result));
            memory.slots[usize::from(tag.slot)] = buffer.filter(|_| keeps_pages);
        }
        worked
    }

    /// Does what needs the registry; false if there was nothing.
    fn serve_requests(&mut self, now: Instant) -> bool {
        let caller = &self.callers[self.index];
        let worked = self.listener.has_requests() || caller.is_displaced();
        if worked {
            let mut shared = lock(&self.shared);
            caller.displaced.store(false, Ordering::Relaxed);
            self.listener.serve_requests(now, &mut shared.registry);
            shared.remember();
            // Possibly ourselves: the registry hands out a few at a time.
            for link in shared.registry.closing_links() {
                self.callers[link].displaced.store(true, Ordering::Relaxed);
                self.callers[link].doorbell.ring();
            }
            drop(shared);
            self.settle(None);
        }
        worked
    }

    fn transmit(&mut self, now: Instant) -> bool {
        let (listener, channels) = (&mut self.listener, &self.channels);
        let data = |out: &Outgoing, part: &Data| {
            let channel = out.channel.expect("data belong to a channel");
            let memory = channels[usize::from(channel.0)].as_ref().expect("open while it sends");
            let extent = memory.slots[usize::from(part.tag.slot)].as_ref();
            &extent.expect("held until released")[part.offset as usize..][..part.len as usize]
        };
        let timed = self.timed;
        let moment = || if timed { clock::now() } else { now };
        let poll = |out: &mut Outgoing| listener.poll_transmit(moment(), out);
        self.port.transmit(now, &mut self.out, poll, data) > 0
    }

    fn sleep(&mut self) {
        self.spin.sleeps();
        let callers = Arc::clone(&self.callers);
        let Caller { doorbell, .. } = &callers[self.index];
        doorbell.announce();
        // Whoever came before that has not rung.
        if !self.obey() && !callers[self.index].is_displaced() {
            self.await_work(doorbell.wait_fd());
        }
        doorbell.awake();
    }

    fn await_work(&self, doorbell: BorrowedFd<'_>) {
        let deadline = match (self.listener.poll_timeout(), self.port.poll_timeout()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let queues = self.disks.iter().filter_map(|disk| disk.queue.as_ref());
        let stores = queues.filter_map(|queue| queue.wait_fd());
        let sources = self.port.wait_fd().into_iter().chain(stores).chain([doorbell]);
        wait(sources, now(), deadline);
    }

    fn report(&mut self) -> TargetLinkReport {
        TargetLinkReport {
            link: self.port.link().name().to_owned(),
            mac: Mac(self.port.link().mac()),
            problem: self.port.trouble().map(|kind| kind.to_string()),
            requests: self.requests,
            port: self.port.stats(),
            link_counters: self.port.link().counters(),
            channel: self.listener.stats(),
            rejects: self.listener.rejects().iter().collect(),
            channels: self.listener.channels().collect(),
        }
    }
}

/// Names a request of a channel at its store.
fn token(channel: ChannelId, tag: Tag) -> u64 {
    u64::from(channel.0) << 32 | u64::from(tag.to_bits())
}

fn split(token: u64) -> (ChannelId, Tag) {
    (ChannelId((token >> 32) as u16), Tag::from_bits(token as u32))
}
