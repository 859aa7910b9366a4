//! The simulated world: hosts, links, one target with its disks, and everything that happens.
//!
//! Protocol and engine are the real ones, and so are the bytes of their frames; the world takes the
//! place of threads, kernel and hardware. After each input their outputs are drained, as their
//! contract demands, and checked.

mod adversary;
mod breaker;
mod crashes;
mod evictions;
mod exports;
mod forger;
mod forgeries;
mod freezer;
mod hosts;
mod incidents;
mod kept;
mod orders;
mod outages;
mod recorder;
mod removals;
mod requests;
mod rotation;
mod seals;
mod strangers;
mod unlinks;
mod witness;

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use tyche_block::Errno;
use tyche_proto::{AllRules, ChannelStats, Instant, Outgoing, RejectCounts, Rules};
use tyche_remote::Notice;
use tyche_wire::{ENTRY_LEN, Entry, HEAD_LEN, Header, Kind, Reject};

use crate::host::Host;
use crate::keys;
use crate::link::Train;
use crate::network::{Delivery, Fate, Network, Port, Station};
use crate::plan::{HostPlan, Plan};
use crate::random::Random;
use crate::report::{Report, Violation};
use crate::schedule::Schedule;
use crate::target::Process;
use crate::trace::{Happening, Trace};

use breaker::Breaker;
use evictions::Evictions;
use exports::Volume;
use freezer::{Freezer, Part};
use incidents::Incident;
use kept::Snapshot;
use removals::Removals;
use rotation::Rotation;
use strangers::{Other, Others};
use unlinks::Unlinks;

/// Bytes of the body of a Fence or Fenced of no requests.
const FENCE_OF_NONE: u32 = 16;
/// Limit of frames in flight: more is a flood.
const FRAMES_MAX: usize = 200_000;
/// Limit of inputs in a row without time passing, besides those of each host's: more is an endless
/// loop.
const SPINS_MAX: usize = 10_000;

/// A future event.
enum Event {
    Arrive(Delivery),
    HostAlarm(usize),
    TargetAlarm,
    /// A request is half executed.
    DiskMid(u64),
    /// A request is executed.
    DiskDone(u64),
    /// A host begins a session.
    Start(usize),
    /// The pause of a host is over.
    Thought(usize),
    Incident(Incident),
    /// The breaker sends a frame.
    Breaker,
    /// The forger sends a frame.
    Forge,
    /// A frame from before a new life comes late.
    Former {
        before: Instant,
    },
    Other(Other),
}

/// One run of the simulator: all participants, the network, the disks and the schedule of events.
/// All that happens follows from the [`Plan`], seed included.
pub struct World<R: Rules = AllRules> {
    plan: Plan,
    now: Instant,
    schedule: Schedule<Event>,
    network: Network,
    hosts: Vec<Host<R>>,
    process: Option<Process<R>>,
    target_alarm: Option<Instant>,
    /// The exports, by index.
    volumes: Vec<Volume>,
    trace: Trace,
    random: Random,
    out: Outgoing,
    jobs: u64,
    sessions: u64,
    /// Stamps of the operations that hosts have sent, by the cookie of the channel's frames to the
    /// target and the request's tag.
    sent: HashMap<(u64, u32), u64>,
    /// Participants that do nothing at the moment.
    freezer: Freezer,
    /// The target dies when its disk has executed another request that modifies.
    dies_unanswered: bool,
    /// State that the target's machine may be restored from.
    snapshot: Option<Snapshot>,
    breaker: Option<Breaker>,
    evictions: Evictions,
    removals: Removals,
    unlinks: Unlinks,
    rotation: Rotation,
    /// The target cannot store anything.
    state_full: bool,
    /// Strangers, clones and the forger.
    others: Others<R>,
    frames_in_flight: usize,
    spins: usize,
    /// Operations that busy hosts may still submit.
    allowance: u32,
    /// Faults have stopped.
    calm: bool,
    log: Vec<(usize, Notice)>,
    answers: Vec<(usize, Result<(), Errno>)>,
    report: Report,
    past_stats: ChannelStats,
}

impl<R: Rules> World<R> {
    /// A world at its beginning: the target serves, and all hosts begin to look for it. `verbose`
    /// receives a line for every event.
    pub fn new(plan: Plan, verbose: Option<Box<dyn Write>>) -> Self {
        let mut random = Random::new(plan.seed ^ 0x7479_6368_6500);
        let host =
            |(index, host): (usize, &HostPlan)| Host::new(index, host.clone(), random.fork());
        let hosts: Vec<_> = plan.hosts.iter().enumerate().map(host).collect();
        let now = Instant(1_000_000);
        let mut network = Network::new(&plan, random.fork());
        let others = Others::new(&plan, now, &mut network);
        let mut of_target = random.fork();
        let volumes = Volume::all(&plan, random.fork());
        let rotation = Rotation::default();
        let process = Some(begin(now, (&plan, rotation), &volumes, &network, &mut of_target));
        let mut world = Self {
            now,
            schedule: Schedule::new(),
            network,
            process,
            volumes,
            others,
            target_alarm: None,
            trace: Trace::new(verbose),
            out: Outgoing::new(),
            jobs: 0,
            sessions: 0,
            sent: HashMap::new(),
            freezer: Freezer::default(),
            dies_unanswered: false,
            snapshot: None,
            breaker: plan.breaker.clone().map(|breaker| Breaker::new(breaker, plan.seed)),
            evictions: Evictions::default(),
            removals: Removals::default(),
            unlinks: Unlinks::default(),
            rotation,
            state_full: false,
            frames_in_flight: 0,
            spins: 0,
            allowance: plan.operations,
            calm: false,
            log: Vec::new(),
            answers: Vec::new(),
            report: Report::default(),
            past_stats: ChannelStats::default(),
            hosts,
            random,
            plan,
        };
        for host in 0..world.hosts.len() {
            world.plan_in(Duration::ZERO, Event::Start(host));
        }
        world.plan_incidents();
        world.plan_breaker();
        world.plan_others();
        world
    }

    fn plan_in(&mut self, delay: Duration, event: Event) {
        self.schedule.plan(self.now + delay, event);
    }

    fn note(&mut self, happening: Happening) {
        self.trace.note(self.now, happening);
    }

    /// Makes a violation of a finding.
    pub(crate) fn violation(&self, what: String) -> Violation {
        let Plan { seed, profile, .. } = self.plan;
        Violation { seed, profile, at: self.now, what, recent: self.trace.recent() }
    }

    /// Handles the next event; false if none is left.
    fn step(&mut self) -> Result<bool, String> {
        let Some((at, event)) = self.schedule.pop() else { return Ok(false) };
        self.spins = if at > self.now { 0 } else { self.spins + 1 };
        if self.spins > SPINS_MAX + 2 * self.hosts.len() {
            return Err("somebody is busy while no time passes".into());
        }
        self.now = at;
        if let Some(thaw) = self.freezer.until(self.part_of(&event), at) {
            self.postpone(thaw, event);
            return Ok(true);
        }
        match event {
            Event::Arrive(delivery) => self.arrive(delivery)?,
            Event::HostAlarm(host) => self.host_alarm(host)?,
            Event::TargetAlarm => self.target_alarm()?,
            Event::DiskMid(job) => self.disk_mid(job),
            Event::DiskDone(job) => self.disk_done(job)?,
            Event::Start(host) => self.start(host)?,
            Event::Thought(host) => self.drive_host(host)?,
            Event::Incident(incident) => self.incident(incident)?,
            Event::Breaker => self.tick_breaker()?,
            Event::Forge => self.forge()?,
            Event::Former { before } => self.repeat_former(before)?,
            Event::Other(other) => self.other(other)?,
        }
        Ok(true)
    }

    /// The part of the world that an event belongs to.
    fn part_of(&self, event: &Event) -> Option<Part> {
        match event {
            Event::Arrive(delivery) => Some(Part::Station(self.network.place(delivery.to).station)),
            Event::HostAlarm(host) | Event::Thought(host) => {
                Some(Part::Station(Station::Host(*host)))
            }
            Event::TargetAlarm => Some(Part::Station(Station::Target)),
            Event::DiskMid(_) | Event::DiskDone(_) => Some(Part::Disk),
            Event::Start(_)
            | Event::Incident(_)
            | Event::Breaker
            | Event::Forge
            | Event::Former { .. }
            | Event::Other(_) => None,
        }
    }

    fn arrive(&mut self, mut delivery: Delivery) -> Result<(), String> {
        self.frames_in_flight -= 1;
        if !self.network.admit(self.now, &mut delivery) {
            return Ok(());
        }
        self.witness_mark(&delivery);
        let (delivery, place) = (&delivery, self.network.place(delivery.to));
        match place.station {
            Station::Target => self.target_frame(place.link, delivery),
            Station::Host(host) => self.host_frame(host, place.link, delivery),
            Station::Breaker => self.breaker_frame(delivery),
            Station::Stranger => self.stranger_frame(place.link, delivery),
            Station::Guest => self.guest_frame(delivery),
        }
    }

    /// Hands a frame to the network.
    fn send(&mut self, from: Port, frame: Vec<u8>) -> Result<(), String> {
        self.send_train(from, vec![frame])
    }

    /// Hands frames that leave together to the network.
    fn send_train(&mut self, from: Port, train: Train) -> Result<(), String> {
        let place = self.network.place(from);
        let (mut sent, mut frames) = (Vec::new(), Vec::with_capacity(train.len()));
        for mut frame in train {
            self.network.translate(self.now, from, &mut frame);
            let head: &[u8; HEAD_LEN] = frame.first_chunk().expect("a head");
            let header =
                Header::parse(head).map_err(|reject| format!("sent a bad frame: {reject}"))?;
            if matches!(header.kind, Kind::Fence | Kind::Fenced) {
                self.report.fences += 1;
                // The channels that a cut takes are all fenced: it would never end.
                if header.data_len > FENCE_OF_NONE {
                    self.cut_fence(from);
                }
            }
            self.overhear(from, &frame, header);
            self.seal(&header, &frame)?;
            self.witness_marked(from, &header)?;
            self.witness_question(place.station, &frame, &header);
            if place.station == Station::Target {
                self.witness_answer(from, &frame, &header)?;
            }
            let len = frame.len();
            if self.hold(from, &frame, &header)? {
                let fate = Fate::Delayed;
                self.note(Happening::Frame { port: from, from: place, len, fate, header });
            } else {
                sent.push((len, header));
                frames.push(frame);
            }
        }
        let fates = self.network.send(self.now, from, frames);
        for ((len, header), fate) in sent.into_iter().zip(fates) {
            self.note(Happening::Frame { port: from, from: place, len, fate, header });
        }
        self.plan_deliveries()
    }

    fn plan_deliveries(&mut self) -> Result<(), String> {
        for (at, delivery) in self.network.deliveries.drain(..) {
            self.frames_in_flight += 1;
            self.schedule.plan(at, Event::Arrive(delivery));
        }
        if self.frames_in_flight > FRAMES_MAX {
            return Err(format!("{} frames are in flight", self.frames_in_flight));
        }
        Ok(())
    }

    /// Runs until `done` holds, at most for `limit`; returns whether it held.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn run_until(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&Self) -> bool,
    ) -> Result<bool, Box<Violation>> {
        let end = self.now + limit;
        while !done(self) {
            if self.schedule.next_at().is_none_or(|at| at > end) {
                self.now = end;
                return Ok(false);
            }
            self.step().map_err(|what| self.violation(what))?;
        }
        Ok(true)
    }

    /// Runs for that long.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn run_for(&mut self, time: Duration) -> Result<(), Box<Violation>> {
        self.run_until(time, |_| false).map(drop)
    }

    /// Virtual time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.now.since(Instant(1_000_000))
    }

    /// Operations in progress.
    pub fn in_progress(&self) -> usize {
        self.volumes.iter().map(|volume| volume.history.open()).sum()
    }

    /// Notices of the sessions of a host.
    pub fn notices(&self, host: usize) -> impl Iterator<Item = &Notice> {
        self.log.iter().filter(move |(index, _)| *index == host).map(|(_, notice)| notice)
    }

    /// Results of the operations of a host, in the order of their ends.
    pub fn answers(&self, host: usize) -> impl Iterator<Item = Result<(), Errno>> {
        self.answers.iter().filter(move |(index, _)| *index == host).map(|&(_, result)| result)
    }

    /// Longest frame in bytes that all live channels of a host's link carry; zero without any.
    pub fn frame_len(&self, host: usize, link: usize) -> usize {
        let running = self.hosts[host].running.as_ref();
        let paths = running.into_iter().flat_map(|it| it.paths(link)).filter(|path| path.live);
        paths.map(|path| path.frame_len).min().unwrap_or_default()
    }

    /// Counters of all channels so far, at both ends.
    fn stats(&self) -> ChannelStats {
        let mut stats = self.past_stats;
        for running in self.hosts.iter().filter_map(|host| host.running.as_ref()) {
            stats += running.session.stats();
        }
        self.process.iter().for_each(|process| stats += process.stats());
        stats
    }

    /// Frames that the sessions and the target's present run have dropped.
    pub fn rejects(&self) -> u64 {
        let hosts = self.hosts.iter().filter_map(|host| host.running.as_ref());
        let hosts = hosts.map(|running| running.session.rejects());
        let listeners = self.process.iter().flat_map(|process| process.listeners());
        hosts.chain(listeners.map(|listener| RejectCounts::total(listener.rejects()))).sum()
    }

    /// The pages that hosts may use, by channel; `None` of those that are told another number.
    pub fn credits(&self) -> impl Iterator<Item = Option<u32>> {
        let listeners = self.process.iter().flat_map(|process| process.listeners());
        listeners.flat_map(|listener| listener.channels()).map(|channel| channel.credit)
    }

    /// Whether all hosts have said that they use the pages that they may.
    pub(crate) fn is_credit_settled(&self) -> bool {
        self.credits().all(|credit| credit.is_some())
    }

    /// All counters so far.
    pub fn report(&self) -> Report {
        let counts = self.network.counts;
        let stats = self.stats();
        Report {
            frames: counts.frames,
            holes: self.volumes.iter().map(|volume| volume.history.holes()).sum(),
            drops: counts.drops,
            corrupted: counts.corrupted,
            duplicated: counts.duplicated,
            late: counts.late,
            trains: counts.trains,
            torn_trains: counts.torn_trains,
            marks: counts.marks,
            retransmissions: stats.retransmitted,
            duplicates: stats.duplicates,
            timeouts: stats.timeouts,
            virtual_time: self.elapsed(),
            trace_hash: self.trace.hash(),
            ..self.report.clone()
        }
    }

    /// Whether faults have nothing more to disturb.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.allowance == 0
    }

    /// Faults stop: links work, the target is back, and nobody submits anything more.
    pub(crate) fn calm_down(&mut self) -> Result<(), String> {
        self.note(Happening::Incident("all is calm".into()));
        self.calm = true;
        self.network.calm();
        self.let_all_in();
        self.restart_target()?;
        for host in 0..self.hosts.len() {
            for link in 0..self.hosts[host].plan.links.len() {
                self.add_link_to(host, link)?;
            }
        }
        self.resize_disk(self.plan.disk.size)
    }

    /// Whether a host is connected now.
    pub fn is_connected(&self, host: usize) -> bool {
        self.hosts[host].running.as_ref().is_some_and(|running| running.session.is_live())
    }

    /// Bytes of the first export's disk.
    pub fn disk_size(&self) -> u64 {
        self.volumes[0].disk.size()
    }

    /// The exports whose content is known, by index, and their bytes.
    pub(crate) fn exports(&self) -> Vec<(usize, u64)> {
        let known = self.volumes.iter().enumerate().filter(|(_, it)| !it.exported.wild);
        known.map(|(index, volume)| (index, volume.disk.size())).collect()
    }

    /// The last check: the content of the disks at the end.
    pub(crate) fn check_end(&mut self) -> Result<(), String> {
        let listeners = self.process.iter().flat_map(|process| process.listeners());
        let misplaced: u64 = listeners.map(|it| it.rejects().of(Reject::Placement)).sum();
        if misplaced > 0 && self.breaker.is_none() {
            return Err(format!("{misplaced} frames have data in pages that are not theirs"));
        }
        let mut known = self.volumes.iter_mut().filter(|volume| !volume.exported.wild);
        known.try_for_each(|volume| volume.history.check_disk(&volume.disk))
    }
}

/// Begins a run of the target's process.
fn begin<R: Rules>(
    now: Instant,
    (plan, rotation): (&Plan, Rotation),
    volumes: &[Volume],
    network: &Network,
    random: &mut Random,
) -> Process<R> {
    let ports = (0..plan.target.links.len()).map(|link| network.port(Station::Target, link));
    let macs = ports.map(|port| (network.mac(port), network.carrier(port)));
    let exports = volumes.iter().map(|volume| (volume.exported, &volume.disk));
    let access = plan.keyed.then(|| (keys::access(plan.requires_keys()), rotation.keys()));
    Process::new(now, (&plan.target, access), exports, macs, random)
}

/// The entries of a frame.
fn entries(header: &Header, frame: &[u8]) -> impl Iterator<Item = Entry> {
    let is_list = matches!(header.kind, Kind::Command | Kind::Data);
    let entries = if is_list { usize::from(header.entries) } else { 0 };
    let (_, entries) = frame[HEAD_LEN..].split_at(frame.len() - HEAD_LEN - entries * ENTRY_LEN);
    entries.as_chunks().0.iter().filter_map(|entry| Entry::parse(entry).ok())
}
