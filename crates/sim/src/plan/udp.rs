//! Segments over which frames travel in UDP datagrams: a network of routers, of which each link of
//! a host reaches one link of the target.
//!
//! Frames leave in trains, as the link over UDP divides them. The network carries a train as one,
//! or in its datagrams:
//!
//! ```text
//!  train   [frame][frame][frame][fr]      all but the last have one length: shorter frames are
//!             |      |      |     |       padded
//!          lost, late, twice, out of      whole, or some of them
//!          order, marked as congested
//!             |      |      |     |
//!          [frame][frame][frame][fr]      arrives as one, or each by itself
//! ```
//!
//! The faults of the [segment](super::Faults) befall single datagrams besides.

use std::time::Duration;

use tyche_link::udp::FRAME_LEN_MAX;
use tyche_wire::ETHERNET_LEN;

use super::Plan;
use crate::random::Random;

/// Salt of a seed for the random stream of this module.
const UDP: u64 = 0x0075_6470;

/// Bytes of the headers of UDP, and of IPv4 or IPv6.
const HEADERS: [usize; 2] = [28, 48];

/// The plan of a segment over UDP: how trains are formed and carried, and the probabilities of
/// their faults. It is drawn from the seed, or [`clean`](Self::clean).
#[derive(Clone, Copy, Debug)]
pub struct UdpPlan {
    /// Bytes of the headers of IP and UDP.
    pub headers: usize,
    /// Each frame is a train of its own: nobody cuts trains.
    pub uncut: bool,
    /// The last frame of a train is padded, too.
    pub pads_last: bool,
    /// Share of the trains that arrive as one.
    pub joins: f64,
    /// Probabilities of the faults of a train.
    pub faults: TrainFaults,
    /// Probability that a train is marked as congested (ECN).
    pub marks: f64,
    /// Time that a datagram waits for its receiver's port before it is marked, if such are.
    pub marks_after: Option<Duration>,
}

/// Probabilities of the faults of a train.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrainFaults {
    /// It is lost.
    pub drop: f64,
    /// Some of its datagrams are lost: the first ones, the last ones, one, or every other.
    pub tear: f64,
    /// It comes twice.
    pub duplicate: f64,
    /// It comes milliseconds later: others overtake it.
    pub delay: f64,
    /// Its datagrams come in another order.
    pub shuffle: f64,
}

impl UdpPlan {
    /// A network without faults, over IPv4. Trains arrive as they were sent.
    pub fn clean() -> Self {
        Self {
            headers: HEADERS[0],
            uncut: false,
            pads_last: false,
            joins: 1.0,
            faults: TrainFaults::default(),
            marks: 0.0,
            marks_after: None,
        }
    }

    fn draw(random: &mut Random) -> Self {
        let headers = random.pick(&HEADERS);
        let (uncut, pads_last) = (random.chance(0.15), random.chance(0.3));
        let joins = random.pick(&[0.0, 0.5, 1.0]);
        let faults = TrainFaults::draw(random);
        let marks = random.pick(&[0.0, 0.0, 0.01, 0.2, 1.0]);
        let marks_after = random.pick(&[None, Some(50), Some(500)]).map(Duration::from_micros);
        Self { headers, uncut, pads_last, joins, faults, marks, marks_after }
    }

    /// Limits faults and marks, so that the links are slow only for a while.
    fn be_modest(&mut self) {
        let faults = &mut self.faults;
        (faults.drop, faults.tear) = (faults.drop.min(0.001), faults.tear.min(0.001));
        self.marks = self.marks.min(0.01);
    }

    /// The longest frame in the datagrams of a path on which Ethernet frames of `ethernet` bytes
    /// are the longest.
    pub(crate) fn frame_len_max(&self, ethernet: usize) -> usize {
        (ethernet - ETHERNET_LEN - self.headers).min(FRAME_LEN_MAX)
    }
}

impl TrainFaults {
    fn draw(random: &mut Random) -> Self {
        let mut sometimes = |rates: &[f64]| {
            if random.chance(0.5) { random.pick(rates) } else { 0.0 }
        };
        Self {
            drop: sometimes(&[0.001, 0.01, 0.05]),
            tear: sometimes(&[0.001, 0.02, 0.1]),
            duplicate: sometimes(&[0.001, 0.02]),
            delay: sometimes(&[0.001, 0.02]),
            shuffle: sometimes(&[0.01, 0.2]),
        }
    }
}

impl Plan {
    /// Draws the segments with UDP, and how often addresses change there.
    pub(super) fn draw_udp(&mut self) {
        let random = &mut Random::new(self.seed ^ UDP);
        let share = random.pick(&[0.0, 0.0, 0.0, 0.5, 1.0]);
        let mean = Duration::from_millis(random.pick(&[300, 2000]));
        let rebinds = random.chance(0.5);
        let steady = self.incidents.steady;
        for segment in 0..self.segments.len() {
            let mut udp = UdpPlan::draw(random);
            if !random.chance(share) || steady == Some(segment) {
                continue;
            }
            if steady.is_some() {
                udp.be_modest();
            }
            self.set_udp(segment, udp);
        }
        let has_any = self.segments.iter().any(|segment| segment.udp.is_some());
        let mean = if steady.is_some() { mean.max(Duration::from_secs(1)) } else { mean };
        self.incidents.rebind = (rebinds && has_any).then_some(mean);
    }

    /// Has the frames of a segment, so far one of Ethernet, travel in UDP datagrams. Its MTU, and
    /// those of the links on it, stay the same.
    pub fn set_udp(&mut self, segment: usize, udp: UdpPlan) {
        let shorten = |len: &mut usize| *len = udp.frame_len_max(*len);
        let hosts = self.hosts.iter_mut().map(|host| &mut host.links);
        let others = self.breaker.iter_mut().map(|breaker| &mut breaker.links);
        let links = hosts.chain(others).chain([&mut self.target.links]).flatten();
        let here = links.filter(|link| link.segment == segment);
        here.for_each(|link| shorten(&mut link.frame_len_max));
        let segment = &mut self.segments[segment];
        assert!(segment.udp.is_none(), "a segment is of one kind");
        shorten(&mut segment.frame_len_passed);
        segment.udp = Some(udp);
    }
}
