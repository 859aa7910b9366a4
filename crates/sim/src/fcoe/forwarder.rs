//! The forwarder of a world with a fabric: the laboratory's, with its lives and deaths.

use tyche_fcf::{Fcf, FcfConfig, MEMBERSHIPS};
use tyche_fcoe::fc::wire::{ETHERTYPE_FIP, Mac};
use tyche_fcoe::{FCOE, FIP};
use tyche_proto::Instant;

/// The forwarder of a fabric as a station: a running [`Fcf`], or none while it is dead.
pub(super) struct Forwarder {
    config: FcfConfig,
    running: Option<Fcf>,
}

impl Forwarder {
    pub(super) fn new(config: FcfConfig) -> Self {
        Self { config, running: None }
    }

    /// Begins a life without logins. Nodes that have not missed it yet have addresses of its former
    /// one, which nobody else must get.
    pub(super) fn start(&mut self) {
        self.config.domain = self.config.domain % 239 + 1;
        self.running = Some(Fcf::new(self.config));
    }

    /// Ends a life; false if there is none.
    pub(super) fn die(&mut self) -> bool {
        self.running.take().is_some()
    }

    /// Ends all logins.
    pub(super) fn clear(&mut self) {
        if let Some(fcf) = &mut self.running {
            fcf.clear();
        }
    }

    /// Whether it receives frames to an address.
    pub(super) fn takes(&self, to: [u8; 6]) -> bool {
        self.running.is_some() && (to == self.config.mac.0 || MEMBERSHIPS.contains(&Mac(to)))
    }

    /// Takes a frame; false if it is dead.
    pub(super) fn arrive(&mut self, now: Instant, frame: &[u8]) -> bool {
        let Some(fcf) = &mut self.running else { return false };
        fcf.handle_frame(now, frame);
        true
    }

    /// Runs timers; returns the frames to send now.
    pub(super) fn settle(&mut self, now: Instant) -> Vec<(usize, Vec<u8>)> {
        let Some(fcf) = &mut self.running else { return Vec::new() };
        if fcf.poll_timeout().is_some_and(|at| at <= now) {
            fcf.handle_timeout(now);
        }
        let frames = std::iter::from_fn(|| fcf.poll_transmit());
        let with_port = frames.map(|frame| {
            let is_fip = frame[12..14] == ETHERTYPE_FIP.to_be_bytes();
            (if is_fip { FIP } else { FCOE }, frame)
        });
        with_port.collect()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.running.as_ref()?.poll_timeout()
    }
}
