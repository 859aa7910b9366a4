//! The logical units of a target, shared by the threads of its interfaces.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tyche_engine::Exported;
use tyche_fc::wire::Wwn;
use tyche_scsi::{LunSet, Server, UNITS_MAX, Unit, Uuid};

/// The most initiators that are remembered, on all interfaces.
const NEXUSES_MAX: u16 = 1024;

/// An export as a logical unit.
pub struct TargetUnit {
    /// Its number (LUN).
    pub number: u8,
    /// The disk.
    pub exported: Arc<Exported>,
    /// Its identity, stable as long as it is the same disk.
    pub uuid: Uuid,
    /// Several initiators may write to it.
    pub shared: bool,
    /// The initiators that may know of it; empty: all.
    pub initiators: Vec<Wwn>,
}

/// See the module.
pub struct Units {
    server: Mutex<Server>,
    units: Vec<TargetUnit>,
}

impl Units {
    /// Logical units with different numbers.
    pub fn new(units: Vec<TargetUnit>) -> Self {
        assert!(units.len() <= UNITS_MAX, "{} logical units", units.len());
        let mut server = Server::new(NEXUSES_MAX);
        for TargetUnit { number, exported, uuid, shared, .. } in &units {
            let geometry = exported.store().geometry();
            server.add(*number, Unit { geometry, uuid: *uuid, shared: *shared });
        }
        Self { server: Mutex::new(server), units }
    }

    /// All of them.
    pub fn all(&self) -> &[TargetUnit] {
        &self.units
    }

    /// Takes the present size of an export, by its index: initiators are told of another.
    pub fn resized(&self, index: usize) {
        let TargetUnit { number, exported, .. } = &self.units[index];
        let size = exported.store().geometry().size;
        let mut server = self.server();
        if server.unit(*number).is_some_and(|unit| unit.geometry.size != size) {
            server.resize(*number, size);
        }
    }

    /// The device server.
    pub(super) fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The logical units that an initiator may know of.
    pub(super) fn visible(&self, initiator: Wwn) -> LunSet {
        let is_visible =
            |it: &&TargetUnit| it.initiators.is_empty() || it.initiators.contains(&initiator);
        let visible = self.units.iter().filter(is_visible);
        visible.fold(LunSet::NONE, |set, unit| set.with(unit.number))
    }
}
