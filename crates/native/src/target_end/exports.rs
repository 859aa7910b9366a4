//! The exports of a target, shared by its threads: stores, admission, and the doorbells between the
//! threads.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slotmap::SecondaryMap;
use tyche_engine::{Disk, Exported, Limiter, RateLimit};
use tyche_proto::wire::{Event, Name, Uuid};
use tyche_proto::{
    Access, AllRules, Allowed, ExportConfig, ExportKey, ExportTaken, HostId, Instant, Loss,
    Registry, RenameRefused, Rule, Rules, SessionInfo, TargetConfig, Visit, Writer,
};
use tyche_store::{ResizeError, Store};
use tyche_wake::Doorbell;

use super::lines::Limits;
use super::{Arrival, RememberWriter, RenewGeneration, TargetExport};

/// The state that the threads of a target share: the registry of sessions behind a lock, which
/// requests do not take, the stores, and the means to wake each loop.
pub struct Exports {
    admissions: Mutex<Admissions>,
    /// Notified when channels may have been closed.
    closed: Condvar,
}

/// Admission of sessions: used in handshakes only.
struct Admissions {
    registry: Registry,
    /// The disks of the registry's exports.
    disks: SecondaryMap<ExportKey, ExportDisk>,
    remember_writer: RememberWriter,
    renew_generation: RenewGeneration,
    /// By thread.
    callers: Vec<Arc<LoopWaker>>,
    /// The indices of threads that have ended, for others.
    vacant: Vec<usize>,
    /// The limits of hosts with a name, also of those that have none so far.
    hosts: BTreeMap<Name, Arc<Limiter>>,
}

/// The disk of an export, which threads open a queue to each.
struct ExportDisk {
    exported: Arc<Exported>,
    /// Loops that have it open.
    loops: usize,
    /// The losses that the export's generation in the registry accounts for.
    losses: u64,
}

impl Admissions {
    /// Stores the pending writers. Their Connects are answered when they are served again.
    fn keep_writers(&mut self) {
        while let Some((export, writer)) = self.registry.writer_to_persist() {
            let name = self.registry.export(export).name;
            let result = (self.remember_writer)(name, writer);
            self.registry.writer_persisted(
                export,
                writer,
                result.as_ref().map(drop).map_err(String::as_str),
            );
        }
    }

    /// Wakes the links that have to close channels, or to ask them for a sign of life.
    fn call(&self) {
        for link in self.registry.called_links() {
            self.callers[link].called.store(true, Ordering::Relaxed);
            self.callers[link].doorbell.ring();
        }
    }

    /// Wakes all links: requests that wait at a limit may go on.
    fn wake(&self) {
        self.callers.iter().for_each(|caller| caller.doorbell.ring());
    }

    /// Records that the last writer of an export is unknown.
    fn forget_writer(&mut self, export: ExportKey, nobody: Writer) {
        self.registry.restore_last_writer(export, Some(nobody));
        let name = self.registry.export(export).name;
        if let Err(error) = (self.remember_writer)(name, nobody) {
            tracing::error!(%error, "cannot record that the last writer is unknown");
        }
    }

    /// Gives an export a new generation if it has lost more than the present one accounts for. A
    /// caller that has counted fewer losses than another gets the newest one.
    fn renew(&mut self, export: ExportKey, losses: u64) -> Uuid {
        let has_cache = self.registry.export(export).geometry.write_cache;
        self.renew_after(export, losses, if has_cache { Loss::Cache } else { Loss::Content })
    }

    fn renew_after(&mut self, export: ExportKey, losses: u64, loss: Loss) -> Uuid {
        let known = &mut self.disks[export].losses;
        if *known < losses {
            *known = losses;
            let name = self.registry.export(export).name;
            self.registry.renew(export, (self.renew_generation)(name, loss));
        }
        self.registry.export(export).generation
    }

    /// All exports, with their disks.
    fn all(&self) -> Vec<(ExportKey, Arc<Exported>)> {
        self.disks.iter().map(|(key, disk)| (key, Arc::clone(&disk.exported))).collect()
    }

    /// Erases the removed exports of which nothing is left: no channel, and no queue to the disk.
    fn erase_removed<R: Rules>(&mut self) {
        let Self { registry, disks, .. } = self;
        let is_open = |disk: &ExportDisk| disk.loops > 0 && R::keeps(Rule::DrainBeforeRemoved);
        disks.retain(|key, disk| is_open(disk) || !registry.erase_export::<R>(key));
    }

    /// Gives each export a new generation that has lost more than the present one accounts for.
    fn renew_all(&mut self) {
        let lost = |(key, disk): (ExportKey, &ExportDisk)| {
            let losses = disk.exported.losses();
            (losses > disk.losses).then_some((key, losses))
        };
        let lost: Vec<_> = self.disks.iter().filter_map(lost).collect();
        for (export, losses) in lost {
            self.renew(export, losses);
        }
    }
}

/// The part of a link's loop that other threads use, in cache lines of its own.
#[repr(align(128))]
pub(super) struct LoopWaker {
    pub(super) doorbell: Doorbell,
    /// Whether the registry names channels of this loop to close, or to ask for a sign of life.
    /// Changes only under the registry's lock, so that a loop without such channels need not take
    /// it.
    called: AtomicBool,
}

impl LoopWaker {
    fn new() -> io::Result<Self> {
        Ok(Self { doorbell: Doorbell::new()?, called: AtomicBool::new(false) })
    }

    /// The registry's lock protects the data behind the flag, so the flag needs no ordering.
    pub(super) fn is_called(&self) -> bool {
        self.called.load(Ordering::Relaxed)
    }
}

impl Exports {
    /// The exports of a target with that many threads, and what keeps its records.
    ///
    /// # Errors
    /// The system's error when an eventfd cannot be created; `AlreadyExists` if two exports have
    /// one name or UUID.
    pub fn new(
        target: TargetConfig,
        exports: Vec<TargetExport>,
        (remember_writer, renew_generation): (RememberWriter, RenewGeneration),
        (threads, now): (usize, Instant),
    ) -> io::Result<Self> {
        let callers = (0..threads).map(|_| Ok(Arc::new(LoopWaker::new()?)));
        let callers = callers.collect::<io::Result<_>>()?;
        let (registry, disks) = (Registry::new(target), SecondaryMap::new());
        let (vacant, hosts) = (Vec::new(), BTreeMap::new());
        let admissions = Admissions {
            registry,
            disks,
            remember_writer,
            renew_generation,
            callers,
            vacant,
            hosts,
        };
        let this = Self { admissions: Mutex::new(admissions), closed: Condvar::new() };
        for export in exports {
            this.add(now, export)
                .map_err(|taken| io::Error::new(ErrorKind::AlreadyExists, taken))?;
        }
        Ok(this)
    }

    /// Adds an export.
    ///
    /// # Errors
    /// As [`Registry::add_export`].
    pub fn add(&self, now: Instant, export: TargetExport) -> Result<ExportKey, ExportTaken> {
        let Admissions { registry, disks, .. } = &mut *self.lock();
        let key = registry.add_export(now, export.config())?;
        registry.restore_last_writer(key, export.last_writer);
        registry.set_allowed(key, export.allowed);
        if let Some(why) = &export.offline {
            registry.take_offline(key, why);
        }
        let exported = Arc::new(Exported::new(export.name.to_string(), export.store));
        let losses = exported.losses();
        disks.insert(key, ExportDisk { exported, loops: 0, losses });
        Ok(key)
    }

    /// Removes an export, and has its channels closed: see [`Registry::remove_export`]. `None` if
    /// there is no such export, or it was removed before.
    pub fn remove<R: Rules>(self: &Arc<Self>, export: ExportKey) -> Option<Removal> {
        let mut admissions = self.lock();
        admissions.registry.exports().find(|(key, _)| *key == export)?;
        let exported = Arc::clone(&admissions.disks[export].exported);
        let sessions = admissions.registry.remove_export(export);
        admissions.erase_removed::<R>();
        admissions.call();
        drop(admissions);
        Some(Removal { exports: Arc::clone(self), export, exported, sessions })
    }

    /// Gives an export another name, which `keep` has on stable storage: no host is let in
    /// meanwhile. From then on its records are written by that name. Returns what `keep` does; if
    /// that is an error, nothing has changed.
    ///
    /// # Errors
    /// As [`Registry::check_rename`].
    pub fn rename<E>(
        &self,
        (export, name): (ExportKey, Name),
        now: Instant,
        keep: impl FnOnce() -> Result<(), E>,
    ) -> Result<Result<(), E>, RenameRefused> {
        let Admissions { registry, disks, .. } = &mut *self.lock();
        registry.check_rename(export, name)?;
        let kept = keep();
        if kept.is_ok() {
            registry.rename(now, export, name);
            disks[export].exported.rename(name.as_str());
        }
        Ok(kept)
    }

    /// Makes room for one more thread; returns its index.
    ///
    /// # Errors
    /// The system's error when an eventfd cannot be created.
    pub(super) fn add_thread(&self) -> io::Result<(usize, Arc<LoopWaker>)> {
        let caller = Arc::new(LoopWaker::new()?);
        let Admissions { callers, vacant, .. } = &mut *self.lock();
        if let Some(index) = vacant.pop() {
            callers[index] = Arc::clone(&caller);
            return Ok((index, caller));
        }
        callers.push(Arc::clone(&caller));
        Ok((callers.len() - 1, caller))
    }

    /// Gives the index of a thread to others, which has ended and has no channels.
    pub(super) fn release_thread(&self, index: usize) {
        let Admissions { registry, vacant, .. } = &mut *self.lock();
        let sessions = registry.exports().flat_map(|(key, _)| registry.sessions(key));
        let mut channels = sessions.flat_map(SessionInfo::channels);
        debug_assert!(channels.all(|(channel, _)| channel.link != index), "it has a channel");
        vacant.push(index);
    }

    /// See [`Target::bring_online`](super::Target::bring_online).
    pub(super) fn bring_online(&self, export: ExportKey, arrival: Arrival) {
        let Admissions { registry, disks, .. } = &mut *self.lock();
        let Some(disk) = disks.get_mut(export) else { return };
        disk.losses = disk.exported.losses();
        let Arrival { uuid, generation, last_writer } = arrival;
        let geometry = disk.exported.store().geometry();
        let before = registry.export(export).clone();
        let config = ExportConfig { uuid, generation, geometry, ..before };
        registry.bring_online(export, config, last_writer);
        self.closed.notify_all();
    }

    /// Sets the limit of the requests of all hosts at an export, if there is such an export.
    pub fn set_limit(&self, export: ExportKey, limit: RateLimit) {
        let admissions = self.lock();
        if let Some(disk) = admissions.disks.get(export) {
            disk.exported.limiter().set(limit);
            admissions.wake();
        }
    }

    /// Sets the limits of hosts by name, each for all exports together. Hosts that are not named
    /// have none.
    pub fn set_host_limits(&self, limits: &BTreeMap<Name, RateLimit>) {
        let mut admissions = self.lock();
        for name in limits.keys() {
            admissions.hosts.entry(*name).or_default();
        }
        for (name, limiter) in &admissions.hosts {
            limiter.set(limits.get(name).copied().unwrap_or_default());
        }
        admissions.wake();
    }

    /// The limits of a host at an export.
    ///
    /// # Panics
    /// If there is no such export: one that has channels is there.
    pub(super) fn limits(&self, export: ExportKey, host: HostId) -> Limits {
        let Admissions { disks, hosts, .. } = &mut *self.lock();
        let limiter = match host {
            HostId::Name(name) => Some(Arc::clone(hosts.entry(name).or_default())),
            HostId::Uuid(_) => None,
        };
        Limits::new(Arc::clone(disks[export].exported.limiter()), limiter)
    }

    /// The registry of sessions, locked.
    pub fn registry(&self) -> impl Deref<Target = Registry> {
        Locked(self.lock())
    }

    /// As [`Registry::set_access`].
    pub fn set_access(
        &self,
        access: Access,
        allowed: Vec<(ExportKey, Allowed)>,
    ) -> Vec<SessionInfo> {
        let mut admissions = self.lock();
        let closed = admissions.registry.set_access(access, allowed);
        admissions.call();
        closed
    }

    /// As [`Registry::set_allowed`].
    pub fn set_allowed(&self, export: ExportKey, allowed: Allowed) -> Vec<SessionInfo> {
        let mut admissions = self.lock();
        let closed = admissions.registry.set_allowed(export, allowed);
        admissions.call();
        closed
    }

    /// The disk of an export, if there is such an export.
    pub(super) fn exported(&self, export: ExportKey) -> Option<Arc<Exported>> {
        self.lock().disks.get(export).map(|disk| Arc::clone(&disk.exported))
    }

    /// All exports, with their disks.
    pub(super) fn all(&self) -> Vec<(ExportKey, Arc<Exported>)> {
        self.lock().all()
    }

    /// Enlarges an export to `size` bytes, or to the present size of its file or device. Returns
    /// the size in bytes. May wait for a disk. `notify` tells the hosts of all threads if it is
    /// another than before. `None` if there is no such export any more.
    ///
    /// # Errors
    /// The error of its store.
    pub fn resize(
        &self,
        export: ExportKey,
        size: Option<u64>,
        notify: impl FnOnce(Event),
    ) -> Result<Option<u64>, ResizeError> {
        let Some(exported) = self.exported(export) else { return Ok(None) };
        exported.store().resize(size)?;
        let Admissions { registry, disks, .. } = &mut *self.lock();
        if !disks.contains_key(export) {
            return Ok(None);
        }
        // Read with the lock held: of two concurrent resizes, hosts are told the larger size last.
        let size = exported.store().geometry().size;
        if registry.export(export).geometry.size != size {
            registry.resize(export, size);
            notify(Event::Resized(size));
        }
        Ok(Some(size))
    }

    /// Opens the disk of an export for a loop, which gives it up by
    /// [`close_disk`](Self::close_disk).
    ///
    /// # Panics
    /// If there is no such export: one that has channels is there.
    pub(super) fn open_disk(&self, export: ExportKey) -> Disk {
        let disk = &mut self.lock().disks[export];
        disk.loops += 1;
        Disk::new(Arc::clone(&disk.exported))
    }

    /// Notes that a loop has dropped its access to the disk of an export.
    pub(super) fn close_disk<R: Rules>(&self, export: ExportKey) {
        let mut admissions = self.lock();
        if let Some(disk) = admissions.disks.get_mut(export) {
            disk.loops -= 1;
        }
        // A loss that is not accounted for would be forgotten with the export.
        admissions.renew_all();
        admissions.erase_removed::<R>();
        self.closed.notify_all();
    }

    /// The generation of an export that accounts for this many losses. It is on stable storage.
    pub(super) fn generation(&self, export: ExportKey, losses: u64) -> Uuid {
        self.lock().renew(export, losses)
    }

    /// See [`Target::distrust`](super::Target::distrust).
    pub(super) fn distrust(&self, nobody: Writer) {
        let mut admissions = self.lock();
        for (export, exported) in admissions.all() {
            // Under the lock: whoever counts this one finds the generation renewed.
            exported.distrust();
            admissions.forget_writer(export, nobody);
            admissions.renew_after(export, exported.losses(), Loss::Content);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Admissions> {
        self.admissions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller of a thread.
    pub(super) fn caller(&self, thread: usize) -> Arc<LoopWaker> {
        Arc::clone(&self.lock().callers[thread])
    }

    /// Lets a link's loop `serve` with the registry: channels to close, and hosts that ask for
    /// admission. Stores the writers, and calls the links that have to act for others. No session
    /// is admitted with a generation that does not account for a loss. `visited` gets the sessions
    /// that have come or gone.
    pub(super) fn admit<R: Rules>(
        &self,
        link: usize,
        serve: impl FnOnce(&mut Registry),
        mut visited: impl FnMut(Visit),
    ) {
        let mut admissions = self.lock();
        admissions.renew_all();
        admissions.callers[link].called.store(false, Ordering::Relaxed);
        serve(&mut admissions.registry);
        admissions.erase_removed::<R>();
        admissions.keep_writers();
        while let Some(visit) = admissions.registry.poll_visit() {
            visited(visit);
        }
        self.closed.notify_all();
        // Possibly this link: the registry returns a few channels at a time.
        admissions.call();
    }
}

/// The departure of a host from an export. It keeps neither the target nor its links running.
pub struct Departure {
    exports: Arc<Exports>,
    export: ExportKey,
    host: Option<HostId>,
}

impl Departure {
    pub(super) fn new(exports: Arc<Exports>, export: ExportKey, host: Option<HostId>) -> Self {
        Self { exports, export, host }
    }

    /// Waits until nothing of the host is left: none of its channels is open, and none of its
    /// requests is with the disk.
    ///
    /// # Errors
    /// The remains of the host after `limit`.
    pub fn wait(&self, limit: Duration) -> Result<(), Remains> {
        let Self { exports, export, host } = self;
        let is_there = |it: &mut Admissions| match host {
            Some(host) => !it.registry.is_drained::<AllRules>(*export, *host),
            None => it.registry.why_offline(*export).is_some(),
        };
        let waited = exports.closed.wait_timeout_while(exports.lock(), limit, is_there);
        let (admissions, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if !waited.timed_out() {
            return Ok(());
        }
        let why = admissions.registry.why_offline(*export);
        Err(why.map_or(Remains::Requests, |why| Remains::Unknown(why.to_owned())))
    }
}

/// An export that was removed, until nothing of it is left. It keeps its store open, and neither
/// the target nor its links running.
pub struct Removal {
    exports: Arc<Exports>,
    export: ExportKey,
    exported: Arc<Exported>,
    sessions: Vec<SessionInfo>,
}

impl Removal {
    /// The sessions that end with it.
    pub fn sessions(&self) -> &[SessionInfo] {
        &self.sessions
    }

    /// Whether nothing of it is left.
    pub fn is_over(&self) -> bool {
        !self.exports.lock().disks.contains_key(self.export)
    }

    /// Waits until nothing of the export is left: none of its channels is open, and none of its
    /// requests is with the disk. Then another export may have its name, and its disk. Returns the
    /// store, which nobody else of this target uses any more.
    ///
    /// # Errors
    /// If requests are still with the disk after `limit`.
    pub fn wait(&self, limit: Duration) -> Result<Arc<dyn Store>, Remains> {
        let Self { exports, export, exported, .. } = self;
        let is_there = |it: &mut Admissions| it.disks.contains_key(*export);
        let waited = exports.closed.wait_timeout_while(exports.lock(), limit, is_there);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            return Err(Remains::Requests);
        }
        Ok(Arc::clone(exported.store()))
    }
}

/// The remains of a host that was kept out, or of an export that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Requests with the disk.
    Requests,
    /// The export is offline, for this reason: what a former process of the target has given to
    /// its disk is not known.
    Unknown(String),
}

/// See [`Exports::registry`].
struct Locked<'a>(MutexGuard<'a, Admissions>);

impl Deref for Locked<'_> {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.0.registry
    }
}

#[cfg(test)]
mod tests {
    use tyche_proto::BatchPolicy;
    use tyche_proto::wire::{Geometry, Name};
    use tyche_store::null::NullStore;

    use super::*;

    fn admissions() -> (Admissions, ExportKey) {
        let name = Name::new("a").expect("a name");
        let mut registry = Registry::new(TargetConfig {
            uuid: Uuid::nil(),
            name,
            queue_size_max: 1,
            damq_pages_max: 256,
            memory_pages: 4096,
            batch: BatchPolicy::default(),
        });
        let config = ExportConfig {
            name,
            uuid: Uuid::nil(),
            generation: Uuid::nil(),
            geometry: Geometry { write_cache: true, ..Geometry::new(512, 512) },
            shared: false,
        };
        let export = registry.add_export(Instant(0), config).expect("the first");
        let mut generations = 0;
        let store = Arc::new(NullStore::new(512, 512).expect("a size"));
        let exported = Arc::new(Exported::new("a".to_owned(), store));
        let mut disks = SecondaryMap::new();
        disks.insert(export, ExportDisk { exported, loops: 0, losses: 0 });
        let admissions = Admissions {
            registry,
            disks,
            remember_writer: Box::new(|_, _| Ok(())),
            renew_generation: Box::new(move |_, loss| {
                assert_eq!(loss, Loss::Cache);
                generations += 1;
                Uuid::from_u128(generations)
            }),
            callers: Vec::new(),
            vacant: Vec::new(),
            hosts: BTreeMap::new(),
        };
        (admissions, export)
    }

    #[test]
    fn a_loss_has_one_generation_in_whatever_order_threads_learn_of_it() {
        let (mut admissions, export) = admissions();
        let mut renew = |losses| admissions.renew(export, losses).as_u128();
        assert_eq!(renew(0), 0);
        assert_eq!(renew(2), 1);
        assert_eq!(renew(1), 1, "late, and known");
        assert_eq!(renew(2), 1);
        assert_eq!(renew(3), 2);
        assert_eq!(admissions.registry.export(export).generation, Uuid::from_u128(2));
    }
}
