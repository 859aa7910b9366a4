//! The grants of the device server that a thread keeps, so that reads and writes take no lock.

use tyche_scsi::{Grant, Lun, NexusId, Task};

/// The most grants that are kept.
const GRANTS_MAX: usize = 64;

/// A cache of the device server's grants, for one thread. All entries are of one state of the
/// server; once the server has changed, none of them is used any more.
#[derive(Default)]
pub(super) struct Grants {
    /// The number of the server's changes until that state.
    changes: u64,
    kept: Vec<(NexusId, Lun, Grant)>,
}

impl Grants {
    /// The operation of a command, if a grant is all that it needs. `changes`: those of the server
    /// until now.
    pub(super) fn begin(
        &self,
        changes: u64,
        (nexus, lun): (NexusId, Lun),
        cdb: &[u8],
    ) -> Option<Task> {
        if changes != self.changes {
            return None;
        }
        let (.., grant) = self.kept.iter().find(|it| (it.0, it.1) == (nexus, lun))?;
        grant.begin(cdb)
    }

    /// Keeps what the server grants after that many changes, instead of what it did before.
    pub(super) fn keep(
        &mut self,
        changes: u64,
        (nexus, lun): (NexusId, Lun),
        grant: Option<Grant>,
    ) {
        let is_full = self.kept.len() == GRANTS_MAX;
        if std::mem::replace(&mut self.changes, changes) != changes || is_full {
            self.kept.clear();
        }
        self.kept.retain(|it| (it.0, it.1) != (nexus, lun));
        self.kept.extend(grant.map(|grant| (nexus, lun, grant)));
    }
}
