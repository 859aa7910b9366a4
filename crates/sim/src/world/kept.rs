//! What the target's machine keeps over runs of the target, and how that goes wrong: it cannot be
//! written, or is that of an earlier moment.

use tyche_proto::{Rules, Writer};
use tyche_wire::Uuid;

use super::World;
use crate::host::uuid;
use crate::target::Exported;
use crate::trace::Happening;

/// The target's machine at one moment.
pub(super) struct Snapshot {
    disk: Box<[u8]>,
    exported: Exported,
}

impl<R: Rules> World<R> {
    /// From now on the target can keep nothing, or can again.
    pub(super) fn set_state_full(&mut self, full: bool) {
        let what = if full { "cannot keep" } else { "keeps" };
        self.note(Happening::Incident(format!("the target {what} who writes")));
        self.state_full = full;
    }

    /// If something was lost, what the target serves is of another generation from now on, in this
    /// run already.
    pub(super) fn renew_generation(&mut self) {
        let Some(process) = self.process.as_mut().filter(|_| self.plan.target.renews) else {
            return;
        };
        if !self.disk.end_run() {
            return;
        }
        self.exported.boot += 1;
        process.registry.renew(0, uuid(5, self.exported.boot));
        self.report.renewals += 1;
        let what = format!("generation {}", self.exported.boot);
        self.note(Happening::Incident(what));
    }

    pub(super) fn take_snapshot(&mut self) {
        self.note(Happening::Incident("a snapshot of the target's machine".into()));
        self.snapshot = Some(Snapshot { disk: self.disk.image(), exported: self.exported });
    }

    /// The target's machine begins anew from its last snapshot. It has an identity of its own for
    /// that, which the generation of what is served follows from.
    pub(super) fn restore_target(&mut self) {
        let Some(Snapshot { disk, exported }) = self.snapshot.take() else { return };
        self.crash_target(true);
        self.disk.restore(disk);
        // Who wrote last since then is not known any more: nobody is believed who says so.
        let nobody = Some(Writer { session: Uuid::max(), device: Uuid::max() });
        let boot = self.exported.boot + 1;
        self.exported = if self.plan.restores_unnoticed {
            exported
        } else {
            Exported { boot, last_writer: nobody, ..exported }
        };
        let running = self.hosts.iter().filter_map(|host| host.running.as_ref());
        let running = running.filter(|it| it.connected).map(|running| running.number);
        let left = self.hosts.iter().filter_map(|host| host.left.as_ref().map(|it| it.session));
        self.history.restore(&self.disk, running.chain(left));
        // Who followed whom since has been forgotten.
        self.last_writer = None;
        self.former_writers.clear();
        self.report.restores += 1;
        self.note(Happening::Incident("the target's machine is restored".into()));
        self.plan_restart();
    }
}
