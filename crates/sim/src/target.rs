//! A target of the simulation: the engine's exporter for each link, over simulated links and
//! stores, and the requests at its disks.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tyche_block::Extent;
use tyche_engine::{Clock, Ports, Protocol, RateLimit};
use tyche_native::{ChannelEvent, Exporter, ExporterEnv, Exports, Removal, TargetExport};
use tyche_proto::{
    Access, Allowed, ChannelRef, ChannelStats, ExportKey, HostId, Instant, Listener,
    ListenerConfig, Loss, Operation, Registry, Rules, TargetConfig, TargetKeys, Writer,
};
use tyche_wire::{ChannelId, Cookie, ETHERTYPE, Event as ExportEvent, Mac, Name, Tag, Uuid};

use crate::disk::{Disk, Progress};
use crate::host::{export_index, export_name, uuid};
use crate::link::{Carrier, Train, Wire, port};
use crate::memory::{Memory, Writable};
use crate::network::Delivery;
use crate::plan::{ExportPlan, TargetPlan};
use crate::random::Random;
use crate::store::{Bus, Submitted, store};

/// Channels of the target at once: more than all hosts of a world want together (a session has at
/// most 256), so that no link of theirs is refused for want of room and stays away for ever.
pub(crate) const CHANNELS_MAX: usize = 2048;

/// What the checker knows of an open channel.
pub(crate) struct Channel {
    /// Index of its export.
    pub(crate) export: usize,
    /// The cookie of the frames that arrive on it.
    pub(crate) cookie: Option<Cookie>,
    /// The generation of each slot's request that was given to the disk and is not answered.
    unanswered: BTreeMap<u16, u16>,
}

impl Channel {
    pub(crate) fn new(export: usize) -> Self {
        Self { export, cookie: None, unanswered: BTreeMap::new() }
    }

    /// Notes that a slot's request is given to the disk.
    ///
    /// # Errors
    /// If the slot's last request was not answered yet: then the number of waiting answers would
    /// have no bound.
    pub(crate) fn use_slot(&mut self, tag: Tag) -> Result<(), String> {
        match self.unanswered.insert(tag.slot, tag.generation) {
            Some(last) => Err(format!("{tag:?} is executed, and {last} is not answered yet")),
            None => Ok(()),
        }
    }

    /// Notes a completion that is sent to the host.
    pub(crate) fn note_answer(&mut self, tag: Tag) {
        if self.unanswered.get(&tag.slot) == Some(&tag.generation) {
            self.unanswered.remove(&tag.slot);
        }
    }
}

/// The session that a channel belongs to.
pub(crate) struct Owner {
    pub(crate) session: Uuid,
    pub(crate) host: HostId,
    pub(crate) is_writer: bool,
}

/// A request at the disk.
pub(crate) struct Job {
    pub(crate) link: usize,
    pub(crate) channel: ChannelId,
    /// The session of the channel, and its host.
    pub(crate) session: Uuid,
    pub(crate) host: HostId,
    /// Index of the export.
    pub(crate) export: usize,
    pub(crate) tag: Tag,
    pub(crate) operation: Operation,
    /// Its data.
    pub(crate) buffer: Option<Extent>,
    pub(crate) progress: Progress,
    /// The stamp of a modifying operation; zero for others.
    pub(crate) stamp: u64,
    /// The queue of the store, and the store's name for the request.
    pub(crate) queue: usize,
    pub(crate) token: u64,
}

/// The data of a request.
pub(crate) fn data<'a>(buffer: &'a mut Option<Extent>, operation: &Operation) -> &'a mut [u8] {
    buffer.as_mut().map_or(&mut [], |buffer| &mut buffer[..operation.len as usize])
}

/// What the machine of a target keeps over its runs.
#[derive(Default)]
struct Records {
    /// Nothing can be stored.
    is_full: bool,
    log: Vec<Record>,
}

/// A change of what is kept of an export, by index.
pub(crate) enum Record {
    /// A session is admitted for writing.
    Writer(usize, Writer),
    /// It has another generation.
    Renewed(usize, Loss),
}

/// A run of the target's process.
pub(crate) struct Process<R: Rules> {
    exports: Arc<Exports>,
    links: Vec<TargetLink<R>>,
    /// Counters of links that were removed.
    past: ChannelStats,
    /// By index.
    served: Vec<Served>,
    clock: Arc<AtomicU64>,
    records: Arc<Mutex<Records>>,
    /// The limit of each export.
    limit: RateLimit,
    /// The open channels.
    pub(crate) channels: BTreeMap<(usize, ChannelId), Channel>,
    /// The open channels of a link, by the cookie of their frames to the host, and closed ones.
    by_cookie: HashMap<(usize, Cookie), ChannelId>,
    pub(crate) jobs: BTreeMap<u64, Job>,
    /// The byte ranges that were begun of each modifying operation, by export, session and stamp.
    executed: BTreeMap<(usize, Uuid, u64), Vec<Range<u64>>>,
}

struct TargetLink<R: Rules> {
    exporter: Exporter<R>,
    ports: Ports,
    wire: Wire,
    writable: Writable,
    stage: Stage,
}

/// The life of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Served,
    /// It was removed.
    Ending,
    /// Nothing of it is left.
    Over,
}

/// The parts that the links of a process share.
struct Site<'a> {
    plan: &'a TargetPlan,
    exports: &'a Arc<Exports>,
    clock: &'a Arc<AtomicU64>,
    keys: Option<TargetKeys>,
}

impl<R: Rules> TargetLink<R> {
    fn new(
        Site { plan, exports, clock, keys }: &Site<'_>,
        index: usize,
        mac: (Mac, Carrier),
        mut random: Random,
    ) -> Self {
        let routed = mac.1 != Carrier::Ethernet;
        let frame_len_max = plan.links[index].frame_len_max;
        let (port, wire) = port(format!("target-{index}"), mac, frame_len_max);
        let writable = Writable::default();
        let mut ports = Ports::with_clock(Clock::Simulated(Arc::clone(clock)));
        ports.insert(0, port);
        let config = ListenerConfig { link: index, frame_len_max, rings: plan.rings, routed };
        let pages_max = plan.damq_pages_max as usize;
        let identity = exports.registry().target().uuid;
        let mut listener = Listener::new(config, identity, Box::new(move || random.next()));
        if let Some(keys) = keys {
            listener.set_keys(Instant(0), keys.clone());
        }
        if plan.silent {
            listener.be_silent();
        }
        let site = ExporterEnv {
            index,
            listener,
            memory: Box::new(Memory { pages_max, writable: writable.clone() }),
            ethertype: ETHERTYPE,
            clock: Clock::Simulated(Arc::clone(clock)),
        };
        let exporter = Exporter::new(Arc::clone(exports), site);
        Self { exporter, ports, wire, writable, stage: Stage::Served }
    }
}

/// An export that the process serves.
struct Served {
    key: ExportKey,
    bus: Bus,
    removal: Option<Removal>,
}

impl Served {
    fn new(key: ExportKey, bus: Bus) -> Self {
        Self { key, bus, removal: None }
    }
}

/// What the machine keeps of an export.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exported {
    pub(crate) index: usize,
    pub(crate) shared: bool,
    /// Whether it is the breaker's.
    pub(crate) wild: bool,
    /// The halves of its generation.
    pub(crate) content: u64,
    pub(crate) cache: u64,
    /// The session that was last admitted for writing.
    pub(crate) last_writer: Option<Writer>,
}

impl Exported {
    pub(crate) fn new(index: usize, plan: &ExportPlan) -> Self {
        let (shared, wild) = (plan.shared, plan.wild);
        Self { index, shared, wild, content: 1, cache: 1, last_writer: None }
    }

    /// The generation that hosts are told.
    pub(crate) fn generation(&self) -> Uuid {
        Uuid::from_u64_pair(self.content, self.cache)
    }

    /// Begins another generation.
    pub(crate) fn renew(&mut self, loss: Loss) {
        self.content += u64::from(loss == Loss::Content);
        self.cache += 1;
    }

    fn export(&self, disk: &Disk) -> (TargetExport, Bus) {
        let (store, bus) = store(disk.geometry(), disk.losses());
        let export = TargetExport {
            name: export_name(self.index),
            uuid: uuid(4, self.index as u64),
            generation: self.generation(),
            store,
            shared: self.shared,
            last_writer: self.last_writer,
            allowed: Allowed::default(),
            offline: None,
        };
        (export, bus)
    }
}

impl<R: Rules> Process<R> {
    /// A process that serves these exports on links with these addresses, to hosts with keys if
    /// there is an `access` with keys of its own.
    pub(crate) fn new<'a>(
        now: Instant,
        (plan, access): (&TargetPlan, Option<(Access, TargetKeys)>),
        exports: impl Iterator<Item = (Exported, &'a Disk)>,
        macs: impl Iterator<Item = (Mac, Carrier)>,
        random: &mut Random,
    ) -> Self {
        let target = TargetConfig {
            uuid: uuid(3, 0),
            name: Name::new("target").expect("a name"),
            queue_size_max: plan.queue_size_max,
            damq_pages_max: plan.damq_pages_max,
            memory_pages: plan.memory_pages,
            batch: plan.batch,
        };
        let (mut exported, mut added, mut buses) = (Vec::new(), Vec::new(), Vec::new());
        for (export, disk) in exports {
            let (target_export, bus) = export.export(disk);
            exported.push(export);
            added.push(target_export);
            buses.push(bus);
        }
        let clock = Arc::new(AtomicU64::new(now.0));
        let records = Arc::<Mutex<Records>>::default();
        let keepers = (keeper_of_writers(&records), keeper_of_generations(&records, exported));
        let exports = Exports::new(target, added, keepers, (plan.links.len(), now));
        let exports = Arc::new(exports.expect("the machine has descriptors for the run"));
        let keys = access.map(|(access, keys)| {
            exports.set_access(access, Vec::new());
            keys
        });
        let of_exports: Vec<_> = exports.registry().exports().map(|(key, _)| key).collect();
        of_exports.iter().for_each(|key| exports.set_limit(*key, plan.limit));
        let served =
            of_exports.into_iter().zip(buses).map(|(key, bus)| Served::new(key, bus)).collect();
        let site = Site { plan, exports: &exports, clock: &clock, keys };
        let link = |(index, mac)| TargetLink::new(&site, index, mac, random.fork());
        let links = macs.enumerate().map(link).collect();
        Self {
            exports,
            links,
            past: ChannelStats::default(),
            served,
            clock,
            records,
            limit: plan.limit,
            channels: BTreeMap::new(),
            by_cookie: HashMap::new(),
            jobs: BTreeMap::new(),
            executed: BTreeMap::new(),
        }
    }

    /// The registry of sessions.
    pub(crate) fn registry(&self) -> impl Deref<Target = Registry> {
        self.exports.registry()
    }

    /// The state of the protocol of each link.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = &Listener<R>> {
        self.links.iter().map(|link| link.exporter.listener())
    }

    /// The key of an export, by its index.
    pub(crate) fn key(&self, export: usize) -> ExportKey {
        self.served[export].key
    }

    /// Number of links.
    pub(crate) fn links(&self) -> usize {
        self.links.len()
    }

    /// Gives a frame to a link. Returns whether it was taken.
    pub(crate) fn handle_frame(&mut self, now: Instant, link: usize, frame: &Delivery) -> bool {
        let TargetLink { exporter, ports, wire, stage, .. } = &mut self.links[link];
        self.clock.store(now.0, Ordering::Relaxed);
        if *stage == Stage::Over {
            return false;
        }
        let dropped = exporter.listener().rejects().total();
        wire.arrive(&frame.frame, frame.is_congested);
        ports.receive(now, exporter);
        exporter.listener().rejects().total() == dropped
    }

    /// Runs the timers of a link that have expired.
    pub(crate) fn handle_timeout(&mut self, now: Instant, link: usize) {
        let TargetLink { exporter, ports, .. } = &mut self.links[link];
        self.clock.store(now.0, Ordering::Relaxed);
        ports.receive(now, exporter);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let timers = |it: &TargetLink<R>| [it.exporter.poll_timeout(), it.ports.poll_timeout()];
        let there = self.links.iter().filter(|link| link.stage != Stage::Over);
        there.flat_map(timers).flatten().min()
    }

    /// Lets a link take completions of the disks, and admit hosts; false if there was nothing to
    /// do.
    pub(crate) fn work(&mut self, now: Instant, link: usize) -> bool {
        self.clock.store(now.0, Ordering::Relaxed);
        let TargetLink { exporter, stage, .. } = &mut self.links[link];
        *stage != Stage::Over && exporter.work(now)
    }

    /// Has a link send all frames that it can, and returns them. `frame_len_taken`: bytes of the
    /// longest that it takes now.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        link: usize,
        frame_len_taken: usize,
    ) -> Vec<Train> {
        let TargetLink { exporter, ports, wire, stage, .. } = &mut self.links[link];
        if *stage == Stage::Over {
            return Vec::new();
        }
        wire.begin_round(frame_len_taken);
        ports.transmit(now, exporter);
        if *stage == Stage::Ending && exporter.is_idle() {
            // After its last round.
            *stage = Stage::Over;
        }
        std::iter::from_fn(|| wire.take()).collect()
    }

    /// Takes note of a link's channels that were opened or closed; returns the opened ones.
    pub(crate) fn note_channels(&mut self, link: usize) -> Result<Vec<ChannelId>, String> {
        let mut opened = Vec::new();
        let events = mem::take(&mut self.links[link].exporter.events);
        for (index, &event) in events.iter().enumerate() {
            match event {
                ChannelEvent::Opened { channel, export } => {
                    if self.links[link].stage != Stage::Served {
                        return Err(format!("a channel opens on link {link}, which was removed"));
                    }
                    let export = self.served.iter().position(|served| served.key == export);
                    let export = export.ok_or("a channel for no export")?;
                    if self.channels.insert((link, channel), Channel::new(export)).is_some() {
                        return Err(format!("channel {} of link {link} opened twice", channel.0));
                    }
                    let cookie = self.links[link].exporter.listener().peer_cookie(channel);
                    self.by_cookie.extend(cookie.map(|cookie| ((link, cookie), channel)));
                    opened.push(channel);
                }
                ChannelEvent::Closed { channel } => {
                    let closed = self.channels.remove(&(link, channel));
                    closed.ok_or("a channel closed that was not open")?;
                    // Its index may be another's by now.
                    let is_again = events[index + 1..].iter().any(|later| match later {
                        ChannelEvent::Opened { channel: it, .. } => *it == channel,
                        ChannelEvent::Closed { .. } => false,
                    });
                    if !is_again && self.links[link].writable.channels().contains(&channel) {
                        return Err(format!("a host may write to closed channel {}", channel.0));
                    }
                }
            }
        }
        Ok(opened)
    }

    /// The channel of a link whose frames to its host have this cookie.
    pub(crate) fn channel_of(&mut self, link: usize, cookie: Cookie) -> Option<&mut Channel> {
        let &channel = self.by_cookie.get(&(link, cookie))?;
        let present = self.links[link].exporter.listener().peer_cookie(channel)?;
        self.channels.get_mut(&(link, channel)).filter(|_| present == cookie)
    }

    /// The next request for a disk, with the export, the channel and the tag.
    pub(crate) fn take_request(&mut self) -> Option<(usize, ChannelId, Tag, Submitted)> {
        let mut served = self.served.iter().enumerate();
        let (export, submitted) = served.find_map(|(export, it)| Some((export, it.bus.take()?)))?;
        let (channel, tag) = Exporter::<R>::request(submitted.token);
        Some((export, channel, tag, submitted))
    }

    /// The bus to the disk of an export.
    pub(crate) fn bus(&self, export: usize) -> &Bus {
        &self.served[export].bus
    }

    /// What the machine keeps from now on.
    pub(crate) fn take_records(&mut self) -> Vec<Record> {
        mem::take(&mut self.records.lock().unwrap_or_else(PoisonError::into_inner).log)
    }

    /// Keeps it from storing anything, or lets it again.
    pub(crate) fn set_state_full(&mut self, is_full: bool) {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).is_full = is_full;
    }

    /// Keeps hosts out of an export, and lets all others in.
    pub(crate) fn deny(&self, export: usize, hosts: Vec<HostId>) {
        let denied = hosts.into_iter().collect();
        self.exports.set_allowed(self.key(export), Allowed { denied, ..Allowed::default() });
    }

    /// Removes an export; false if it was removed already.
    pub(crate) fn remove(&mut self, export: usize) -> bool {
        let removal = self.exports.remove::<R>(self.key(export));
        let is_removed = removal.is_some();
        self.served[export].removal = self.served[export].removal.take().or(removal);
        is_removed
    }

    /// Whether nothing of an export that was removed is left.
    pub(crate) fn has_given_up(&self, export: usize) -> bool {
        self.served[export].removal.as_ref().is_some_and(Removal::is_over)
    }

    /// Serves an export again that was given up. What it has executed before may be executed again,
    /// as by another process.
    pub(crate) fn add_again(&mut self, now: Instant, exported: Exported, disk: &Disk) {
        let (target_export, bus) = exported.export(disk);
        let key = self.exports.add(now, target_export).expect("nothing of the former is left");
        self.exports.set_limit(key, self.limit);
        self.served[exported.index] = Served::new(key, bus);
        self.executed.retain(|(export, ..), _| *export != exported.index);
    }

    /// Removes a link; false if it was removed already.
    pub(crate) fn remove_link(&mut self, now: Instant, link: usize) -> bool {
        let TargetLink { exporter, stage, .. } = &mut self.links[link];
        let is_served = *stage == Stage::Served;
        if is_served {
            exporter.shut_down(now);
            *stage = Stage::Ending;
        }
        is_served
    }

    /// Serves a link again that was removed; false if something of it is left.
    pub(crate) fn add_link_again(
        &mut self,
        (plan, keys): (&TargetPlan, Option<TargetKeys>),
        link: usize,
        mac: (Mac, Carrier),
        random: Random,
    ) -> bool {
        let is_over = self.links[link].stage == Stage::Over;
        if is_over {
            self.past += self.links[link].exporter.listener().stats();
            let site = Site { plan, exports: &self.exports, clock: &self.clock, keys };
            self.links[link] = TargetLink::new(&site, link, mac, random);
        }
        is_over || self.links[link].stage == Stage::Served
    }

    /// Has other keys from now on.
    pub(crate) fn set_keys(&mut self, now: Instant, keys: &TargetKeys) {
        for link in self.links.iter_mut().filter(|link| link.stage == Stage::Served) {
            link.exporter.set_keys(now, keys.clone());
        }
    }

    /// Has another limit of each export from now on.
    pub(crate) fn set_limit(&mut self, limit: RateLimit) {
        self.limit = limit;
        for served in self.served.iter().filter(|served| served.removal.is_none()) {
            self.exports.set_limit(served.key, limit);
        }
    }

    /// The disk of an export has another size.
    pub(crate) fn resize(&mut self, export: usize, size: u64) {
        let Self { exports, links, served, .. } = self;
        let Served { key, bus, .. } = &served[export];
        bus.resize(size);
        let notify = |event: ExportEvent| {
            links.iter_mut().for_each(|link| link.exporter.notify(*key, event));
        };
        exports.resize(*key, None, notify).expect("the store has its size already");
    }

    /// Counters of all channels.
    pub(crate) fn stats(&self) -> ChannelStats {
        let mut stats = self.past;
        self.listeners().for_each(|listener| stats += listener.stats());
        stats
    }

    /// The session that a channel belongs to.
    pub(crate) fn owner(&self, link: usize, channel: ChannelId) -> Option<Owner> {
        let wanted = ChannelRef { link, channel };
        let export = self.channels.get(&(link, channel))?.export;
        let registry = self.registry();
        let mut sessions = registry.sessions(self.key(export)).iter();
        let owner = sessions.find(|it| it.channels().any(|(channel, _)| channel == wanted))?;
        Some(Owner { session: owner.session, host: owner.host.host_id(), is_writer: owner.writer })
    }

    /// Notes that the disk begins a modifying request; returns whether this run has begun a part of
    /// the same range before.
    pub(crate) fn is_repeated(&mut self, job: u64) -> bool {
        let Job { export, session, stamp, operation, .. } = &self.jobs[&job];
        let range = operation.offset..operation.offset + u64::from(operation.len);
        let executed = self.executed.entry((*export, *session, *stamp)).or_default();
        let again = executed.iter().any(|it| it.start < range.end && range.start < it.end);
        executed.push(range);
        again
    }

    /// Allows that the operations of a session are executed again.
    pub(crate) fn forget(&mut self, session: Uuid) {
        self.executed.retain(|(_, of, _), _| *of != session);
    }
}

/// Keeps who writes.
fn keeper_of_writers(records: &Arc<Mutex<Records>>) -> tyche_native::RememberWriter {
    let records = Arc::clone(records);
    Box::new(move |name, writer| {
        let mut records = records.lock().unwrap_or_else(PoisonError::into_inner);
        if records.is_full {
            return Err("no space is left".into());
        }
        records.log.push(Record::Writer(export_index(name), writer));
        Ok(())
    })
}

/// Keeps the generations of the exports.
fn keeper_of_generations(
    records: &Arc<Mutex<Records>>,
    mut exported: Vec<Exported>,
) -> tyche_native::RenewGeneration {
    let records = Arc::clone(records);
    Box::new(move |name, loss| {
        let export = export_index(name);
        let mut records = records.lock().unwrap_or_else(PoisonError::into_inner);
        records.log.push(Record::Renewed(export, loss));
        exported[export].renew(loss);
        exported[export].generation()
    })
}
