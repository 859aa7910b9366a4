//! The network: frames in flight between links, on segments that lose, repeat, delay, reorder and
//! damage them.
//!
//! A segment is a switch with any number of ports, and a link is plugged in to one of them. A frame
//! waits until its sender's interface is free, takes its time on the wire, then the latency and
//! jitter of the segment, and finally waits for the port of its receiver, whose link may be slower.
//! Frames that wait too long are dropped.
//!
//! On segments with UDP frames travel in trains of datagrams (`trains.rs`).

mod ports;
mod trains;

use std::time::Duration;

use tyche_proto::{Instant, RawFrame};
use tyche_wire::{Cookie, ETHERNET_LEN, HEAD_LEN, Header, Kind, Mac};

use crate::plan::{LinkPlan, Plan, SegmentPlan};
use crate::random::Random;

use ports::Ports;
pub use ports::Station;
pub(crate) use ports::{LinkRef, Port};

/// Frames that a link keeps at most, to deliver them again much later.
const LATE_MAX: usize = 128;

/// Offsets of a frame's kind and cookie: PROTOCOL.md, "Header".
const KIND_AT: usize = 15;
const COOKIE_AT: usize = 20;

/// A frame that arrives.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) to: Port,
    pub(crate) frame: Vec<u8>,
    /// The network has marked it.
    pub(crate) is_congested: bool,
    /// It is received together with the next one.
    pub(crate) more: bool,
}

impl Delivery {
    /// A frame by itself.
    fn new(to: Port, frame: Vec<u8>) -> Self {
        Self { to, frame, is_congested: false, more: false }
    }

    pub(crate) fn head(&self) -> &[u8; HEAD_LEN] {
        self.frame.first_chunk().expect("frames are at least a head long")
    }

    /// Whether it is an Accept with a valid header, or may be a sealed one.
    pub(crate) fn is_accept(&self) -> bool {
        let kind = self.frame[KIND_AT];
        let is_accept = kind == Kind::Accept as u8 || kind == Kind::SealedAnswer as u8;
        is_accept && Header::parse(self.head()).is_ok()
    }

    /// The cookie of the channel that it is for.
    pub(crate) fn cookie(&self) -> Cookie {
        let (_, rest) = self.head().split_at(COOKIE_AT);
        Cookie(u64::from_le_bytes(*rest.first_chunk().expect("a head is longer")))
    }

    /// The frame as its receiver gets it.
    pub(crate) fn raw(&self) -> RawFrame<'_> {
        let frame = RawFrame::from((self.head(), self.payload()));
        RawFrame { is_congested: self.is_congested, ..frame }
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.frame[HEAD_LEN..]
    }
}

/// The fate of a frame, for the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Sent,
    Dropped,
    TooLong,
    Congested,
    Cut,
    Corrupted,
    Duplicated,
    Delayed,
    Late,
}

/// Counters of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) frames: u64,
    pub(crate) drops: u64,
    pub(crate) corrupted: u64,
    pub(crate) duplicated: u64,
    pub(crate) late: u64,
    /// Trains on segments with UDP.
    pub(crate) trains: u64,
    /// Those of them that did not arrive, or not as a whole.
    pub(crate) torn_trains: u64,
    /// Datagrams that were marked as congested.
    pub(crate) marks: u64,
}

struct Segment {
    plan: SegmentPlan,
    /// Nothing gets through.
    down: bool,
    frame_len_passed: usize,
}

/// The simulated network: segments, the ports of all links, and the faults. It computes the fate of
/// each frame when that is sent; its caller delivers the frames at the times that it plans.
pub(crate) struct Network {
    segments: Vec<Segment>,
    ports: Ports,
    random: Random,
    calm: bool,
    pub(crate) counts: Counts,
    /// Deliveries and their times, to be planned by the caller.
    pub(crate) deliveries: Vec<(Instant, Delivery)>,
}

impl Network {
    pub(crate) fn new(plan: &Plan, random: Random) -> Self {
        let segment = |plan: &SegmentPlan| Segment {
            down: false,
            frame_len_passed: plan.frame_len_passed,
            plan: plan.clone(),
        };
        Self {
            segments: plan.segments.iter().map(segment).collect(),
            ports: Ports::new(plan),
            random,
            calm: false,
            counts: Counts::default(),
            deliveries: Vec::new(),
        }
    }

    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// The port of a link.
    ///
    /// # Panics
    /// If there is no such link.
    pub(crate) fn port(&self, station: Station, link: usize) -> Port {
        self.ports.find(LinkRef { station, link }).expect("links are plugged in")
    }

    /// The link that is plugged in to a port.
    pub(crate) fn place(&self, port: Port) -> LinkRef {
        self.ports.get(port).place
    }

    /// The address of a port's link on its segment.
    pub(crate) fn mac(&self, port: Port) -> Mac {
        self.ports.get(port).mac
    }

    /// The address of a port's link as the link knows it.
    pub(crate) fn own_mac(&self, port: Port) -> Mac {
        self.ports.get(port).own
    }

    /// The segment of a port.
    pub(crate) fn segment(&self, port: Port) -> usize {
        self.ports.get(port).plan.segment
    }

    /// Plugs in the links of another host.
    pub(crate) fn plug(&mut self, host: usize, links: &[LinkPlan]) {
        self.ports.plug(Station::Host(host), links);
    }

    /// Plugs in the links of strangers.
    pub(crate) fn plug_others(&mut self, station: Station, links: &[LinkPlan], hears_all: bool) {
        self.ports.plug(station, links);
        for (link, plan) in links.iter().enumerate() {
            // Nobody hears the datagrams for others.
            if hears_all && self.udp(plan.segment).is_none() {
                self.ports.hear_all(self.port(station, link));
            }
        }
    }

    /// Whether a frame to an address is taken by more than one link of its segment.
    pub(crate) fn is_overheard(&self, segment: usize, destination: Mac) -> bool {
        self.ports.takers(segment, destination, 0).nth(1).is_some()
    }

    /// Has each link for which `draw` returns true receive each frame twice.
    pub(crate) fn receive_twice(&mut self, mut draw: impl FnMut() -> bool) {
        self.ports.iter_mut().for_each(|interface| interface.twice = draw());
    }

    /// Delivers a frame that no port has sent to the links of its destination.
    pub(crate) fn inject(&mut self, at: Instant, segment: usize, frame: &[u8]) {
        let destination = Mac::destination(frame.first_chunk().expect("a head"));
        let fits = |port: &Port| frame.len() <= self.ports.get(*port).plan.frame_len_max;
        let down = self.segments[segment].down;
        for to in self.ports.takers(segment, destination, 0).filter(|to| !down && fits(to)) {
            self.deliveries.push((at, Delivery::new(to, frame.into())));
        }
    }

    /// All pairs of a link of a host and a link of the target that it reaches, with the target's
    /// address.
    pub(crate) fn pairs(&self, host: usize) -> Vec<(usize, (usize, Mac))> {
        let pairs = self.ports.of(Station::Host(host)).flat_map(|(port, mine)| {
            let targets = self.targets_of(port);
            targets.map(|other| (mine.place.link, (other.place.link, other.mac)))
        });
        pairs.collect()
    }

    /// The addresses of the target's links that a host's port reaches.
    pub(crate) fn targets_near(&self, port: Port) -> Vec<Mac> {
        self.targets_of(port).map(|it| it.mac).collect()
    }

    /// The target's links that a host's port reaches: all on its segment, or its peer.
    fn targets_of(&self, port: Port) -> impl Iterator<Item = &ports::Interface> {
        let segment = self.segment(port);
        let (has_udp, peer) = (self.udp(segment).is_some(), self.peer(port));
        let near = move |other: Port, it: &ports::Interface| {
            it.plan.segment == segment && (!has_udp || peer == Some(other))
        };
        self.ports.of(Station::Target).filter(move |it| near(it.0, it.1)).map(|it| it.1)
    }

    /// The links of a host on a segment.
    pub(crate) fn links_on(&self, host: usize, segment: usize) -> Vec<usize> {
        let mine = self.ports.of(Station::Host(host)).map(|it| it.1);
        mine.filter(|it| it.plan.segment == segment).map(|it| it.place.link).collect()
    }

    /// All ports of a segment.
    pub(crate) fn ports_on(&self, segment: usize) -> Vec<Port> {
        let ports = self.ports.iter().filter(|(_, it)| it.plan.segment == segment);
        ports.map(|(port, _)| port).collect()
    }

    /// Ends all faults and repairs all segments.
    pub(crate) fn calm(&mut self) {
        for segment in 0..self.segments.len() {
            self.repair(segment);
        }
        self.calm = true;
    }

    pub(crate) fn repair(&mut self, segment: usize) {
        let repaired = &mut self.segments[segment];
        repaired.down = false;
        repaired.frame_len_passed = repaired.plan.frame_len_passed;
        for interface in self.ports.iter_mut().filter(|it| it.plan.segment == segment) {
            (interface.mute, interface.deaf) = (0.0, 0.0);
            interface.frame_len_taken = usize::MAX;
        }
    }

    pub(crate) fn set_down(&mut self, segment: usize, down: bool) {
        self.segments[segment].down = down && !self.calm;
    }

    /// Sets the shares of the frames that are lost of those that a link sends (`mute`) and receives
    /// (`deaf`).
    pub(crate) fn set_one_way(&mut self, port: Port, mute: f64, deaf: f64) {
        if !self.calm {
            let interface = self.ports.get_mut(port);
            (interface.mute, interface.deaf) = (mute, deaf);
        }
    }

    pub(crate) fn set_loss(&mut self, segment: usize, probability: f64) {
        self.segments[segment].plan.faults.drop = probability;
    }

    /// Sets the probability that a train is marked as congested.
    ///
    /// # Panics
    /// If the segment is none with UDP.
    pub(crate) fn set_marks(&mut self, segment: usize, probability: f64) {
        let udp = self.segments[segment].plan.udp.as_mut();
        udp.expect("a segment with UDP").marks = probability;
    }

    /// Sets the longest frame that the switch passes on; `None`: as planned.
    pub(crate) fn set_frame_len_passed(&mut self, segment: usize, len: Option<usize>) {
        let segment = &mut self.segments[segment];
        let planned = segment.plan.frame_len_passed;
        segment.frame_len_passed = len.filter(|_| !self.calm).unwrap_or(planned);
    }

    /// Sets the longest frame that an interface takes from its link; `None`: as planned.
    pub(crate) fn set_frame_len_taken(&mut self, port: Port, len: Option<usize>) {
        let len = len.filter(|_| !self.calm).unwrap_or(usize::MAX);
        self.ports.get_mut(port).frame_len_taken = len;
    }

    /// The longest frame that an interface takes from its link.
    pub(crate) fn frame_len_taken(&self, port: Port) -> usize {
        self.ports.get(port).frame_len_taken
    }

    /// Gives the target's links other addresses; if `elsewhere`, they also change places.
    pub(crate) fn move_target(&mut self, elsewhere: bool) {
        self.ports.move_target(elsewhere);
    }

    /// Draws a port that is not on the segment `not`, if there is one.
    pub(crate) fn draw_port(&mut self, random: &mut Random, not: Option<usize>) -> Option<Port> {
        let ports = self.ports.iter().filter(|(_, it)| Some(it.plan.segment) != not);
        let ports: Vec<_> = ports.map(|(port, _)| port).collect();
        (!ports.is_empty()).then(|| random.pick(&ports))
    }

    /// Sends frames that leave together; returns the fate of each.
    pub(crate) fn send(&mut self, now: Instant, from: Port, train: Vec<Vec<u8>>) -> Vec<Fate> {
        match self.udp(self.segment(from)) {
            None => train.into_iter().map(|frame| self.send_one(now, from, frame)).collect(),
            Some(plan) if plan.uncut => {
                let alone = train.into_iter().map(|frame| vec![frame]);
                alone.flat_map(|train| self.send_train(now, from, train, &plan)).collect()
            }
            Some(plan) => self.send_train(now, from, train, &plan),
        }
    }

    /// Sends a frame, or a datagram with one; returns its fate.
    fn send_one(&mut self, now: Instant, from: Port, frame: Vec<u8>) -> Fate {
        self.counts.frames += 1;
        let fate = self.judge(now, from, &frame);
        if matches!(fate, Fate::Dropped | Fate::TooLong | Fate::Congested | Fate::Cut) {
            self.counts.drops += 1;
            return fate;
        }
        let leaves = self.leave(now, from, frame.len());
        let is_datagram = self.udp(self.segment(from)).is_some();
        let destination = Mac::destination(frame.first_chunk().expect("a head"));
        let mut next = self.ports.receiver(from, destination, 0);
        let mut frame = Some(frame);
        while let Some(to) = next {
            next = self.ports.receiver(from, destination, to + 1);
            // The last receiver gets the frame itself, not a copy.
            let bytes = if next.is_none() { frame.take() } else { frame.clone() };
            let mut bytes = bytes.expect("the last receiver takes the frame");
            match fate {
                Fate::Corrupted => self.corrupt(&mut bytes, is_datagram),
                Fate::Duplicated => {
                    self.counts.duplicated += 1;
                    let apart = if self.random.chance(0.5) { self.random.below(50_000) } else { 0 };
                    self.deliver(leaves, to, bytes.clone(), Duration::from_micros(apart));
                }
                Fate::Late => self.keep(leaves, to, &bytes),
                _ => {}
            }
            let delay = match fate {
                Fate::Delayed if self.random.chance(0.9) => {
                    Duration::from_micros(self.random.below(5000))
                }
                Fate::Delayed => Duration::from_millis(self.random.below(1500)),
                _ => Duration::ZERO,
            };
            self.deliver(leaves, to, bytes, delay);
        }
        fate
    }

    fn judge(&mut self, now: Instant, from: Port, frame: &[u8]) -> Fate {
        let sender = self.ports.get(from);
        let segment = &self.segments[sender.plan.segment];
        if segment.down || self.random.hits(sender.mute) {
            return Fate::Cut;
        }
        if frame.len() > segment.frame_len_passed {
            return Fate::TooLong;
        }
        if sender.sends_until.since(now) > sender.patience(segment.plan.queue) {
            return Fate::Congested;
        }
        if self.calm {
            return Fate::Sent;
        }
        let faults = segment.plan.faults;
        let fates = [
            (faults.drop, Fate::Dropped),
            (faults.corrupt, Fate::Corrupted),
            (faults.duplicate, Fate::Duplicated),
            (faults.delay, Fate::Delayed),
            (faults.late, Fate::Late),
        ];
        let hit = fates.iter().find(|(probability, _)| self.random.chance(*probability));
        hit.map_or(Fate::Sent, |&(_, fate)| fate)
    }

    /// Flips one to three bits of a frame behind the Ethernet header. In a datagram they may also
    /// be bits of the frame's length, which is at the end of that header.
    fn corrupt(&mut self, frame: &mut [u8], is_datagram: bool) {
        self.counts.corrupted += 1;
        let first = if is_datagram { ETHERNET_LEN - 2 } else { ETHERNET_LEN };
        for _ in 0..self.random.between(1, 3) {
            let byte = self.random.between(first as u64, frame.len() as u64 - 1);
            frame[byte as usize] ^= 1 << self.random.below(8);
        }
    }

    /// When a frame has left its sender's interface.
    fn leave(&mut self, now: Instant, from: Port, len: usize) -> Instant {
        let sender = self.ports.get_mut(from);
        sender.sends_until = sender.sends_until.max(now) + sender.time_of(len);
        sender.sends_until
    }

    fn deliver(&mut self, leaves: Instant, to: Port, mut frame: Vec<u8>, delay: Duration) {
        let receiver = self.ports.get_mut(to);
        let plan = &self.segments[receiver.plan.segment].plan;
        let comes = leaves + plan.latency;
        let lost = frame.len() > receiver.plan.frame_len_max
            || receiver.takes_until.since(comes) > receiver.patience(plan.queue)
            || self.random.hits(receiver.deaf)
            || plan.udp.is_some() && !trains::open(&mut frame);
        if lost {
            self.counts.drops += 1;
            return;
        }
        let waits = receiver.takes_until.since(comes);
        let marks_after = plan.udp.and_then(|udp| udp.marks_after);
        let is_congested = marks_after.is_some_and(|limit| waits > limit);
        let free = receiver.takes_until + receiver.time_of(frame.len());
        receiver.takes_until = comes.max(free);
        let jitter = match plan.jitter.as_nanos() as u64 {
            0 => Duration::ZERO,
            jitter => Duration::from_nanos(self.random.below(jitter)),
        };
        let at = receiver.takes_until + jitter + delay;
        let delivery = Delivery { is_congested, ..Delivery::new(to, frame) };
        if receiver.twice && !self.calm {
            self.counts.duplicated += 1;
            self.deliveries.push((at, delivery.clone()));
        }
        self.deliveries.push((at, delivery));
    }

    /// Keeps a copy of a frame, to arrive on a later channel of the same index. A copy of a frame
    /// outside of channels arrives much later.
    fn keep(&mut self, leaves: Instant, to: Port, frame: &[u8]) {
        let Ok(header) = Header::parse(frame.first_chunk().expect("a head")) else { return };
        let mut frame = frame.to_vec();
        if self.udp(self.segment(to)).is_some() && !trains::open(&mut frame) {
            return;
        }
        if header.kind.on_channel() {
            let late = &mut self.ports.get_mut(to).late;
            if late.len() == LATE_MAX {
                late.pop_front();
            }
            late.push_back((header.channel.0, frame));
            return;
        }
        self.counts.late += 1;
        let delay = Duration::from_millis(self.random.below(5000));
        self.deliveries.push((leaves + delay, Delivery::new(to, frame)));
    }

    /// Delivers kept frames in the next milliseconds, when a channel was opened at a port: those of
    /// the channel index `channel`; `None`: all.
    pub(crate) fn release_late(&mut self, now: Instant, to: Port, channel: Option<u16>) {
        if self.calm {
            return;
        }
        let held = std::mem::take(&mut self.ports.get_mut(to).late);
        for (index, frame) in held {
            if channel.is_none_or(|channel| channel == index) {
                self.counts.late += 1;
                let at = now + Duration::from_micros(self.random.below(20_000));
                self.deliveries.push((at, Delivery::new(to, frame)));
            } else {
                self.ports.get_mut(to).late.push_back((index, frame));
            }
        }
    }
}
