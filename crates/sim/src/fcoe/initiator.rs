//! An initiator and its workload.

use std::collections::BTreeMap;

use tyche_block::Errno;
use tyche_engine::Job;
use tyche_fcoe::fc::wire::Wwn;
use tyche_fcoe::scsi::Lun;
use tyche_fcoe::{InitiatorConfig, InitiatorRole, NPortConfig};
use tyche_proto::{Instant, Operation};
use tyche_wire::{CommandFlags, Mac, Opcode};

use super::plan::InitiatorPlan;
use super::rules::Broken;
use super::station::Station;
use crate::content::SECTOR;
use crate::random::Random;
use crate::request::request;

/// An operation in progress.
pub(super) struct Pending {
    pub(super) submitted: Instant,
}

/// An operation that has ended.
pub(super) struct Ended {
    pub(super) op: u32,
    pub(super) result: Result<(), Errno>,
    /// The data of a read.
    pub(super) data: Vec<u8>,
}

/// See the module.
pub(super) struct Initiator {
    pub(super) plan: InitiatorPlan,
    pub(super) config: NPortConfig,
    interface: (Mac, usize),
    role: InitiatorConfig,
    rules: Broken,
    pub(super) station: Option<Station<InitiatorRole<Broken>>>,
    /// Number of its present life, among those of all.
    pub(super) session: u64,
    pub(super) pending: BTreeMap<u32, Pending>,
    next_op: u32,
    pub(super) thinking_until: Instant,
    random: Random,
}

impl Initiator {
    pub(super) fn new(
        plan: InitiatorPlan,
        (config, interface): (NPortConfig, (Mac, usize)),
        (target, lun): (Wwn, u8),
        rules: Broken,
        random: Random,
    ) -> Self {
        let depth = plan.depth;
        let role = InitiatorConfig {
            target,
            lun: Lun::peripheral(lun),
            depth,
            frames: plan.frames,
            read_only: false,
            ctrl_loss_tmo: None,
            xids: (0, depth as u16 + plan.further_xids - 1),
        };
        Self {
            plan,
            config,
            interface,
            role,
            rules,
            station: None,
            session: 0,
            pending: BTreeMap::new(),
            next_op: 0,
            thinking_until: Instant(0),
            random,
        }
    }

    pub(super) fn start(&mut self, session: u64) {
        (self.session, self.next_op) = (session, 0);
        let role = InitiatorRole::with_rules(self.role, self.rules);
        let seed = self.random.next();
        self.station = Some(Station::new(self.interface, self.config, role, seed));
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
        let is_taken = station.port.role.submit(now, job).is_ok();
        if is_taken {
            self.pending.insert(op, Pending { submitted: now });
        }
        is_taken
    }

    /// Takes the operations that have ended.
    pub(super) fn take_ended(&mut self) -> Vec<Ended> {
        let Some(station) = &mut self.station else { return Vec::new() };
        let ended = station.port.role.take_ended().map(|it| {
            let request = it.job.request;
            let data = request.buffer.as_deref().unwrap_or_default();
            let data = data[..(request.len as usize).min(data.len())].to_vec();
            Ended { op: it.job.token as u32, result: it.result, data }
        });
        ended.collect()
    }

    pub(super) fn think(&mut self, now: Instant) -> Instant {
        self.thinking_until = now + self.random.around(self.plan.think);
        self.thinking_until
    }
}
