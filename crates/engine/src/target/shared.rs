//! State shared by the threads of a target: admission, and the doorbells between them.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tyche_proto::wire::Uuid;
use tyche_proto::{Loss, Registry, Writer};
use tyche_wake::Doorbell;

use super::exported::Exported;
use super::{RememberWriter, RenewGeneration};

/// See the module.
pub(super) struct Shared {
    admissions: Mutex<Admissions>,
    /// By index.
    exports: Vec<Arc<Exported>>,
    /// Number of calls of [`distrust`](Self::distrust).
    distrusts: AtomicU64,
    /// By thread.
    callers: Box<[Caller]>,
}

/// Admission of sessions: used in handshakes only.
pub(super) struct Admissions {
    pub(super) registry: Registry,
    pub(super) remember_writer: RememberWriter,
    pub(super) renew_generation: RenewGeneration,
    /// The losses that the registry's generations account for, by export.
    pub(super) losses: Vec<u64>,
}

impl Admissions {
    /// Stores the pending writers. Their Connects are answered when they are served again.
    fn keep_writers(&mut self) {
        while let Some((export, writer)) = self.registry.unkept() {
            let result = (self.remember_writer)(export, writer);
            self.registry.kept(export, writer, result.as_ref().map(drop).map_err(String::as_str));
        }
    }

    /// Records that the last writer of an export is unknown.
    fn forget_writer(&mut self, export: usize, nobody: Writer) {
        self.registry.restore_last_writer(export, Some(nobody));
        if let Err(error) = (self.remember_writer)(export, nobody) {
            tracing::error!(%error, "cannot record that the last writer is unknown");
        }
    }

    /// Gives an export a new generation if it has lost more than the present one accounts for. A
    /// caller that has counted fewer losses than another gets the newest one.
    fn renew(&mut self, export: usize, losses: u64) -> Uuid {
        let has_cache = self.registry.export(export).write_cache;
        self.renew_after(export, losses, if has_cache { Loss::Cache } else { Loss::Content })
    }

    fn renew_after(&mut self, export: usize, losses: u64, loss: Loss) -> Uuid {
        if self.losses[export] < losses {
            self.losses[export] = losses;
            self.registry.renew(export, (self.renew_generation)(export, loss));
        }
        self.registry.export(export).boot
    }
}

/// The part of a link's loop that other threads use, in cache lines of its own.
#[repr(align(128))]
pub(super) struct Caller {
    pub(super) doorbell: Doorbell,
    /// Whether the registry names channels of this loop to close, or to ask for a sign of life.
    /// Changes only under the registry's lock, so that a loop without such channels need not take
    /// it.
    called: AtomicBool,
}

impl Caller {
    fn new() -> io::Result<Self> {
        Ok(Self { doorbell: Doorbell::new()?, called: AtomicBool::new(false) })
    }

    /// The registry's lock protects the data behind the flag, so the flag needs no ordering.
    pub(super) fn is_called(&self) -> bool {
        self.called.load(Ordering::Relaxed)
    }
}

impl Shared {
    pub(super) fn new(
        admissions: Admissions,
        exports: Vec<Arc<Exported>>,
        links: usize,
    ) -> io::Result<Self> {
        let callers = (0..links).map(|_| Caller::new()).collect::<io::Result<_>>()?;
        let (admissions, distrusts) = (Mutex::new(admissions), AtomicU64::new(0));
        Ok(Self { admissions, exports, distrusts, callers })
    }

    /// How often completed writes of an export may have been lost.
    pub(super) fn losses(&self, export: usize) -> u64 {
        self.exports[export].store.losses() + self.distrusts.load(Ordering::Acquire)
    }

    /// The generation of an export that accounts for this many losses. It is on stable storage.
    pub(super) fn generation(&self, export: usize, losses: u64) -> Uuid {
        self.lock().renew(export, losses)
    }

    /// See [`Target::distrust`](super::Target::distrust).
    pub(super) fn distrust(&self, nobody: Writer) {
        let mut admissions = self.lock();
        // Under the lock: whoever counts this one finds the generation renewed.
        self.distrusts.fetch_add(1, Ordering::AcqRel);
        for export in 0..self.exports.len() {
            admissions.forget_writer(export, nobody);
            admissions.renew_after(export, self.losses(export), Loss::Content);
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Admissions> {
        self.admissions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn caller(&self, link: usize) -> &Caller {
        &self.callers[link]
    }

    /// Lets a link's loop `serve` with the registry: channels to close, and hosts that ask for
    /// admission. Stores the writers, and calls the links that have to act for others. No session
    /// is admitted with a generation that does not account for a loss.
    pub(super) fn admit(&self, link: usize, serve: impl FnOnce(&mut Registry)) {
        let mut admissions = self.lock();
        for export in 0..self.exports.len() {
            admissions.renew(export, self.losses(export));
        }
        self.callers[link].called.store(false, Ordering::Relaxed);
        serve(&mut admissions.registry);
        admissions.keep_writers();
        // Possibly this link: the registry returns a few channels at a time.
        for link in admissions.registry.called_links() {
            self.callers[link].called.store(true, Ordering::Relaxed);
            self.callers[link].doorbell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use tyche_proto::wire::Name;
    use tyche_proto::{BatchPolicy, ExportConfig, TargetConfig};

    use super::*;

    fn admissions() -> Admissions {
        let name = Name::new("a").expect("a name");
        let mut registry = Registry::new(TargetConfig {
            uuid: Uuid::nil(),
            name,
            queue_size_max: 1,
            damq_pages_max: 256,
            channels_max: 1,
            batch: BatchPolicy::default(),
        });
        registry.add_export(ExportConfig {
            name,
            uuid: Uuid::nil(),
            boot: Uuid::nil(),
            size: 512,
            block_size: 512,
            read_only: false,
            write_cache: true,
            discard: false,
            rotational: false,
            shared: false,
            hosts: Vec::new(),
        });
        let mut generations = 0;
        Admissions {
            registry,
            remember_writer: Box::new(|_, _| Ok(())),
            renew_generation: Box::new(move |_, loss| {
                assert_eq!(loss, Loss::Cache);
                generations += 1;
                Uuid::from_u128(generations)
            }),
            losses: vec![0],
        }
    }

    #[test]
    fn a_loss_has_one_generation_in_whatever_order_threads_learn_of_it() {
        let mut admissions = admissions();
        let mut renew = |losses| admissions.renew(0, losses).as_u128();
        assert_eq!(renew(0), 0);
        assert_eq!(renew(2), 1);
        assert_eq!(renew(1), 1, "late, and known");
        assert_eq!(renew(2), 1);
        assert_eq!(renew(3), 2);
        assert_eq!(admissions.registry.export(0).boot, Uuid::from_u128(2));
    }
}
