//! The logical units of a target, shared by the threads of its interfaces.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tyche_engine::Exported;
use tyche_fc::wire::Wwn;
use tyche_scsi::vpd::TargetPort;
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
    /// Changes of the device server. It is written under the lock, and only if there was one.
    changes: AtomicU64,
    units: Vec<TargetUnit>,
    /// The ports that show them, in the order of their numbers.
    ports: Mutex<Vec<Wwn>>,
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
        let changes = AtomicU64::new(server.changes());
        Self { server: Mutex::new(server), changes, units, ports: Mutex::default() }
    }

    /// A port that shows them, with its number: the next, if it has none yet.
    pub fn port(&self, name: Wwn) -> TargetPort {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let index = ports.iter().position(|it| *it == name).unwrap_or_else(|| {
            ports.push(name);
            ports.len() - 1
        });
        TargetPort { name: name.0, number: index as u16 + 1 }
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
    pub(super) fn server(&self) -> Locked<'_> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { server, changes: &self.changes }
    }

    /// The changes of the device server that may have ended a grant, until now.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The logical units that an initiator may know of.
    pub(super) fn visible(&self, initiator: Wwn) -> LunSet {
        let is_visible =
            |it: &&TargetUnit| it.initiators.is_empty() || it.initiators.contains(&initiator);
        let visible = self.units.iter().filter(is_visible);
        visible.fold(LunSet::NONE, |set, unit| set.with(unit.number))
    }
}

/// The device server, for one thread.
pub(super) struct Locked<'a> {
    server: MutexGuard<'a, Server>,
    changes: &'a AtomicU64,
}

impl Deref for Locked<'_> {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

impl Drop for Locked<'_> {
    /// Ends the grants of other threads before the lock is given back.
    fn drop(&mut self) {
        let changes = self.server.changes();
        if self.changes.load(Ordering::Relaxed) != changes {
            self.changes.store(changes, Ordering::Release);
        }
    }
}
