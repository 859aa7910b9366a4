//! An initiator and its workload: its lanes, which do not always have their turn at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tyche_block::Errno;
use tyche_engine::Job;
use tyche_fcoe::fc::port;
use tyche_fcoe::fc::wire::Wwn;
use tyche_fcoe::scsi::Lun;
use tyche_fcoe::{
    Event, FCOE, FurtherLane, InitiatorConfig, InitiatorRole, NPort, Notice, PortConfig,
    SessionShared, share,
};
use tyche_proto::{Instant, Operation};
use tyche_wire::{CommandFlags, Mac, Opcode};

use super::plan::InitiatorPlan;
use super::rules::Broken;
use super::station::Station;
use crate::content::SECTOR;
use crate::random::Random;
use crate::request::request;

/// An operation in progress.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) submitted: Instant,
    /// Bytes of data.
    len: u32,
    /// With the bytes of all that were in progress then.
    pub(super) behind: u32,
}

/// An operation that has ended.
pub(super) struct Ended {
    pub(super) op: u32,
    pub(super) result: Result<(), Errno>,
    /// The data of a read.
    pub(super) data: Vec<u8>,
}

/// One initiator: its lanes while its process lives, the operations in progress, and the random
/// workload. Each lane has its turn by itself, so that one may lag behind the others.
pub(super) struct Initiator {
    pub(super) plan: InitiatorPlan,
    pub(super) config: PortConfig,
    interface: (Mac, usize),
    role: InitiatorConfig,
    rules: Broken,
    /// The first lane, with the port, while the process lives.
    pub(super) station: Option<Station<NPort<InitiatorRole<Broken>>>>,
    further: Vec<Station<FurtherLane<Broken>>>,
    /// By lane: when it has its turn, if that is not at once.
    turns: Vec<Option<Instant>>,
    /// Further lanes that are in the middle of their turn: they are yet to send.
    halted: BTreeSet<usize>,
    /// Frames of those that have gone on since.
    late: Vec<(usize, Vec<u8>)>,
    /// Lanes for which others have something new.
    woken: Arc<Mutex<BTreeSet<usize>>>,
    /// Number of its present life, among those of all.
    pub(super) session: u64,
    pub(super) pending: BTreeMap<u32, Pending>,
    next_op: u32,
    pub(super) thinking_until: Instant,
    random: Random,
    /// Of the turns of several lanes.
    naps: Random,
}

/// The time that a thread takes to wake up.
const WAKE: Duration = Duration::from_micros(20);
/// Pause of an initiator whose operations fail at once.
const REFUSED: Duration = Duration::from_millis(20);

impl Initiator {
    pub(super) fn new(
        plan: InitiatorPlan,
        (config, interface): (PortConfig, (Mac, usize)),
        (target, lun): (Wwn, u8),
        rules: Broken,
        mut random: Random,
    ) -> Self {
        let depth = plan.depth;
        let role = InitiatorConfig {
            target,
            lun: Lun::peripheral(lun),
            depth,
            frames: plan.frames,
            read_only: false,
            ctrl_loss_tmo: None,
            fast_io_fail_tmo: plan.fast_io_fail_tmo,
            xids: (0, (depth as u16 + plan.further_xids) * plan.lanes.next_power_of_two() - 1),
            seed: 0,
        };
        let turns = vec![None; plan.lanes.into()];
        // Worlds with one lane each are what they were without this.
        let naps = if plan.lanes > 1 { random.fork() } else { Random::new(0) };
        Self {
            plan,
            config,
            interface,
            role,
            rules,
            station: None,
            further: Vec::new(),
            turns,
            halted: BTreeSet::new(),
            late: Vec::new(),
            woken: Arc::default(),
            session: 0,
            pending: BTreeMap::new(),
            next_op: 0,
            thinking_until: Instant(0),
            random,
            naps,
        }
    }

    pub(super) fn start(&mut self, session: u64) {
        (self.session, self.next_op) = (session, 0);
        let (lanes, woken) = (usize::from(self.plan.lanes), Arc::clone(&self.woken));
        let shared = SessionShared::new(lanes, move |lane| {
            woken.lock().unwrap_or_else(PoisonError::into_inner).insert(lane);
        });
        let role = InitiatorConfig { seed: self.random.next(), ..self.role };
        let (rules, seed) = (self.rules, self.random.next());
        let first = InitiatorRole::with_rules(role, shared.handle(0), rules);
        self.station = Some(Station::new(self.interface, self.config, first, seed));
        let further = (1..lanes).map(|lane| {
            let lane = FurtherLane::with_rules(role, shared.handle(lane), rules);
            Station::further(self.interface, lane)
        });
        self.further = further.collect();
    }

    /// Ends the process; false if there was none.
    pub(super) fn die(&mut self) -> bool {
        self.further.clear();
        self.halted.clear();
        self.turns.fill(None);
        self.station.take().is_some()
    }

    /// Whether it receives frames to an address by a port of the loop.
    pub(super) fn takes(&self, port: usize, to: [u8; 6]) -> bool {
        self.station.as_ref().is_some_and(|station| station.takes(port, to))
    }

    /// A frame arrives, at its lane; false if there is no process.
    pub(super) fn arrive(&mut self, now: Instant, port: usize, frame: &[u8]) -> bool {
        let Some(station) = &self.station else { return false };
        let lanes = self.turns.len();
        let is_its = |lane: &usize| share(*lane, lanes).has(frame);
        let Some(lane) = (0..lanes).find(|lane| port != FCOE || is_its(lane)) else { return false };
        let to = frame.first_chunk::<6>().copied().unwrap_or_default();
        match lane.checked_sub(1).map(|index| &self.further[index]) {
            None => station.arrive(port, frame),
            Some(further) if further.takes(port, to) => further.arrive(port, frame),
            Some(_) => return false,
        }
        if lanes > 1 && self.naps.chance(0.05) {
            let nap = self.nap();
            self.turns[lane].get_or_insert(now + nap);
        }
        true
    }

    /// The time that a thread does not run.
    fn nap(&mut self) -> Duration {
        let longest = self.naps.pick(&[1, 1, 10, u64::MAX]).min(self.plan.nap_ms_max);
        Duration::from_micros(self.naps.between(1, 1000 * longest))
    }

    /// The MTU of its interface is another from now on.
    pub(super) fn set_mtu(&mut self, mtu: usize) {
        self.interface.1 = mtu;
        self.station.iter_mut().for_each(|it| it.set_mtu(mtu));
        self.further.iter_mut().for_each(|it| it.set_mtu(mtu));
    }

    /// Its interface goes down for a moment.
    pub(super) fn lose_carrier(&self) {
        self.station.iter().for_each(Station::lose_carrier);
        self.further.iter().for_each(Station::lose_carrier);
    }

    /// When to call [`receive`](Self::receive), if nothing arrives before.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let first = self.station.as_ref()?.poll_timeout();
        let further = self.further.iter().map(Station::poll_timeout);
        let lanes = std::iter::once(first).chain(further).zip(&self.turns);
        lanes.filter_map(|(timer, turn)| turn.or(timer)).min()
    }

    /// Has the lanes whose turn it is take all that has arrived.
    pub(super) fn receive(&mut self, now: Instant) {
        for lane in 0..self.turns.len() {
            if self.turns[lane].is_none_or(|at| at <= now) {
                self.turns[lane] = None;
                self.turn(now, lane);
            }
        }
    }

    fn turn(&mut self, now: Instant, lane: usize) {
        let Some(index) = lane.checked_sub(1) else {
            let Some(station) = &mut self.station else { return };
            station.receive(now);
            if station.port.role.listen(now) {
                station.port.settle(now);
            }
            return;
        };
        let Some(further) = self.further.get_mut(index) else { return };
        if self.halted.remove(&lane) {
            self.late.extend(further.transmit(now));
        }
        further.receive(now);
        if self.naps.chance(0.01) {
            self.halted.insert(lane);
            self.turns[lane] = Some(now + self.nap());
        }
    }

    /// The frames to send now, by port of the loop, of lanes that have had their turn.
    pub(super) fn transmit(&mut self, now: Instant) -> Vec<(usize, Vec<u8>)> {
        let mut frames = std::mem::take(&mut self.late);
        let Some(station) = &mut self.station else { return frames };
        if self.turns[0].is_none() {
            station.port.settle(now);
            frames.extend(station.transmit(now));
        }
        for (further, turn) in self.further.iter_mut().zip(&self.turns[1..]) {
            if turn.is_none() {
                frames.extend(further.transmit(now));
            }
        }
        let woken = std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner));
        for lane in woken {
            self.turns[lane].get_or_insert(now + self.naps.around(WAKE));
        }
        frames
    }

    /// Changes since the last call.
    pub(super) fn take_notices(&mut self) -> (Vec<port::Event>, Vec<Event>) {
        let (mut logins, mut events) = (Vec::new(), Vec::new());
        let Some(station) = &mut self.station else { return (logins, events) };
        while let Some(notice) = station.port.poll_notice() {
            if let Notice::Login(event) = notice {
                logins.push(event);
            }
        }
        events.extend(std::iter::from_fn(|| station.port.role.poll_event()));
        (logins, events)
    }

    /// Whether its operations fail while its session goes on.
    pub(super) fn fails_fast(&self) -> bool {
        self.station.as_ref().is_some_and(|station| station.port.role.fails_fast())
    }

    /// Bytes of its disk, once it is known.
    pub(super) fn size(&self) -> Option<u64> {
        Some(self.station.as_ref()?.port.role.disk()?.geometry.size)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.station.as_ref().is_some_and(|station| station.port.role.is_ready())
    }

    /// Draws an operation for a disk of that size.
    pub(super) fn draw(&mut self, size: u64) -> Operation {
        let (mix, random) = (&self.plan.mix, &mut self.random);
        let weights = [
            (mix.read, Opcode::Read, CommandFlags::NONE),
            (mix.write, Opcode::Write, CommandFlags::NONE),
            (mix.write_fua, Opcode::Write, CommandFlags::FUA),
            (mix.flush, Opcode::Flush, CommandFlags::NONE),
        ];
        let total = weights.iter().map(|it| it.0).sum::<u32>();
        let mut at = random.below(total.into()) as u32;
        let chosen = weights.iter().find(|(weight, ..)| {
            let is_it = at < *weight;
            at = at.saturating_sub(*weight);
            is_it
        });
        let (_, opcode, flags) = *chosen.expect("one of all weights");
        if opcode == Opcode::Flush {
            return Operation { opcode, flags, offset: 0, len: 0 };
        }
        let sectors = size / SECTOR as u64;
        let longest = (u64::from(mix.len_max) / SECTOR as u64).min(sectors);
        let len = random.between(1, longest);
        // Often at the same places, so that operations meet.
        let first = random.below(sectors - len + 1);
        let first = if random.chance(0.5) { first.min(8) } else { first };
        Operation {
            opcode,
            flags,
            offset: first * SECTOR as u64,
            len: (len * SECTOR as u64) as u32,
        }
    }

    /// A number for the next operation.
    pub(super) fn name(&mut self) -> u32 {
        self.next_op += 1;
        self.next_op
    }

    /// Submits an operation; false if there is no room.
    pub(super) fn submit(
        &mut self,
        now: Instant,
        op: u32,
        operation: Operation,
        stamp: u64,
    ) -> bool {
        let Some(station) = &mut self.station else { return false };
        let request = request(&operation, stamp);
        let job = Job { request, token: u64::from(op), sink: None };
        let lane =
            if self.further.is_empty() { 0 } else { self.naps.below(self.plan.lanes.into()) };
        let is_taken = match lane.checked_sub(1) {
            None => station.port.role.submit(now, job).is_ok(),
            Some(index) => self.further[index as usize].port.submit(now, job).is_ok(),
        };
        if is_taken {
            let others = self.pending.values().map(|it| it.len).sum::<u32>();
            let (len, behind) = (operation.len, others + operation.len);
            self.pending.insert(op, Pending { submitted: now, len, behind });
        }
        is_taken
    }

    /// Takes the operations that have ended.
    pub(super) fn take_ended(&mut self) -> Vec<Ended> {
        let Some(station) = &mut self.station else { return Vec::new() };
        let further = self.further.iter_mut().flat_map(|it| it.port.take_ended());
        let ended = station.port.role.take_ended().chain(further).map(|it| {
            let request = it.job.request;
            let data = request.buffer.as_deref().unwrap_or_default();
            let data = data[..(request.len as usize).min(data.len())].to_vec();
            Ended { op: it.job.token as u32, result: it.result, data }
        });
        ended.collect()
    }

    pub(super) fn think(&mut self, now: Instant) -> Instant {
        let think = if self.fails_fast() { REFUSED } else { self.plan.think };
        self.thinking_until = now + self.random.around(think);
        self.thinking_until
    }
}
