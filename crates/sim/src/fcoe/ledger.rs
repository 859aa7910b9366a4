//! The stakes of initiators, and a check that the right ones are told of a loss, once.
//!
//! The history of a disk's contents shows flushes that succeed though what they cover is lost. Here
//! is the opposite: a flush that fails must cover a write that was at stake when its disk lost
//! something, and of which no flush had told before it began. A write is at stake from its
//! submission until a flush that begins after its end has ended.

use std::collections::BTreeMap;

use tyche_block::Errno;
use tyche_proto::Operation;
use tyche_wire::{CommandFlags, Opcode};

/// The error of operations at a logical unit that is not there.
const GONE: Errno = Errno(6);

/// The checker of failed flushes at one disk, for all initiators. It keeps the operations in
/// progress and the writes at stake of each session, with the order of their begins, ends and
/// losses.
#[derive(Default)]
pub(super) struct Ledger {
    /// By session and operation, those in progress and writes that are at stake.
    entries: BTreeMap<(u64, u32), Entry>,
    step: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    is_flush: bool,
    began: u64,
    /// When it was answered.
    ended: Option<u64>,
    is_lost: bool,
    /// When a flush has told of it.
    told: Option<u64>,
}

impl Ledger {
    fn tick(&mut self) -> u64 {
        self.step += 1;
        self.step
    }

    /// An operation is submitted.
    pub(super) fn submit(&mut self, session: u64, op: u32, operation: &Operation) {
        let began = self.tick();
        let is_flush = operation.opcode == Opcode::Flush;
        let is_durable = operation.flags.contains(CommandFlags::FUA);
        if is_flush || operation.opcode.modifies() && !is_durable {
            let entry = Entry { is_flush, began, ended: None, is_lost: false, told: None };
            self.entries.insert((session, op), entry);
        }
    }

    /// The disk has lost what was in its cache.
    pub(super) fn lose(&mut self) {
        self.entries.values_mut().for_each(|it| it.is_lost = true);
    }

    /// An operation has failed for a reason that says nothing about writes.
    pub(super) fn forget(&mut self, session: u64, op: u32) {
        self.entries.remove(&(session, op));
    }

    /// A session has ended.
    pub(super) fn vanish(&mut self, session: u64) {
        self.entries.retain(|key, _| key.0 != session);
    }

    /// An operation has ended; returns whether that may be so. One that finds no disk any more says
    /// nothing about writes.
    pub(super) fn complete(&mut self, session: u64, op: u32, result: Result<(), Errno>) -> bool {
        let (now, is_ok) = (self.tick(), result.is_ok());
        if result == Err(GONE) {
            self.forget(session, op);
            return true;
        }
        let Some(entry) = self.entries.get_mut(&(session, op)) else { return true };
        if !entry.is_flush {
            entry.ended = Some(now);
            if !is_ok {
                self.entries.remove(&(session, op));
            }
            return true;
        }
        let Entry { began, is_lost: meets_loss, .. } = *entry;
        self.entries.remove(&(session, op));
        let own = (session, 0)..=(session, u32::MAX);
        let is_news = |it: &Entry| it.told.is_none_or(|told| told > began);
        let tells = |it: &Entry| it.is_lost && it.ended.is_some() && is_news(it);
        let is_right = is_ok || self.entries.range(own.clone()).any(|it| tells(it.1));
        for (_, it) in self.entries.range_mut(own.clone()) {
            if it.ended.is_some_and(|ended| ended < began) {
                // It is durable, or reported. Another flush in progress may cover it, too.
                it.told.get_or_insert(now);
            } else {
                // Nobody knows whether the target has done it before the loss, of which the flush
                // may have been told though it covers nothing, and has not failed.
                it.is_lost |= !is_ok || meets_loss;
            }
        }
        let flushes = self.entries.range(own).filter(|it| it.1.is_flush);
        let oldest = flushes.map(|it| it.1.began).min().unwrap_or(now);
        self.entries.retain(|key, it| key.0 != session || it.told.is_none_or(|it| it > oldest));
        is_right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Operation =
        Operation { opcode: Opcode::Write, flags: CommandFlags::NONE, offset: 0, len: 512 };
    const FLUSH: Operation = Operation { opcode: Opcode::Flush, len: 0, ..WRITE };

    fn result(is_ok: bool) -> Result<(), Errno> {
        if is_ok { Ok(()) } else { Err(Errno::IO) }
    }

    fn run(ledger: &mut Ledger, session: u64, op: u32, operation: &Operation, is_ok: bool) -> bool {
        ledger.submit(session, op, operation);
        ledger.complete(session, op, result(is_ok))
    }

    #[test]
    fn a_loss_is_told_once_to_whom_it_concerns() {
        let mut ledger = Ledger::default();
        run(&mut ledger, 1, 1, &WRITE, true);
        assert!(!run(&mut ledger, 1, 2, &FLUSH, false), "nothing was lost");
        run(&mut ledger, 1, 3, &WRITE, true);
        run(&mut ledger, 2, 1, &WRITE, true);
        run(&mut ledger, 2, 2, &FLUSH, true);
        ledger.submit(1, 4, &WRITE);
        ledger.lose();
        ledger.complete(1, 4, Ok(()));
        assert!(!run(&mut ledger, 2, 3, &FLUSH, false), "all was durable");
        assert!(run(&mut ledger, 1, 5, &FLUSH, false));
        assert!(!run(&mut ledger, 1, 6, &FLUSH, false), "it was told");
        run(&mut ledger, 1, 9, &WRITE, true);
        ledger.submit(1, 10, &FLUSH);
        ledger.submit(1, 11, &FLUSH);
        ledger.lose();
        assert!([10, 11].iter().all(|op| ledger.complete(1, *op, result(false))), "at once");
        run(&mut ledger, 1, 7, &WRITE, true);
        assert!(!run(&mut ledger, 1, 8, &FLUSH, false), "that was written after the loss");
    }

    #[test]
    fn a_write_in_progress_may_be_lost_when_a_flush_is_told_of_a_loss() {
        let mut ledger = Ledger::default();
        ledger.submit(1, 1, &FLUSH);
        ledger.lose();
        ledger.submit(1, 2, &WRITE);
        assert!(ledger.complete(1, 1, result(true)), "it covers nothing");
        ledger.complete(1, 2, result(true));
        assert!(run(&mut ledger, 1, 3, &FLUSH, false));
    }
}
