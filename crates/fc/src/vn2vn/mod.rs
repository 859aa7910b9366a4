//! Ports on a network without a fabric: how they choose addresses and find each other (VN2VN of
//! FC-BB-6).
//!
//! A port chooses its N_Port_ID itself, asks all others whether it is free, claims it, and is
//! reached at the Ethernet address that follows from it:
//!
//! ```text
//!          0..100 ms        100 ms          400 ms         400 ms
//!  Start ─────────► Probe1 ───────► Probe2 ───────► Claim ───────► Up ◄─┐ 8 s
//!    ▲       probe          probe           claim          beacon  └────┘ beacon
//!    └── another N_Port_ID if this one belongs to another port ────┘
//! ```
//!
//! Of two ports that want the same N_Port_ID, one has it already, or the one with the higher name
//! gets it. A neighbour is known by its claim, and present with its first beacon or FLOGI. It is
//! gone if it is silent for 2.5 beacons, or claims something else.
//!
//! One input ([`handle_link`](Vn2vn::handle_link), [`handle_frame`](Vn2vn::handle_frame),
//! [`handle_timeout`](Vn2vn::handle_timeout)), then drain the outputs:
//! [`poll_membership`](Vn2vn::poll_membership) and [`poll_event`](Vn2vn::poll_event) until `None`,
//! [`poll_transmit`](Vn2vn::poll_transmit) until `None`. [`poll_timeout`](Vn2vn::poll_timeout) says
//! how long to wait for the next input.
//!
//! The times are those that Linux has. Where the standard leaves a choice, the reason is beside it.

mod neighbours;
mod outputs;
mod receive;

use std::time::Duration;

use tyche_fc_wire::fip::ALL_VN2VN_ENODE_MACS;
use tyche_fc_wire::{Mac, PortId, Wwn};
use tyche_time::{Instant, Pace, earliest};

pub use outputs::Ignored;

use crate::neighbour::{Address, Event, Functions, Interface, Membership, Neighbour};
use crate::random::Random;
use neighbours::Neighbours;
use outputs::{Outputs, Send};

/// The most time before the first probe, so that ports that start together spread.
const START_MAX: Duration = Duration::from_millis(100);
/// The time between the probes.
const PROBE_WAIT: Duration = Duration::from_millis(100);
/// The time for an answer to the second probe, to the claim, and to the first beacon.
const ANNOUNCE_WAIT: Duration = Duration::from_millis(400);
/// The most time until the port claims an N_Port_ID, without a collision.
pub const CLAIM_MAX: Duration = START_MAX.saturating_add(PROBE_WAIT).saturating_add(ANNOUNCE_WAIT);
/// The time between beacons.
const BEACON_INTERVAL: Duration = Duration::from_secs(8);
/// The most time that is added to it, so that beacons spread.
const BEACON_SPREAD: Duration = Duration::from_millis(100);
/// The longest silence of a neighbour: two beacons may be lost.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// The time after which a port has forgotten another that it does not hear any more, counted from
/// when that one missed it: one of both may have heard a beacon that the other sent later.
pub(crate) const FORGOTTEN_AFTER: Duration = SILENCE_MAX.saturating_add(BEACON_INTERVAL);
/// Collisions after which attempts become rare.
const COLLISIONS_MAX: u32 = 10;
/// The time between attempts then.
const COLLISION_WAIT: Duration = Duration::from_secs(10);
/// The least time between answers, on average, and how many there may be at once: as many as
/// neighbours that start together. An answer to a claim has the size of the longest frame, and goes
/// to an address that the claim names: without a bound, we would multiply a flood by ten.
const ANSWER_INTERVAL: Duration = Duration::from_millis(1);
const ANSWERS_MAX: u32 = 256;

/// The configuration of a port, which does not change.
#[derive(Clone, Copy, Debug)]
pub struct Vn2vnConfig {
    /// Name of the port.
    pub wwpn: Wwn,
    /// Name of its node.
    pub wwnn: Wwn,
    /// The N_Port_ID that it had before, if that is known.
    pub recorded: Option<PortId>,
    /// Its functions.
    pub functions: Functions,
    /// Random numbers follow from it.
    pub seed: u64,
}

/// The stage on the way to an N_Port_ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The link is down.
    Down,
    /// Waits before the first probe.
    Start,
    /// Has sent one probe.
    Probe1,
    /// Has sent both.
    Probe2,
    /// Has claimed it.
    Claim,
    /// Has it, and shows it by beacons.
    Up,
}

/// The VN2VN state machine of one port, without I/O: it obtains an N_Port_ID and tracks neighbours.
/// Its user has the link and the clock, and lets [`Logins`](crate::port::Logins) handle the events.
pub struct Vn2vn {
    config: Vn2vnConfig,
    random: Random,
    neighbours: Neighbours,
    answers: Pace,
    interface: Interface,
    stage: Stage,
    /// When the stage ends by itself.
    stage_ends: Option<Instant>,
    /// The N_Port_ID that the port wants, or has.
    id: PortId,
    /// Whether it had that before.
    is_recorded: bool,
    /// Collisions since the link came up.
    collisions: u32,
    /// When the last claim was sent.
    claimed: Option<Instant>,
    /// When another is to be sent.
    claim_due: Option<Instant>,
    /// When the next beacon is to be sent.
    beacon_due: Option<Instant>,
    outputs: Outputs,
}

impl Vn2vn {
    /// A port whose link is down.
    pub fn new(config: Vn2vnConfig) -> Self {
        let mut outputs = Outputs::default();
        outputs.memberships.push_back(Membership::Join(ALL_VN2VN_ENODE_MACS));
        Self {
            random: Random::new(config.seed),
            neighbours: Neighbours::new(),
            answers: Pace::new(ANSWER_INTERVAL, ANSWERS_MAX),
            interface: Interface { mac: Mac::default(), mtu: 0 },
            stage: Stage::Down,
            stage_ends: None,
            id: PortId::NONE,
            is_recorded: false,
            collisions: 0,
            claimed: None,
            claim_due: None,
            beacon_due: None,
            outputs,
            config,
        }
    }

    /// The address of the port, if it is up.
    pub fn address(&self) -> Option<Address> {
        (self.stage == Stage::Up).then(|| Address::chosen(self.id))
    }

    /// The interface that it has, or had last.
    pub fn interface(&self) -> Interface {
        self.interface
    }

    /// The neighbours that are present, up to
    /// [`NEIGHBOURS_MAX`](crate::neighbour::NEIGHBOURS_MAX); none if the port is not up.
    pub fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.neighbours.present().filter(|_| self.stage == Stage::Up)
    }

    /// The ports that have claimed an N_Port_ID, present or not. They are heard of as soon as our
    /// own claim is sent, for they answer it.
    pub fn claimed(&self) -> impl Iterator<Item = &Neighbour> {
        self.neighbours.all()
    }

    /// Whether the port has claimed its N_Port_ID.
    pub fn has_claimed(&self) -> bool {
        self.stage >= Stage::Claim
    }

    /// Counters of ignored frames, since the start.
    pub fn ignored(&self) -> Ignored {
        Ignored { undrained: self.outputs.undrained(), ..self.outputs.ignored }
    }

    /// Takes the state of the link: up, with an interface, or down. An interface with another
    /// address is another one, and so is one that takes frames of another length: the logins, which
    /// others would go on to use with the former length, end, and begin anew.
    pub fn handle_link(&mut self, now: Instant, up: Option<Interface>) {
        let before = (self.stage > Stage::Down).then(|| self.interface.identity());
        if let Some(interface) = up {
            self.interface = interface;
        }
        if before == up.map(|it| it.identity()) {
            return;
        }
        self.release();
        self.neighbours.clear();
        self.collisions = 0;
        (self.stage, self.stage_ends) = (Stage::Down, None);
        if up.is_some() {
            self.choose_first();
            self.start(now);
        }
    }

    /// Runs the timers that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.stage_ends) {
            self.advance(now);
        }
        if is_due(self.claim_due) {
            self.send_claim(now);
        }
        if is_due(self.beacon_due) {
            self.outputs.send(Send::Beacon);
            let spread = self.random_below(BEACON_SPREAD);
            self.beacon_due = Some(now + BEACON_INTERVAL + spread);
        }
        let report = self.outputs.reporter(self.stage == Stage::Up);
        self.neighbours.expire(now, report);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if there is no other input before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let own = earliest(self.stage_ends, earliest(self.claim_due, self.beacon_due));
        earliest(own, self.neighbours.silent_at())
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.outputs.events.pop_front()
    }

    /// The next address to join or leave.
    pub fn poll_membership(&mut self) -> Option<Membership> {
        self.outputs.memberships.pop_front()
    }

    /// The address that follows from the N_Port_ID.
    fn mac(&self) -> Mac {
        Address::chosen(self.id).mac
    }

    fn random_below(&mut self, bound: Duration) -> Duration {
        Duration::from_nanos(self.random.below(bound.as_nanos() as u64))
    }

    /// Waits before the first probe.
    fn start(&mut self, now: Instant) {
        let wait = self.random_below(START_MAX);
        self.enter(Stage::Start, now + wait);
    }

    fn enter(&mut self, stage: Stage, until: Instant) {
        (self.stage, self.stage_ends) = (stage, Some(until));
    }

    /// Goes on to the next stage: nobody has objected.
    fn advance(&mut self, now: Instant) {
        match self.stage {
            Stage::Start => {
                self.outputs.send(Send::Probe);
                self.enter(Stage::Probe1, now + PROBE_WAIT);
            }
            Stage::Probe1 => {
                self.outputs.send(Send::Probe);
                self.enter(Stage::Probe2, now + ANNOUNCE_WAIT);
            }
            Stage::Probe2 => {
                self.outputs.memberships.push_back(Membership::Join(self.mac()));
                self.send_claim(now);
                self.enter(Stage::Claim, now + ANNOUNCE_WAIT);
            }
            Stage::Claim => self.come_up(now),
            Stage::Down | Stage::Up => unreachable!("{:?} does not end by itself", self.stage),
        }
    }

    fn come_up(&mut self, now: Instant) {
        (self.stage, self.stage_ends) = (Stage::Up, None);
        self.config.recorded = Some(self.id);
        self.outputs.events.push_back(Event::Claimed(Address::chosen(self.id)));
        self.outputs.events.extend(self.neighbours.present().copied().map(Event::Appeared));
        self.outputs.send(Send::Beacon);
        self.beacon_due = Some(now + ANNOUNCE_WAIT);
    }

    /// Sends a claim, or has it sent as soon as the last is old enough: whoever did not understand
    /// that one needs another, and all answer it.
    fn repeat_claim(&mut self, now: Instant) {
        match self.claimed.map(|sent| sent + ANNOUNCE_WAIT) {
            Some(at) if now < at => self.claim_due = Some(at),
            _ => self.send_claim(now),
        }
    }

    fn send_claim(&mut self, now: Instant) {
        self.outputs.send(Send::Claim);
        (self.claimed, self.claim_due) = (Some(now), None);
        self.hurry_beacon(now);
    }

    /// Has the next beacon sent soon: a port that has just heard of us waits for it, and it may be
    /// far. The standard asks for one in each interval, and does not forbid more.
    fn hurry_beacon(&mut self, now: Instant) {
        if self.stage == Stage::Up {
            self.beacon_due = earliest(self.beacon_due, Some(now + ANNOUNCE_WAIT));
        }
    }

    /// Starts anew with another N_Port_ID: this one is another port's.
    fn collide(&mut self, now: Instant) {
        self.release();
        self.choose_another();
        if self.stage == Stage::Start {
            // Nobody has been asked about it yet. The wait goes on, so that nobody can extend it.
            return;
        }
        self.collisions += 1;
        if self.collisions <= COLLISIONS_MAX {
            self.start(now);
        } else {
            self.enter(Stage::Start, now + COLLISION_WAIT);
        }
    }

    /// Gives the N_Port_ID up. Neighbours that are present stay so, but are reported anew with the
    /// next one.
    fn release(&mut self) {
        self.outputs.drop_frames();
        (self.claimed, self.claim_due, self.beacon_due) = (None, None, None);
        if self.stage >= Stage::Claim {
            self.outputs.memberships.push_back(Membership::Leave(self.mac()));
        }
        if self.stage == Stage::Up {
            self.outputs.events.extend(self.neighbours.present().copied().map(Event::Gone));
            self.outputs.events.push_back(Event::Released(self.id));
        }
    }

    /// Chooses the N_Port_ID that the port had before, else one that follows from its name: the end
    /// of it, which is that of the interface's address, and the 12 bits in front of the address
    /// (NAA 2). So the ports of an interface, which do not hear each other, begin with different
    /// ones, and the first, with zeroes there, as others do.
    fn choose_first(&mut self) {
        let recorded = self.config.recorded.filter(|id| is_valid(*id));
        self.is_recorded = recorded.is_some();
        let name = self.config.wwpn.0;
        let named = PortId::new((name ^ name >> 48 & 0xfff) as u32 & 0xffff);
        match recorded.or_else(|| is_valid(named).then_some(named)) {
            Some(id) => self.id = id,
            None => self.choose_another(),
        }
    }

    /// Chooses a random N_Port_ID.
    fn choose_another(&mut self) {
        let former = self.id;
        self.is_recorded = false;
        // A few hundred of 65,534 are taken: the second draw is rare, the tenth never.
        for _ in 0..10 {
            self.id = PortId::new(1 + self.random.below(0xfffe) as u32);
            if self.id != former && self.neighbours.find(self.id).is_none() {
                return;
            }
        }
    }
}

/// Whether a port may choose it: the upper byte is zero, the rest is neither zero nor all ones.
fn is_valid(id: PortId) -> bool {
    (1..0xffff).contains(&id.to_u32())
}

impl std::fmt::Debug for Vn2vn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vn2vn({}, {:?} of {})", self.config.wwpn, self.stage, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(seed: u64) -> Vn2vn {
        let functions = Functions { initiator: true, target: false };
        let (wwpn, wwnn) = (Wwn(0x2000_0000_0000_0a01), Wwn(0x1000_0000_0000_0a01));
        let mut port = Vn2vn::new(Vn2vnConfig { wwpn, wwnn, recorded: None, functions, seed });
        port.handle_link(Instant(1), Some(Interface { mac: Mac([2; 6]), mtu: 2500 }));
        port
    }

    #[test]
    fn another_id_is_valid_nobody_s_and_not_the_former() {
        let mut port = port(1);
        // As many as there is room for.
        for id in (1..).step_by(200).take(crate::neighbour::NEIGHBOURS_MAX) {
            let wwpn = Wwn(0x2000_0000_0001_0000 + u64::from(id));
            let neighbour = Neighbour {
                wwpn,
                wwnn: None,
                id: PortId::new(id),
                enode: Mac([2, 0, 0, 0, 0, 1]),
                fcoe_len_max: 2158,
                functions: Functions { initiator: true, target: false },
            };
            port.neighbours.claim(Instant(1), neighbour, |_| {});
        }
        let (mut lowest, mut highest) = (u32::MAX, 0);
        for _ in 0..500_000 {
            let former = port.id;
            port.choose_another();
            assert!(is_valid(port.id) && port.id != former, "{} after {former}", port.id);
            assert!(port.neighbours.find(port.id).is_none(), "{} is a neighbour's", port.id);
            lowest = lowest.min(port.id.to_u32());
            highest = highest.max(port.id.to_u32());
        }
        assert_eq!((lowest, highest), (2, 0xfffe), "1 is a neighbour's");
    }

    #[test]
    fn a_claim_is_repeated_when_the_last_is_old_enough() {
        let mut port = port(1);
        port.send_claim(Instant(5));
        let due = Instant(5) + ANNOUNCE_WAIT;
        for early in [Instant(5), Instant(due.0 - 1)] {
            port.repeat_claim(early);
            assert_eq!((port.claimed, port.claim_due), (Some(Instant(5)), Some(due)));
        }
        for late in [due, due + ANNOUNCE_WAIT + ANNOUNCE_WAIT] {
            port.repeat_claim(late);
            assert_eq!(port.claimed, Some(late), "at once");
        }
    }
}
