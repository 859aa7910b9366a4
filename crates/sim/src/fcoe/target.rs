//! A target, and the disks of its logical units.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tyche_block::{Completion, Errno, Extent};
use tyche_engine::Exported;
use tyche_fcoe::fc::target_end::LaneConfig;
use tyche_fcoe::fc::wire::Wwn;
use tyche_fcoe::scsi::Uuid;
use tyche_fcoe::{Generation, PortConfig, Seat, TargetUnit, UnitRemoval, Units, VisibleTo};
use tyche_native::operation;
use tyche_proto::{Instant, Operation};
use tyche_store::Store;
use tyche_wire::{Mac, Opcode};

use super::ledger::Ledger;
use super::plan::{FcoePlan, SIZE_MAX};
use super::rules::Broken;
use super::threads::Threads;
use crate::content::{Content, SECTOR, examine};
use crate::disk::{Disk, Progress};
use crate::history::History;
use crate::plan::{DiskPlan, Promises};
use crate::random::Random;
use crate::store::{Bus, Submitted, store};

/// A logical unit: its disk, and the contents that it may have.
pub(super) struct LogicalUnit {
    pub(super) disk: Disk,
    pub(super) history: History,
    pub(super) ledger: Ledger,
    /// The generation, as it is on stable storage.
    generation: Arc<Mutex<Kept>>,
    pub(super) shared: bool,
    /// The initiator of each stamp.
    pub(super) writers: BTreeMap<u64, usize>,
    /// The initiator whose write was executed last, and how often its login had ended by then.
    last_writer: Option<(usize, u64)>,
    number: u8,
    uuid: Uuid,
    pub(super) is_calm: bool,
    random: Random,
}

/// A generation, and the losses of the store that it accounts for.
struct Kept {
    number: u128,
    losses: u64,
}

/// A request at a disk.
pub(super) struct Job {
    pub(super) unit: usize,
    queue: usize,
    token: u64,
    operation: Operation,
    /// Of its data, if it is a write.
    stamp: u64,
    buffer: Option<Extent>,
    progress: Progress,
    /// Times that it is looked at before it ends, and the time between them.
    steps: u32,
    pause: Duration,
}

/// A run of a target's process.
pub(super) struct Running {
    /// Those of its interface.
    pub(super) threads: Threads,
    units: Arc<Units>,
    buses: Vec<Bus>,
    /// By number.
    jobs: BTreeMap<u64, Job>,
}

/// One interface of a target: its configuration, and the process that serves the logical units
/// while it lives. The disks are apart from it, because they outlive the process.
pub(super) struct Target {
    pub(super) config: PortConfig,
    interface: (Mac, usize),
    lane: LaneConfig,
    threads: usize,
    nap_ms_max: u64,
    rules: Broken,
    has_generations: bool,
    /// Its logical units among all.
    pub(super) units: std::ops::Range<usize>,
    pub(super) running: Option<Running>,
    random: Random,
}

impl LogicalUnit {
    pub(super) fn new(
        (plan, shared): (&DiskPlan, bool),
        number: u8,
        uuid: u128,
        mut random: Random,
    ) -> Self {
        let promises = Promises { outcomes: false, told_once: false, ..Promises::KEPT };
        let disk = Disk::new(DiskPlan { size: SIZE_MAX, ..plan.clone() }, random.fork());
        let mut history = History::new(disk.plan(), promises, 0, shared);
        // The number 0 is that of reads.
        history.stamp();
        let mut this = Self {
            disk,
            history,
            ledger: Ledger::default(),
            generation: Arc::new(Mutex::new(Kept { number: uuid << 64, losses: 0 })),
            shared,
            writers: BTreeMap::new(),
            last_writer: None,
            number,
            uuid: Uuid::from_u128(uuid),
            is_calm: false,
            random,
        };
        this.disk.resize(plan.size);
        this
    }

    /// Checks that a write has the data that its initiator has given it, and that no other
    /// initiator writes at the same time.
    fn check_write(
        &mut self,
        operation: &Operation,
        data: &[u8],
        logouts: &[u64],
    ) -> Result<(), String> {
        let first = operation.offset / SECTOR as u64;
        let contents = (first..).zip(data.chunks_exact(SECTOR)).map(|it| examine(it.1, it.0));
        let mut contents = contents.collect::<Vec<_>>();
        contents.dedup();
        let writer = match contents[..] {
            [Content::Stamp(stamp)] => self.writers.get(&stamp).copied(),
            _ => None,
        };
        let Operation { offset, len, .. } = operation;
        let Some(writer) = writer else {
            return Err(format!("a write {offset}+{len} is executed with {contents:?}"));
        };
        let by = (writer, logouts[writer]);
        let former = self.last_writer.replace(by).filter(|_| !self.shared);
        match former {
            Some((other, ended)) if other != writer && logouts[other] == ended => {
                Err(format!("initiator {writer} writes beside initiator {other}"))
            }
            _ => Ok(()),
        }
    }

    /// The time that a request takes.
    fn time(&mut self) -> Duration {
        let DiskPlan { latency, hiccups, hangs, .. } = *self.disk.plan();
        if self.is_calm {
            latency
        } else if self.random.hits(hangs) {
            Duration::from_secs(self.random.between(20, 45))
        } else if self.random.hits(hiccups) {
            Duration::from_millis(self.random.between(1, 4000))
        } else {
            self.random.around(latency)
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.generation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk has lost its cache, and the target will notice.
    pub(super) fn lose_cache(&mut self) {
        self.disk.lose_cache();
        self.ledger.lose();
        self.kept().number += 1;
    }

    /// A function for the generation, for a target with that store.
    fn generation(&self, store: &Arc<dyn Store>) -> Generation {
        let (kept, store) = (Arc::clone(&self.generation), Arc::clone(store));
        Box::new(move || {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let losses = store.losses();
            if kept.losses != losses {
                *kept = Kept { number: kept.number + 1, losses };
            }
            Uuid::from_u128(kept.number)
        })
    }

    /// The unit for a target, and the way to its disk.
    fn export(&self, has_generations: bool) -> (TargetUnit, Bus) {
        let (store, bus) = store(self.disk.geometry(), self.disk.losses());
        let generation = has_generations.then(|| self.generation(&store));
        let exported = Arc::new(Exported::new(format!("disk-{}", self.number), store));
        let unit = TargetUnit {
            number: self.number,
            exported,
            uuid: self.uuid,
            shared: self.shared,
            initiators: VisibleTo::default(),
            continues: true,
            generation,
        };
        (unit, bus)
    }

    pub(super) fn forget_writer(&mut self) {
        self.last_writer = None;
    }
}

impl Target {
    pub(super) fn new(
        plan: &FcoePlan,
        (config, interface): (PortConfig, (Mac, usize)),
        units: std::ops::Range<usize>,
        rules: Broken,
        random: Random,
    ) -> Self {
        let FcoePlan { exchanges, burst_len, frames_max, .. } = *plan;
        let lane = LaneConfig { exchanges, seed: 0, burst_len, frames_max };
        let has_generations = plan.generations;
        let FcoePlan { threads, nap_ms_max, .. } = *plan;
        let running = None;
        Self {
            config,
            interface,
            lane,
            threads,
            nap_ms_max,
            rules,
            has_generations,
            units,
            running,
            random,
        }
    }

    pub(super) fn wwpn(&self) -> Wwn {
        self.config.wwpn
    }

    /// Begins another run of its process, whose other interface is that one.
    pub(super) fn join(&mut self, other: &Self) {
        let units = other.running.as_ref().map(|running| Arc::clone(&running.units));
        self.run(units.expect("it has begun before"), Vec::new());
    }

    /// Begins another run of its process.
    pub(super) fn start(&mut self, all: &mut [LogicalUnit]) {
        let units = all[self.units.clone()].iter().map(|unit| unit.export(self.has_generations));
        let (units, buses) = units.unzip();
        self.run(Arc::new(Units::new(units)), buses);
    }

    /// Removes a unit; `None` if it is removed already, or there is no process.
    pub(super) fn remove(&mut self, unit: usize) -> Option<UnitRemoval> {
        let index = unit - self.units.start;
        self.running.as_ref()?.units.remove(index as u8)
    }

    /// Whether a unit has requests at its disk.
    pub(super) fn is_at_work(&self, unit: usize) -> bool {
        let running = self.running.iter();
        running.flat_map(|running| running.jobs.values()).any(|job| job.unit == unit)
    }

    /// Serves a unit again that was given up.
    pub(super) fn add_again(&mut self, index: usize, unit: &mut LogicalUnit) {
        let Some(running) = &mut self.running else { return };
        let (target_unit, bus) = unit.export(self.has_generations);
        running.buses[index - self.units.start] = bus;
        running.units.add(target_unit).expect("nothing of the former is left");
    }

    fn run(&mut self, units: Arc<Units>, buses: Vec<Bus>) {
        let seats = Seat::take(&units, self.config.wwpn, self.threads);
        let (part, naps) = ((self.lane, self.rules), (&mut self.random, self.nap_ms_max));
        let threads = Threads::new(seats, self.interface, self.config, part, naps);
        self.running = Some(Running { threads, units, buses, jobs: BTreeMap::new() });
    }

    /// The MTU of its interface is another from now on.
    pub(super) fn set_mtu(&mut self, mtu: usize) {
        self.interface.1 = mtu;
        self.running.iter_mut().for_each(|it| it.threads.set_mtu(mtu));
    }

    /// Its process dies, and with it what is at its disks.
    pub(super) fn die(&mut self, all: &mut [LogicalUnit]) {
        let Some(mut running) = self.running.take() else { return };
        for job in running.jobs.values_mut() {
            job.advance(&mut all[job.unit].disk);
        }
    }

    /// Whether a write with that stamp is under way at a disk.
    pub(super) fn executes(&self, unit: usize, stamp: u64) -> bool {
        let mut jobs = self.running.iter().flat_map(|running| running.jobs.values());
        jobs.any(|job| job.unit == unit && job.stamp == stamp && stamp != 0)
    }

    /// Writes that the process has at a disk, by number.
    pub(super) fn writes_at(&self, unit: usize) -> BTreeSet<u64> {
        let jobs = self.running.iter().flat_map(|running| &running.jobs);
        let writes = jobs.filter(|(_, job)| job.unit == unit && job.operation.opcode.modifies());
        writes.map(|(number, _)| *number).collect()
    }

    /// The size of a disk has changed.
    pub(super) fn resized(&mut self, unit: usize, size: u64) {
        let Some(running) = &mut self.running else { return };
        let index = unit - self.units.start;
        // The other interface of a target has none, and the same logical units.
        if let Some(bus) = running.buses.get(index) {
            bus.resize(size);
            running.units.resized(index as u8);
        }
    }

    /// Begins the requests that the process has submitted; returns the times of their steps.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        all: &mut [LogicalUnit],
        logouts: &[u64],
        number: &mut u64,
    ) -> Result<Vec<(Instant, u64, String)>, String> {
        let Some(running) = &mut self.running else { return Ok(Vec::new()) };
        let mut begun = Vec::new();
        for (bus, index) in running.buses.iter().zip(self.units.clone()) {
            while let Some(Submitted { queue, token, request }) = bus.take() {
                let unit = &mut all[index];
                let operation = operation(&request);
                let mut stamp = 0;
                if operation.opcode == Opcode::Write {
                    let data = request.buffer.as_deref().unwrap_or_default();
                    let data = &data[..operation.len as usize];
                    unit.check_write(&operation, data, logouts)?;
                    if let Content::Stamp(it) = examine(&data[..SECTOR], operation.offset / 512) {
                        stamp = it;
                    }
                }
                let progress = unit.disk.begin(&operation, stamp);
                let (time, buffer) = (unit.time(), request.buffer);
                let steps = 1 + u32::from(time > Duration::from_millis(1));
                *number += 1;
                let pause = time / steps;
                let Operation { opcode, offset, len, .. } = operation;
                let what = format!("disk {index} begins {opcode:?} {offset}+{len} {stamp}");
                begun.push((now + pause, *number, what));
                if stamp != 0 && unit.history.is_acknowledged(stamp) {
                    return Err(format!("{operation:?} is executed, and has ended before"));
                }
                let unit = index;
                let job =
                    Job { unit, queue, token, operation, stamp, buffer, progress, steps, pause };
                running.jobs.insert(*number, job);
            }
        }
        Ok(begun)
    }

    /// Goes on with a request; returns when to do so again, or what has become of it.
    pub(super) fn work(
        &mut self,
        now: Instant,
        number: u64,
        all: &mut [LogicalUnit],
        faulty: bool,
    ) -> Result<Instant, Option<String>> {
        // Its process may have died.
        let running = self.running.as_mut().ok_or(None)?;
        let job = running.jobs.get_mut(&number).ok_or(None)?;
        let unit = &mut all[job.unit];
        job.steps -= 1;
        if job.steps > 0 {
            job.advance(&mut unit.disk);
            return Ok(now + job.pause);
        }
        let job = running.jobs.remove(&number).ok_or(None)?;
        let index = job.unit;
        let bus = &running.buses[index - self.units.start];
        let Operation { opcode, offset, len, .. } = job.operation;
        let losses = unit.disk.losses();
        let (queue, completion) = job.finish(unit, faulty);
        let result = completion.result;
        if unit.disk.losses() != losses {
            unit.ledger.lose();
        }
        bus.set_losses(unit.disk.losses());
        bus.complete(queue, completion);
        Err(Some(format!("disk {index} ends {opcode:?} {offset}+{len}: {result:?}")))
    }
}

impl Job {
    fn data<'a>(buffer: &'a mut Option<Extent>, operation: &Operation) -> &'a mut [u8] {
        buffer.as_mut().map_or(&mut [], |buffer| &mut buffer[..operation.len as usize])
    }

    /// Does a part of it.
    fn advance(&mut self, disk: &mut Disk) {
        let Self { operation, buffer, progress, .. } = self;
        if operation.opcode == Opcode::Write {
            disk.advance(operation, progress, Self::data(buffer, operation));
        }
    }

    fn finish(self, unit: &mut LogicalUnit, faulty: bool) -> (usize, Completion) {
        let Self { queue, token, operation, mut buffer, progress, .. } = self;
        let errors = unit.disk.plan().errors;
        let result = if faulty && unit.random.hits(errors) {
            Err(Errno::IO)
        } else if operation.opcode == Opcode::Read {
            unit.disk.read(&operation, Self::data(&mut buffer, &operation));
            Ok(())
        } else {
            let data = Self::data(&mut buffer, &operation);
            unit.disk.finish(&operation, progress, data, faulty)
        };
        (queue, Completion { token, result, buffer })
    }
}
