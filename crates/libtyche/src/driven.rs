//! The session that the caller's thread drives, of either protocol.

use std::time::Duration;

use tyche_block::{Completion, Geometry, Request};
use tyche_fcoe::FcoeInlineHost;
use tyche_native::InlineHost;
use tyche_remote::{HostReport, Notice};
use tyche_session::fcoe::PortName;

/// A session in inline mode.
pub(crate) enum Driven {
    /// With a target of Tyche.
    Tyche(Box<InlineHost>),
    /// With a target of Fibre Channel over Ethernet.
    Fcoe {
        host: Box<FcoeInlineHost>,
        /// Name of the port of this end, which no other process may take meanwhile.
        _name: PortName,
    },
}

impl Driven {
    /// The disk.
    pub(crate) fn geometry(&mut self) -> Geometry {
        match self {
            Self::Tyche(host) => host.geometry(),
            Self::Fcoe { host, .. } => host.geometry(),
        }
    }

    /// Takes a request, or gives it back if the limit of requests in progress is reached.
    pub(crate) fn submit(&mut self, request: Request, token: u64) -> Result<(), Request> {
        match self {
            Self::Tyche(host) => host.submit(request, token),
            Self::Fcoe { host, .. } => host.submit(request, token),
        }
    }

    /// Sends submitted requests, handles received frames, and appends finished requests to `done`.
    pub(crate) fn poll(&mut self, done: &mut Vec<Completion>) {
        match self {
            Self::Tyche(host) => host.poll(done),
            Self::Fcoe { host, .. } => host.poll(done),
        };
    }

    /// As [`poll`](Self::poll), until a request has finished or `timeout` has passed.
    pub(crate) fn wait(&mut self, done: &mut Vec<Completion>, timeout: Duration) {
        match self {
            Self::Tyche(host) => host.wait(done, timeout),
            Self::Fcoe { host, .. } => host.wait(done, timeout),
        }
    }

    /// Returns the next notice.
    pub(crate) fn poll_notice(&mut self) -> Option<Notice> {
        match self {
            Self::Tyche(host) => host.poll_notice(),
            Self::Fcoe { host, .. } => host.poll_notice(),
        }
    }

    /// Reports the state of the session.
    pub(crate) fn report(&mut self) -> HostReport {
        match self {
            Self::Tyche(host) => host.report(),
            Self::Fcoe { host, .. } => host.report(),
        }
    }

    /// Ends the session, and waits up to `timeout` for that.
    pub(crate) fn disconnect(self, timeout: Duration) {
        match self {
            Self::Tyche(host) => host.disconnect(timeout),
            Self::Fcoe { host, .. } => host.disconnect(timeout),
        }
    }
}
