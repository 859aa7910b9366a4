//! A simulated network of ports: virtual time, loss, repetition and delay from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tyche_fc::neighbour::{Address, Event, Functions, Interface, Membership, Neighbour};
use tyche_fc::vn2vn::{Vn2vn, Vn2vnConfig};
use tyche_fc::wire::fip::{self, Message};
use tyche_fc::wire::{FRAME_LEN_MAX, Fc4, Mac, PortId, Wwn};
use tyche_time::Instant;

use crate::air::Air;

pub(crate) const MTU: usize = 2500;

/// A port, its interface, and what has come of it.
pub(crate) struct Station {
    pub(crate) vn2vn: Vn2vn,
    pub(crate) config: Vn2vnConfig,
    pub(crate) mac: Mac,
    pub(crate) joined: BTreeSet<Mac>,
    pub(crate) events: Vec<Event>,
    /// Kinds and times of the frames that it has sent.
    pub(crate) sent: Vec<(Instant, fip::Operation, Vec<u8>)>,
    /// Whether its cable is connected.
    pub(crate) plugged: bool,
}

/// A network of [`Station`]s with a virtual clock. It runs from one event to the next: a frame that
/// arrives, or a timer that expires.
pub(crate) struct Network {
    pub(crate) now: Instant,
    pub(crate) stations: Vec<Station>,
    pub(crate) air: Air,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            // Not zero, so that a time of zero is no time.
            now: Instant(1_000_000_000),
            stations: Vec::new(),
            air: Air::new(seed),
        }
    }

    /// Adds a port with the link up; returns its index.
    pub(crate) fn add(&mut self, wwpn: u64, recorded: Option<u32>) -> usize {
        let index = self.stations.len();
        let config = Vn2vnConfig {
            wwpn: Wwn(wwpn),
            wwnn: Wwn(wwpn ^ 0x3000_0000_0000_0000),
            recorded: recorded.map(PortId::new),
            functions: Functions { initiator: index % 2 != 1, target: index % 2 == 1 },
            seed: self.air.random.next(),
        };
        self.stations.push(Station {
            vn2vn: Vn2vn::new(config),
            config,
            mac: Mac([2, 0, 0, 0, 1, index as u8]),
            joined: BTreeSet::new(),
            events: Vec::new(),
            sent: Vec::new(),
            plugged: true,
        });
        self.set_link(index, true);
        index
    }

    /// Starts a port anew, as a process that was killed.
    pub(crate) fn restart(&mut self, index: usize, recorded: Option<PortId>) {
        let seed = self.air.random.next();
        let station = &mut self.stations[index];
        station.config = Vn2vnConfig { recorded, seed, ..station.config };
        station.vn2vn = Vn2vn::new(station.config);
        station.joined.clear();
        station.events.clear();
        self.set_link(index, true);
    }

    pub(crate) fn set_link(&mut self, index: usize, up: bool) {
        let interface = Interface { mac: self.stations[index].mac, mtu: MTU };
        self.stations[index].vn2vn.handle_link(self.now, up.then_some(interface));
        self.stations[index].plugged = up;
        self.drain(index);
    }

    /// Puts a frame on the network, from outside.
    pub(crate) fn inject(&mut self, frame: &[u8]) {
        self.broadcast(usize::MAX, frame);
    }

    fn drain(&mut self, index: usize) {
        let station = &mut self.stations[index];
        while let Some(membership) = station.vn2vn.poll_membership() {
            match membership {
                Membership::Join(mac) => assert!(station.joined.insert(mac), "joins {mac} twice"),
                Membership::Leave(mac) => assert!(station.joined.remove(&mac), "is not in {mac}"),
            }
        }
        while let Some(event) = station.vn2vn.poll_event() {
            station.events.push(event);
        }
        let (mut buffer, mut frames) = ([0xa5; FRAME_LEN_MAX], Vec::new());
        while let Some(len) = station.vn2vn.poll_transmit(&mut buffer) {
            frames.push(buffer[..len].to_vec());
        }
        assert!(frames.len() <= 3, "{} frames for one input", frames.len());
        for frame in frames {
            let operation = fip::Frame::parse(&frame).unwrap().message.operation();
            self.stations[index].sent.push((self.now, operation, frame.clone()));
            if self.stations[index].plugged {
                self.broadcast(index, &frame);
            }
        }
    }

    fn broadcast(&mut self, from: usize, frame: &[u8]) {
        let to = Mac(frame[..6].try_into().unwrap());
        for index in 0..self.stations.len() {
            let station = &self.stations[index];
            let is_receiver = station.mac == to || station.joined.contains(&to);
            if index == from || !station.plugged || !is_receiver {
                continue;
            }
            self.air.carry(self.now, index, frame);
        }
    }

    /// Runs the network for that long; `check` sees it after each step.
    pub(crate) fn run_checked(&mut self, time: Duration, mut check: impl FnMut(&Self)) {
        let end = self.now + time;
        let timer = |station: &Station| station.vn2vn.poll_timeout();
        while let Some((at, index, frame)) = self.air.next(self.stations.iter().map(timer), end) {
            self.now = self.now.max(at);
            let station = &mut self.stations[index];
            if let Some(frame) = frame {
                if let (true, Ok(frame)) = (station.plugged, fip::Frame::parse(&frame)) {
                    station.vn2vn.handle_frame(self.now, &frame);
                }
            } else {
                station.vn2vn.handle_timeout(self.now);
                let again = timer(station);
                assert!(again.is_none_or(|at| at > self.now), "a timer that stays expired");
            }
            self.drain(index);
            check(self);
        }
        self.now = end;
    }

    pub(crate) fn run(&mut self, time: Duration) {
        self.run_checked(time, |_| {});
    }

    pub(crate) fn id(&self, index: usize) -> Option<PortId> {
        Some(self.stations[index].vn2vn.address()?.id)
    }

    /// The N_Port_IDs of those that are up.
    pub(crate) fn ids(&self) -> Vec<PortId> {
        (0..self.stations.len()).filter_map(|index| self.id(index)).collect()
    }

    /// Asserts that all ports are up with N_Port_IDs of their own, and that each has all others as
    /// neighbours.
    pub(crate) fn assert_converged(&self) {
        let ids = self.ids();
        assert_eq!(ids.len(), self.stations.len(), "all are up");
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "all differ: {ids:?}");
        for (index, station) in self.stations.iter().enumerate() {
            let mut wanted: Vec<_> = self.stations.iter().map(neighbour).collect();
            wanted.remove(index);
            let mut seen: Vec<_> = station.vn2vn.neighbours().copied().collect();
            wanted.sort_by_key(|it| it.wwpn);
            seen.sort_by_key(|it| it.wwpn);
            assert_eq!(seen, wanted, "{:?}", station.vn2vn);
            assert_eq!(present(&station.events), wanted, "its events say the same");
            let Address { id, mac, .. } = station.vn2vn.address().unwrap();
            let joined = [fip::ALL_VN2VN_ENODE_MACS, mac].into();
            assert_eq!((mac.port_id(), &station.joined), (id, &joined));
        }
    }
}

/// The port as its neighbours see it.
pub(crate) fn neighbour(station: &Station) -> Neighbour {
    let (config, address) = (station.config, station.vn2vn.address());
    Neighbour {
        wwpn: config.wwpn,
        wwnn: Some(config.wwnn),
        id: address.unwrap().id,
        enode: station.mac,
        fcoe_len_max: 2158,
        functions: config.functions,
    }
}

/// The neighbours that are present according to events.
pub(crate) fn present(events: &[Event]) -> Vec<Neighbour> {
    let mut present = BTreeMap::new();
    let mut id = None;
    for event in events {
        match *event {
            Event::Claimed(claimed) => assert_eq!(id.replace(claimed.id), None),
            Event::Released(released) => {
                assert_eq!(id.take(), Some(released));
                assert!(present.is_empty(), "neighbours are gone before");
            }
            Event::Appeared(it) => {
                assert!(id.is_some(), "nobody appears to a port without an address");
                assert!(present.insert(it.wwpn, it).is_none(), "appears twice");
            }
            Event::Gone(it) => assert_eq!(present.remove(&it.wwpn), Some(it), "was present"),
            Event::Doubtful(it) => panic!("only a fabric says so: {it:?}"),
        }
    }
    present.into_values().collect()
}

/// A frame of a stranger, to all ports.
pub(crate) fn forged(message: Message<'_>, flags: fip::Flags) -> Vec<u8> {
    let ethernet = tyche_fc::wire::Ethernet {
        destination: fip::ALL_VN2VN_ENODE_MACS,
        source: Mac([2, 0, 0, 0, 9, 9]),
    };
    let mut buffer = [0; FRAME_LEN_MAX];
    let len = fip::Frame::new(ethernet, flags, message).emit(&mut buffer);
    buffer[..len].to_vec()
}

/// The port of a stranger.
pub(crate) fn stranger(wwpn: u64, id: u32) -> fip::Port {
    let id = PortId::new(id);
    fip::Port {
        mac: Mac([2, 0, 0, 0, 9, 9]),
        name: Wwn(wwpn ^ 0x3000_0000_0000_0000),
        port: fip::VnPort { mac: Mac::fpma(tyche_fc::wire::FcMap::VN2VN, id), id, name: Wwn(wwpn) },
    }
}

/// The claim of a stranger.
pub(crate) fn claim(wwpn: u64, id: u32) -> fip::Claim {
    let fc4 = Fc4::fcp(Fc4::TARGET);
    fip::Claim { port: stranger(wwpn, id), fc4, size: 2158 }
}
