//! An initiator that is logged in, as each thread of the port has it.

use std::sync::Arc;

use tyche_fc::wire::Wwn;
use tyche_scsi::NexusId;

use super::peers::Answers;
use super::stakes::{KnownLosses, Stake};
use super::units::LogicalUnit;
use crate::losses::Since;

/// An initiator that is logged in.
pub(super) struct Nexus {
    pub(super) wwpn: Wwn,
    pub(super) id: NexusId,
    /// Whether it confirms that it was told of a loss.
    pub(super) confirms: bool,
    /// Its stakes, by logical unit, in those that it has written or flushed.
    stakes: Vec<(u8, Arc<Stake>)>,
}

impl Nexus {
    pub(super) fn new(wwpn: Wwn, id: NexusId) -> Self {
        Self { wwpn, id, confirms: false, stakes: Vec::new() }
    }

    /// Its stake in a unit.
    pub(super) fn stake(&mut self, unit: &LogicalUnit, known: KnownLosses) -> Arc<Stake> {
        let number = unit.unit.number;
        if let Some((_, stake)) = self.stakes.iter().find(|(of, _)| *of == number) {
            return Arc::clone(stake);
        }
        let stake = unit.stakes.of(self.wwpn, known);
        self.stakes.push((number, Arc::clone(&stake)));
        stake
    }

    /// Forgets a unit that is removed.
    pub(super) fn forget_unit(&mut self, number: u8) {
        self.stakes.retain(|(of, _)| *of != number);
    }
}

/// A flush that has failed because writes were lost, and what it covers.
pub(super) struct Lost {
    pub(super) stake: Arc<Stake>,
    pub(super) since: Since,
}

/// A login that has ended, until nothing of it is at work any more.
pub(super) struct EndedLogin {
    pub(super) wwpn: Wwn,
    /// The other threads of the port.
    pub(super) others: Arc<Answers>,
    /// Whether that is so for this thread.
    pub(super) is_drained: bool,
}
