//! A session of either protocol, as a daemon has it.

use std::sync::Arc;

use tyche_block::Disk;
use tyche_engine::{Host, HostControl, HostLink, HostReport, LinkError};
use tyche_fcoe::{FcoeControl, FcoeHost, Obstacle};
use tyche_wake::MakePoller;

use crate::fcoe::PortName;

/// A running session. Dropping it aborts the session.
pub(crate) enum Remote {
    /// With a target of Tyche.
    Tyche(Host),
    /// With a target of Fibre Channel over Ethernet.
    Fcoe {
        host: FcoeHost,
        /// Name of the port of this end, which no other process may take meanwhile.
        _name: PortName,
    },
}

/// Controls a session from any thread.
#[derive(Clone)]
pub(crate) enum Control {
    Tyche(HostControl),
    Fcoe(FcoeControl),
}

impl Remote {
    /// The disk.
    pub(crate) fn disk(&self) -> Arc<dyn Disk> {
        match self {
            Self::Tyche(host) => host.volume().clone(),
            Self::Fcoe { host, .. } => host.volume().clone(),
        }
    }

    /// The obstacle on the way to a disk over FCoE; `None` if it can be used.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        match self {
            Self::Tyche(_) => None,
            Self::Fcoe { host, .. } => host.control().obstacle(),
        }
    }

    /// A handle for other threads.
    pub(crate) fn control(&self) -> Control {
        match self {
            Self::Tyche(host) => Control::Tyche(host.control()),
            Self::Fcoe { host, .. } => Control::Fcoe(host.control()),
        }
    }
}

impl Control {
    /// Number of queues.
    pub(crate) fn queues(&self) -> usize {
        match self {
            Self::Tyche(control) => control.queues(),
            Self::Fcoe(_) => 1,
        }
    }

    /// Ends the session and tells the target. [`Closed`](tyche_engine::Notice::Closed) follows.
    pub(crate) fn disconnect(&self) {
        match self {
            Self::Tyche(control) => control.disconnect(),
            Self::Fcoe(control) => control.stop(),
        }
    }

    /// Aborts the session: all requests in progress fail. [`Closed`](tyche_engine::Notice::Closed) follows.
    pub(crate) fn abort(&self) {
        match self {
            Self::Tyche(control) => control.abort(),
            Self::Fcoe(control) => control.stop(),
        }
    }

    /// Adds a poller to the thread of a queue.
    pub(crate) fn adopt(&self, queue: usize, make: MakePoller) {
        match self {
            Self::Tyche(control) => control.adopt(queue, make),
            Self::Fcoe(control) => control.adopt(make),
        }
    }

    /// Reports the state of the session; `None` if it has ended or does not answer within a second.
    pub(crate) fn report(&self) -> Option<HostReport> {
        match self {
            Self::Tyche(control) => control.report(),
            Self::Fcoe(control) => control.report(),
        }
    }

    /// Adds a link to the session, with a socket for each queue; `None` if it has one for good.
    pub(crate) fn add_link(&self, links: Vec<HostLink>) -> Option<Result<(), LinkError>> {
        match self {
            Self::Tyche(control) => Some(control.add_link(links)),
            Self::Fcoe(_) => None,
        }
    }

    /// Removes a link from the session; `None` if it has one for good.
    pub(crate) fn remove_link(&self, name: &str) -> Option<Result<(), LinkError>> {
        match self {
            Self::Tyche(control) => Some(control.remove_link(name)),
            Self::Fcoe(_) => None,
        }
    }
}
