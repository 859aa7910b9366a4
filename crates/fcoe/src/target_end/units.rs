//! The logical units of a target, shared by the threads of its interfaces.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::peers::{Answers, Departure, Peer, Peers, Tasks};
use super::stakes::UnitStakes;
use tyche_engine::Exported;
use tyche_fc::wire::Wwn;
use tyche_scsi::vpd::TargetPort;
use tyche_scsi::{LunSet, NexusId, NoRoom, Server, Unit, Uuid};

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
    /// Whether its generation is that of a former life of the target or of a unit that was removed,
    /// so that initiators may have writes in the cache of the disk that are not known here.
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

/// A logical unit of a target, and what initiators have at stake in it.
pub(super) struct LogicalUnit {
    pub(super) unit: TargetUnit,
    pub(super) stakes: UnitStakes,
}

/// A logical unit in the table.
struct Entry {
    unit: Arc<LogicalUnit>,
    /// The initiators that may know of it now.
    initiators: VisibleTo,
    /// The threads that have not given it up, if it is removed.
    removal: Option<Arc<Answers>>,
}

impl Entry {
    /// Whether an initiator may know of it.
    fn is_for(&self, initiator: Wwn) -> bool {
        self.removal.is_none() && self.initiators.has(initiator)
    }
}

/// The logical units of a target, with the device server behind a lock. The threads of all
/// interfaces share it; reads and writes with a valid grant only read the number of changes.
///
/// A unit is known by its number (LUN). A number that was removed is free again only when no thread
/// has anything of the unit any more.
pub struct Units {
    server: Mutex<Server>,
    /// Changes of the device server. It is written under the lock, and only if there was one.
    changes: AtomicU64,
    /// By number. Locked before the server.
    table: Mutex<BTreeMap<u8, Entry>>,
    /// The ports that show them, in the order of their numbers.
    ports: Mutex<Vec<Wwn>>,
    peers: Arc<Peers>,
}

impl TargetUnit {
    /// The logical unit, as it is now.
    fn unit(&self, uuid: Uuid) -> Unit {
        let geometry = self.exported.store().geometry();
        let generation = self.generation.as_ref().map(|generation| generation());
        Unit { geometry, uuid, shared: self.shared, generation }
    }
}

/// The number of a logical unit is that of another, or of one that is being removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LunTaken(pub u8);

impl std::fmt::Display for LunTaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let remedy = "remove it first, and wait until its commands are over";
        write!(f, "there is a logical unit {}: {remedy}", self.0)
    }
}

impl std::error::Error for LunTaken {}

/// A logical unit that was removed, until nothing of it is left.
pub struct UnitRemoval {
    units: Arc<Units>,
    departure: Departure,
}

impl UnitRemoval {
    /// Waits until no thread has anything of the unit any more: none of its commands is with the
    /// disk, or will be. Returns whether that was so within `limit`.
    pub fn wait(&self, limit: Duration) -> bool {
        let is_over = self.departure.wait(limit);
        self.units.erase_removed();
        is_over
    }
}

impl Units {
    /// Logical units with different numbers.
    ///
    /// # Panics
    /// If two have the same.
    pub fn new(units: Vec<TargetUnit>) -> Self {
        let server = Server::new(NEXUSES_MAX);
        let changes = AtomicU64::new(server.changes());
        let (table, ports, peers) = Default::default();
        let this = Self { server: Mutex::new(server), changes, table, ports, peers };
        for unit in units {
            this.add(unit).expect("the numbers are different");
        }
        this
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

    /// Adds a logical unit. Initiators are told that there is another.
    ///
    /// # Errors
    /// If its number is taken.
    pub fn add(&self, unit: TargetUnit) -> Result<(), LunTaken> {
        let number = unit.number;
        // Not under the lock: its generation may wait for a disk.
        let served = unit.unit(unit.uuid);
        self.erase_removed();
        let mut table = self.table();
        if table.contains_key(&number) {
            return Err(LunTaken(number));
        }
        let stakes = UnitStakes::new(&unit.exported, unit.continues);
        let initiators = unit.initiators.clone();
        let unit = Arc::new(LogicalUnit { unit, stakes });
        table.insert(number, Entry { unit, initiators, removal: None });
        let mut server = self.server();
        show(&mut server, &table);
        // Without its disk it is no unit yet.
        if served.geometry.size > 0 {
            server.add(number, served);
        }
        Ok(())
    }

    /// Removes a logical unit: initiators do not find it any more, are told that there are others,
    /// and their commands are ended, as by a reset. `None` if there is none of that number.
    pub fn remove(self: &Arc<Self>, number: u8) -> Option<UnitRemoval> {
        let mut table = self.table();
        let entry = table.get_mut(&number).filter(|entry| entry.removal.is_none())?;
        let departure = self.peers.order_all([Tasks::Removed(number)].into_iter());
        entry.removal = departure.answers().next();
        show(&mut self.server(), &table);
        drop(table);
        self.erase_removed();
        Some(UnitRemoval { units: Arc::clone(self), departure })
    }

    /// Erases the removed units that no thread has anything of.
    pub(super) fn erase_removed(&self) {
        let mut table = self.table();
        let is_over = |entry: &Entry| entry.removal.as_ref().is_some_and(|it| it.left() == 0);
        table.retain(|number, entry| {
            if is_over(entry) {
                self.server().remove(*number);
            }
            !is_over(entry)
        });
    }

    /// The unit of that number, unless it is removed.
    pub(super) fn get(&self, number: u8) -> Option<Arc<LogicalUnit>> {
        let table = self.table();
        let entry = table.get(&number).filter(|entry| entry.removal.is_none())?;
        Some(Arc::clone(&entry.unit))
    }

    /// The numbers of the units that are not removed.
    pub(super) fn numbers(&self) -> Vec<u8> {
        let table = self.table();
        table.iter().filter(|(_, entry)| entry.removal.is_none()).map(|(it, _)| *it).collect()
    }

    /// The number of the unit that is the export of that name, if there is one.
    pub fn lun(&self, export: &str) -> Option<u8> {
        let table = self.table();
        let is_it =
            |entry: &Entry| entry.removal.is_none() && *entry.unit.unit.exported.name() == *export;
        table.iter().find_map(|(number, entry)| is_it(entry).then_some(*number))
    }

    /// Adds a unit whose disk was missing, and has arrived: initiators are told that there is
    /// another.
    pub fn arrived(&self, number: u8, uuid: Uuid) {
        if let Some(it) = self.get(number) {
            let unit = it.unit.unit(uuid);
            self.server().add(number, unit);
        }
    }

    /// The store of a unit has lost writes that were done. Initiators are told the generation that
    /// accounts for it before they go on.
    pub(super) fn renew(&self, unit: &LogicalUnit) {
        // Not under the lock: it may wait for a disk.
        if let Some(generation) = unit.unit.generation.as_ref().map(|generation| generation()) {
            self.server().renew(unit.unit.number, generation);
        }
    }

    /// Takes the present size of a unit: initiators are told of another.
    pub fn resized(&self, number: u8) {
        let Some(it) = self.get(number) else { return };
        let size = it.unit.exported.store().geometry().size;
        let mut server = self.server();
        if server.unit(number).is_some_and(|unit| unit.geometry.size != size) {
            server.resize(number, size);
        }
    }

    /// Changes which initiators may know of units, by their numbers. Commands of those that may not
    /// any more find no such unit from now on; those that were accepted are ended, as by a reset.
    pub fn set_initiators(&self, wanted: Vec<(u8, VisibleTo)>) -> Departure {
        let mut table = self.table();
        let (mut numbers, mut is_other) = (Vec::new(), false);
        for (number, now) in wanted {
            let Some(entry) = table.get_mut(&number) else { continue };
            is_other |= entry.initiators != now;
            entry.initiators = now;
            numbers.push(number);
        }
        if is_other {
            show(&mut self.server(), &table);
        }
        drop(table);
        // Also of those that could not know of it before: their commands may not have ended yet.
        self.peers.order_all(numbers.into_iter().map(Tasks::Hidden))
    }

    /// Whether there may be an initiator that may know of a unit.
    pub fn is_shown(&self, number: u8) -> bool {
        self.table().get(&number).is_some_and(|entry| entry.initiators.is_any())
    }

    /// Whether an initiator may know of a unit now.
    pub(super) fn is_visible(&self, number: u8, initiator: Wwn) -> bool {
        self.table().get(&number).is_some_and(|entry| entry.is_for(initiator))
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<u8, Entry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Places among the threads that serve them, for those of a port, by its number.
    pub(super) fn join(&self, port: u16, threads: usize) -> Vec<Peer> {
        Peer::join(&self.peers, port, threads)
    }

    /// Lets an initiator in by a port, to whom the logical units are visible that it may know of.
    ///
    /// # Errors
    /// If there is no room for another.
    pub(super) fn login(&self, initiator: Wwn, port: TargetPort) -> Result<NexusId, NoRoom> {
        // It asks for the generations next. Others may have renewed them.
        self.numbers().into_iter().filter_map(|number| self.get(number)).for_each(|it| {
            self.renew(&it);
        });
        let table = self.table();
        self.server().login(initiator.0, port, visible_of(&table, initiator))
    }
}

/// Makes the units of a table visible to the initiators that may know of them.
fn show(server: &mut Server, table: &BTreeMap<u8, Entry>) {
    server.show(|initiator| visible_of(table, Wwn(initiator)));
}

/// The units that an initiator may know of.
fn visible_of(table: &BTreeMap<u8, Entry>, initiator: Wwn) -> LunSet {
    let visible = table.iter().filter(|(_, entry)| entry.is_for(initiator));
    visible.fold(LunSet::NONE, |set, (number, _)| set.with(*number))
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
