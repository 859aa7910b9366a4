//! A session of either protocol that has threads of its own.

use std::sync::Arc;

use tyche_block::Disk;
use tyche_fcoe::{FcoeControl, FcoeHost, Obstacle};
use tyche_native::{Host, HostControl};
use tyche_remote::{HostLink, HostReport, LinkError};
use tyche_wake::MakePoller;

use crate::fcoe::PortName;

/// A running session. Dropping it aborts the session.
pub struct Remote {
    /// The session, by its protocol.
    pub host: RemoteHost,
    disk: Arc<dyn Disk>,
}

/// The threads of a session.
pub enum RemoteHost {
    /// With a target of Tyche.
    Tyche(Host),
    /// With a target of Fibre Channel over Ethernet.
    Fcoe {
        /// The session.
        host: FcoeHost,
        /// Name of the port of this end, which no other process may take meanwhile.
        name: PortName,
    },
}

/// Controls a session from any thread.
#[derive(Clone)]
pub enum Control {
    /// One with a target of Tyche.
    Tyche(HostControl),
    /// One with a target of Fibre Channel over Ethernet.
    Fcoe(FcoeControl),
}

impl Remote {
    /// A session with a target of Tyche.
    pub fn tyche(host: Host) -> Self {
        let disk: Arc<dyn Disk> = host.volume().clone();
        Self { host: RemoteHost::Tyche(host), disk }
    }

    /// A session over FCoE, with the name of the port of this end.
    pub fn fcoe(host: FcoeHost, name: PortName) -> Self {
        let disk: Arc<dyn Disk> = host.volume().clone();
        Self { host: RemoteHost::Fcoe { host, name }, disk }
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

    /// The disk.
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk)
    }

    /// The obstacle on the way to a disk over FCoE; `None` if it can be used.
    pub fn obstacle(&self) -> Option<Obstacle> {
        match &self.host {
            RemoteHost::Tyche(_) => None,
            RemoteHost::Fcoe { host, .. } => host.control().obstacle(),
        }
    }

    /// A handle for other threads.
    pub fn control(&self) -> Control {
        match &self.host {
            RemoteHost::Tyche(host) => Control::Tyche(host.control()),
            RemoteHost::Fcoe { host, .. } => Control::Fcoe(host.control()),
        }
    }
}

impl Control {
    /// Number of queues.
    pub fn queues(&self) -> usize {
        match self {
            Self::Tyche(control) => control.queues(),
            Self::Fcoe(control) => control.queues(),
        }
    }

    /// Ends the session and tells the target; the notice that it is closed follows.
    pub fn disconnect(&self) {
        match self {
            Self::Tyche(control) => control.disconnect(),
            Self::Fcoe(control) => control.stop(),
        }
    }

    /// Aborts the session: all requests in progress fail. The notice that it is closed follows.
    pub fn abort(&self) {
        match self {
            Self::Tyche(control) => control.abort(),
            Self::Fcoe(control) => control.stop(),
        }
    }

    /// Adds a poller to the thread of a queue.
    pub fn adopt(&self, queue: usize, make: MakePoller) {
        match self {
            Self::Tyche(control) => control.adopt(queue, make),
            Self::Fcoe(control) => control.adopt(queue, make),
        }
    }

    /// Reports the state of the session; `None` if it has ended or does not answer within a second.
    pub fn report(&self) -> Option<HostReport> {
        match self {
            Self::Tyche(control) => control.report(),
            Self::Fcoe(control) => control.report(),
        }
    }

    /// Adds a link to the session, with a socket for each queue; `None` if it has one for good.
    pub fn add_link(&self, links: Vec<HostLink>) -> Option<Result<(), LinkError>> {
        match self {
            Self::Tyche(control) => Some(control.add_link(links)),
            Self::Fcoe(_) => None,
        }
    }

    /// Removes a link from the session; `None` if it has one for good.
    pub fn remove_link(&self, name: &str) -> Option<Result<(), LinkError>> {
        match self {
            Self::Tyche(control) => Some(control.remove_link(name)),
            Self::Fcoe(_) => None,
        }
    }
}
