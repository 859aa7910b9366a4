//! A session that runs, of whichever protocol.

use std::any::Any;
use std::sync::Arc;

use tyche_block::Disk;
use tyche_proto::NextKey;
use tyche_wake::MakePoller;

use crate::{HostLink, HostReport, LinkChangeError};

/// A running session. Dropping it aborts the session.
pub struct Remote {
    disk: Arc<dyn Disk>,
    control: Arc<dyn Control>,
    /// The threads of the session and the name of its port: dropping them ends it.
    _threads: Box<dyn Any + Send + Sync>,
}

/// Controls a session from any thread.
pub trait Control: Send + Sync {
    /// Number of queues.
    fn queues(&self) -> usize;

    /// Ends the session and tells the target. The notice that it is closed follows.
    fn disconnect(&self);

    /// Aborts the session: all requests in progress fail within 250 ms. The target is told, and its
    /// confirmation is not waited for any longer. The notice that it is closed follows.
    fn abort(&self);

    /// Has a session that takes over a device fail requests at once, as its predecessor did, until
    /// the target is back. Sessions that can't take requests before they are connected do not.
    fn fail_until_connected(&self) {}

    /// Has the session know its target by the next key, if it knows it by the former one.
    fn know_by(&self, said: &NextKey) {
        let _ = said;
    }

    /// Adds a poller to the thread of a queue. It is polled until it ends, even after the end of
    /// the session.
    ///
    /// # Panics
    /// If there is no such queue.
    fn adopt(&self, queue: usize, make: MakePoller);

    /// Reports the state of the session; `None` if it has ended or does not answer within a second.
    /// The notices of what it says come before it.
    fn report(&self) -> Option<HostReport>;

    /// Changes its links; `None` if it has one for good.
    fn links(&self) -> Option<&dyn LinkControl>;
}

/// Changes the links of a session.
pub trait LinkControl {
    /// Adds a link, with a socket for each queue.
    ///
    /// # Errors
    /// `InUse` or `Gone`.
    ///
    /// # Panics
    /// Unless there are as many `links` as queues.
    fn add(&self, links: Vec<HostLink>) -> Result<(), LinkChangeError>;

    /// Removes a link; requests use the others.
    ///
    /// # Errors
    /// `Unknown`, `Last` or `Gone`.
    fn remove(&self, name: &str) -> Result<(), LinkChangeError>;
}

impl Remote {
    /// The session with that disk, which runs until `threads` are dropped.
    pub fn new(
        disk: Arc<dyn Disk>,
        control: impl Control + 'static,
        threads: impl Any + Send + Sync,
    ) -> Self {
        Self { disk, control: Arc::new(control), _threads: Box::new(threads) }
    }

    /// The same session with a wrapper around its disk.
    ///
    /// # Errors
    /// Those of `wrap`.
    pub fn try_with_disk<E>(
        self,
        wrap: impl FnOnce(Arc<dyn Disk>) -> Result<Arc<dyn Disk>, E>,
    ) -> Result<Self, E> {
        Ok(Self { disk: wrap(self.disk)?, ..self })
    }

    /// The disk. Its geometry is known after the first notice that it is connected.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// A handle for other threads.
    pub fn control(&self) -> &Arc<dyn Control> {
        &self.control
    }
}
