//! Exports that the target's administrator removes while hosts use them, and adds again later, with
//! the same disk.
//!
//! Rule: once an export is given up, its disk has no request, and begins none, until it is added
//! again. Another target could serve the disk then.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tyche_proto::Rules;

use super::incidents::Incident;
use super::{Event, World};
use crate::trace::Happening;

/// Time between two attempts to add an export of which something is left.
const AGAIN: Duration = Duration::from_millis(100);

/// The exports that are removed now, and those that ever were: only their hosts may fail for that.
#[derive(Default)]
pub(super) struct Removals {
    /// By index: whether the target has given the export up.
    current: BTreeMap<usize, bool>,
    ever: BTreeSet<usize>,
}

impl Removals {
    /// Whether a session may have ended because its export was not there.
    pub(super) fn explain(&self, export: usize) -> bool {
        self.ever.contains(&export)
    }

    /// Another run of the target serves all exports.
    pub(super) fn forget(&mut self) {
        self.current.clear();
    }
}

impl<R: Rules> World<R> {
    /// Removes an export whose content is known, for a while.
    pub(super) fn remove_randomly(&mut self) -> Result<(), String> {
        let known: Vec<_> = self.exports().into_iter().map(|(export, _)| export).collect();
        let export = self.random.pick(&known);
        self.remove_export_at(export)
    }

    /// Removes an export, for a while.
    pub(super) fn remove_export_at(&mut self, export: usize) -> Result<(), String> {
        let Some(process) = &mut self.process else { return Ok(()) };
        if !process.remove(export) {
            return Ok(());
        }
        self.removals.current.insert(export, false);
        self.removals.ever.insert(export);
        self.report.removals += 1;
        self.note(Happening::Incident(format!("export {export} is removed")));
        self.check_removals()?;
        let pause = Duration::from_millis(self.random.pick(&[1, 50, 1000, 5000]));
        self.plan_in(pause, Event::Incident(Incident::AddAgain(export)));
        self.drive_target()
    }

    /// Adds an export again that was removed, as soon as nothing of it is left.
    pub(super) fn add_export_again(&mut self, export: usize) -> Result<(), String> {
        let Some(is_given_up) = self.removals.current.get(&export) else { return Ok(()) };
        let Some(process) = self.process.as_mut().filter(|_| *is_given_up) else {
            self.plan_in(AGAIN, Event::Incident(Incident::AddAgain(export)));
            return Ok(());
        };
        let volume = &self.volumes[export];
        process.add_again(self.now, volume.exported, &volume.disk);
        self.removals.current.remove(&export);
        self.note(Happening::Incident(format!("export {export} is added again")));
        self.deny_evicted(export);
        self.drive_target()
    }

    /// Takes note of exports that the target has given up, and checks that it has.
    pub(super) fn check_removals(&mut self) -> Result<(), String> {
        let Some(process) = &self.process else { return Ok(()) };
        let removed = self.removals.current.iter().filter(|(_, is_given_up)| !**is_given_up);
        let given_up: Vec<_> = removed.map(|(&export, _)| export).collect();
        let given_up: Vec<_> =
            given_up.into_iter().filter(|&export| process.has_given_up(export)).collect();
        for export in given_up {
            let Some(process) = &self.process else { return Ok(()) };
            if let Some(job) = process.jobs.values().find(|job| job.export == export) {
                let operation = job.operation;
                return Err(format!("export {export} is given up, and {operation:?} is executed"));
            }
            self.removals.current.insert(export, true);
            // The outcomes of its requests are forgotten, as by a restart of the target.
            self.volumes[export].history.lose_target(false);
            self.note(Happening::Incident(format!("nothing of export {export} is left")));
        }
        Ok(())
    }

    /// Checks that a request that the disk begins is of no export that was given up.
    pub(super) fn check_not_removed(&self, export: usize) -> Result<(), String> {
        if self.removals.current.get(&export) == Some(&true) {
            return Err(format!("a request begins at export {export}, which was given up"));
        }
        Ok(())
    }
}
