//! A good host and a good target, two links between them, and an adversary on both.
//!
//! A link is a hub that may lose frames, repeat them and let them overtake each other. The
//! adversary hears all of them and says what it likes, to the one end that is its victim.

use std::collections::VecDeque;
use std::time::Duration;

use tyche_proto::wire::{Event, Flags, Frame, Header, Kind, Mac, Status};
use tyche_proto::{AllRules, Failure, Instant, Rules};
use tyche_testkit::allocations;

use super::adversary::{Adversary, attempt_of, header_of};
use super::frames::split;
use super::host::{Habits, Host};
use super::ledger::Ledger;
use super::seals::Seals;
use super::target::{TALK_MAX, Target};

pub(crate) const LINKS: usize = 2;
pub(crate) const FRAME_LEN: usize = 1514;
pub(crate) const RINGS: [u16; 2] = [16; 2];
pub(crate) const HOSTS: [Mac; LINKS] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 1, 1])];
pub(crate) const TARGETS: [Mac; LINKS] = [Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 1, 2])];
/// The adversary's own addresses.
pub(crate) const STRANGERS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10])];

/// Frames under way on all links in one direction.
const UNDER_WAY_MAX: usize = 128;
/// Steps that both ends take together without time passing.
const ROUNDS_MAX: usize = 2048;
/// How often a timer may expire without time passing.
const EXPIRIES_MAX: usize = 8;
/// Bytes that both ends, the frames under way and what the checks remember take at most, whatever
/// the frames were.
const HELD_MAX: isize = 48 << 20;

/// Whom the adversary speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Target,
    Host,
}

/// Numbers that differ from each other.
pub(crate) fn random(mut state: u64) -> Box<dyn FnMut() -> u64 + Send> {
    Box::new(move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        state ^ state >> 32
    })
}

/// The whole test network: both ends, the adversary, the frames in flight and the clock. It checks
/// how many frames each frame of the adversary may cause.
pub(crate) struct World<R = AllRules> {
    pub(crate) now: Instant,
    pub(crate) host: Host<R>,
    pub(crate) target: Target<R>,
    pub(crate) ledger: Ledger,
    /// Why the good host's first session has failed, if it has.
    pub(crate) failure: Option<Failure>,
    pub(crate) adversary: Adversary,
    seals: Seals,
    /// Frames under way, with their links, to the target and to the host.
    under_way: [VecDeque<(usize, Vec<u8>)>; 2],
    victim: Victim,
    /// The adversary speaks in nobody's name on a channel.
    outsider: bool,
    held_before: isize,
    /// Frames are printed: `SHOW_FRAMES=1`.
    shows: bool,
}

impl<R: Rules> World<R> {
    pub(crate) fn new(victim: Victim, outsider: bool, host: Host<R>, target: Target<R>) -> Self {
        Self {
            now: Instant(1_000_000_000),
            host,
            target,
            ledger: Ledger::new(),
            failure: None,
            adversary: Adversary::new(),
            seals: Seals::default(),
            under_way: [VecDeque::new(), VecDeque::new()],
            victim,
            outsider,
            held_before: allocations::held(),
            shows: std::env::var_os("SHOW_FRAMES").is_some(),
        }
    }

    /// Begins another session of the good host.
    pub(crate) fn restart_host(&mut self, habits: Habits, number: u64) {
        self.failure = self.host.failure;
        self.host = Host::new(habits, number, self.now);
        self.settle();
    }

    /// Has both ends say what they have to say now; returns how many frames the target, and how
    /// many the host has sent.
    pub(crate) fn drain(&mut self) -> [usize; 2] {
        let mut sent = [0; 2];
        self.target.serve(self.now, &mut self.ledger);
        for link in 0..LINKS {
            while let Some((dst, frame)) = self.target.transmit(self.now, link) {
                sent[0] += 1;
                assert!(sent[0] < TALK_MAX, "the target talks without end");
                self.adversary.hear(self.now, link, &frame, &self.ledger);
                self.seals.send(&frame);
                if dst == HOSTS[link] {
                    self.send(1, link, frame);
                }
            }
            while let Some((dst, frame)) = self.host.transmit(self.now, link) {
                sent[1] += 1;
                assert!(sent[1] < TALK_MAX, "the host talks without end");
                self.note_attempt(&frame);
                self.adversary.hear(self.now, link, &frame, &self.ledger);
                self.seals.send(&frame);
                if dst == TARGETS[link] || dst.is_group() {
                    self.send(0, link, frame);
                }
            }
        }
        // What was said may have ended a channel.
        self.target.serve(self.now, &mut self.ledger);
        let held = allocations::held() - self.held_before;
        assert!(held < HELD_MAX, "{held} bytes are held");
        sent
    }

    fn note_attempt(&mut self, frame: &[u8]) {
        if let Some((attempt, _)) = attempt_of(frame) {
            self.ledger.attempts.insert(attempt);
        }
    }

    fn send(&mut self, way: usize, link: usize, frame: Vec<u8>) {
        if self.under_way[way].len() < UNDER_WAY_MAX {
            self.under_way[way].push_back((link, frame));
        }
    }

    pub(crate) fn victim(&self) -> Victim {
        self.victim
    }

    /// Frames under way to the target, or to the host.
    pub(crate) fn under_way(&mut self, way: usize) -> &mut VecDeque<(usize, Vec<u8>)> {
        &mut self.under_way[way]
    }

    /// A frame under way arrives; returns whether there was one.
    pub(crate) fn deliver(&mut self, way: usize, index: usize) -> bool {
        let Some((link, frame)) = self.under_way[way].remove(index) else { return false };
        self.give(way, link, &frame);
        true
    }

    fn give(&mut self, way: usize, link: usize, frame: &[u8]) -> [usize; 2] {
        if self.shows {
            show(self.now, way, link, frame);
        }
        let is_taken = match way {
            0 => self.target.handle_frame(self.now, link, frame, &mut self.ledger),
            _ => self.host.handle_frame(self.now, link, frame, &mut self.ledger),
        };
        if is_taken && self.host.is_keyed() {
            self.seals.take(frame);
        }
        self.drain()
    }

    /// A frame of the adversary arrives at its victim.
    pub(crate) fn attack(&mut self, link: usize, frame: &[u8]) {
        let Some((head, payload)) = split(frame) else { return };
        let parsed = Frame::parse(head, payload).ok();
        // Nobody else speaks in the name of who has a key.
        let forges = !self.host.is_keyed()
            && parsed.is_some()
            && self.adversary.forges(self.victim, link, frame, &self.ledger);
        if forges && self.outsider {
            return;
        }
        self.ledger.is_clean &= !forges;
        self.ledger.may_redo |= parsed.as_ref().is_some_and(|it| it.header.kind == Kind::Accept);
        self.adversary.note_own(frame);
        // Whatever comes first has a session look at its channels anew.
        self.host.handle_timeout(self.now, &mut self.ledger);
        self.drain();
        let way = if self.victim == Victim::Target { 0 } else { 1 };
        let fresh = self.adversary.has_ticket(self.now, link, frame);
        let sent = self.give(way, link, frame)[way];
        // A sealed frame that was lost may come from it.
        let header = header_of(frame).filter(|_| parsed.is_some() || self.host.is_keyed());
        let limit = match header {
            Some(Header { kind: Kind::Connect | Kind::SealedConnect, .. }) if !fresh => 0,
            Some(header) => answers_max(&header),
            None => 1,
        };
        assert!(sent <= limit, "{sent} frames for one, {header:?}");
    }

    /// Both ends do what is due now.
    pub(crate) fn settle(&mut self) {
        self.drain();
        for _ in 0..EXPIRIES_MAX {
            if self.next_timer().is_none_or(|at| at > self.now) {
                return;
            }
            self.host.handle_timeout(self.now, &mut self.ledger);
            self.target.handle_timeout(self.now, &mut self.ledger);
            self.drain();
        }
        panic!("a timer expires without end");
    }

    fn next_timer(&self) -> Option<Instant> {
        self.host.session.poll_timeout().into_iter().chain(self.target.poll_timeout()).min()
    }

    /// Time passes at once: nothing is heard, and timers expire late.
    pub(crate) fn sleep(&mut self, time: Duration) {
        self.now = self.now + time;
        self.settle();
    }

    /// Time passes, and what is under way arrives; `works`: the disk does what it is told.
    pub(crate) fn run(&mut self, time: Duration, works: bool) {
        let end = self.now + time;
        loop {
            self.talk(works);
            let next = self.next_timer().filter(|&at| at < end);
            let Some(next) = next else { break };
            self.now = next.max(Instant(self.now.0 + 1));
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    /// Delivers what is under way, and what that brings about, until both are silent.
    fn talk(&mut self, works: bool) {
        for _ in 0..ROUNDS_MAX {
            if works {
                self.finish_jobs();
            }
            let waiting = self.under_way.each_ref().map(VecDeque::len);
            if waiting == [0, 0] {
                return;
            }
            for (way, waiting) in waiting.into_iter().enumerate() {
                for _ in 0..waiting {
                    self.deliver(way, 0);
                }
            }
        }
        panic!("the two talk to each other without end");
    }

    /// The disk does all that it has to do.
    pub(crate) fn finish_jobs(&mut self) {
        while !self.target.jobs.is_empty() {
            self.complete(0, Status::Success);
        }
    }

    pub(crate) fn complete(&mut self, job: usize, status: Status) {
        self.target.complete(job, status, &mut self.ledger);
        self.drain();
    }

    pub(crate) fn resize(&mut self, size: u64) {
        self.target.registry.resize(self.target.export, size);
        self.target.notify(Event::Resized(size));
        self.drain();
    }
}

/// Prints a frame that arrives.
fn show(now: Instant, way: usize, link: usize, frame: &[u8]) {
    let Some((head, payload)) = split(frame) else { return };
    let (src, dst) = (Mac::source(head), Mac::destination(head));
    let text = match Frame::parse(head, payload) {
        Ok(frame) => frame.to_string(),
        Err(reject) => reject.name().to_string(),
    };
    let to = ["target", "host"][way];
    println!("{:?} link {link} to the {to}, {src} to {dst}: {text}", now.since(Instant(0)));
}

/// Frames that one frame may have its receiver send at once. Outside of a channel it is an answer;
/// on a channel it may let go what waits for room, once a window of each ring, and ask for echoes.
fn answers_max(header: &Header) -> usize {
    let window = usize::from(RINGS[0]) + usize::from(RINGS[1]);
    match header.kind {
        Kind::Echo if !header.flags.contains(Flags::REPLY) => 8 + 2 * window,
        // The channels of the session that it wants to displace are asked for a sign of life.
        Kind::Connect | Kind::SealedConnect => 1 + super::target::CHANNELS_MAX,
        // The channel that it opens, or closes, leaves requests to others.
        Kind::Accept | Kind::SealedAnswer | Kind::Reset => 2 * window,
        kind if kind.on_channel() => 2 * window,
        _ => 1,
    }
}
