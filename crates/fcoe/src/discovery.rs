//! Discovery: the ports on a network, and the VLANs and forwarders of a fabric, if there is one.
//!
//! A port that claims an address is answered by all others with what they are. The port that asks
//! here goes no further: it sends no beacon, so nobody logs in to it.

use std::collections::BTreeSet;
use std::time::Duration;

use tyche_engine::{Batches, Clock, Frames, Port, Ports, Protocol, Received};
use tyche_fc::neighbour::{Functions, Interface, Neighbour};
use tyche_fc::vn2vn::{CLAIM_MAX, Vn2vn, Vn2vnConfig};
use tyche_fc::wire::fip::{
    self, ALL_FCF_MACS, ALL_VN2VN_ENODE_MACS, Flags, Message, Solicitation, VlanNotification,
    VlanRequest,
};
use tyche_fc::wire::{ETHERNET_LEN, Ethernet, FRAME_LEN_MAX, Mac, Reject, Wwn};
use tyche_link::Link;
use tyche_numa::NumaAffinity;
use tyche_remote::LinkFault;
use tyche_time::Instant;

use crate::n_port::Rejects;
use crate::n_port::join;
use crate::outbox::Outbox;

/// Frames that are received at once.
const BATCH: usize = 16;
/// The most VLANs and forwarders of a link that are remembered.
const FOUND_MAX: usize = 256;

/// A port that has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundNeighbour {
    /// Name of the link.
    pub link: String,
    /// The port.
    pub neighbour: Neighbour,
}

/// A VLAN on which FCoE is spoken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundVlan {
    /// Name of the link.
    pub link: String,
    /// Its number; 0 stands for the network without a tag.
    pub vid: u16,
    /// The Ethernet address of who says so.
    pub mac: Mac,
}

/// The answers.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// The ports.
    pub neighbours: Vec<FoundNeighbour>,
    /// The VLANs.
    pub vlans: BTreeSet<FoundVlan>,
    /// The links that forwarders of a fabric have answered on.
    pub fabrics: BTreeSet<String>,
    /// Faults of links at the end.
    pub faults: Vec<LinkFault>,
    /// Frames dropped, by reason.
    pub rejects: Rejects,
}

/// Asks on every link for FIP, and listens for `timeout` from then on. Each link comes with the
/// number of the port that asks: no other process of this machine may have it on that interface.
pub fn discover(links: Vec<(Box<dyn Link>, u16)>, timeout: Duration) -> Discovery {
    let clock = Clock::Monotonic;
    let mut ports = Ports::new();
    let mut discovery = DiscoveryPorts { ports: Vec::new(), rejects: Rejects::default() };
    for (index, (link, number)) in links.into_iter().enumerate() {
        let batches = Batches { frames: BATCH, head_len: ETHERNET_LEN, pieces_max: 1 };
        let mut port = Port::new(link, NumaAffinity::default(), batches);
        discovery.ports.push(DiscoveryPort::new(clock.now(), &mut port, number));
        ports.insert(index, port);
    }
    let end = clock.now() + CLAIM_MAX + timeout;
    loop {
        let time = clock.now();
        if time >= end {
            return discovery.found(&ports);
        }
        ports.receive(time, &mut discovery);
        ports.transmit(time, &mut discovery);
        let next = discovery.poll_timeout().map_or(end, |at| at.min(end));
        ports.wait([], Some(next));
    }
}

/// The protocol of the loop.
struct DiscoveryPorts {
    ports: Vec<DiscoveryPort>,
    rejects: Rejects,
}

/// One link.
struct DiscoveryPort {
    link: String,
    vn2vn: Vn2vn,
    outbox: Outbox,
    vlans: BTreeSet<FoundVlan>,
    has_fabric: bool,
}

impl DiscoveryPort {
    fn new(now: Instant, port: &mut Port, number: u16) -> Self {
        let (mac, mtu) = (Mac(port.link().mac()), port.link().frame_len_max() - ETHERNET_LEN);
        let wwnn = Wwn::of_node(mac);
        let mut vn2vn = Vn2vn::new(Vn2vnConfig {
            wwpn: Wwn::of_further_port(mac, number),
            wwnn,
            recorded: None,
            functions: Functions { initiator: true, target: false },
            seed: getrandom::u64().expect("the kernel's random numbers are always there"),
        });
        vn2vn.handle_link(now, Some(Interface { mac, mtu }));
        if let Err(error) = port.join(ALL_VN2VN_ENODE_MACS.0) {
            tracing::warn!(link = port.link().name(), "{ALL_VN2VN_ENODE_MACS}: {error}");
        }
        let link = port.link().name().to_owned();
        let outbox = Outbox::default();
        let mut this = Self { link, vn2vn, outbox, vlans: BTreeSet::new(), has_fabric: false };
        let size = u16::try_from(mtu).unwrap_or(u16::MAX);
        let solicitation = Solicitation { mac, name: wwnn, size, fc_map: None };
        let vlan_request = VlanRequest { mac, name: Some(wwnn) };
        this.ask(mac, ALL_FCF_MACS, Message::Solicitation(solicitation));
        this.ask(mac, ALL_FCF_MACS, Message::VlanRequest(vlan_request));
        this.ask(mac, ALL_VN2VN_ENODE_MACS, Message::VlanRequest(vlan_request));
        this
    }

    fn ask(&mut self, source: Mac, destination: Mac, message: Message<'_>) {
        let mut buffer = [0; FRAME_LEN_MAX];
        let ethernet = Ethernet { destination, source };
        let len = fip::Frame::new(ethernet, Flags::EMPTY, message).emit(&mut buffer);
        self.outbox.push(&buffer[..len]);
    }

    fn handle(&mut self, now: Instant, frame: &fip::Frame<'_>) {
        match &frame.message {
            Message::VlanNotification(it) | Message::Vn2vnVlanNotification(it) => self.note(it),
            Message::Advertisement(_) => self.has_fabric = true,
            _ => _ = self.vn2vn.handle_frame(now, frame),
        }
        self.drain();
    }

    fn note(&mut self, notification: &VlanNotification) {
        for &vid in &notification.vids {
            if self.vlans.len() < FOUND_MAX {
                let (link, mac) = (self.link.clone(), notification.mac);
                self.vlans.insert(FoundVlan { link, vid, mac });
            }
        }
    }

    fn drain(&mut self) {
        // Neither addresses nor events: the port never has an N_Port_ID.
        while self.vn2vn.poll_membership().is_some() {}
        while self.vn2vn.poll_event().is_some() {}
        let mut buffer = [0; FRAME_LEN_MAX];
        while let Some(len) = self.vn2vn.poll_transmit(&mut buffer) {
            self.outbox.push(&buffer[..len]);
        }
    }
}

impl DiscoveryPorts {
    fn found(self, ports: &Ports) -> Discovery {
        let mut found = Discovery { rejects: self.rejects, ..Discovery::default() };
        for DiscoveryPort { link, vn2vn, vlans, has_fabric, .. } in self.ports {
            let neighbours = vn2vn.claimed();
            found.neighbours.extend(
                neighbours.map(|&neighbour| FoundNeighbour { link: link.clone(), neighbour }),
            );
            found.vlans.extend(vlans);
            if has_fabric {
                found.fabrics.insert(link);
            }
        }
        found
            .neighbours
            .sort_by(|a, b| (&a.link, a.neighbour.wwpn).cmp(&(&b.link, b.neighbour.wwpn)));
        found.faults.extend(ports.iter().filter_map(|(_, port)| {
            let (link, message) = (port.link().name().to_owned(), port.trouble()?.to_owned());
            Some(LinkFault { link, message })
        }));
        found
    }

    fn take(&mut self, now: Instant, port: usize, frame: &Received<'_>) -> Result<(), Reject> {
        let mut buffer = [0; FRAME_LEN_MAX];
        let frame = fip::Frame::parse(join(frame, &mut buffer)?)?;
        self.ports[port].handle(now, &frame);
        Ok(())
    }
}

impl Protocol for DiscoveryPorts {
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &Received<'_>) {
        if let Err(reject) = self.take(now, port, frame) {
            self.rejects.add(reject);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        for port in self.ports.iter_mut().filter(|port| !port.vn2vn.has_claimed()) {
            port.vn2vn.handle_timeout(now);
            port.drain();
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let asking = self.ports.iter().filter(|port| !port.vn2vn.has_claimed());
        asking.filter_map(|port| port.vn2vn.poll_timeout()).min()
    }

    fn frames(&mut self, port: usize) -> impl Frames<'_> {
        &mut self.ports[port].outbox
    }
}
