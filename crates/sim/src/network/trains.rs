//! Trains of datagrams on segments with UDP, and the addresses of their senders and receivers.

use std::time::Duration;

use tyche_link::udp::datagram;
use tyche_proto::Instant;
use tyche_wire::{ETHERTYPE, HEAD_LEN, Mac};

use super::{Delivery, Fate, Network, Port, Station, ports};
use crate::link::Carrier;
use crate::plan::UdpPlan;
use crate::random::Random;

/// Bytes of the addresses in front of the length of a datagram's frame.
const ADDRESSES: usize = 12;
/// The address of a peer that does not exist.
const NOBODY: Mac = Mac([2, 0, 0, 0xff, 0xff, 0xff]);
/// Time between two datagrams that still arrive as one.
const JOINED_MAX: Duration = Duration::from_millis(1);
/// As a link over UDP does it (`tyche_link::udp`): broadcasts without an answer, and the silence,
/// after which a host asks from another port.
const ASKED_MAX: u32 = 3;
const UNHEARD_MAX: Duration = Duration::from_secs(1);

/// The datagrams of a train that are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lost {
    #[default]
    None,
    All,
    /// Those before this one.
    First(usize),
    /// Those from this one on.
    Last(usize),
    One(usize),
    EveryOther,
}

impl Lost {
    fn draw(random: &mut Random, frames: usize) -> Self {
        let at = random.below(frames as u64) as usize;
        random.pick(&[Self::First(at), Self::Last(at), Self::One(at), Self::EveryOther])
    }

    fn has(self, index: usize) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::First(end) => index < end,
            Self::Last(start) => index >= start,
            Self::One(one) => index == one,
            Self::EveryOther => index % 2 == 1,
        }
    }
}

/// The fate of a train.
#[derive(Clone, Copy, Debug, Default)]
struct TrainFate {
    lost: Lost,
    late: Duration,
    /// The time after which it comes again.
    again: Option<Duration>,
    shuffled: bool,
    joined: bool,
    marked: bool,
}

impl TrainFate {
    fn draw(random: &mut Random, plan: &UdpPlan, frames: usize) -> Self {
        let faults = plan.faults;
        let mut fate = Self {
            joined: random.hits(plan.joins),
            marked: random.hits(plan.marks),
            shuffled: random.hits(faults.shuffle),
            ..Self::default()
        };
        if random.hits(faults.drop) {
            fate.lost = Lost::All;
        } else if random.hits(faults.tear) {
            fate.lost = Lost::draw(random, frames);
        }
        if random.hits(faults.duplicate) {
            fate.again = Some(Duration::from_micros(random.below(50_000)));
        }
        if random.hits(faults.delay) {
            fate.late = Duration::from_micros(random.below(5000));
        }
        fate
    }
}

/// Makes the datagram of a frame, with padding up to `len` bytes. The addresses stay in front, in
/// place of those of IP and UDP.
fn pack(frame: &mut Vec<u8>, len: usize) {
    let header = datagram::header(frame.len());
    frame[ADDRESSES..header.len()].copy_from_slice(&header[ADDRESSES..]);
    frame.resize(len, 0xa5);
}

/// Makes the frame of a datagram; returns whether it has one.
pub(super) fn open(datagram: &mut Vec<u8>) -> bool {
    let header = datagram.first_chunk().expect("a head");
    let len = datagram::frame_len(header, datagram.len()).filter(|len| *len >= HEAD_LEN);
    datagram.truncate(len.unwrap_or_default());
    if len.is_some() {
        datagram[ADDRESSES..][..2].copy_from_slice(&ETHERTYPE.to_be_bytes());
    }
    len.is_some()
}

impl Network {
    /// The plan of a segment, if it has UDP.
    pub(crate) fn udp(&self, segment: usize) -> Option<UdpPlan> {
        self.segments[segment].plan.udp
    }

    /// The medium of the link that is plugged in to a port.
    pub(crate) fn carrier(&self, port: Port) -> Carrier {
        match self.place(port).station {
            _ if self.udp(self.segment(port)).is_none() => Carrier::Ethernet,
            Station::Target | Station::Stranger => Carrier::UdpServer,
            Station::Host(_) | Station::Breaker | Station::Guest => Carrier::UdpClient,
        }
    }

    /// The port that a host's link on a segment with UDP is connected to, if the other end is
    /// there.
    pub(super) fn peer(&self, port: Port) -> Option<Port> {
        let own = self.ports.get(port);
        let wanted =
            if own.place.station == Station::Guest { Station::Stranger } else { Station::Target };
        let near = |other: &ports::Interface| other.plan.segment == own.plan.segment;
        let peers: Vec<_> = self.ports.of(wanted).filter(|it| near(it.1)).map(|it| it.0).collect();
        (!peers.is_empty()).then(|| peers[(own.place.link + own.turn) % peers.len()])
    }

    /// Gives a frame the addresses with which it leaves its sender's network: on a segment with UDP
    /// all frames of a host go to its peer, and come from the address that routers have given it.
    pub(crate) fn translate(&mut self, now: Instant, from: Port, frame: &mut [u8]) {
        if self.carrier(from) != Carrier::UdpClient {
            return;
        }
        let destination = Mac::destination(frame.first_chunk().expect("a head"));
        if destination == Mac::BROADCAST {
            self.ask(now, from);
        }
        let peer = self.peer(from).map_or(NOBODY, |peer| self.mac(peer));
        frame[..6].copy_from_slice(&peer.0);
        frame[6..12].copy_from_slice(&self.mac(from).0);
    }

    /// Notes a broadcast of a host. If such remain without an answer, it tries the next address of
    /// the target, from another port.
    fn ask(&mut self, now: Instant, from: Port) {
        let interface = self.ports.get_mut(from);
        interface.asked += 1;
        if interface.asked >= ASKED_MAX && now.since(interface.heard) >= UNHEARD_MAX {
            (interface.asked, interface.heard) = (0, now);
            interface.turn += 1;
            self.ports.rebind(from, false);
        }
    }

    /// Gives a port another address; if `again`, one that another may have had, if there is any.
    pub(crate) fn rebind(&mut self, port: Port, again: bool) {
        self.ports.rebind(port, again);
    }

    /// Draws a port of a host on a segment with UDP, if there is one.
    pub(crate) fn draw_udp_host(&mut self, random: &mut Random) -> Option<Port> {
        let is_host = |port: &Port| matches!(self.place(*port).station, Station::Host(_));
        let ports = self.ports.iter().map(|it| it.0).filter(is_host);
        let ports: Vec<_> =
            ports.filter(|port| self.carrier(*port) == Carrier::UdpClient).collect();
        (!ports.is_empty()).then(|| random.pick(&ports))
    }

    /// Gives a frame that has arrived the address that its receiver knows of itself; returns
    /// whether it is for the link that is at the port now.
    pub(crate) fn admit(&mut self, now: Instant, delivery: &mut Delivery) -> bool {
        let (to, head) = (delivery.to, delivery.head());
        if !self.ports.get(to).takes(Mac::destination(head)) {
            return false;
        }
        if self.carrier(to) == Carrier::UdpClient {
            // Its socket is connected: the kernel drops what others send.
            if self.peer(to).is_none_or(|peer| self.mac(peer) != Mac::source(head)) {
                return false;
            }
            let interface = self.ports.get_mut(to);
            (interface.asked, interface.heard) = (0, now);
            delivery.frame[..6].copy_from_slice(&interface.own.0);
        }
        true
    }

    /// Sends frames that leave together in datagrams; returns the fate of each.
    pub(super) fn send_train(
        &mut self,
        now: Instant,
        from: Port,
        train: Vec<Vec<u8>>,
        plan: &UdpPlan,
    ) -> Vec<Fate> {
        let (frames, first) = (train.len(), self.deliveries.len());
        let longest = train.iter().map(Vec::len).max().unwrap_or_default();
        let fate = if self.calm {
            TrainFate { joined: true, ..TrainFate::default() }
        } else {
            TrainFate::draw(&mut self.random, plan, frames.max(1))
        };
        self.counts.trains += 1;
        let fates = (1..).zip(train).map(|(number, mut frame)| {
            if number < frames || plan.pads_last {
                pack(&mut frame, longest);
            } else {
                let len = frame.len();
                pack(&mut frame, len);
            }
            if fate.lost.has(number - 1) {
                (self.counts.frames, self.counts.drops) =
                    (self.counts.frames + 1, self.counts.drops + 1);
                return Fate::Dropped;
            }
            self.send_one(now, from, frame)
        });
        let fates = fates.collect();
        if fate.lost != Lost::None {
            self.counts.torn_trains += 1;
        }
        self.arrange(first, fate);
        fates
    }

    /// Gives the deliveries of a train, from `first` on, their order and times.
    fn arrange(&mut self, first: usize, fate: TrainFate) {
        let Self { deliveries, random, counts, .. } = self;
        let train = &mut deliveries[first..];
        if fate.shuffled {
            for index in (1..train.len()).rev() {
                let other = random.below(index as u64 + 1) as usize;
                let times = (train[index].0, train[other].0);
                (train[other].0, train[index].0) = times;
            }
        }
        for (at, delivery) in train.iter_mut() {
            *at = *at + fate.late;
            delivery.is_congested |= fate.marked;
        }
        train.sort_by_key(|it| it.0);
        if fate.joined {
            for index in (1..train.len()).rev() {
                let (at, next) = (train[index - 1].0, train[index].0);
                let alike = train[index - 1].1.is_congested == train[index].1.is_congested;
                if next.since(at) <= JOINED_MAX && alike {
                    (train[index - 1].0, train[index - 1].1.more) = (next, true);
                }
            }
        }
        if let Some(again) = fate.again {
            counts.duplicated += train.len() as u64;
            let copies: Vec<_> = train.iter().map(|(at, it)| (*at + again, it.clone())).collect();
            deliveries.extend(copies);
        }
        let marked = deliveries[first..].iter().filter(|it| it.1.is_congested);
        counts.marks += marked.count() as u64;
    }
}
