//! The operations of initiators: drawn, submitted, and checked when they have ended.

use std::time::Duration;

use tyche_block::Errno;
use tyche_fcoe::Event as DiskEvent;
use tyche_proto::{OpId, Operation};

use super::{Event, World};
use crate::fcoe::initiator::{Ended, Initiator};
use crate::plan::DiskPlan;
use crate::trace::Happening;

/// The time after which an operation that can't be executed fails.
const IN_VAIN: Duration = Duration::from_secs(30);

impl World {
    pub(super) fn settle_initiator(
        &mut self,
        index: usize,
    ) -> Result<Vec<(usize, Vec<u8>)>, String> {
        let now = self.now;
        self.initiators[index].receive(now);
        self.take_notices(index)?;
        self.take_answers(index)?;
        while self.may_submit(index) {
            let size = self.initiators[index].size().expect("it is ready");
            let operation = self.initiators[index].draw(size);
            self.submit(index, operation)?;
        }
        // Some end at once.
        self.take_answers(index)?;
        Ok(self.initiators[index].transmit(now))
    }

    fn take_notices(&mut self, index: usize) -> Result<(), String> {
        let (logins, events) = self.initiators[index].take_notices();
        self.epochs[self.targets.len() + index] += logins.len() as u64;
        for login in logins {
            self.trace(format!("initiator {index}: {login:?}"));
        }
        for event in events {
            self.report.failed_early += u64::from(event == DiskEvent::FailsFast);
            if event == DiskEvent::Resumed {
                let Initiator { session, plan, .. } = &self.initiators[index];
                let disk = plan.disk;
                let failed = self.units[disk].history.resume(*session, 0);
                let is_late =
                    |it: &u64| self.targets.iter().any(|target| target.executes(disk, *it));
                if let Some(stamp) = failed.into_iter().find(is_late) {
                    return Err(format!("the write of stamp {stamp} has failed, and goes on"));
                }
            }
            self.trace(format!("initiator {index}: {event:?}"));
        }
        Ok(())
    }

    fn take_answers(&mut self, index: usize) -> Result<(), String> {
        for Ended { op, result, data } in self.initiators[index].take_ended() {
            let initiator = &mut self.initiators[index];
            let pending = initiator.pending.remove(&op).ok_or("an answer to nothing")?;
            let took = self.now.since(pending.submitted);
            self.report.slowest = self.report.slowest.max(took);
            self.check_prompt(index, pending)?;
            let initiator = &mut self.initiators[index];
            let (unit, session) = (&mut self.units[initiator.plan.disk], initiator.session);
            match result {
                Ok(()) => self.report.succeeded += 1,
                Err(_) => self.report.failed += 1,
            }
            let at = initiator.think(self.now);
            self.schedule.plan(at, Event::Go { initiator: index });
            self.trace.note(self.now, Happening::Answer { host: index, op, result });
            if self.initiators[index].fails_fast() && result == Err(Errno::IO) {
                unit.history.fail_early(session, OpId(op))?;
                unit.ledger.forget(session, op);
                continue;
            }
            let done = unit.history.complete(session, OpId(op), result, &data, &unit.disk)?;
            let is_right = unit.ledger.complete(session, op, result);
            // A flush may fail for another reason, and a power on may mean a loss.
            let DiskPlan { errors, write_cache, .. } = *unit.disk.plan();
            let is_certain = self.plan.generations && errors == 0.0 && took < IN_VAIN;
            if !is_right && write_cache && is_certain {
                return Err(format!(
                    "{:?} {op} of initiator {index} has failed, and what it covers \
                     was not lost, or was told of before",
                    done.opcode
                ));
            }
        }
        Ok(())
    }

    fn may_submit(&self, index: usize) -> bool {
        let initiator = &self.initiators[index];
        let has_room = initiator.pending.len() < initiator.plan.depth;
        let is_time = initiator.thinking_until <= self.now;
        initiator.size().is_some() && has_room && is_time && !self.is_calm && !self.is_exhausted()
    }

    pub(super) fn submit(&mut self, index: usize, operation: Operation) -> Result<(), String> {
        let initiator = &mut self.initiators[index];
        let unit = &mut self.units[initiator.plan.disk];
        let op = initiator.name();
        let Operation { opcode, flags, offset, len } = operation;
        let stamp = if opcode.modifies() { unit.history.stamp() } else { 0 };
        if opcode.modifies() {
            unit.writers.insert(stamp, index);
        }
        let (what, range) = ((opcode, flags), (offset, len));
        unit.history.submit(initiator.session, OpId(op), what, range, stamp)?;
        unit.ledger.submit(initiator.session, op, &operation);
        if !initiator.submit(self.now, op, operation, stamp) {
            return Err(format!("initiator {index} takes no operation"));
        }
        self.report.operations += 1;
        let submit = Happening::Submit { host: index, op, opcode, offset, len, stamp };
        self.trace.note(self.now, submit);
        Ok(())
    }
}
