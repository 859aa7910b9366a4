//! The logical units that initiators may know of, while the server runs.

use super::{NexusId, Server};
use crate::lun::LunSet;
use crate::vpd::TargetPort;

impl Server {
    /// Changes which logical units are visible to each initiator, by its WWPN. Reservations of
    /// those that do not see the unit any more are over; the right to write is when their commands
    /// are ([`withdraw`](Self::withdraw)).
    pub fn show(&mut self, visible: impl Fn(u64) -> LunSet) {
        self.changes += 1;
        self.nexuses.show(visible);
        let Self { slots, nexuses, .. } = self;
        for (number, slot) in (0..=u8::MAX).zip(slots.iter_mut()) {
            let Some(slot) = slot else { continue };
            let sees = |id: &NexusId| nexuses.get(*id).is_some_and(|it| it.visible.has(number));
            slot.reserved = slot.reserved.filter(sees);
        }
        self.nexuses.tell_luns_changed();
    }

    /// Ends the right to write to a logical unit of those at a port that do not see it any more,
    /// none of whose commands is in progress there.
    pub fn withdraw(&mut self, number: u8, port: TargetPort) {
        let Self { slots, nexuses, .. } = self;
        let Some(slot) = &mut slots[usize::from(number)] else { return };
        let keeps = |id: &NexusId| {
            nexuses.get(*id).is_some_and(|it| it.port != port || it.visible.has(number))
        };
        slot.writer = slot.writer.filter(keeps);
    }
}
