//! A queue of a session and its requests, without the loop that drives it and the threads that
//! submit.

use std::collections::VecDeque;

use tyche_block::{Arena, Errno, Extent, Geometry, Request};
use tyche_engine::{
    Clock, Done, Fault, Frames, Job, Port, Ports, Protocol, Received, RequestCounts, Service,
    placed::{self, LinkNodes, SessionNodes, ThreadAffinity},
    restore::{self, Restores},
};
use tyche_numa::{NumaAffinity, Placement};
use tyche_proto::wire::{ChannelId, Echo, Header, Mac};
use tyche_proto::{
    AllRules, Instant, OpId, Opened, Outgoing, Part, PathReport, PortConfig, Problem, QueueHandle,
    Rules, Session, SessionConfig, SessionEvent, SubmitError,
};
use tyche_remote::{HostLink, HostReport, LinkChangeError, LinkReport, Notice};

use super::HostOptions;
use crate::composer::{
    Composer, favoured, head, is_routed, open_port, problem, raw, rings, transport,
};
use crate::conversion::{operation, result};
use crate::memory::Images;
use crate::random::secrets;
use crate::stages::HostStages;

/// The machine's part of a driver: placement, time and random numbers.
pub struct HostEnv {
    /// The placement of links and threads.
    pub placement: Placement,
    /// EtherType of the frames.
    pub ethertype: u16,
    /// The time.
    pub clock: Clock,
    /// Numbers that nobody can guess.
    pub secrets: Box<dyn FnMut() -> u64 + Send>,
}

/// The protocol of a queue of a session: its state machine, the requests in progress, and their
/// counters. The owner calls [`submit`](Self::submit), has its [`Ports`] receive and transmit
/// in turn, and takes `done` and `notices` after each: the answers first, because a notice may say
/// that none will follow.
pub struct Driver<R: Rules = AllRules> {
    session: Session<R>,
    placement: Placement,
    clock: Clock,
    /// The names of the links, by port.
    links: Vec<String>,
    /// Number of this queue, and of all.
    queue: (usize, usize),
    /// The placement of the thread that drives it.
    thread_affinity: ThreadAffinity,
    /// The job of each operation in progress.
    operations: Box<[Option<Job>]>,
    /// The start of each operation in progress.
    begun: Box<[Instant]>,
    /// The time of the owner's last call.
    now: Instant,
    /// Restores of this machine that its channels outlived.
    restores: Restores,
    counts: RequestCounts,
    composer: Composer,
    /// Where targets place data.
    images: Images,
    /// The payload of a sealed frame, in the clear.
    opened: Opened,
    /// Finished requests.
    pub done: Vec<Done>,
    /// The stage times of requests, if wanted.
    pub(super) stages: Option<HostStages>,
    /// Received replies to echoes.
    pub(super) echoed: Vec<Echo>,
    /// Notices for the owner.
    pub notices: VecDeque<Notice>,
}

impl Driver {
    /// The driver and the ports of its links. The calling thread drives it from now on, and moves
    /// near them.
    pub(super) fn new(options: HostOptions, handle: QueueHandle) -> (Self, Ports) {
        let HostOptions { session, links, placement, ethertype, .. } = options;
        if session.keys.is_some() {
            restore::watch_for_keys();
        }
        let links: Vec<_> = links.into_iter().map(|link| open(&placement, link)).collect();
        let machine = HostEnv { placement, ethertype, clock: Clock::Monotonic, secrets: secrets() };
        Self::with_ports(session, handle, links, machine)
    }
}

impl<R: Rules> Driver<R> {
    /// The driver and the ports of its links, which are open and described. The calling thread
    /// drives it from now on, and moves near them.
    pub fn with_ports(
        session: SessionConfig,
        handle: QueueHandle,
        links: impl IntoIterator<Item = (Port, PortConfig)>,
        machine: HostEnv,
    ) -> (Self, Ports) {
        let HostEnv { placement, ethertype, clock, secrets } = machine;
        let mut ports = Ports::with_clock(clock.clone());
        let (mut configs, mut names, mut images) = (Vec::new(), Vec::new(), Images::default());
        for (index, (port, config)) in links.into_iter().enumerate() {
            images.add_port(index, &port);
            names.push(port.link().name().to_owned());
            configs.push(config);
            ports.insert(index, port);
        }
        let operations_max = session.operations_max as usize;
        let queue = (handle.queue(), handle.shared().queues());
        let now = clock.now();
        let mut driver = Self {
            stages: session.stages.then(|| HostStages::new(operations_max)),
            session: Session::with_handle(session, handle, &configs, secrets, now),
            placement,
            clock,
            links: names,
            queue,
            thread_affinity: ThreadAffinity::new(),
            operations: (0..operations_max).map(|_| None).collect(),
            begun: vec![now; operations_max].into(),
            now,
            restores: Restores::until_now(),
            counts: RequestCounts::new(now),
            composer: Composer::new(ethertype),
            images,
            opened: Opened::default(),
            done: Vec::with_capacity(operations_max),
            echoed: Vec::new(),
            notices: VecDeque::new(),
        };
        driver.move_in(&ports);
        (driver, ports)
    }

    /// The queue's state of the protocol.
    pub fn session(&self) -> &Session<R> {
        &self.session
    }

    /// The disk, once connected, or if the former session knew it.
    pub(super) fn geometry(&self) -> Option<Geometry> {
        self.session.export().map(|export| export.geometry)
    }

    /// The reason why the last attempt to connect failed.
    pub(super) fn problem(&self) -> Option<Problem> {
        self.session.problem()
    }

    /// Adds a link to the session.
    pub(super) fn add_link(
        &mut self,
        now: Instant,
        ports: &mut Ports,
        link: HostLink,
    ) -> Result<(), LinkChangeError> {
        if port_named(ports, link.link.name()).is_some() {
            return Err(LinkChangeError::InUse);
        }
        let link = open(&self.placement, link);
        self.add_port(now, ports, link);
        Ok(())
    }

    /// Adds an open port to the session; returns its index.
    pub fn add_port(&mut self, now: Instant, ports: &mut Ports, link: (Port, PortConfig)) -> usize {
        let (port, config) = link;
        let index = self.session.add_port(now, config);
        if index == self.links.len() {
            self.links.push(String::new());
        }
        port.link().name().clone_into(&mut self.links[index]);
        self.images.add_port(index, &port);
        ports.insert(index, port);
        self.move_in(ports);
        index
    }

    /// Removes a link from the session. The last one stays.
    ///
    /// # Errors
    /// `Unknown` or `Last`.
    pub fn remove_link(
        &mut self,
        now: Instant,
        ports: &mut Ports,
        name: &str,
    ) -> Result<(), LinkChangeError> {
        let index = port_named(ports, name).ok_or(LinkChangeError::Unknown)?;
        if ports.iter().count() == 1 {
            return Err(LinkChangeError::Last);
        }
        self.session.remove_port(now, index);
        self.settle();
        ports.remove(index);
        self.move_in(ports);
        Ok(())
    }

    /// Moves the calling thread near the links.
    fn move_in(&mut self, ports: &Ports) {
        let (queue, queues) = self.queue;
        let home = NumaAffinity::of_queue(ports.iter().map(|(_, port)| port.home()), queue, queues);
        self.thread_affinity.move_to(&home);
    }

    /// Takes a request, or gives it back if the limit of requests in progress is reached. Returns
    /// its operation of the session; `None` if it is invalid, or the session is over or fails fast:
    /// it has ended.
    pub fn submit(&mut self, now: Instant, job: Job) -> Result<Option<OpId>, Job> {
        let checked = self.geometry().map_or(Ok(()), |disk| job.request.check(&disk));
        let errno = match checked {
            Err(errno) => errno,
            Ok(()) => match self.begin(now, &job.request) {
                Ok(op @ OpId(index)) => {
                    let place = &mut self.operations[index as usize];
                    assert!(place.is_none(), "two requests in one operation");
                    *place = Some(job);
                    self.begun[index as usize] = now;
                    if let Some(stages) = &mut self.stages {
                        stages.called(index, now);
                    }
                    // The target may not know how to execute it.
                    self.settle();
                    return Ok(Some(op));
                }
                Err(SubmitError::Full) => return Err(job),
                Err(SubmitError::Over | SubmitError::Away) => Errno::IO,
            },
        };
        self.counts.errors.add(job.request.operation.into(), errno);
        self.done.push(job.done(Err(errno)));
        Ok(None)
    }

    fn begin(&mut self, now: Instant, request: &Request) -> Result<OpId, SubmitError> {
        let node = request.buffer.as_ref().and_then(Extent::node);
        self.session.submit_near(now, operation(request), node.map(|node| node.0))
    }

    /// Sends an echo request of `frame_len` bytes on a live channel; false if no channel takes it.
    pub(super) fn echo(&mut self, echo: Echo, frame_len: usize) -> bool {
        self.session.echo(echo, frame_len)
    }

    /// The owner has handed over all of `done` that it has taken, to the device.
    pub fn answered(&mut self) {
        self.session.answered();
        self.settle();
    }

    /// Fails requests at once until the target is back.
    pub(super) fn fail_until_connected(&mut self, now: Instant) {
        self.session.fail_until_connected(now);
        self.settle();
    }

    /// Takes notice of what another queue of the session has shared, such as its failure.
    pub fn take_notice(&mut self, now: Instant) {
        self.session.handle_timeout(now);
        self.settle();
    }

    /// Ends the session and tells the target.
    pub fn disconnect(&mut self, now: Instant) {
        self.session.disconnect(now);
        self.settle();
    }

    /// The same within 250 ms, whether the target confirms it or not.
    pub(super) fn disconnect_soon(&mut self, now: Instant) {
        self.session.disconnect_soon(now);
        self.settle();
    }

    /// Ends this queue and tells the target. If requests are in progress, ends the whole session.
    pub(super) fn leave(&mut self, now: Instant) {
        self.session.leave(now);
        self.settle();
    }

    /// Ends the session at once.
    pub(super) fn abort(&mut self, now: Instant) {
        self.session.abort(now);
        self.settle();
    }

    /// Gives up the keys of its channels, since this machine was restored.
    #[cold]
    fn renew_keys(&mut self) {
        self.session.renew_keys(self.clock.now());
        self.settle();
    }

    /// Handles all events that came of no frame.
    fn settle(&mut self) {
        self.settle_with(&[], None);
    }

    /// Handles all events that came of a received frame, which has its data in its payload or, if
    /// it is one of `placed`, in the image of that channel.
    fn settle_with(&mut self, payload: &[u8], placed: Option<ChannelId>) {
        while let Some(event) = self.session.poll_event() {
            let notice = match event {
                SessionEvent::Data { op, offset, len, source } => {
                    let data = placed.map_or(payload, |channel| {
                        self.images.of(channel).expect("looked for before the frame was taken")
                    });
                    let data = &data[source as usize..][..len as usize];
                    place(&mut self.operations, op, offset, data);
                    continue;
                }
                SessionEvent::Completed { op: OpId(op), status } => {
                    let job = self.operations[op as usize].take();
                    let job = job.expect("an operation completes once");
                    let (result, begun) = (result(status), self.begun[op as usize]);
                    self.counts.count(&job.request, result, begun, self.now);
                    if let Some(stages) = &mut self.stages
                        && let Some(stage_sample) = self.session.stage_sample(OpId(op))
                    {
                        stages.completed(op, stage_sample, self.clock.now());
                    }
                    self.done.push(job.done(result));
                    continue;
                }
                SessionEvent::Echoed(echo) => {
                    self.echoed.push(echo);
                    continue;
                }
                SessionEvent::Connected => {
                    Notice::Connected(self.session.export().expect("known once connected"))
                }
                SessionEvent::Lost(problem) => Notice::Lost(problem),
                SessionEvent::Joined(port, peer) => {
                    self.images.update(self.session.placeable());
                    Notice::Joined(self.links[port].clone(), peer)
                }
                SessionEvent::Parted(port, peer, problem) => {
                    self.images.update(self.session.placeable());
                    Notice::Parted(self.links[port].clone(), peer, problem)
                }
                SessionEvent::Rejected(rejection) => Notice::Rejected(rejection),
                SessionEvent::OtherVersion(port, peer, versions) => {
                    Notice::OtherVersion(self.links[port].clone(), peer, versions)
                }
                SessionEvent::Resized(size) => Notice::Resized(size),
                SessionEvent::FailsFast => Notice::FailsFast,
                SessionEvent::Resumed => Notice::Resumed,
                SessionEvent::Failed(failure) => Notice::Failed(failure),
                SessionEvent::CacheLost => Notice::CacheLost,
                SessionEvent::ResumeStateChanged => {
                    Notice::ResumeState(self.session.resume_state().expect("known once connected"))
                }
                SessionEvent::NextKey(next) => Notice::NextKey(next),
                SessionEvent::Closed => Notice::Closed,
            };
            self.notices.push_back(notice);
        }
    }

    /// Reports the state of the queue.
    pub(super) fn report(&mut self, now: Instant, ports: &mut Ports, arena: &Arena) -> HostReport {
        let session = &self.session;
        let links = ports.iter_mut().map(|(index, port)| {
            let channels: Vec<_> = session.paths().filter(|it| it.port == index).collect();
            link_report(port, channels, session.is_deaf(index))
        });
        let links = links.collect();
        HostReport {
            queues: 1,
            live: session.is_live(),
            lost_for: session.lost_since().map(|since| now.since(since)),
            time_left: session.time_left(now),
            fails_fast: session.fails_fast(),
            fails_fast_in: session.time_to_fail_fast(now),
            over: session.is_over(),
            export: session.export(),
            waiting: session.waiting(now),
            channel: session.stats(),
            rejects: *session.rejects(),
            requests: self.counts.at(now),
            by_queue: vec![self.counts.total()],
            nodes: SessionNodes {
                threads: vec![self.thread_affinity.node()],
                cpus: placed::own_cpus(),
                buffers: arena.memory_nodes(),
            },
            node_counts: session.node_counts(),
            cipher: session.cipher(),
            problem: session.problem(),
            favoured: session.favourite().into_iter().map(favoured).collect(),
            links,
        }
    }
}

impl<R: Rules> Protocol for Driver<R> {
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &Received<'_>) {
        self.now = now;
        if let Some(stages) = &mut self.stages {
            stages.read(now, frame.waited);
        }
        let mut opened = std::mem::take(&mut self.opened);
        let placed = frame.is_placed.then(|| Header::channel_of(head(frame)));
        // A link says so only of a channel that has an image.
        if placed.is_none_or(|channel| self.images.of(channel).is_some()) {
            let payload = self.session.handle_frame(now, port, raw(frame), &mut opened);
            self.settle_with(payload, placed);
        }
        self.opened = opened;
    }

    fn handle_fault(&mut self, now: Instant, port: usize, fault: Fault) {
        self.session.lose_port(now, port, problem(fault));
        self.settle();
    }

    fn handle_frame_len_max(&mut self, port: usize, frame_len_max: usize) {
        self.session.set_frame_len_max(port, frame_len_max);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.session.handle_timeout(now);
        self.settle();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.session.poll_timeout()
    }

    fn frames(&mut self, port: usize) -> impl Frames<'_> {
        if self.restores.is_another() {
            self.renew_keys();
        }
        let Self { session, operations, composer, .. } = self;
        let data = |_: &Outgoing, part: &Part| {
            let job = operations[part.request as usize].as_ref();
            let buffer = job.and_then(|job| job.request.buffer.as_ref());
            let buffer = buffer.expect("a write in progress has a buffer");
            &buffer[part.offset as usize..][..part.len as usize]
        };
        composer.frames(move |now, out| session.poll_transmit(now, port, out), data)
    }

    fn is_timed(&self) -> bool {
        self.stages.is_some()
    }
}

impl Service for Driver {
    fn protocol(&mut self) -> &mut impl Protocol {
        self
    }

    fn is_over(&self) -> bool {
        self.notices.contains(&Notice::Closed)
    }
}

/// The port of the link with that name.
fn port_named(ports: &Ports, name: &str) -> Option<usize> {
    ports.iter().find(|(_, port)| port.link().name() == name).map(|(index, _)| index)
}

/// Copies received data of a read into the request's buffer.
fn place(operations: &mut [Option<Job>], OpId(op): OpId, offset: u32, data: &[u8]) {
    let job = operations[op as usize].as_mut();
    let buffer = job.and_then(|job| job.request.buffer.as_mut());
    let buffer = buffer.expect("a read in progress has a buffer");
    buffer[offset as usize..][..data.len()].copy_from_slice(data);
}

/// Opens a port for a link; returns it with its configuration for the session.
fn open(placement: &Placement, HostLink { link, target }: HostLink) -> (Port, PortConfig) {
    let home = placed::home(placement, &*link);
    let node = home.nic.map(|node| node.0);
    let (frame_len_max, rings) = (link.frame_len_max(), rings(&*link));
    let config = PortConfig {
        frame_len_max,
        rings,
        target,
        node,
        transport: transport(&*link),
        routed: is_routed(&*link),
        checks_data: link.transport().is_some_and(|it| it.checks_data),
    };
    (open_port(link, home), config)
}

fn link_report(port: &mut Port, channels: Vec<PathReport>, is_deaf: bool) -> LinkReport {
    let live = || channels.iter().filter(|channel| channel.live);
    let problem = channels.iter().filter_map(|channel| channel.problem).max();
    let problem = problem.filter(|_| live().count() < channels.len()).map(|it| it.to_string());
    let is_unheard = channels.is_empty() || is_deaf && live().next().is_none();
    let unheard = is_unheard.then(|| "no target is heard on it".to_owned());
    let fault = port.trouble().map(str::to_owned);
    LinkReport {
        link: port.link().name().to_owned(),
        mac: Mac(port.link().mac()),
        live: live().next().is_some(),
        frame_len: channels.iter().map(|channel| channel.frame_len).max().unwrap_or_default(),
        frame_len_max: port.link().frame_len_max(),
        rtt: {
            // Zero is not measured yet.
            let measured = live().map(|channel| channel.rtt).filter(|rtt| !rtt.is_zero());
            measured.min().unwrap_or_default()
        },
        congestion_window: live().map(|channel| channel.congestion_window).sum(),
        problem: fault.clone().or(problem).or(unheard),
        fault,
        port: port.stats(),
        link_counters: port.link().counters(),
        channels,
        nodes: LinkNodes {
            nic: port.home().nic,
            ring: port.link().memory_nodes(),
            channels: port.memory_nodes(),
            cpus: placed::own_cpus(),
        },
    }
}
