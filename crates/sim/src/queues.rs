//! The queues of a session: the driver of each, as its thread would have it, over simulated links.
//!
//! The number of an operation contains the number of its queue, so that it is unique in the
//! session. A queue's thread may pause for a while, as if the processor were busy elsewhere: frames
//! for it are lost meanwhile, and the others go on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tyche_engine::{Clock, Done, Job, Port, Ports, Protocol};
use tyche_native::{Driver, HostEnv};
use tyche_numa::Placement;
use tyche_proto::{
    ChannelStats, ExportState, Instant, OpId, Operation, PathReport, PortConfig, ResumeState,
    Rules, Session, SessionConfig, SessionShared, StageSample,
};
use tyche_remote::{LinkChangeError, Notice};
use tyche_wire::{Cookie, ETHERTYPE, Header, Mac, Tag};

use crate::link::{Carrier, Train, Wire, port};
use crate::network::Delivery;
use crate::random::Random;
use crate::request::request;

/// Bits of an operation's number below the number of its queue.
const OP_BITS: u32 = 16;
/// Longest pause of a thread.
const PAUSE_MAX_MS: u64 = 400;
/// Channels of a queue at most. Each queue has a range of as many channel indices.
const CHANNELS: usize = 64;

/// A local link of a session.
#[derive(Clone, Copy)]
pub(crate) struct LocalLink {
    /// Index among the links of its host.
    pub(crate) link: usize,
    pub(crate) mac: Mac,
    pub(crate) carrier: Carrier,
    pub(crate) config: PortConfig,
}

/// The queues of one session, driven without threads over wires in memory. It gives each frame to
/// its queue, and collects what the queues tell and send.
pub(crate) struct Queues<R: Rules> {
    shared: Arc<SessionShared>,
    config: SessionConfig,
    /// The queues that have begun: the others wait until the first is connected.
    queues: Vec<Queue<R>>,
    /// The end of the pause of each thread.
    still_until: Vec<Instant>,
    /// Probability that a frame begins a pause of its thread.
    pauses: f64,
    /// The links at the beginning, and what has happened to them since, for queues that have not
    /// begun.
    links: Vec<LocalLink>,
    changes: Vec<Change>,
    clock: Arc<AtomicU64>,
    random: Random,
}

/// A change of the links.
#[derive(Clone, Copy)]
enum Change {
    Add(LocalLink),
    Remove(usize),
}

struct Queue<R: Rules> {
    driver: Driver<R>,
    ports: Ports,
    /// The links in use by the host's index, with the port and the wire of each.
    links: BTreeMap<usize, (usize, Wire)>,
    /// The operation of the driver's session that carries each of ours, and the reverse.
    carriers: BTreeMap<OpId, OpId>,
    carried: BTreeMap<OpId, OpId>,
    /// Operations begun.
    begun: u32,
}

/// The end of an operation.
pub(crate) struct Answered {
    pub(crate) done: Done,
    /// Whether the session had taken it. Otherwise the driver has refused it by itself.
    pub(crate) was_taken: bool,
    /// The times of its stages, if they were measured.
    pub(crate) stage_sample: Option<StageSample>,
}

/// What a queue has to tell.
pub(crate) enum QueueEvent {
    Done(OpId, Answered),
    Notice(Notice),
}

/// The queue of an operation.
pub(crate) fn queue_of(OpId(op): OpId) -> usize {
    (op >> OP_BITS) as usize
}

/// The name of a link, by which the engine knows it.
fn name(link: usize) -> String {
    format!("link-{link}")
}

fn open(local: &LocalLink) -> ((Port, PortConfig), Wire) {
    let LocalLink { link: index, mac, carrier, config } = *local;
    let (port, wire) = port(name(index), (mac, carrier), config.frame_len_max);
    ((port, config), wire)
}

impl<R: Rules> Queue<R> {
    fn remove(&mut self, now: Instant, link: usize) -> bool {
        match self.driver.remove_link(now, &mut self.ports, &name(link)) {
            Ok(()) => self.links.remove(&link).is_some(),
            Err(LinkChangeError::Last) => false,
            Err(error) => panic!("link {link} cannot be removed: {error:?}"),
        }
    }

    fn add(&mut self, now: Instant, local: &LocalLink) {
        let (port, wire) = open(local);
        let port = self.driver.add_port(now, &mut self.ports, port);
        let former = self.links.insert(local.link, (port, wire));
        assert!(former.is_none(), "a link is used twice");
    }

    fn session(&self) -> &Session<R> {
        self.driver.session()
    }

    /// Receives frames, faults and timers.
    fn receive(&mut self, now: Instant) {
        self.ports.receive(now, &mut self.driver);
    }
}

impl<R: Rules> Queues<R> {
    /// A session with `queues` queues, over these links.
    pub(crate) fn new(
        config: SessionConfig,
        (queues, pauses): (usize, f64),
        links: Vec<LocalLink>,
        random: Random,
        now: Instant,
    ) -> Self {
        let shared = Session::<R>::shared(&config, queues);
        let mut this = Self {
            shared,
            config,
            queues: Vec::new(),
            still_until: vec![Instant(0); queues],
            pauses,
            links,
            changes: Vec::new(),
            clock: Arc::default(),
            random,
        };
        this.set_clock(now);
        this.begin(now);
        if this.config.resumes.is_some() {
            this.begin_others(now);
        }
        this
    }

    fn set_clock(&self, now: Instant) {
        self.clock.store(now.0, Ordering::Relaxed);
    }

    fn begin(&mut self, now: Instant) {
        let mut random = self.random.fork();
        let handle = self.shared.handle(self.queues.len());
        let (links, wires): (Vec<_>, Vec<_>) = self.links.iter().map(open).unzip();
        let machine = HostEnv {
            placement: Placement::default(),
            ethertype: ETHERTYPE,
            clock: Clock::Simulated(Arc::clone(&self.clock)),
            secrets: Box::new(move || random.next()),
        };
        let (driver, ports) = Driver::with_ports(self.config.clone(), handle, links, machine);
        let links = self.links.iter().map(|local| local.link).zip(wires.into_iter().enumerate());
        let (carriers, carried) = Default::default();
        let links = links.collect();
        let mut queue = Queue { driver, ports, links, carriers, carried, begun: 0 };
        for change in &self.changes {
            match change {
                Change::Add(local) => queue.add(now, local),
                Change::Remove(link) => {
                    queue.remove(now, *link);
                }
            }
        }
        self.queues.push(queue);
    }

    fn begin_others(&mut self, now: Instant) {
        while self.queues.len() < self.shared.queues() {
            self.begin(now);
        }
    }

    /// The configuration of the session.
    pub(crate) fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Gives a frame that has come by a link to its queue, or to all if it belongs to no channel.
    /// Returns whether it was taken by one, of those that look at it at once.
    pub(crate) fn handle_frame(&mut self, now: Instant, link: usize, frame: &Delivery) -> bool {
        self.set_clock(now);
        let channel = Header::parse(frame.head()).ok().filter(|header| header.kind.on_channel());
        let of_channel = channel.map(|header| usize::from(header.channel.0) / CHANNELS);
        let mut is_taken = false;
        for (number, queue) in self.queues.iter_mut().enumerate() {
            let is_its = of_channel.is_none_or(|queue| queue == number);
            if !is_its || now < self.still_until[number] {
                continue;
            }
            let Some((_, wire)) = queue.links.get(&link) else { continue };
            let dropped = queue.session().rejects().total();
            wire.arrive(&frame.frame, frame.is_congested);
            queue.ports.receive(now, &mut queue.driver);
            is_taken |= wire.is_read() && queue.session().rejects().total() == dropped;
            if self.random.hits(self.pauses) {
                let pause = Duration::from_millis(self.random.between(1, PAUSE_MAX_MS));
                self.still_until[number] = now + pause;
            }
        }
        is_taken
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.set_clock(now);
        let is_ending = self.is_ending();
        for (queue, still_until) in self.queues.iter_mut().zip(&self.still_until) {
            if now < *still_until {
                continue;
            }
            // Each thread has its own timer, or is woken because another queue has failed.
            if is_ending {
                queue.driver.take_notice(now);
            }
            queue.receive(now);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let now = Instant(self.clock.load(Ordering::Relaxed));
        let is_ending = self.is_ending() && !self.is_over();
        let wake = |(queue, still_until): (&Queue<R>, &Instant)| {
            let timers = [queue.driver.poll_timeout(), queue.ports.poll_timeout()];
            let due = if is_ending { Some(now) } else { timers.into_iter().flatten().min() };
            due.filter(|_| !queue.session().is_over()).map(|due| due.max(*still_until))
        };
        self.queues.iter().zip(&self.still_until).filter_map(wake).min()
    }

    /// The next thing that a queue has to tell, with its number.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<(usize, QueueEvent)> {
        self.set_clock(now);
        let mut queues = self.queues.iter_mut().enumerate();
        let (number, told) = queues.find_map(|(number, queue)| Some((number, queue.poll()?)))?;
        if matches!(told, QueueEvent::Notice(Notice::Connected(_))) {
            self.begin_others(now);
        }
        Some((number, told))
    }

    /// Has the queues send all frames that they can, and returns them with the link and the queue
    /// that has sent them. `frame_len_taken`: bytes of the longest frame that a link takes now.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        frame_len_taken: impl Fn(usize) -> usize,
    ) -> VecDeque<(usize, usize, Train)> {
        self.set_clock(now);
        let mut trains = VecDeque::new();
        for (number, queue) in self.queues.iter_mut().enumerate() {
            if now < self.still_until[number] {
                continue;
            }
            for (link, (_, wire)) in &queue.links {
                wire.begin_round(frame_len_taken(*link));
            }
            queue.ports.transmit(now, &mut queue.driver);
            for (link, (_, wire)) in &queue.links {
                while let Some(train) = wire.take() {
                    trains.push_back((number, *link, train));
                }
            }
        }
        trains
    }

    /// The operation in a slot of the channel whose frames have this cookie.
    pub(crate) fn locate(&self, queue: usize, cookie: Cookie, slot: u16) -> Option<OpId> {
        let queue = &self.queues[queue];
        let carrier = queue.session().locate(cookie, slot)?;
        queue.carried.get(&carrier).copied()
    }

    /// The requests in flight on the channel whose frames have this cookie.
    pub(crate) fn carried(
        &self,
        queue: usize,
        cookie: Cookie,
    ) -> impl Iterator<Item = (Tag, OpId)> {
        let queue = &self.queues[queue];
        let carried = queue.session().carried(cookie);
        carried.filter_map(|(tag, carrier)| Some((tag, *queue.carried.get(&carrier)?)))
    }

    /// Begins an operation on one of the queues. `stamp`: that of its data.
    pub(crate) fn submit(&mut self, now: Instant, operation: Operation, stamp: u64) -> OpId {
        self.set_clock(now);
        let number = match self.queues.len() {
            1 => 0,
            queues => self.random.below(queues as u64) as usize,
        };
        let queue = &mut self.queues[number];
        let op = queue.name(number);
        let request = request(&operation, stamp);
        let job = Job { request, token: u64::from(op.0), sink: None };
        let Ok(carrier) = queue.driver.submit(now, job) else {
            panic!("a session is full before its limit");
        };
        if let Some(carrier) = carrier {
            queue.carriers.insert(op, carrier);
            queue.carried.insert(carrier, op);
        }
        op
    }

    /// Whether a queue has failed or ended: no operation can begin any more.
    pub(crate) fn is_ending(&self) -> bool {
        self.queues.iter().any(|queue| queue.session().is_over())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.queues.iter().all(|queue| queue.session().is_over())
    }

    /// Whether the queue of an operation is over.
    pub(crate) fn is_over_for(&self, op: OpId) -> bool {
        self.queues[queue_of(op)].session().is_over()
    }

    /// Whether the operation's queue fails all operations, while the session goes on.
    pub(crate) fn fails_fast_for(&self, op: OpId) -> bool {
        self.queues[queue_of(op)].session().fails_fast()
    }

    /// Whether a queue does: no operation is taken.
    pub(crate) fn fails_fast(&self) -> bool {
        self.queues.iter().any(|queue| queue.session().fails_fast())
    }

    /// Whether each queue has a channel.
    pub(crate) fn is_live(&self) -> bool {
        self.queues.iter().all(|queue| queue.session().is_live())
    }

    /// When a queue has lost the target, if one has.
    pub(crate) fn lost_since(&self) -> Option<Instant> {
        self.queues.iter().filter_map(|queue| queue.session().lost_since()).min()
    }

    /// The export as the first queue knows it.
    pub(crate) fn export(&self) -> Option<ExportState> {
        self.export_of(0)
    }

    pub(crate) fn export_of(&self, queue: usize) -> Option<ExportState> {
        self.queues[queue].session().export()
    }

    pub(crate) fn resume_state(&self) -> Option<ResumeState> {
        self.queues[0].session().resume_state()
    }

    pub(crate) fn operations(&self) -> usize {
        self.queues.iter().map(|queue| queue.session().operations()).sum()
    }

    /// The reports on all channels, with the link that each uses.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (usize, PathReport)> {
        self.queues.iter().flat_map(|queue| {
            let link = |path: PathReport| {
                let mut links = queue.links.iter();
                let (link, _) = links.find(|(_, (port, _))| *port == path.port)?;
                Some((*link, path))
            };
            queue.session().paths().filter_map(link)
        })
    }

    pub(crate) fn stats(&self) -> ChannelStats {
        let mut stats = ChannelStats::default();
        self.queues.iter().for_each(|queue| stats += queue.session().stats());
        stats
    }

    /// Number of dropped frames.
    pub(crate) fn rejects(&self) -> u64 {
        self.queues.iter().map(|queue| queue.session().rejects().total()).sum()
    }

    /// Whether the session uses a link.
    pub(crate) fn uses(&self, link: usize) -> bool {
        self.queues[0].links.contains_key(&link)
    }

    /// Removes a link from all queues; false if it is the last.
    pub(crate) fn remove_link(&mut self, now: Instant, link: usize) -> bool {
        self.set_clock(now);
        let removed: Vec<_> = self.queues.iter_mut().map(|it| it.remove(now, link)).collect();
        assert!(removed.iter().all(|it| *it == removed[0]), "the queues have the same links");
        if removed[0] {
            self.changes.push(Change::Remove(link));
        }
        removed[0]
    }

    pub(crate) fn add_link(&mut self, now: Instant, local: LocalLink) {
        self.set_clock(now);
        self.queues.iter_mut().for_each(|queue| queue.add(now, &local));
        self.changes.push(Change::Add(local));
    }

    /// The interface of a link goes down for a moment.
    pub(crate) fn lose_carrier(&mut self, now: Instant, link: usize) {
        self.set_clock(now);
        for queue in &mut self.queues {
            let Some((_, wire)) = queue.links.get(&link) else { continue };
            wire.go_down();
            queue.receive(now);
        }
    }

    pub(crate) fn disconnect(&mut self, now: Instant) {
        self.set_clock(now);
        self.queues.iter_mut().for_each(|queue| queue.driver.disconnect(now));
    }
}

impl<R: Rules> Queue<R> {
    /// A number for the next operation, which no operation in progress has.
    fn name(&mut self, queue: usize) -> OpId {
        loop {
            self.begun = (self.begun + 1) % (1 << OP_BITS);
            let op = OpId((queue as u32) << OP_BITS | self.begun);
            if !self.carriers.contains_key(&op) {
                return op;
            }
        }
    }

    fn poll(&mut self) -> Option<QueueEvent> {
        if self.driver.done.is_empty() {
            self.driver.answered();
            return self.driver.notices.pop_front().map(QueueEvent::Notice);
        }
        let done = self.driver.done.remove(0);
        let op = OpId(done.completion.token as u32);
        let carrier = self.carriers.remove(&op);
        let stage_sample = carrier.and_then(|carrier| {
            self.carried.remove(&carrier);
            self.session().stage_sample(carrier)
        });
        Some(QueueEvent::Done(op, Answered { done, was_taken: carrier.is_some(), stage_sample }))
    }
}
