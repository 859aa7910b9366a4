//! State that the target's machine keeps over runs of the target, and its faults: it cannot be
//! written, or is that of an earlier moment.

use tyche_proto::{Loss, Rules, Writer};
use tyche_wire::Uuid;

use super::World;
use crate::target::Exported;
use crate::trace::Happening;

/// The state of the target's machine at one moment.
pub(super) struct Snapshot {
    volumes: Vec<(Box<[u8]>, Exported)>,
}

impl<R: Rules> World<R> {
    /// Keeps the target from storing anything from now on, or lets it again.
    pub(super) fn set_state_full(&mut self, full: bool) {
        let what = if full { "cannot keep" } else { "keeps" };
        self.note(Happening::Incident(format!("the target {what} who writes")));
        self.state_full = full;
        self.process.iter_mut().for_each(|process| process.set_state_full(full));
    }

    pub(super) fn take_snapshot(&mut self) {
        self.note(Happening::Incident("a snapshot of the target's machine".into()));
        let volumes = self.volumes.iter().map(|it| (it.disk.image(), it.exported)).collect();
        self.snapshot = Some(Snapshot { volumes });
    }

    /// Starts the target's machine anew from its last snapshot. It has an identity of its own then,
    /// which the generations of its exports follow from.
    pub(super) fn restore_target(&mut self) {
        let Some(Snapshot { volumes }) = self.snapshot.take() else { return };
        self.crash_target(true);
        for (index, (image, exported)) in volumes.into_iter().enumerate() {
            self.restore_volume(index, image, exported);
        }
        self.report.restores += 1;
        self.note(Happening::Incident("the target's machine is restored".into()));
        self.plan_restart();
    }

    fn restore_volume(&mut self, index: usize, image: Box<[u8]>, exported: Exported) {
        let volume = &mut self.volumes[index];
        volume.disk.restore(image);
        // The last writer since then is not known any more: no session that claims to be it is
        // believed.
        let nobody = Some(Writer { session: Uuid::max(), device: Uuid::max(), host: None });
        if self.plan.restores_unnoticed {
            volume.exported = exported;
        } else {
            volume.exported.renew(Loss::Content);
            volume.exported.last_writer = nobody;
        }
        let hosts = || self.hosts.iter().filter(|host| host.plan.export == index);
        let running = hosts().filter_map(|host| host.running.as_ref());
        let running = running.filter(|it| it.connected).map(|running| running.number);
        let left = hosts().filter_map(|host| host.left.as_ref().map(|it| it.session));
        volume.history.restore(&volume.disk, running.chain(left));
        volume.forget_writers();
    }
}
