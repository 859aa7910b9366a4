//! The receive thread: the port with its address and logins, and frames on their way to the FCP
//! thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tyche_engine::{Composed, FrameSink, Frames, Ports, Protocol, Service};
use tyche_fcoe::fc::AllRules;
use tyche_fcoe::fc::port::{Event, Login};
use tyche_fcoe::fc::wire::{Ethernet, Frame, Header, Mac, PortId, Wwn};
use tyche_fcoe::{NPort, Role};
use tyche_link::Mac as LinkMac;
use tyche_time::Instant;

use super::Shared;

/// A frame in a buffer of its own.
pub(super) struct Received {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
}

/// The login with the target, as all layers see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nexus {
    pub(super) ethernet: Ethernet,
    pub(super) own: PortId,
    pub(super) target: PortId,
    pub(super) payload_max: usize,
}

/// The port's part of commands.
pub(super) struct Forwarding {
    shared: Arc<Shared>,
    target: Wwn,
    own: Option<(PortId, Mac)>,
    drained: VecDeque<Wwn>,
    /// Frames since the last look.
    frames: u64,
}

impl Forwarding {
    pub(super) fn new(shared: Arc<Shared>, target: Wwn) -> Self {
        Self { shared, target, own: None, drained: VecDeque::new(), frames: 0 }
    }

    fn log_in(&self, login: &Login) {
        let Some((own, source)) = self.own.filter(|_| login.wwpn == self.target) else { return };
        let nexus = Nexus {
            ethernet: Ethernet { destination: login.mac, source },
            own,
            target: login.id,
            payload_max: login.payload_max,
        };
        // After the first login that does not change while anything is measured.
        let _ = self.shared.nexus.set(nexus);
    }
}

impl Role for Forwarding {
    type Rules = AllRules;

    fn rules(&self) -> AllRules {
        AllRules
    }

    fn handle_address(&mut self, address: (PortId, Mac)) {
        self.own = Some(address);
    }

    fn handle_login(&mut self, _: Instant, event: Event) {
        match event {
            Event::LoggedIn(login) => self.log_in(&login),
            Event::LoggedOut(wwpn, _) => {
                self.drained.push_back(wwpn);
                if wwpn == self.target {
                    self.shared.is_lost.store(true, Ordering::SeqCst);
                }
            }
            Event::Failed(wwpn, request, failure) => {
                tracing::warn!(%wwpn, ?request, ?failure, "login failed");
            }
        }
    }

    fn handle_frame(&mut self, _: Instant, frame: &Frame<'_>) {
        self.frames += 1;
        let (header, payload) = (frame.header, frame.payload.to_vec());
        self.shared.received.push(Received { header, payload });
    }

    fn poll_drained(&mut self) -> Option<Wwn> {
        self.drained.pop_front()
    }

    fn frames(&mut self) -> impl Frames<'_> {
        Nothing
    }
}

/// Commands are not sent here.
struct Nothing;

impl<'d> Frames<'d> for Nothing {
    fn compose(&mut self, _: Instant) -> Option<Composed> {
        None
    }

    fn write(&mut self, _: LinkMac, _: impl FrameSink<'d>) {
        unreachable!("nothing is composed");
    }
}

/// The service of the thread's loop.
pub(super) struct ReceiveLoop {
    pub(super) port: NPort<Forwarding>,
    pub(super) shared: Arc<Shared>,
    /// Whether the port has been told to log out.
    pub(super) is_leaving: bool,
}

impl Service for ReceiveLoop {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.port
    }

    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        if self.shared.is_over() && !self.is_leaving {
            self.port.log_out(now);
            self.is_leaving = true;
            return true;
        }
        let worked = self.port.attend(now, ports);
        while self.port.poll_notice().is_some() {}
        worked
    }

    /// A loop that spins gives way to the other threads.
    fn work(&mut self, _: Instant) -> bool {
        if std::mem::take(&mut self.port.role.frames) == 0 {
            std::thread::yield_now();
        }
        false
    }

    fn is_over(&self) -> bool {
        self.is_leaving
    }
}
