//! Where links are plugged in: the ports of all segments.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use tyche_proto::Instant;
use tyche_wire::Mac;

use crate::plan::{LinkPlan, Plan};

/// Index of a port among those of all segments.
pub(crate) type Port = usize;

/// Who has links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Station {
    /// The target.
    Target,
    /// The host of that index.
    Host(usize),
    /// The host that breaks the protocol.
    Breaker,
    /// A target of other people.
    Stranger,
    /// A host of that target.
    Guest,
}

/// A link, as the trace names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkRef {
    pub(crate) station: Station,
    /// Index among the links of the station.
    pub(crate) link: usize,
}

impl std::fmt::Display for LinkRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.station {
            Station::Target => write!(f, "target link {}", self.link),
            Station::Host(host) => write!(f, "host {host} link {}", self.link),
            Station::Breaker => write!(f, "breaker link {}", self.link),
            Station::Stranger => write!(f, "stranger link {}", self.link),
            Station::Guest => write!(f, "guest link {}", self.link),
        }
    }
}

/// The interface of a link, and the port of the segment that it is plugged in to.
pub(super) struct Interface {
    pub(super) place: LinkRef,
    /// Its address on the segment.
    pub(super) mac: Mac,
    /// Its address as its link knows it: another one after routers have changed that outside.
    pub(super) own: Mac,
    pub(super) plan: LinkPlan,
    /// Until when the interface is sending.
    pub(super) sends_until: Instant,
    /// Until when the port is sending to the interface.
    pub(super) takes_until: Instant,
    /// The longest frame that it takes from its link, which is told of longer ones.
    pub(super) frame_len_taken: usize,
    /// How much is lost of what it sends.
    pub(super) mute: f64,
    /// How much is lost of what is sent to it.
    pub(super) deaf: f64,
    /// It takes frames for others, too.
    pub(super) hears_all: bool,
    /// It is given each frame twice.
    pub(super) twice: bool,
    /// With UDP: when it last heard of its peer or tried another, its broadcasts since then, and
    /// how often it has tried another.
    pub(super) heard: Instant,
    pub(super) asked: u32,
    pub(super) turn: usize,
    /// Copies of frames to it, by channel, for its next channel of that index.
    pub(super) late: VecDeque<(u16, Vec<u8>)>,
}

impl Interface {
    fn new(place: LinkRef, plan: LinkPlan) -> Self {
        Self {
            place,
            mac: address(place, 0),
            own: address(place, 0),
            frame_len_taken: usize::MAX,
            plan,
            sends_until: Instant(0),
            takes_until: Instant(0),
            mute: 0.0,
            deaf: 0.0,
            hears_all: false,
            twice: false,
            heard: Instant(0),
            asked: 0,
            turn: 0,
            late: VecDeque::new(),
        }
    }

    /// Whether it takes frames to `destination`.
    pub(super) fn takes(&self, destination: Mac) -> bool {
        self.hears_all || destination == Mac::BROADCAST || destination == self.mac
    }

    /// Time that a frame takes on the wire: the preamble, the checksum and the gap between two
    /// frames are 24 bytes.
    pub(super) fn time_of(&self, frame_len: usize) -> Duration {
        let bits = (frame_len as u64 + 24) * 8;
        Duration::from_nanos(bits * 1_000_000_000 / self.plan.rate)
    }

    /// Time that frames wait for the interface at most: two of the longest always find room.
    pub(super) fn patience(&self, queue: Duration) -> Duration {
        queue.max(self.time_of(self.plan.frame_len_max) * 2)
    }
}

/// The address of a link; another `life` of its station has others.
fn address(place: LinkRef, life: u8) -> Mac {
    let station = match place.station {
        Station::Target => 0,
        Station::Host(host) => host as u16 + 1,
        Station::Breaker => u16::MAX,
        Station::Stranger => 0xfff0,
        Station::Guest => 0xfff1,
    };
    let [high, low] = station.to_be_bytes();
    Mac([2, 0, high, life, low, place.link as u8])
}

/// All interfaces, those of a station in the order of its links.
pub(super) struct Ports {
    list: Vec<Interface>,
    stations: BTreeMap<Station, Range<Port>>,
    /// Those that take frames to an address, by segment.
    addressed: BTreeSet<(usize, Mac, Port)>,
    /// Those that take all frames.
    curious: Vec<Port>,
    lives: u8,
    /// Addresses that were those of hosts' links, by segment, in the order of their end.
    left: VecDeque<(usize, Mac)>,
}

impl Ports {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut ports = Self {
            list: Vec::new(),
            stations: BTreeMap::new(),
            addressed: BTreeSet::new(),
            curious: Vec::new(),
            lives: 0,
            left: VecDeque::new(),
        };
        ports.plug(Station::Target, &plan.target.links);
        for (host, plan) in plan.hosts.iter().enumerate() {
            ports.plug(Station::Host(host), &plan.links);
        }
        if let Some(breaker) = &plan.breaker {
            ports.plug(Station::Breaker, &breaker.links);
        }
        ports
    }

    /// Plugs in the links of a station, which has none yet.
    pub(super) fn plug(&mut self, station: Station, links: &[LinkPlan]) {
        let first = self.list.len();
        for (link, &plan) in links.iter().enumerate() {
            let interface = Interface::new(LinkRef { station, link }, plan);
            self.addressed.insert((plan.segment, interface.mac, first + link));
            self.list.push(interface);
        }
        let former = self.stations.insert(station, first..self.list.len());
        assert!(former.is_none(), "{station:?} is plugged in twice");
    }

    /// Has a port take frames to all addresses.
    pub(super) fn hear_all(&mut self, port: Port) {
        self.list[port].hears_all = true;
        self.curious.push(port);
    }

    pub(super) fn get(&self, port: Port) -> &Interface {
        &self.list[port]
    }

    pub(super) fn get_mut(&mut self, port: Port) -> &mut Interface {
        &mut self.list[port]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Port, &Interface)> {
        self.list.iter().enumerate()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Interface> {
        self.list.iter_mut()
    }

    /// Those of a station.
    pub(super) fn of(&self, station: Station) -> impl Iterator<Item = (Port, &Interface)> {
        let ports = self.stations.get(&station).cloned().unwrap_or_default();
        ports.map(|port| (port, &self.list[port]))
    }

    pub(super) fn find(&self, place: LinkRef) -> Option<Port> {
        self.of(place.station).map(|(port, _)| port).nth(place.link)
    }

    /// The next of the other ports of the port's segment, not before `first`, that takes frames to
    /// `destination`.
    pub(super) fn receiver(&self, from: Port, destination: Mac, first: Port) -> Option<Port> {
        let segment = self.list[from].plan.segment;
        self.takers(segment, destination, first).find(|&port| port != from)
    }

    /// The ports of a segment, from `first` on, that take frames to `destination`.
    pub(super) fn takers(
        &self,
        segment: usize,
        destination: Mac,
        first: Port,
    ) -> impl Iterator<Item = Port> {
        let range = (segment, destination, first)..=(segment, destination, Port::MAX);
        let mut addressed: Vec<_> = self.addressed.range(range).map(|it| it.2).collect();
        if destination == Mac::BROADCAST {
            addressed.extend(first..self.list.len());
        }
        addressed.extend(self.curious.iter().filter(|port| **port >= first));
        addressed.sort_unstable();
        addressed.dedup();
        let near = move |port: &Port| self.list[*port].plan.segment == segment;
        addressed.into_iter().filter(near)
    }

    /// The target's links get other addresses, and each is plugged in where its neighbour was if
    /// `elsewhere`.
    pub(super) fn move_target(&mut self, elsewhere: bool) {
        self.lives = self.lives.wrapping_add(1);
        let lives = self.lives;
        let ports: Vec<_> = self.of(Station::Target).map(|it| it.0).collect();
        let mut segments: Vec<_> = ports.iter().map(|port| self.list[*port].plan.segment).collect();
        if elsewhere {
            segments.rotate_left(1);
        }
        for (port, segment) in ports.into_iter().zip(segments) {
            let mac = address(self.list[port].place, lives);
            self.set_address(port, segment, mac);
            self.list[port].own = mac;
        }
    }

    /// Sets where a port is and its address there; returns its former address.
    fn set_address(&mut self, port: Port, segment: usize, mac: Mac) -> Mac {
        let interface = &mut self.list[port];
        self.addressed.remove(&(interface.plan.segment, interface.mac, port));
        self.addressed.insert((segment, mac, port));
        interface.plan.segment = segment;
        std::mem::replace(&mut interface.mac, mac)
    }

    /// A port gets another address, which its link does not know: a new one, or, if `again`, the
    /// one that has been free for longest.
    pub(super) fn rebind(&mut self, port: Port, again: bool) {
        self.lives = self.lives.wrapping_add(1);
        let (lives, interface) = (self.lives, &self.list[port]);
        let (place, segment) = (interface.place, interface.plan.segment);
        let free = self.left.iter().position(|it| it.0 == segment).filter(|_| again);
        let free = free.and_then(|at| self.left.remove(at));
        let mac = free.map_or_else(|| address(place, lives), |(_, mac)| mac);
        let former = self.set_address(port, segment, mac);
        self.left.push_back((segment, former));
    }
}
