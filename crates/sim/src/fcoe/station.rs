//! A port with its two links: what the loop of a thread has in the product.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tyche_engine::{Clock, Ports, Protocol};
use tyche_fcoe::fc::wire::{ETHERNET_LEN, HEAD_LEN};
use tyche_fcoe::{FCOE, FIP, NPort, NPortConfig, Role};
use tyche_proto::Instant;
use tyche_wire::Mac;

use crate::link::{Wire, port_with_heads};

/// See the module.
pub(super) struct Station<R: Role> {
    pub(super) port: NPort<R>,
    ports: Ports,
    /// By port of the loop.
    wires: [Wire; 2],
    mac: Mac,
    clock: Arc<AtomicU64>,
}

impl<R: Role> Station<R> {
    /// A station on an interface with that address and MTU, which has just begun.
    pub(super) fn new((mac, mtu): (Mac, usize), config: NPortConfig, role: R, seed: u64) -> Self {
        let clock = Arc::<AtomicU64>::default();
        let mut ports = Ports::with_clock(Clock::Simulated(Arc::clone(&clock)));
        let len_max = ETHERNET_LEN + mtu;
        let (fip, fip_wire) = port_with_heads(("fip".into(), mac), len_max, ETHERNET_LEN);
        let (fcoe, fcoe_wire) = port_with_heads(("fcoe".into(), mac), len_max, HEAD_LEN);
        ports.insert(FIP, fip);
        ports.insert(FCOE, fcoe);
        let port = NPort::with_seed(config, role, seed);
        Self { port, ports, wires: [fip_wire, fcoe_wire], mac, clock }
    }

    /// Whether it receives frames to an address by a port of its loop.
    pub(super) fn takes(&self, port: usize, to: [u8; 6]) -> bool {
        to == self.mac.0 || self.wires[port].has_joined(to)
    }

    /// A frame arrives.
    pub(super) fn arrive(&self, port: usize, frame: &[u8]) {
        self.wires[port].arrive(frame, false);
    }

    /// The interface goes down for a moment.
    pub(super) fn lose_carrier(&self) {
        self.wires.iter().for_each(Wire::go_down);
    }

    /// Takes all that has arrived, and runs timers.
    pub(super) fn receive(&mut self, now: Instant) {
        self.clock.store(now.0, Ordering::Relaxed);
        self.port.attend(now, &mut self.ports);
        while self.ports.receive(now, &mut self.port) {}
        self.port.attend(now, &mut self.ports);
    }

    /// The frames to send now.
    pub(super) fn transmit(&mut self, now: Instant) -> Vec<(usize, Vec<u8>)> {
        self.ports.transmit(now, &mut self.port);
        let sent = |(port, wire): (usize, &Wire)| {
            let frames: Vec<_> = std::iter::from_fn(|| wire.take()).flatten().collect();
            frames.into_iter().map(move |frame| (port, frame))
        };
        self.wires.iter().enumerate().flat_map(sent).collect()
    }

    /// When to call [`receive`](Self::receive), if nothing arrives before.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.port.poll_timeout().into_iter().chain(self.ports.poll_timeout()).min()
    }
}
