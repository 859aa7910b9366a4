//! Topologies: segments, and the links of the target and of the hosts on them.
//!
//! ```text
//! apart    target 0 ── segment 0 ── host 0     a network of its own for each pair; a further
//!          target 1 ── segment 1 ── host 1     link of one side is alone on its segment, or has
//!          target 2 ── segment 2               other hosts there
//!
//! shared   target 0, 1 ──┐
//!                        ├ segment 0           a broadcast reaches every link of the target
//!          host 0, 1, 2 ─┘
//!
//! mixed    any link on any segment, but the first of each host where a link of the target is
//! ```

use std::time::Duration;

use tyche_wire::ETHERNET_LEN;

use super::UdpPlan;
use crate::random::Random;

/// The most links that the target and each host have.
pub(crate) const LINKS_MAX: u64 = 6;

/// A link of the target or of a host: an interface and where it is plugged in.
#[derive(Clone, Copy, Debug)]
pub struct LinkPlan {
    /// Index of the segment.
    pub segment: usize,
    /// Longest frame that the interface takes.
    pub frame_len_max: usize,
    /// Bits per second.
    pub rate: u64,
}

/// A segment: a switch, and the conditions of frames on their way between two of its ports.
#[derive(Clone, Debug)]
pub struct SegmentPlan {
    /// Longest frame that is passed on.
    pub frame_len_passed: usize,
    /// Time that a port may be behind before it drops frames.
    pub queue: Duration,
    /// Time from end to end.
    pub latency: Duration,
    /// Most additional time, by chance: frames overtake each other.
    pub jitter: Duration,
    /// Faults of single frames.
    pub faults: Faults,
    /// Frames travel in UDP datagrams: [`Plan::set_udp`](super::Plan::set_udp).
    pub udp: Option<UdpPlan>,
}

/// Probabilities of the faults of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// It is lost.
    pub drop: f64,
    /// It comes twice, at once or milliseconds apart.
    pub duplicate: f64,
    /// Bits of it are flipped.
    pub corrupt: f64,
    /// It comes milliseconds later, sometimes many.
    pub delay: f64,
    /// It comes again much later, when its channel may be another.
    pub late: f64,
}

impl LinkPlan {
    /// A link of 10 Gb/s with that MTU.
    pub fn clean(segment: usize, mtu: usize) -> Self {
        Self { segment, frame_len_max: ETHERNET_LEN + mtu, rate: 10_000_000_000 }
    }
}

impl SegmentPlan {
    /// A segment without faults.
    pub fn clean(mtu: usize) -> Self {
        Self {
            frame_len_passed: ETHERNET_LEN + mtu,
            queue: Duration::from_secs(1),
            latency: Duration::from_micros(20),
            jitter: Duration::ZERO,
            faults: Faults::default(),
            udp: None,
        }
    }

    fn draw(random: &mut Random) -> Self {
        let mtu = if random.chance(0.15) { 1500 } else { 65_535 };
        Self {
            queue: Duration::from_micros(random.pick(&[500, 5000, 1_000_000])),
            latency: Duration::from_micros(random.pick(&[5, 30, 500, 5000])),
            jitter: Duration::from_micros(random.pick(&[0, 5, 50, 500])),
            faults: Faults::draw(random),
            ..Self::clean(mtu)
        }
    }
}

impl Faults {
    fn draw(random: &mut Random) -> Self {
        let mut sometimes = |rates: &[f64]| {
            if random.chance(0.5) { random.pick(rates) } else { 0.0 }
        };
        Self {
            drop: sometimes(&[0.001, 0.01, 0.05]),
            duplicate: sometimes(&[0.001, 0.02]),
            corrupt: sometimes(&[0.001, 0.02]),
            delay: sometimes(&[0.001, 0.02]),
            late: sometimes(&[0.01, 0.1]),
        }
    }
}

#[derive(Clone, Copy)]
enum Layout {
    Apart,
    Shared,
    Mixed,
}

/// A drawn topology: the segments, and for the target and each host the links on them.
pub(super) struct Topology {
    pub(super) segments: Vec<SegmentPlan>,
    /// The links of the target, then those of each host.
    pub(super) links: Vec<Vec<LinkPlan>>,
}

impl Topology {
    /// Draws one to three segments, each with a link of the target and of every host.
    pub(super) fn draw_small(random: &mut Random, hosts: u64) -> Self {
        let count = random.pick(&[1, 2, 2, 3]);
        let segments: Vec<_> = (0..count).map(|_| SegmentPlan::draw(random)).collect();
        let mut topology = Self { segments, links: vec![Vec::new(); hosts as usize + 1] };
        for segment in 0..count {
            let mtu = random.pick(&[1500, 1500, 9000, 9000, 65_535]);
            let rate = random.pick(&[1, 10, 25]) * 1_000_000_000;
            for links in &mut topology.links {
                links.push(LinkPlan { rate, ..LinkPlan::clean(segment, mtu) });
            }
        }
        topology
    }

    /// Draws two links at least at one side, and six at most at each.
    pub(super) fn draw_large(random: &mut Random, hosts: u64) -> Self {
        let layout = random.pick(&[Layout::Apart, Layout::Apart, Layout::Shared, Layout::Mixed]);
        let target = random.between(1, LINKS_MAX);
        let fewest = if target == 1 { 2 } else { 1 };
        let hosts: Vec<_> = (0..hosts).map(|_| random.between(fewest, LINKS_MAX)).collect();
        let most = hosts.iter().copied().fold(target, u64::max);
        let count = match layout {
            Layout::Apart => most,
            Layout::Shared => 1,
            Layout::Mixed => random.between(2, 4),
        };
        let segments = (0..count).map(|_| SegmentPlan::draw(random)).collect();
        let mtus: Vec<usize> =
            (0..count).map(|_| random.pick(&[1500, 1500, 9000, 9000, 65_535])).collect();
        // Hosts that have more links than the target meet on its segments, or are alone there.
        let alone = random.chance(0.5);
        let mut plug = |index: u64| {
            let segment = match layout {
                Layout::Apart if alone => index,
                Layout::Apart => index % target,
                Layout::Shared => 0,
                Layout::Mixed => random.below(count),
            } as usize;
            let mtu = if random.chance(0.8) { mtus[segment] } else { random.pick(&[1500, 9000]) };
            let rate = random.pick(&[2, 10, 10, 100, 250]) * 100_000_000;
            LinkPlan { rate, ..LinkPlan::clean(segment, mtu) }
        };
        let mut links: Vec<Vec<_>> = vec![(0..target).map(&mut plug).collect()];
        links.extend(hosts.iter().map(|&count| (0..count).map(&mut plug).collect()));
        let mut topology = Self { segments, links };
        topology.introduce(random);
        topology
    }

    /// Puts the first link of each host where it finds a link of the target.
    fn introduce(&mut self, random: &mut Random) {
        let (target, hosts) = self.links.split_at_mut(1);
        for links in hosts {
            if !target[0].iter().any(|link| link.segment == links[0].segment) {
                links[0].segment = target[0][random.below(target[0].len() as u64) as usize].segment;
            }
        }
    }

    /// Removes all faults from the segment of the target's first link, and puts every host on it;
    /// returns the segment.
    pub(super) fn steady(&mut self) -> usize {
        let segment = self.links[0][0].segment;
        for segment in &mut self.segments {
            // A link that loses many frames but not all of them is given up late.
            segment.faults.drop = segment.faults.drop.min(0.001);
            segment.faults.corrupt = segment.faults.corrupt.min(0.001);
        }
        self.segments[segment] = SegmentPlan::clean(65_535);
        self.links.iter_mut().for_each(|links| {
            links[0].segment = segment;
            for link in links.iter_mut().filter(|link| link.segment == segment) {
                link.rate = link.rate.max(1_000_000_000);
            }
        });
        segment
    }
}
