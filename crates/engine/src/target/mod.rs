//! The target's side: disks that hosts on several links share, and a thread for each link that
//! joins the link, the protocol and the stores.
//!
//! ```text
//!              handshakes: Shared, behind a lock
//!             /                                 \
//! [ link <-> Listener <-> Disk, Disk, .. ]   [ link <-> Listener <-> Disk, Disk, .. ]
//! ```
//!
//! Requests meet no lock: each thread has memory and store queues of its own.

mod channels;
mod disk;
mod exported;
mod report;
mod shared;
mod thread;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tyche_block::Geometry;
use tyche_link::Link;
use tyche_numa::Placement;
use tyche_proto::wire::{Event, Name, Uuid};
use tyche_proto::{ExportConfig, Registry, TargetConfig, Writer};
use tyche_store::{ResizeError, Store};

use exported::Exported;
pub use report::{ExportReport, SessionReport, TargetLinkReport, TargetReport};
use shared::{Admissions, Shared};
use thread::{LinkThread, Site};

use crate::placed;

/// A disk to export.
pub struct TargetExport {
    /// Its name, unique at the target.
    pub name: Name,
    /// Its identity, the same as long as it is the same disk.
    pub uuid: Uuid,
    /// Names the time in which its completed writes survive.
    pub generation: Uuid,
    /// Its blocks.
    pub store: Arc<dyn Store>,
    /// Several hosts may write at once.
    pub shared: bool,
    /// The hosts that may connect; empty: all.
    pub hosts: Vec<Uuid>,
    /// Who was last let in for writing, before this process.
    pub last_writer: Option<Writer>,
}

impl TargetExport {
    fn config(&self) -> ExportConfig {
        let Geometry { size, block_size, read_only, write_cache, discard, rotational } =
            self.store.geometry();
        ExportConfig {
            name: self.name,
            uuid: self.uuid,
            boot: self.generation,
            size,
            block_size,
            read_only,
            write_cache,
            discard,
            rotational,
            shared: self.shared,
            hosts: self.hosts.clone(),
        }
    }
}

/// Keeps, over restarts, who was last let in to write an export (by index). Called before that
/// session is let in, and may wait for a disk. If it fails, the session is refused with that text,
/// which says what to do, in 120 bytes at most.
pub type RememberWriter = Box<dyn FnMut(usize, Writer) -> Result<(), String> + Send>;

/// Gives an export (by index) another generation, which outlives the process from then on. Called
/// before any host learns that writes may be lost, and may wait for a disk.
pub type RenewGeneration = Box<dyn FnMut(usize) -> Uuid + Send>;

/// How to run a target.
pub struct TargetOptions {
    /// Who it is, and its limits.
    pub target: TargetConfig,
    /// The disks.
    pub exports: Vec<TargetExport>,
    /// The links to serve, each by a thread of its own.
    pub links: Vec<Box<dyn Link>>,
    /// What belongs to a link is placed near it, as far as this says.
    pub placement: Placement,
    /// EtherType of the frames.
    pub ethertype: u16,
    /// The longest time to spin before sleeping; zero: never.
    pub spin: Duration,
    /// Keeps who wrote last.
    pub remember_writer: RememberWriter,
    /// Makes another generation when completed writes may be lost.
    pub renew_generation: RenewGeneration,
}

/// The running target. Dropping it stops it: channels are closed once their requests are back
/// from the disk.
pub struct Target {
    shared: Arc<Shared>,
    exports: Vec<Arc<Exported>>,
    threads: Vec<LinkThread>,
}

impl Target {
    /// Starts a thread for each link.
    ///
    /// # Errors
    /// What the system says when there is no thread or no eventfd to be had.
    pub fn start(options: TargetOptions) -> io::Result<Self> {
        let TargetOptions { target, exports, links, placement, ethertype, spin, .. } = options;
        let (remember_writer, renew_generation) =
            (options.remember_writer, options.renew_generation);
        let identity = target.uuid;
        let mut registry = Registry::new(target);
        let mut exported = Vec::new();
        for export in exports {
            let index = registry.add_export(export.config());
            registry.restore_last_writer(index, export.last_writer);
            exported.push(Arc::new(Exported::new(export.name, export.store)));
        }
        let losses = exported.iter().map(|export| export.store.losses()).collect();
        let admissions = Admissions { registry, remember_writer, renew_generation, losses };
        let shared = Arc::new(Shared::new(admissions, exported.clone(), links.len())?);
        let threads = links.into_iter().enumerate().map(|(index, link)| {
            let home = placed::home(&placement, &*link);
            let (exports, shared) = (exported.clone(), Arc::clone(&shared));
            let site = Site { index, link, ethertype, home, exports, spin, shared };
            LinkThread::start(site, identity)
        });
        let threads = threads.collect::<io::Result<_>>()?;
        Ok(Self { shared, exports: exported, threads })
    }

    /// What the target is doing. Links whose thread does not answer within a second are left out.
    pub fn report(&self) -> TargetReport {
        let links = self.threads.iter().filter_map(LinkThread::report).collect();
        let health = self.exports.iter().map(|export| export.health()).collect();
        TargetReport::new(&self.shared.lock().registry, health, links)
    }

    /// All exports may have lost anything, and who wrote last is not known any more: the machine
    /// has gone back to an earlier state. Flushes fail until hosts connect anew, and no session
    /// that was away is let in again to write; `nobody` is what is kept as the last writer.
    pub fn distrust(&self, nobody: Writer) {
        self.shared.distrust(nobody);
    }

    /// Makes an export `size` bytes large, or as large as what it is kept in has become, and tells
    /// the hosts. Returns the size in bytes. May wait for a disk.
    ///
    /// # Errors
    /// What its store says.
    ///
    /// # Panics
    /// If there is no such export.
    pub fn resize(&self, export: usize, size: Option<u64>) -> Result<u64, ResizeError> {
        let store = &self.exports[export].store;
        store.resize(size)?;
        let registry = &mut self.shared.lock().registry;
        // Asked behind the lock: of two that resize at the same time, the hosts are told the larger
        // size last.
        let size = store.geometry().size;
        if registry.export(export).size != size {
            registry.resize(export, size);
            for thread in &self.threads {
                thread.notify(export, Event::Resized(size));
            }
        }
        Ok(size)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        for thread in &self.threads {
            thread.stop();
        }
        self.threads.drain(..).for_each(LinkThread::join);
    }
}
