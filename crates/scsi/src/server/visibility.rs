//! The logical units that initiators may know of, while the server runs.

use super::{NexusId, Server};
use crate::lun::LunSet;

impl Server {
    /// Changes which logical units are visible to each initiator, by its WWPN. Reservations of
    /// those that do not see the unit any more are over; commands in progress end as they would.
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
}
