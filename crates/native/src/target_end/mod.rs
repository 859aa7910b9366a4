//! The target's side: disks that hosts on several links share, and one or more threads for each
//! link, which join the link, the protocol and the stores.
//!
//! ```text
//!              handshakes: Exports, behind a lock
//!             /                                 \
//! [ link <-> Exporter <-> Disk, Disk, .. ]   [ link <-> Exporter <-> Disk, Disk, .. ]
//! ```
//!
//! Requests take no lock: each thread has memory and store queues of its own.

mod channels;
mod conversion;
mod exporter;
mod exports;
mod lines;
mod links;
mod open_disks;
mod report;
mod stages;
mod thread;
mod uses;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tyche_engine::{Clock, Exported, RateLimit, placed, restore};
use tyche_link::{Except, Link, Share};
use tyche_numa::Placement;
use tyche_proto::wire::{CONNECT_COOKIE_AT, COOKIE_AT, KIND_AT, Kind, Name, Uuid};
use tyche_proto::{
    Access, AllRules, Allowed, ExportConfig, ExportKey, ExportTaken, HostId, LinkPart, Loss,
    RenameRefused, SessionInfo, TargetConfig, TargetKeys, Writer,
};
use tyche_store::{ResizeError, Store};

pub use exporter::{ChannelEvent, Exporter, ExporterEnv};
pub use exports::{Departure, Exports, Remains, Removal};
pub use links::LinkRemoval;
use links::{Answers, LinkThreads};
pub use report::{ExportReport, TargetLinkReport, TargetReport, TargetSessionReport};
pub use uses::{Use, UseCounts};

use crate::random::secrets;

/// A disk to export.
pub struct TargetExport {
    /// Its name, unique at the target.
    pub name: Name,
    /// Its identity, stable as long as it is the same disk.
    pub uuid: Uuid,
    /// Its generation: completed writes survive within one.
    pub generation: Uuid,
    /// The store of its blocks.
    pub store: Arc<dyn Store>,
    /// Whether several hosts may write at once.
    pub shared: bool,
    /// The last writer admitted before this process.
    pub last_writer: Option<Writer>,
    /// The hosts that may have it.
    pub allowed: Allowed,
    /// Why its disk is missing, if it is: hosts are refused with that until
    /// [`Target::bring_online`].
    pub offline: Option<String>,
}

impl TargetExport {
    fn config(&self) -> ExportConfig {
        ExportConfig {
            name: self.name,
            uuid: self.uuid,
            generation: self.generation,
            geometry: self.store.geometry(),
            shared: self.shared,
        }
    }
}

/// The properties of an export's disk, known once it is there.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// As [`TargetExport::uuid`].
    pub uuid: Uuid,
    /// As [`TargetExport::generation`].
    pub generation: Uuid,
    /// As [`TargetExport::last_writer`].
    pub last_writer: Option<Writer>,
}

/// Stores the last writer admitted to the export of that name, over restarts. Called before its
/// session is admitted, and may wait for a disk. If it fails, the session is refused with that
/// text, which names a remedy, in 120 bytes at most.
pub type RememberWriter = Box<dyn FnMut(Name, Writer) -> Result<(), String> + Send>;

/// Gives the export of that name a new generation after a loss and stores it durably. Called before
/// any host learns that writes may be lost, and may wait for a disk.
pub type RenewGeneration = Box<dyn FnMut(Name, Loss) -> Uuid + Send>;

/// Options to run a target with.
pub struct TargetOptions {
    /// Its identity and its limits.
    pub target: TargetConfig,
    /// The disks.
    pub exports: Vec<TargetExport>,
    /// The target's keys, if it has any: hosts with keys may connect then.
    pub keys: Option<TargetKeys>,
    /// Whether those who do not know a key get no answer.
    pub silent: bool,
    /// The hosts that may connect.
    pub access: Access,
    /// The links to serve, each by one thread, or more with `further_threads`.
    pub links: Vec<Box<dyn Link>>,
    /// For each further thread: the same links, opened once more. The threads of a link divide its
    /// channels, so the link must be able to [select](Link::select) frames.
    pub further_threads: Vec<Vec<Box<dyn Link>>>,
    /// Further ends of the links, of the same names, for questions of hosts that do not know an
    /// address: each is served by one thread, and has no channels.
    pub beacons: Vec<Box<dyn Link>>,
    /// Placement of the links' threads and memory.
    pub placement: Placement,
    /// EtherType of the frames.
    pub ethertype: u16,
    /// The longest spin before sleeping; zero: no spin.
    pub spin: Duration,
    /// Stores the last writer.
    pub remember_writer: RememberWriter,
    /// Makes a new generation when completed writes may be lost.
    pub renew_generation: RenewGeneration,
}

/// The running target. Dropping it stops it: channels are closed once the disk has finished their
/// requests.
pub struct Target {
    exports: Arc<Exports>,
    threads: Arc<LinkThreads>,
    /// The state that all threads of links share.
    common: Common,
}

/// The state that the threads of links share.
struct Common {
    /// UUID of the target.
    identity: Uuid,
    keys: Mutex<Option<TargetKeys>>,
    silent: bool,
    placement: Placement,
    ethertype: u16,
    spin: Duration,
}

impl Target {
    /// Starts the threads of each link.
    ///
    /// # Errors
    /// The system's error when a thread or an eventfd cannot be created; `Unsupported` if a link
    /// can't have several threads.
    ///
    /// # Panics
    /// If it is to be silent and has no key.
    pub fn start(options: TargetOptions) -> io::Result<Self> {
        let TargetOptions { target, exports, placement, ethertype, spin, .. } = options;
        let (keys, silent) = (options.keys, options.silent);
        if keys.is_some() {
            restore::watch_for_keys();
        }
        let records = (options.remember_writer, options.renew_generation);
        let (identity, keys) = (target.uuid, Mutex::new(keys));
        let common = Common { identity, keys, silent, placement, ethertype, spin };
        let exports =
            Arc::new(Exports::new(target, exports, records, (0, Clock::Monotonic.now()))?);
        exports.set_access(options.access, Vec::new());
        let this = Self { exports, threads: Arc::default(), common };
        this.add_links(options.links, options.further_threads, options.beacons)?;
        Ok(this)
    }

    /// Serves further links, as those of [`TargetOptions`].
    ///
    /// # Errors
    /// As [`Target::start`]; `ResourceBusy` if a [removed](Self::remove_link) link of the same name
    /// has not ended. None of the links is served then.
    pub fn add_links(
        &self,
        links: Vec<Box<dyn Link>>,
        further_threads: Vec<Vec<Box<dyn Link>>>,
        beacons: Vec<Box<dyn Link>>,
    ) -> io::Result<()> {
        let mut links = split(links, further_threads)?;
        links.extend(split(beacons, Vec::new())?);
        self.threads.check_free(links.iter().map(|(link, _)| link.name()))?;
        // Held until the threads can be told of others.
        let keys = self.keys();
        let mut threads = Vec::new();
        for (link, part) in links {
            let Common { silent, ref placement, ethertype, spin, .. } = self.common;
            let home = placed::home(placement, &*link);
            let (index, caller) = self.exports.add_thread()?;
            let (exports, keys) = (Arc::clone(&self.exports), keys.clone());
            threads.push(thread::Options {
                index,
                caller,
                link,
                part,
                ethertype,
                home,
                exports,
                spin,
                keys,
                silent,
            });
        }
        self.threads.start(threads, self.common.identity)
    }

    /// Changes the keys of a target that has any, on all links: see
    /// [`Listener::set_keys`](tyche_proto::Listener::set_keys).
    ///
    /// # Panics
    /// If the target has none.
    pub fn set_keys(&self, keys: &TargetKeys) {
        let mut current = self.keys();
        assert!(current.replace(keys.clone()).is_some(), "a target without a key");
        self.threads.set_keys(keys);
    }

    /// The keys, which stay as they are until the guard is dropped.
    fn keys(&self) -> MutexGuard<'_, Option<TargetKeys>> {
        self.common.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a link: nobody is let in over it any more, its channels are closed, and its hosts
    /// are told, so that their sessions go on over others at once. `None` if there is no such link.
    pub fn remove_link(&self, link: &str) -> Option<LinkRemoval> {
        LinkRemoval::begin(&self.threads, link)
    }

    /// Stops the target, as dropping it does.
    pub fn stop(&self) {
        self.threads.stop();
    }

    /// Reports the state of the target. The threads of a link make one report. That of a thread
    /// that does not answer says so: they are asked at the same time, and have a second. A link
    /// that was removed is reported until it has ended, and what hosts have had done over it beyond
    /// that.
    pub fn report(&self) -> TargetReport {
        let Answers { links, past, names } = self.threads.ask();
        let health = |(key, it): (_, Arc<Exported>)| (key, (it.health(), it.limiter().limit()));
        let health = self.exports.all().into_iter().map(health).collect();
        let now = Clock::Monotonic.now();
        TargetReport::new((&self.exports.registry(), now), health, (links, past), &names)
    }

    /// Adds an export. Hosts find it from now on.
    ///
    /// # Errors
    /// If another export has its name or its UUID, also one that was removed and of which something
    /// [is left](Removal::wait).
    pub fn add(&self, export: TargetExport) -> Result<ExportKey, ExportTaken> {
        self.exports.add(Clock::Monotonic.now(), export)
    }

    /// Removes an export: hosts do not find it any more, and its sessions end with
    /// [`Failure::ExportRemoved`](tyche_proto::Failure::ExportRemoved). `None` if there is no such
    /// export.
    ///
    /// Hosts of other protocols are not known here: the export is to be removed for them first.
    pub fn remove(&self, export: ExportKey) -> Option<Removal> {
        self.exports.remove::<AllRules>(export)
    }

    /// Why the disk of an export is missing; `None` if it is there.
    pub fn why_offline(&self, export: ExportKey) -> Option<String> {
        self.exports.registry().why_offline(export).map(str::to_owned)
    }

    /// As [`Registry::check_rename`](tyche_proto::Registry::check_rename).
    ///
    /// # Errors
    /// As that.
    pub fn check_rename(&self, export: ExportKey, name: Name) -> Result<(), RenameRefused> {
        self.exports.registry().check_rename(export, name)
    }

    /// Gives an export that no host has connected another name, which `keep` has on stable storage:
    /// no host is let in meanwhile, and `keep` must not wait for anything else of this target.
    /// Hosts of other protocols go on: they do not know it by its name. Returns what `keep` does;
    /// if that is an error, nothing has changed.
    ///
    /// # Errors
    /// As [`Registry::check_rename`](tyche_proto::Registry::check_rename).
    pub fn rename<E>(
        &self,
        export: ExportKey,
        name: Name,
        keep: impl FnOnce() -> Result<(), E>,
    ) -> Result<Result<(), E>, RenameRefused> {
        self.exports.rename((export, name), Clock::Monotonic.now(), keep)
    }

    /// The exports, with their disks.
    pub fn exported(&self) -> Vec<(ExportKey, Arc<Exported>)> {
        self.exports.all()
    }

    /// The disk of an export, if there is such an export.
    pub fn disk(&self, export: ExportKey) -> Option<Arc<Exported>> {
        self.exports.exported(export)
    }

    /// The export of that name, if there is one.
    pub fn export(&self, name: &str) -> Option<ExportKey> {
        let registry = self.exports.registry();
        let mut exports = registry.exports();
        exports.find_map(|(key, export)| (export.name.as_str() == name).then_some(key))
    }

    /// A function for the present generation of an export, which accounts for all losses of its
    /// store until then: for hosts of other protocols. It may wait for a disk, and does not keep
    /// the target running.
    ///
    /// # Panics
    /// If there is no such export.
    pub fn generation(&self, export: ExportKey) -> impl Fn() -> Uuid + Send + Sync + use<> {
        let exported = self.exports.exported(export).expect("the export is there");
        let exports = Arc::clone(&self.exports);
        move || exports.generation(export, exported.losses())
    }

    /// Sets the limit of the requests of all hosts at an export, those over FCoE included.
    pub fn set_limit(&self, export: ExportKey, limit: RateLimit) {
        self.exports.set_limit(export, limit);
    }

    /// Sets the limits of hosts by name, each for all exports together. Hosts that are not named
    /// have none.
    pub fn set_host_limits(&self, limits: &BTreeMap<Name, RateLimit>) {
        self.exports.set_host_limits(limits);
    }

    /// Declares that all exports may have lost writes and their last writers are unknown: the
    /// machine has gone back to an earlier state. Flushes fail until hosts connect anew, and no
    /// session that was away is admitted again for writing; `nobody` is stored as the last writer.
    pub fn distrust(&self, nobody: Writer) {
        self.exports.distrust(nobody);
    }

    /// Changes who may connect, and which hosts may have these exports, all at once. Returns the
    /// sessions that end, because they would not be let in now.
    pub fn set_access(
        &self,
        access: Access,
        allowed: Vec<(ExportKey, Allowed)>,
    ) -> Vec<SessionInfo> {
        self.exports.set_access(access, allowed)
    }

    /// Changes which hosts may have an export: see
    /// [`Registry::set_allowed`](tyche_proto::Registry::set_allowed). Returns the sessions
    /// that end.
    pub fn set_allowed(&self, export: ExportKey, allowed: Allowed) -> Vec<SessionInfo> {
        self.exports.set_allowed(export, allowed)
    }

    /// The departure of a host from an export that it may not have any more; `None`: of one of
    /// another protocol, for what a former process of the target may have left of it.
    pub fn departure(&self, export: ExportKey, host: Option<HostId>) -> Departure {
        Departure::new(Arc::clone(&self.exports), export, host)
    }

    /// Enlarges an export to `size` bytes, or to the present size of its file or device, and tells
    /// the hosts. Returns the size in bytes; `None` if there is no such export any more. May wait
    /// for a disk.
    ///
    /// # Errors
    /// The error of its store.
    pub fn resize(&self, export: ExportKey, size: Option<u64>) -> Result<Option<u64>, ResizeError> {
        self.exports.resize(export, size, |event| self.threads.notify(export, event))
    }

    /// Brings an export that is offline online: its disk has arrived at its store. Its name, its
    /// store and who may have it stay.
    ///
    /// # Panics
    /// If it is not offline.
    pub fn bring_online(&self, export: ExportKey, arrival: Arrival) {
        self.exports.bring_online(export, arrival);
    }
}

/// The links with their parts, by thread.
fn split(
    links: Vec<Box<dyn Link>>,
    further: Vec<Vec<Box<dyn Link>>>,
) -> io::Result<Vec<(Box<dyn Link>, LinkPart)>> {
    let of = u8::try_from(1 + further.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut random = secrets();
    let parts: Vec<Vec<_>> =
        links.iter().map(|_| LinkPart::all(of, &mut *random).collect()).collect();
    let mut all = Vec::new();
    for (thread, links) in std::iter::once(links).chain(further).enumerate() {
        for (mut link, parts) in links.into_iter().zip(&parts) {
            let part = parts[thread];
            let share = Share {
                index: part.index(),
                of,
                at: COOKIE_AT,
                except: Some(Except {
                    at: KIND_AT,
                    mask: u8::MAX,
                    value: Kind::Connect as u8,
                    by: Some(CONNECT_COOKIE_AT),
                }),
            };
            if of > 1 && !link.select(share) {
                let message = format!("link {} can't have several threads", link.name());
                return Err(io::Error::new(io::ErrorKind::Unsupported, message));
            }
            all.push((link, part));
        }
    }
    Ok(all)
}

impl Drop for Target {
    fn drop(&mut self) {
        self.stop();
    }
}
