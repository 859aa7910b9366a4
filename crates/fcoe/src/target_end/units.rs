//! The logical units of a target, shared by the threads of its interfaces.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::peers::{Departure, Peer, Peers, Tasks};
use super::stakes::{AllStakes, Stakes};
use tyche_engine::Exported;
use tyche_fc::wire::Wwn;
use tyche_scsi::vpd::TargetPort;
use tyche_scsi::{LunSet, NexusId, NoRoom, Server, UNITS_MAX, Unit, Uuid};

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
    /// The initiators that may know of it at first.
    pub initiators: VisibleTo,
    /// Whether its generation is that of a former life of the target, so that initiators may have
    /// writes in the cache of the disk that are not known here.
    pub continues: bool,
    /// Its generation. Without it initiators can't tell a target that was started again from one
    /// that has lost its cache.
    pub generation: Option<Generation>,
}

/// The initiators that may know of a logical unit, by their WWPNs. By default all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VisibleTo {
    /// These; empty: all.
    pub only: Vec<Wwn>,
    /// But none of these.
    pub except: Vec<Wwn>,
}

impl VisibleTo {
    /// Whether it is one of them.
    pub fn has(&self, initiator: Wwn) -> bool {
        let is_named = self.only.is_empty() || self.only.contains(&initiator);
        is_named && !self.except.contains(&initiator)
    }

    /// Whether there may be one.
    pub fn is_any(&self) -> bool {
        self.only.is_empty() || self.only.iter().any(|it| self.has(*it))
    }
}

/// Returns the generation of an export, within which completed writes survive: one that accounts
/// for all losses of its store until now, and is on stable storage. May wait for a disk.
pub type Generation = Box<dyn Fn() -> Uuid + Send + Sync>;

/// The logical units of a target, with the device server behind a lock. The threads of all
/// interfaces share it; reads and writes with a valid grant only read the number of changes.
pub struct Units {
    server: Mutex<Server>,
    /// Changes of the device server. It is written under the lock, and only if there was one.
    changes: AtomicU64,
    units: Vec<TargetUnit>,
    /// The ports that show them, in the order of their numbers.
    ports: Mutex<Vec<Wwn>>,
    /// The initiators that may know of each unit now. Locked before the server.
    initiators: Mutex<Vec<VisibleTo>>,
    peers: Arc<Peers>,
    stakes: AllStakes,
}

impl TargetUnit {
    /// The logical unit, as it is now.
    fn unit(&self, uuid: Uuid) -> Unit {
        let geometry = self.exported.store().geometry();
        let generation = self.generation.as_ref().map(|generation| generation());
        Unit { geometry, uuid, shared: self.shared, generation }
    }
}

impl Units {
    /// Logical units with different numbers.
    pub fn new(units: Vec<TargetUnit>) -> Self {
        assert!(units.len() <= UNITS_MAX, "{} logical units", units.len());
        let mut server = Server::new(NEXUSES_MAX);
        // Without its disk it is no unit yet.
        for it in units.iter().filter(|it| it.exported.store().geometry().size > 0) {
            server.add(it.number, it.unit(it.uuid));
        }
        let changes = AtomicU64::new(server.changes());
        let initiators = units.iter().map(|unit| unit.initiators.clone()).collect();
        let (server, initiators) = (Mutex::new(server), Mutex::new(initiators));
        let (ports, peers, stakes) = Default::default();
        Self { server, changes, units, ports, initiators, peers, stakes }
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

    /// Adds an export whose disk was missing, by its index: initiators are told that there is
    /// another logical unit.
    pub fn arrived(&self, index: usize, uuid: Uuid) {
        let unit = self.units[index].unit(uuid);
        self.server().add(self.units[index].number, unit);
    }

    /// The store of an export has lost writes that were done. Initiators are told the generation
    /// that accounts for it before they go on.
    pub(super) fn renew(&self, index: usize) {
        let TargetUnit { number, generation, .. } = &self.units[index];
        // Not under the lock: it may wait for a disk.
        if let Some(generation) = generation.as_ref().map(|generation| generation()) {
            self.server().renew(*number, generation);
        }
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

    /// Changes which initiators may know of units, by their indices. Commands of those that may not
    /// any more find no such unit from now on; those that were accepted are ended, as by a reset.
    pub fn set_initiators(
        &self,
        wanted: impl IntoIterator<Item = (usize, VisibleTo)>,
    ) -> Departure {
        let mut initiators = self.initiators();
        let before = initiators.clone();
        let mut units = Vec::new();
        for (unit, now) in wanted {
            initiators[unit] = now;
            units.push(self.units[unit].number);
        }
        if *initiators != before {
            self.server().show(|initiator| self.visible_of(&initiators, Wwn(initiator)));
        }
        drop(initiators);
        // Also of those that could not know of it before: their commands may not have ended yet.
        self.peers.order_all(units.into_iter().map(Tasks::Hidden))
    }

    /// The initiators that may know of a unit now, by its number.
    pub fn visible_to(&self, number: u8) -> VisibleTo {
        let index = self.units.iter().position(|it| it.number == number);
        index.map(|index| self.initiators()[index].clone()).unwrap_or_default()
    }

    fn initiators(&self) -> MutexGuard<'_, Vec<VisibleTo>> {
        self.initiators.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// A place among the threads that serve them.
    pub(super) fn join(&self) -> Peer {
        Peer::join(Arc::clone(&self.peers))
    }

    /// Lets an initiator in by a port, to whom the logical units are visible that it may know of.
    /// Also returns what it has at stake.
    ///
    /// # Errors
    /// If there is no room for another.
    pub(super) fn login(
        &self,
        initiator: Wwn,
        port: TargetPort,
    ) -> Result<(NexusId, Arc<Stakes>), NoRoom> {
        // It asks for the generations next. Others may have renewed them.
        (0..self.units.len()).for_each(|index| self.renew(index));
        let initiators = self.initiators();
        let visible = self.visible_of(&initiators, initiator);
        let nexus = self.server().login(initiator.0, port, visible)?;
        Ok((nexus, self.stakes.of(initiator, self.units.iter().map(|unit| unit.continues))))
    }

    fn visible_of(&self, initiators: &[VisibleTo], initiator: Wwn) -> LunSet {
        let visible = self.units.iter().zip(initiators).filter(|(_, it)| it.has(initiator));
        visible.fold(LunSet::NONE, |set, (unit, _)| set.with(unit.number))
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
