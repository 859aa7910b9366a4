//! The exports of the target: each with a disk, a history and writers of its own.

use std::collections::BTreeSet;

use tyche_wire::Uuid;

use crate::disk::Disk;
use crate::history::History;
use crate::plan::Plan;
use crate::random::Random;
use crate::target::Exported;

/// Salt of a seed for the random stream of further exports' disks.
const FURTHER_DISKS: u64 = 0x6469_736b_7320_3100;

/// Stamps of an export begin at a multiple of this, so that writes to another export are
/// recognized.
const STAMPS: u64 = 1 << 32;

/// An export in the world.
pub(super) struct Volume {
    pub(super) disk: Disk,
    pub(super) history: History,
    pub(super) exported: Exported,
    /// The session that was the last to modify the disk, and its predecessors.
    last_writer: Option<Uuid>,
    former_writers: BTreeSet<Uuid>,
}

impl Volume {
    /// All exports of a plan. `of_first`: random stream of the first disk.
    pub(super) fn all(plan: &Plan, of_first: Random) -> Vec<Self> {
        let mut of_others = Random::new(plan.seed ^ FURTHER_DISKS);
        let mut of_first = Some(of_first);
        let exports = plan.exports().enumerate();
        let volume = |(index, export): (usize, crate::plan::ExportPlan)| {
            let random = of_first.take().unwrap_or_else(|| of_others.fork());
            let stamps = index as u64 * STAMPS;
            Self {
                history: History::new(&export.disk, plan.promises, stamps, export.shared),
                exported: Exported::new(index, &export),
                disk: Disk::new(export.disk, random),
                last_writer: None,
                former_writers: BTreeSet::new(),
            }
        };
        exports.map(volume).collect()
    }

    /// Records that a session modifies the disk.
    ///
    /// # Errors
    /// If another session has taken its place. On a shared export there is no such error.
    pub(super) fn note_writer(&mut self, session: Uuid) -> Result<(), String> {
        if self.exported.shared {
            return Ok(());
        }
        if self.former_writers.contains(&session) {
            return Err("for a session that another followed".into());
        }
        if self.last_writer != Some(session) {
            self.former_writers.extend(self.last_writer.replace(session));
        }
        Ok(())
    }

    /// Forgets the order of writers, as the target has.
    pub(super) fn forget_writers(&mut self) {
        self.last_writer = None;
        self.former_writers.clear();
    }
}
