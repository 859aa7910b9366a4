//! A port with its two links, or a further lane or thread with its one: what the loop of a thread
//! has in the product.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tyche_engine::{Clock, Ports, Protocol};
use tyche_fcoe::fc::wire::{ETHERNET_LEN, HEAD_LEN};
use tyche_fcoe::{FCOE, FIP, FurtherLane, FurtherThread, NPort, PortConfig, Role};
use tyche_proto::Instant;
use tyche_wire::Mac;

use super::plan::MTU_MAX;
use super::rules::Broken;
use crate::link::{Wire, port_with_heads};

/// One loop of the product without its thread: the protocol `P`, its ports, and wires in memory
/// that carry its frames to and from the simulated network.
pub(super) struct Station<P> {
    pub(super) port: P,
    ports: Ports,
    /// By port of the loop.
    wires: Vec<(usize, Wire)>,
    mac: Mac,
    /// The longest frame that its interface takes.
    frame_len_max: usize,
    clock: Arc<AtomicU64>,
}

/// A protocol that looks at its interface, or at its session, in each turn of the loop.
pub(super) trait Attend: Protocol {
    fn attend(&mut self, now: Instant, ports: &mut Ports) -> bool;
}

impl<R: Role> Attend for NPort<R> {
    fn attend(&mut self, now: Instant, ports: &mut Ports) -> bool {
        Self::attend(self, now, ports)
    }
}

impl Attend for FurtherLane<Broken> {
    fn attend(&mut self, now: Instant, ports: &mut Ports) -> bool {
        Self::attend(self, now, ports)
    }
}

impl Attend for FurtherThread<Broken> {
    fn attend(&mut self, now: Instant, ports: &mut Ports) -> bool {
        Self::attend(self, now, ports)
    }
}

impl<R: Role> Station<NPort<R>> {
    /// A station on an interface with that address and MTU, which has just begun.
    pub(super) fn new(interface: (Mac, usize), config: PortConfig, role: R, seed: u64) -> Self {
        let links = [(FIP, ETHERNET_LEN), (FCOE, HEAD_LEN)];
        Self::with(interface, &links, NPort::with_seed(config, role, seed))
    }
}

impl Station<FurtherLane<Broken>> {
    /// A further lane on such an interface.
    pub(super) fn further(interface: (Mac, usize), lane: FurtherLane<Broken>) -> Self {
        Self::with(interface, &[(FCOE, HEAD_LEN)], lane)
    }
}

impl Station<FurtherThread<Broken>> {
    /// A further thread of a target's port on such an interface.
    pub(super) fn further_thread(interface: (Mac, usize), thread: FurtherThread<Broken>) -> Self {
        Self::with(interface, &[(FCOE, HEAD_LEN)], thread)
    }
}

impl<P: Attend> Station<P> {
    fn with((mac, mtu): (Mac, usize), links: &[(usize, usize)], port: P) -> Self {
        let clock = Arc::<AtomicU64>::default();
        let mut ports = Ports::with_clock(Clock::Simulated(Arc::clone(&clock)));
        let mut wires = Vec::new();
        for &(index, head_len) in links {
            let name = if index == FIP { "fip" } else { "fcoe" };
            let link = (name.to_owned(), mac);
            let (link, wire) = port_with_heads(link, ETHERNET_LEN + MTU_MAX, head_len);
            wire.begin_round(ETHERNET_LEN + mtu);
            ports.insert(index, link);
            wires.push((index, wire));
        }
        Self { port, ports, wires, mac, frame_len_max: ETHERNET_LEN + mtu, clock }
    }

    /// The MTU of its interface is another from now on.
    pub(super) fn set_mtu(&mut self, mtu: usize) {
        self.frame_len_max = ETHERNET_LEN + mtu;
    }

    fn wire(&self, port: usize) -> Option<&Wire> {
        self.wires.iter().find(|(index, _)| *index == port).map(|(_, wire)| wire)
    }

    /// Whether it receives frames to an address by a port of its loop.
    pub(super) fn takes(&self, port: usize, to: [u8; 6]) -> bool {
        to == self.mac.0 || self.wire(port).is_some_and(|wire| wire.has_joined(to))
    }

    /// A frame arrives, if the interface takes it.
    pub(super) fn arrive(&self, port: usize, frame: &[u8]) {
        let fits = frame.len() <= self.frame_len_max;
        if let Some(wire) = self.wire(port).filter(|_| fits) {
            wire.arrive(frame, false);
        }
    }

    /// The interface goes down for a moment.
    pub(super) fn lose_carrier(&self) {
        self.wires.iter().for_each(|(_, wire)| wire.go_down());
    }

    /// Takes all that has arrived, and runs timers.
    pub(super) fn receive(&mut self, now: Instant) {
        self.clock.store(now.0, Ordering::Relaxed);
        self.wires.iter().for_each(|(_, wire)| wire.begin_round(self.frame_len_max));
        self.port.attend(now, &mut self.ports);
        while self.ports.receive(now, &mut self.port) {}
        self.port.attend(now, &mut self.ports);
    }

    /// The frames to send now.
    pub(super) fn transmit(&mut self, now: Instant) -> Vec<(usize, Vec<u8>)> {
        self.ports.transmit(now, &mut self.port);
        let sent = |(port, wire): &(usize, Wire)| {
            let (port, frames) = (*port, std::iter::from_fn(|| wire.take()).flatten());
            frames.map(|frame| (port, frame)).collect::<Vec<_>>()
        };
        self.wires.iter().flat_map(sent).collect()
    }

    /// When to call [`receive`](Self::receive), if nothing arrives before.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.port.poll_timeout().into_iter().chain(self.ports.poll_timeout()).min()
    }
}
