//! The network: frames in flight on links that lose, repeat, delay, reorder and damage them.
//!
//! A link is a switch with one port for the target and one for each host. A frame waits for its
//! sender's port to be free, takes its time on the wire, and then the latency and some jitter.
//! Port 0 is the target's, port `1 + h` that of host `h`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tyche_proto::Instant;
use tyche_wire::{ETHERNET_LEN, HEAD_LEN, Header, Kind, Mac};

use crate::plan::LinkPlan;
use crate::random::Random;

/// A port of a link's switch.
pub(crate) type Port = u8;

/// The target's port on every link.
pub(crate) const TARGET: Port = 0;

/// Frames that a link keeps to deliver again much later.
const LATE_MAX: usize = 128;

/// The address of a port of a link.
pub(crate) fn mac(link: usize, port: Port) -> Mac {
    Mac([2, 0, 0, link as u8, 0, port])
}

/// A frame that arrives.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) link: usize,
    pub(crate) to: Port,
    pub(crate) frame: Box<[u8]>,
    /// The run of the target that the frame does not outlive, if there is one.
    pub(crate) only_in: Option<u64>,
}

impl Delivery {
    pub(crate) fn head(&self) -> &[u8; HEAD_LEN] {
        self.frame.first_chunk().expect("frames are at least a head long")
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.frame[HEAD_LEN..]
    }
}

/// What became of a frame, for the trace.
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
}

struct Link {
    plan: LinkPlan,
    ports: Port,
    /// Until when each port is sending.
    busy_until: BTreeMap<Port, Instant>,
    /// Nothing gets through.
    down: bool,
    /// Nothing of this port gets through.
    mute: Option<Port>,
    frame_len_passed: usize,
    /// Copies of frames to the target, by channel, for its next channel of that index.
    late: VecDeque<(u16, Box<[u8]>)>,
}

/// See the module.
pub(crate) struct Network {
    links: Vec<Link>,
    random: Random,
    calm: bool,
    /// Counts the runs of the target.
    pub(crate) run: u64,
    pub(crate) counts: Counts,
    /// What arrives when, for the caller to plan.
    pub(crate) deliveries: Vec<(Instant, Delivery)>,
}

impl Network {
    pub(crate) fn new(plans: &[LinkPlan], ports: Port, random: Random) -> Self {
        let link = |plan: &LinkPlan| Link {
            ports,
            busy_until: BTreeMap::new(),
            down: false,
            mute: None,
            frame_len_passed: plan.frame_len_passed,
            late: VecDeque::new(),
            plan: plan.clone(),
        };
        let links = plans.iter().map(link).collect();
        let counts = Counts::default();
        Self { links, random, calm: false, run: 0, counts, deliveries: Vec::new() }
    }

    pub(crate) fn links(&self) -> usize {
        self.links.len()
    }

    /// Nothing goes wrong any more, and what went wrong is repaired.
    pub(crate) fn calm(&mut self) {
        self.calm = true;
        for link in &mut self.links {
            (link.down, link.mute) = (false, None);
            link.frame_len_passed = link.plan.frame_len_passed;
        }
    }

    pub(crate) fn set_down(&mut self, link: usize, down: bool) {
        self.links[link].down = down && !self.calm;
    }

    pub(crate) fn set_mute(&mut self, link: usize, port: Option<Port>) {
        self.links[link].mute = port.filter(|_| !self.calm);
    }

    pub(crate) fn set_loss(&mut self, link: usize, probability: f64) {
        self.links[link].plan.faults.drop = probability;
    }

    /// The switch drops frames that are longer; `None`: as planned.
    pub(crate) fn set_frame_len_passed(&mut self, link: usize, len: Option<usize>) {
        let link = &mut self.links[link];
        let planned = link.plan.frame_len_passed;
        link.frame_len_passed = len.filter(|_| !self.calm).unwrap_or(planned);
    }

    /// Sends a frame; says what became of it.
    pub(crate) fn send(&mut self, now: Instant, link: usize, from: Port, frame: &[u8]) -> Fate {
        self.counts.frames += 1;
        let fate = self.judge(now, link, from, frame);
        let destination = Mac::destination(frame.first_chunk().expect("a head"));
        let to: Vec<Port> = match destination {
            Mac::BROADCAST => (0..self.links[link].ports).filter(|&port| port != from).collect(),
            Mac(bytes) => vec![bytes[5]],
        };
        if matches!(fate, Fate::Dropped | Fate::TooLong | Fate::Congested | Fate::Cut) {
            self.counts.drops += 1;
            return fate;
        }
        for to in to {
            let mut bytes: Box<[u8]> = frame.into();
            match fate {
                Fate::Corrupted => self.corrupt(&mut bytes),
                Fate::Duplicated => {
                    self.counts.duplicated += 1;
                    self.deliver(now, link, from, to, bytes.clone(), Duration::ZERO);
                }
                Fate::Late => self.keep(now, link, from, to, &bytes),
                _ => {}
            }
            let delay = match fate {
                Fate::Delayed if self.random.chance(0.9) => {
                    Duration::from_micros(self.random.below(5000))
                }
                Fate::Delayed => Duration::from_millis(self.random.below(1500)),
                _ => Duration::ZERO,
            };
            self.deliver(now, link, from, to, bytes, delay);
        }
        fate
    }

    fn judge(&mut self, now: Instant, link: usize, from: Port, frame: &[u8]) -> Fate {
        let link = &self.links[link];
        let behind = link.busy_until.get(&from).map_or(Duration::ZERO, |at| at.since(now));
        if link.down || link.mute == Some(from) {
            return Fate::Cut;
        }
        if frame.len() > link.frame_len_passed {
            return Fate::TooLong;
        }
        if behind > link.plan.queue {
            return Fate::Congested;
        }
        if self.calm {
            return Fate::Sent;
        }
        let faults = link.plan.faults;
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

    /// Flips one to three bits anywhere behind the Ethernet header.
    fn corrupt(&mut self, frame: &mut [u8]) {
        self.counts.corrupted += 1;
        for _ in 0..self.random.between(1, 3) {
            let byte = self.random.between(ETHERNET_LEN as u64, frame.len() as u64 - 1);
            frame[byte as usize] ^= 1 << self.random.below(8);
        }
    }

    fn deliver(
        &mut self,
        now: Instant,
        link: usize,
        from: Port,
        to: Port,
        frame: Box<[u8]>,
        delay: Duration,
    ) {
        let state = &mut self.links[link];
        let free = state.busy_until.entry(from).or_insert(now);
        // Preamble, checksum and the gap between two frames are 24 bytes.
        let bits = (frame.len() as u64 + 24) * 8;
        *free = (*free).max(now) + Duration::from_nanos(bits * 1_000_000_000 / state.plan.rate);
        let jitter = match state.plan.jitter.as_nanos() as u64 {
            0 => Duration::ZERO,
            jitter => Duration::from_nanos(self.random.below(jitter)),
        };
        let at = *free + state.plan.latency + jitter + delay;
        self.deliveries.push((at, Delivery { link, to, frame, only_in: None }));
    }

    /// Keeps a copy of a frame that might do harm on a later channel of the same index. Frames of
    /// no channel just come again when nobody expects them any more.
    fn keep(&mut self, now: Instant, link: usize, from: Port, to: Port, frame: &[u8]) {
        let Ok(header) = Header::parse(frame.first_chunk().expect("a head")) else { return };
        if !header.kind.on_channel() {
            self.counts.late += 1;
            let delay = Duration::from_millis(self.random.below(5000));
            self.deliver(now, link, from, to, frame.into(), delay);
            // A restarted target cannot know a connect for an old one. That it may believe it
            // costs somebody else the session, but never data.
            if let Some((_, delivery)) = self.deliveries.last_mut() {
                delivery.only_in = (header.kind == Kind::Connect).then_some(self.run);
            }
            return;
        }
        if to != TARGET || !matches!(header.kind, Kind::Command | Kind::Data) {
            return;
        }
        let late = &mut self.links[link].late;
        if late.len() == LATE_MAX {
            late.pop_front();
        }
        late.push_back((header.channel.0, frame.into()));
    }

    /// The target has opened a channel of this index: frames of its predecessors that the network
    /// still held arrive during the next milliseconds.
    pub(crate) fn release_late(&mut self, now: Instant, link: usize, channel: u16) {
        if self.calm {
            return;
        }
        let held = std::mem::take(&mut self.links[link].late);
        for (index, frame) in held {
            if index == channel {
                self.counts.late += 1;
                let at = now + Duration::from_micros(self.random.below(20_000));
                self.deliveries.push((at, Delivery { link, to: TARGET, frame, only_in: None }));
            } else {
                self.links[link].late.push_back((index, frame));
            }
        }
    }
}
