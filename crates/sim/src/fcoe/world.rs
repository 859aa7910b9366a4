//! A run: stations, network and incidents, in the order of a clock that follows from the seed.

mod hostility;
mod incidents;
mod operations;
mod removals;
mod resets;
mod stations;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tyche_fc::Rule;
use tyche_fcf::FcfConfig;
use tyche_fcoe::fc::neighbour::Functions;
use tyche_fcoe::fc::network::Mode;
use tyche_fcoe::fc::port;
use tyche_fcoe::fc::wire::{self, HEAD_LEN, Header, PortId, Wwn};
use tyche_fcoe::{FCOE, Notice, PortConfig};
use tyche_proto::{Instant, Operation};
use tyche_wire::{CommandFlags, Mac, Opcode};

use super::air::Air;
use super::forwarder::Forwarder;
use super::initiator::Initiator;
use super::plan::{FcoePlan, HOSTILE, HOSTILE_E_D_TOV};
use super::rules::Broken;
use super::stranger::Stranger;
use super::target::{LogicalUnit, Target};
use crate::options::Options;
use crate::plan::Profile;
use crate::random::Random;
use crate::report::{Report, Violation, text_of};
use crate::schedule::Schedule;
use crate::trace::{Happening, Trace};
use removals::Removals;
use resets::Reset;
use stations::StationRef;

/// Time after which faults stop, even if operations are left.
const FAULTS_MAX: Duration = Duration::from_secs(120);
/// Time limit for the operations that are left when faults have stopped: a neighbour is missed
/// after 20 s, a command is given up after 30 s, and a disk hangs for up to 45 s.
const CALM_MAX: Duration = Duration::from_secs(300);
/// Bytes of each read when a disk is read back.
const READ_BACK_LEN: u64 = 32 << 10;
/// Events at the same time after which it counts as standing still.
const STILL_MAX: u32 = 200_000;
/// The place of R_CTL in a frame, and its value for FCP_CMND.
const R_CTL: (usize, u8) = (28, 0x06);
/// The place of F_CTL in a frame, and its bit of the responder.
const F_CTL_AT: usize = 37;
const EX_CTX: u8 = 0x80;

/// A future event.
enum Event {
    Frame { to: usize, port: usize, frame: Vec<u8>, since: Option<(usize, [u64; 2])> },
    Job { target: usize, number: u64 },
    Go { initiator: usize },
    Incident,
    Forge,
    Start { station: usize },
    Flap { station: usize, left: u32 },
    Freeze,
    Move { joined: Instant },
    Removal { unit: Option<usize> },
}

/// One run of the simulator over FCoE: all stations, the network, the disks and the schedule of
/// events. Stations are numbered: first the targets, then the initiators, then the forwarder.
pub(super) struct World {
    seed: u64,
    plan: FcoePlan,
    now: Instant,
    begun: Instant,
    schedule: Schedule<Event>,
    targets: Vec<Target>,
    initiators: Vec<Initiator>,
    forwarder: Option<Forwarder>,
    units: Vec<LogicalUnit>,
    air: Air,
    stranger: Stranger,
    random: Random,
    trace: Trace,
    /// Changes of the logins of each station.
    epochs: Vec<u64>,
    /// Ends of the logins of each initiator at targets.
    logouts: Vec<u64>,
    jobs: u64,
    /// Resets that have come to a target, and have not been answered.
    resets: Vec<Reset>,
    removals: Removals,
    sessions: u64,
    is_calm: bool,
    report: Report,
}

/// Runs a seed.
///
/// # Errors
/// The violation that was found.
pub(crate) fn run(seed: u64, options: Options) -> Result<Report, Box<Violation>> {
    run_with(seed, options, None, |_| {})
}

/// Runs a seed with a rule that is broken, and another plan than it draws.
pub(super) fn run_with(
    seed: u64,
    options: Options,
    broken: Option<Rule>,
    adjust: fn(&mut FcoePlan),
) -> Result<Report, Box<Violation>> {
    let mut plan = FcoePlan::draw(seed, options.operations);
    adjust(&mut plan);
    let rules = Broken { rule: broken, without: plan.without, confirms: plan.confirms };
    let mut world = World::new(seed, plan, rules, options.verbose);
    let result = catch_unwind(AssertUnwindSafe(|| world.run_through()));
    let result = result.unwrap_or_else(|panic| Err(text_of(panic.as_ref())));
    match result {
        Ok(()) => Ok(world.report()),
        Err(what) => Err(world.violation(what).into()),
    }
}

/// The configuration and the interface of a station.
fn port(plan: &FcoePlan, station: usize, is_target: bool, shuffle: u64) -> (PortConfig, Mac) {
    let is_hostile = plan.hostility.is_some() && station == plan.targets.len() + HOSTILE;
    let e_d_tov = if is_hostile { HOSTILE_E_D_TOV } else { plan.e_d_tov };
    // Which of two ports has the higher name decides who logs in.
    let name = (station as u64 + shuffle) % 7;
    let config = PortConfig {
        mode: if plan.fabric.is_some() { Mode::Fabric } else { Mode::Vn2vn },
        recorded: plan.collide.then_some(PortId::new(0x0b0b)),
        r_a_tov: 5 * plan.e_d_tov,
        ..PortConfig::new(
            (Wwn(0x2000_0000_0001_0000 + name), Wwn(0x1000_0000_0001_0000 + name)),
            Functions { initiator: !is_target, target: is_target },
            e_d_tov,
        )
    };
    (config, Mac([2, 0, 0, 0, 1, station as u8]))
}

fn forwarder(plan: &FcoePlan) -> Option<Forwarder> {
    let fabric = plan.fabric?;
    let mut config = FcfConfig::new(wire::Mac([2, 0, 0, 0, 2, 0]));
    (config.period, config.login_delay) = (fabric.period, fabric.login_delay);
    config.e_d_tov = plan.e_d_tov;
    Some(Forwarder::new(config))
}

impl World {
    fn new(seed: u64, plan: FcoePlan, rules: Broken, verbose: Option<Box<dyn Write>>) -> Self {
        let mut random = Random::new(!seed);
        let shuffle = random.below(7);
        let (mut targets, mut units) = (Vec::new(), Vec::new());
        for (index, count) in plan.targets.iter().enumerate() {
            let first = units.len();
            for number in 0..*count {
                let (disk, shared) = &plan.disks[first + number];
                let uuid = 1 + (first + number) as u128;
                let unit = (disk, *shared);
                units.push(LogicalUnit::new(unit, number as u8, uuid, random.fork()));
            }
            let (config, mac) = port(&plan, index, true, shuffle);
            let place = (config, (mac, plan.mtu));
            targets.push(Target::new(&plan, place, first..units.len(), rules, random.fork()));
        }
        let mut initiators = Vec::new();
        if plan.twin {
            let (config, mac) = port(&plan, targets.len(), true, shuffle);
            let (place, first): (_, &Target) = ((config, (mac, plan.mtu)), &targets[0]);
            let units = first.units.clone();
            targets.push(Target::new(&plan, place, units, rules, random.fork()));
        }
        for (index, initiator) in plan.initiators.iter().enumerate() {
            let (config, mac) = port(&plan, targets.len() + index, false, shuffle);
            let mut ways = targets.iter().filter(|it| it.units.contains(&initiator.disk)).cycle();
            let target: &Target = ways.nth(index % 2).expect("a target has the disk");
            let lun = (initiator.disk - target.units.start) as u8;
            let (place, to) = ((config, (mac, plan.mtu)), (target.wwpn(), lun));
            initiators.push(Initiator::new(initiator.clone(), place, to, rules, random.fork()));
        }
        let forwarder = forwarder(&plan);
        let stations = targets.len() + initiators.len() + usize::from(forwarder.is_some());
        let air = Air::new(plan.air, 5 * plan.e_d_tov, random.fork());
        let start = Instant(1_000_000_000);
        let mut world = Self {
            seed,
            now: start,
            begun: start,
            schedule: Schedule::new(),
            air,
            stranger: Stranger::new(random.fork()),
            trace: Trace::new(verbose),
            epochs: vec![0; stations],
            logouts: vec![0; initiators.len()],
            targets,
            initiators,
            forwarder,
            units,
            random,
            jobs: 0,
            resets: Vec::new(),
            removals: Removals::new(seed),
            sessions: 0,
            is_calm: false,
            report: Report::default(),
            plan,
        };
        for station in 0..stations {
            let at = world.now.plus_ns(world.random.below(200_000_000));
            world.schedule.plan(at, Event::Start { station });
        }
        world.split();
        world.plan_incident();
        world.plan_forgery();
        world.plan_removal();
        world.plan_freeze();
        world
    }

    fn trace(&mut self, what: String) {
        self.trace.note(self.now, Happening::Incident(what));
    }

    fn violation(&self, what: String) -> Violation {
        Violation {
            seed: self.seed,
            profile: Profile::Fcoe,
            at: self.now,
            what,
            recent: self.trace.recent(),
        }
    }

    fn report(&self) -> Report {
        let counts = &self.air.counts;
        Report {
            frames: counts.frames,
            drops: counts.lost,
            duplicated: counts.repeated,
            corrupted: counts.corrupted,
            late: counts.strays,
            virtual_time: self.now.since(self.begun),
            trace_hash: self.trace.hash(),
            ..self.report.clone()
        }
    }

    fn plan_forgery(&mut self) {
        let mean = self.plan.stranger;
        if !mean.is_zero() {
            let at = self.now + self.random.around(mean);
            self.schedule.plan(at, Event::Forge);
        }
    }

    fn run_through(&mut self) -> Result<(), String> {
        let plan = format!("{:?}", self.plan);
        self.trace(plan);
        self.run_until(FAULTS_MAX, |world| world.is_exhausted())?;
        self.check_pending()?;
        self.calm();
        if !self.run_until(CALM_MAX, |world| world.is_quiet())? {
            return Err(self.stuck());
        }
        self.read_back()?;
        if !self.run_until(CALM_MAX, |world| world.is_quiet())? {
            return Err(self.stuck());
        }
        let units = self.units.iter_mut();
        units.into_iter().try_for_each(|unit| unit.history.check_disk(&unit.disk))
    }

    /// Whether as many operations have been submitted as the plan has.
    fn is_exhausted(&self) -> bool {
        self.report.operations >= u64::from(self.plan.operations)
    }

    /// Whether all operations have ended, and all initiators can use their disk.
    fn is_quiet(&self) -> bool {
        self.initiators.iter().all(|it| it.pending.is_empty() && it.is_ready())
    }

    fn stuck(&self) -> String {
        let waiting = self.initiators.iter().map(|it| (it.is_ready(), it.pending.len()));
        format!("initiators (ready, operations) never end: {:?}", waiting.collect::<Vec<_>>())
    }

    /// Ends all faults.
    fn calm(&mut self) {
        self.thaw();
        self.trace("calm".into());
        self.is_calm = true;
        self.air.calm();
        self.units.iter_mut().for_each(|unit| unit.is_calm = true);
    }

    /// Has all of each disk read.
    fn read_back(&mut self) -> Result<(), String> {
        let indices = 0..self.initiators.len();
        for index in indices {
            let Some(size) = self.initiators[index].size() else { continue };
            for offset in (0..size).step_by(READ_BACK_LEN as usize) {
                let len = (size - offset).min(READ_BACK_LEN) as u32;
                let (opcode, flags) = (Opcode::Read, CommandFlags::NONE);
                self.submit(index, Operation { opcode, flags, offset, len })?;
            }
            self.settle(self.targets.len() + index)?;
        }
        Ok(())
    }

    /// Runs until it is so, or for that time; returns whether it is.
    fn run_until(
        &mut self,
        limit: Duration,
        is_so: impl Fn(&Self) -> bool,
    ) -> Result<bool, String> {
        let end = self.now + limit;
        let mut still = (self.now, 0);
        while !is_so(self) {
            let timers = (0..self.epochs.len()).filter_map(|it| Some((self.timer(it)?, it)));
            let timer = timers.min();
            let planned = self.schedule.next_at();
            let Some(next) = timer.map(|it| it.0).into_iter().chain(planned).min() else {
                return Ok(false);
            };
            if next > end {
                self.now = end;
                return Ok(false);
            }
            self.now = self.now.max(next);
            still = if still.0 == self.now { (still.0, still.1 + 1) } else { (self.now, 0) };
            if still.1 > STILL_MAX {
                return Err("time stands still".into());
            }
            match timer {
                Some((at, station)) if planned.is_none_or(|planned| at < planned) => {
                    self.settle(station)?;
                }
                _ => {
                    let (_, event) = self.schedule.pop().expect("there is one");
                    self.handle(event)?;
                }
            }
        }
        Ok(true)
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Frame { to, port, frame, since } => {
                let is_command = port == FCOE && frame[R_CTL.0] == R_CTL.1;
                let is_answer = port == FCOE && frame[F_CTL_AT] & EX_CTX != 0;
                let is_of_former = since
                    .is_some_and(|(from, epochs)| [self.epochs[from], self.epochs[to]] != epochs);
                self.note_reset(to, port, &frame);
                // The limit of FC: a command, and an answer to one, are of the login in which they
                // arrive.
                if (is_command || is_answer) && is_of_former || !self.arrive(to, port, &frame) {
                    return Ok(());
                }
                self.settle(to)
            }
            Event::Job { target, number } => self.work(target, number),
            Event::Go { initiator } => self.settle(self.targets.len() + initiator),
            Event::Incident => {
                if self.is_calm {
                    return Ok(());
                }
                self.plan_incident();
                self.incident()
            }
            Event::Freeze => {
                self.freeze();
                Ok(())
            }
            Event::Forge => {
                if !self.is_calm {
                    self.plan_forgery();
                    self.forge();
                }
                Ok(())
            }
            Event::Start { station } => {
                self.start(station);
                self.settle(station)
            }
            Event::Flap { station, left } => self.flap(station, left),
            Event::Removal { unit } => self.removal(unit),
            Event::Move { joined } => {
                self.part_initiators(0, joined);
                Ok(())
            }
        }
    }

    fn settle_target(&mut self, index: usize) -> Result<Vec<(usize, Vec<u8>)>, String> {
        let now = self.now;
        let target = &mut self.targets[index];
        let Some(running) = &mut target.running else { return Ok(Vec::new()) };
        let frames = running.threads.settle(now);
        let mut changed = Vec::new();
        while let Some(notice) = running.threads.first.port.poll_notice() {
            if let Notice::Login(event) = notice {
                changed.push(event);
            }
        }
        for event in changed {
            self.epochs[index] += 1;
            if let port::Event::LoggedOut(wwpn, _) = event
                && let Some(gone) = self.initiators.iter().position(|it| it.config.wwpn == wwpn)
            {
                self.logouts[gone] += 1;
            }
            self.be_unlucky(index, &event);
            self.trace(format!("target {index}: {event:?}"));
        }
        // The first interface has the disks.
        let index = self.first_of(index);
        let target = &mut self.targets[index];
        let begun = target.begin(now, &mut self.units, &self.logouts, &mut self.jobs)?;
        for (at, number, what) in begun {
            self.trace(what);
            self.schedule.plan(at, Event::Job { target: index, number });
        }
        Ok(frames)
    }

    /// Goes on with a request at a disk.
    fn work(&mut self, target: usize, number: u64) -> Result<(), String> {
        match self.targets[target].work(self.now, number, &mut self.units, !self.is_calm) {
            Ok(at) => {
                self.schedule.plan(at, Event::Job { target, number });
                Ok(())
            }
            Err(None) => Ok(()),
            Err(Some(what)) => {
                self.trace(what);
                self.settle(target)
            }
        }
    }

    /// Sends a frame of a station.
    fn send(&mut self, from: usize, port: usize, frame: &[u8]) -> Result<(), String> {
        let Some(to) = frame.first_chunk::<6>().copied() else { return Ok(()) };
        if self.withholds(from, port, frame) {
            return Ok(());
        }
        if port == FCOE {
            self.stranger.hear(frame);
            self.check_reset(from, frame)?;
        }
        let mut fates = String::new();
        for station in (0..self.epochs.len()).filter(|it| *it != from) {
            if !self.takes(station, port, to) {
                continue;
            }
            let copies = self.air.carry(self.now, (from, station), port, frame);
            if copies.len() != 1 || copies[0].is_stray {
                fates += &format!(" {}x to {station}", copies.len());
            }
            for copy in copies {
                let epochs = [self.epochs[from], self.epochs[station]];
                let since = copy.is_stray.then_some((from, epochs));
                let event = Event::Frame { to: station, port, frame: copy.frame, since };
                self.schedule.plan(copy.at, event);
            }
        }
        if port == FCOE {
            self.trace(format!("station {from}: {}{fates}", summary(frame)));
        }
        Ok(())
    }

    fn start(&mut self, station: usize) {
        self.epochs[station] += 1;
        match self.place(station) {
            // With its first interface.
            StationRef::Target(index) if index != self.first_of(index) => return,
            StationRef::Target(index) => {
                self.targets[index].start(&mut self.units);
                if let Some(twin) = self.twin_of(index) {
                    let [first, .., second] = &mut self.targets[index..=twin] else { return };
                    second.join(first);
                    self.epochs[twin] += 1;
                }
            }
            StationRef::Initiator(index) => {
                self.sessions += 1;
                self.initiators[index].start(self.sessions);
            }
            StationRef::Forwarder => self.forwarder.iter_mut().for_each(Forwarder::start),
        }
        self.trace(format!("station {station} starts"));
    }
}

/// The header of a frame, as text.
fn summary(frame: &[u8]) -> String {
    let len = frame.len();
    let header = frame.get(28..HEAD_LEN).and_then(|bytes| bytes.try_into().ok());
    match header.map(|bytes: &[u8; 24]| Header::parse(bytes)) {
        Some(Ok((Header { kind, ox_id, rx_id, parameter, .. }, _))) => {
            format!("{kind:?} ox {:04x} rx {:04x} at {parameter} ({len} B)", ox_id.0, rx_id.0)
        }
        _ => format!("{len} B"),
    }
}
