//! Where links are plugged in: the ports of all segments.

use std::collections::VecDeque;
use std::time::Duration;

use tyche_proto::Instant;
use tyche_wire::Mac;

use crate::plan::{LinkPlan, Plan};

/// Index of a port among those of all segments.
pub(crate) type Port = usize;

/// Who has links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        Station::Host(host) => host as u8 + 1,
        Station::Breaker => u8::MAX,
        Station::Stranger => 0xf0,
        Station::Guest => 0xf1,
    };
    Mac([2, 0, 0, life, station, place.link as u8])
}

/// All interfaces, those of a station in the order of its links.
pub(super) struct Ports {
    list: Vec<Interface>,
    lives: u8,
    /// Addresses that were those of hosts' links, by segment, in the order of their end.
    left: VecDeque<(usize, Mac)>,
}

impl Ports {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut ports = Self { list: Vec::new(), lives: 0, left: VecDeque::new() };
        ports.plug(Station::Target, &plan.target.links);
        for (host, plan) in plan.hosts.iter().enumerate() {
            ports.plug(Station::Host(host), &plan.links);
        }
        if let Some(breaker) = &plan.breaker {
            ports.plug(Station::Breaker, &breaker.links);
        }
        ports
    }

    pub(super) fn plug(&mut self, station: Station, links: &[LinkPlan]) {
        for (link, &plan) in links.iter().enumerate() {
            self.list.push(Interface::new(LinkRef { station, link }, plan));
        }
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

    pub(super) fn find(&self, place: LinkRef) -> Option<Port> {
        self.list.iter().position(|interface| interface.place == place)
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
        self.iter().skip(first).filter_map(move |(port, interface)| {
            let near = interface.plan.segment == segment;
            (near && interface.takes(destination)).then_some(port)
        })
    }

    /// The target's links get other addresses, and each is plugged in where its neighbour was if
    /// `elsewhere`.
    pub(super) fn move_target(&mut self, elsewhere: bool) {
        self.lives = self.lives.wrapping_add(1);
        let lives = self.lives;
        let target = |it: &&mut Interface| it.place.station == Station::Target;
        let mut segments: Vec<_> =
            self.iter_mut().filter(target).map(|it| it.plan.segment).collect();
        if elsewhere {
            segments.rotate_left(1);
        }
        for (interface, segment) in self.iter_mut().filter(target).zip(segments) {
            interface.mac = address(interface.place, lives);
            (interface.own, interface.plan.segment) = (interface.mac, segment);
        }
    }

    /// A port gets another address, which its link does not know: a new one, or, if `again`, the
    /// one that has been free for longest.
    pub(super) fn rebind(&mut self, port: Port, again: bool) {
        self.lives = self.lives.wrapping_add(1);
        let (lives, interface) = (self.lives, &mut self.list[port]);
        let segment = interface.plan.segment;
        let free = self.left.iter().position(|it| it.0 == segment).filter(|_| again);
        let free = free.and_then(|at| self.left.remove(at));
        let mac = free.map_or_else(|| address(interface.place, lives), |(_, mac)| mac);
        self.left.push_back((segment, std::mem::replace(&mut interface.mac, mac)));
    }
}
