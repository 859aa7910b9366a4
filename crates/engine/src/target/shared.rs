//! What the threads of a target share: who is let in, and how to reach each other.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tyche_proto::{Registry, Writer};
use tyche_wake::Doorbell;

use super::RememberWriter;

/// See the module.
pub(super) struct Shared {
    admissions: Mutex<Admissions>,
    /// By link.
    callers: Box<[Caller]>,
}

/// Who is let in: asked in handshakes only.
pub(super) struct Admissions {
    pub(super) registry: Registry,
    pub(super) remember_writer: RememberWriter,
    /// What was remembered last, by export.
    pub(super) remembered: Vec<Option<Writer>>,
}

impl Admissions {
    /// Remembers who was let in since the last call.
    fn remember(&mut self) {
        for (export, remembered) in self.remembered.iter_mut().enumerate() {
            let last = self.registry.last_writer(export);
            if let Some(writer) = last.filter(|_| last != *remembered) {
                (self.remember_writer)(export, writer);
                *remembered = last;
            }
        }
    }
}

/// How other threads reach a link's loop.
pub(super) struct Caller {
    pub(super) doorbell: Doorbell,
    /// The registry names channels of this link that are to be closed. Changes only while the
    /// registry is locked, and spares the loop from locking it to see that there are none.
    displaced: AtomicBool,
}

impl Caller {
    fn new() -> io::Result<Self> {
        Ok(Self { doorbell: Doorbell::new()?, displaced: AtomicBool::new(false) })
    }

    /// What the flag stands for is behind the registry's lock, so the flag orders nothing.
    pub(super) fn is_displaced(&self) -> bool {
        self.displaced.load(Ordering::Relaxed)
    }
}

impl Shared {
    pub(super) fn new(admissions: Admissions, links: usize) -> io::Result<Self> {
        let callers = (0..links).map(|_| Caller::new()).collect::<io::Result<_>>()?;
        Ok(Self { admissions: Mutex::new(admissions), callers })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Admissions> {
        self.admissions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn caller(&self, link: usize) -> &Caller {
        &self.callers[link]
    }

    /// Lets a link's loop `serve` with the registry: its channels that are to be closed, and hosts
    /// that want in. Remembers the writers, and calls the links whose channels have to give way.
    pub(super) fn admit(&self, link: usize, serve: impl FnOnce(&mut Registry)) {
        let mut admissions = self.lock();
        self.callers[link].displaced.store(false, Ordering::Relaxed);
        serve(&mut admissions.registry);
        admissions.remember();
        // Possibly ourselves: the registry hands out a few at a time.
        for link in admissions.registry.closing_links() {
            self.callers[link].displaced.store(true, Ordering::Relaxed);
            self.callers[link].doorbell.ring();
        }
    }
}
