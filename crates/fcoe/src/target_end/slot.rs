//! The memory and the state of a command.

use std::sync::Arc;

use tyche_block::{Extent, Operation};
use tyche_fc::Part;
use tyche_fc::wire::Wwn;
use tyche_scsi::{Lun, NexusId, Reply, Task};
use tyche_store::{Loan, Store};

use super::memory::Claim;
use super::stakes::{KnownLosses, Stake};
use crate::losses::Since;

/// The state of one command at a target: the memory of its data, its operations at the store, and
/// what it has at stake in the disk's cache. There is one for each exchange of the lane.
#[derive(Default)]
pub(super) struct Slot {
    /// Its memory, unless the store has it.
    extent: Option<Extent>,
    /// The part that it takes of its initiator's share of the memory.
    pub(super) claim: Option<Claim>,
    /// The data that the store lends for a read; the memory is unused then.
    loan: Option<Loan>,
    /// The work at the store.
    pub(super) work: Work,
    /// The read that follows when the store is flushed, if it is one of stable storage.
    pub(super) then: Option<Task>,
    /// Whether what is read stays here.
    pub(super) is_kept: bool,
    /// Its operations at the store.
    pub(super) running: u32,
    /// The first failure of an operation.
    pub(super) failure: Option<Reply>,
    /// Its initiator.
    pub(super) initiator: Option<Wwn>,
    /// The stake of its initiator in the disk, if the command changes it.
    pub(super) stake: Option<Arc<Stake>>,
    /// The stake when its operations were begun.
    pub(super) since: Since,
    is_staked: bool,
}

/// The work of a command at the store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Work {
    /// Nothing.
    #[default]
    None,
    /// An operation.
    Task(Task),
    /// Operations that its parameter list names.
    List(List),
}

/// An operation that writes to the cache of its disk, or makes that durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtStake {
    /// It is one of them.
    Write,
    /// It makes them durable: the flush of an initiator, which is told if it fails.
    Flush,
}

/// A command with a parameter list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) nexus: NexusId,
    pub(super) lun: [u8; 8],
    pub(super) cdb: [u8; 16],
}

impl Slot {
    /// The unit that its command is for, and the bytes that it moves.
    ///
    /// # Panics
    /// If it has no command.
    pub(super) fn cost(&self) -> (u8, u32) {
        match self.work {
            Work::Task(task) => {
                let Task { unit, operation, len, .. } = self.then.unwrap_or(task);
                (unit, if operation.has_data() { len } else { 0 })
            }
            Work::List(List { lun, .. }) => {
                let unit = Lun(lun).number().and_then(|number| u8::try_from(number).ok());
                (unit.expect("the device server knows the unit"), 0)
            }
            Work::None => unreachable!("it was accepted with its work"),
        }
    }

    /// The effect of its present operation on the cache of its disk, if it has one.
    pub(super) fn stake_of(&self, store: &dyn Store) -> Option<AtStake> {
        let Work::Task(Task { operation, .. }) = self.work else { return None };
        match operation {
            // Not that of a read of what is on stable storage.
            Operation::Flush => self.then.is_none().then_some(AtStake::Flush),
            Operation::Write { fua: true } | Operation::WriteZeroes { fua: true, .. } => None,
            _ if operation.modifies() => store.geometry().write_cache.then_some(AtStake::Write),
            _ => None,
        }
    }

    /// Notes what its initiator has at stake when its operation is begun at a disk; of several, the
    /// first.
    pub(super) fn stake(&mut self, kind: AtStake, stake: Arc<Stake>, known: KnownLosses) {
        match kind {
            AtStake::Write if self.is_staked => {}
            AtStake::Write => {
                self.since = stake.begin_write(known);
                self.is_staked = true;
            }
            AtStake::Flush => self.since = stake.begin_flush(known),
        }
        self.stake = Some(stake);
    }

    /// Copies data to their place.
    pub(super) fn place(&mut self, offset: u32, data: &[u8]) {
        let extent = self.extent.as_mut().expect("claimed before data are asked for");
        extent[offset as usize..][..data.len()].copy_from_slice(data);
    }

    /// Copies an answer, which may have no data.
    pub(super) fn place_answer(&mut self, answer: &[u8]) {
        if !answer.is_empty() {
            self.place(0, answer);
        }
    }

    /// The data of a frame.
    pub(super) fn part(&self, part: &Part) -> &[u8] {
        let data = self.loan.as_deref().or(self.extent.as_deref());
        &data.expect("held until released")[part.offset as usize..][..part.len as usize]
    }

    /// Takes the memory, to submit it to the store.
    pub(super) fn take(&mut self) -> Option<Extent> {
        self.extent.take()
    }

    /// Returns the memory, if the store had it.
    pub(super) fn put(&mut self, extent: Option<Extent>) {
        self.extent = extent.or(self.extent.take());
    }

    /// Sets the data that a read is answered with.
    pub(super) fn lend(&mut self, loan: Loan) {
        self.loan = Some(loan);
    }
}
