//! What the threads of a target share: who is let in, and how to reach each other.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tyche_proto::Registry;
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
}

impl Admissions {
    /// Keeps the writers that wait for it: their hosts are answered when they are served again.
    fn keep_writers(&mut self) {
        while let Some((export, writer)) = self.registry.unkept() {
            let result = (self.remember_writer)(export, writer);
            if let Err(reason) = &result {
                tracing::error!(%reason, "a host that wants to write is refused");
            }
            self.registry.kept(export, writer, result.as_ref().map(drop).map_err(String::as_str));
        }
    }
}

/// How other threads reach a link's loop.
pub(super) struct Caller {
    pub(super) doorbell: Doorbell,
    /// The registry names channels of this link that are to be closed, or to show that they live.
    /// Changes only while the registry is locked, and spares the loop from locking it to see that
    /// there are none.
    called: AtomicBool,
}

impl Caller {
    fn new() -> io::Result<Self> {
        Ok(Self { doorbell: Doorbell::new()?, called: AtomicBool::new(false) })
    }

    /// What the flag stands for is behind the registry's lock, so the flag orders nothing.
    pub(super) fn is_called(&self) -> bool {
        self.called.load(Ordering::Relaxed)
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
    /// that want in. Keeps the writers, and calls the links that have something to do for others.
    pub(super) fn admit(&self, link: usize, serve: impl FnOnce(&mut Registry)) {
        let mut admissions = self.lock();
        self.callers[link].called.store(false, Ordering::Relaxed);
        serve(&mut admissions.registry);
        admissions.keep_writers();
        // Possibly ourselves: the registry hands out a few at a time.
        for link in admissions.registry.called_links() {
            self.callers[link].called.store(true, Ordering::Relaxed);
            self.callers[link].doorbell.ring();
        }
    }
}
