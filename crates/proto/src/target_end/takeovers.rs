//! The sessions that have taken over a device lately. A Connect of a predecessor may still be on
//! its way then: if it comes while the new session is disconnected, it must not be admitted, or the
//! new session would be refused (SessionLost). PROTOCOL.md, "Tickets".

use std::collections::VecDeque;

use tyche_wire::{Connect, Uuid};

use crate::target_end::access::Identity;
use crate::time::Instant;

/// Takeovers that are remembered for an export. Tickets are good for some seconds only: fewer
/// matter if more devices than these are taken over in that time.
const TAKEOVERS_MAX: usize = 64;

struct Takeover {
    host: Identity,
    device: Uuid,
    session: Uuid,
    /// When the ticket of the session's first channel was issued.
    issued: Instant,
}

/// The takeovers of one export's devices: the newest one of each device, and a bounded number of
/// devices. The registry asks it before it admits a session.
#[derive(Default)]
pub(crate) struct Takeovers(VecDeque<Takeover>);

impl Takeovers {
    /// Notes that a new session was admitted.
    pub(crate) fn note(&mut self, host: Identity, connect: &Connect, issued: Instant) {
        let Connect { device, session, .. } = *connect;
        if device == session {
            return;
        }
        self.0.retain(|it| (it.host, it.device) != (host, device));
        if self.0.len() == TAKEOVERS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Takeover { host, device, session, issued });
    }

    /// Whether another session has taken over the device with a later ticket.
    pub(crate) fn is_late(&self, host: Identity, connect: &Connect, issued: Instant) -> bool {
        let same = |it: &&Takeover| (it.host, it.device) == (host, connect.device);
        let last = self.0.iter().find(same);
        last.is_some_and(|last| last.session != connect.session && issued < last.issued)
    }
}
