//! The threads of a target's interface, which do not always have their turn at once.

use std::time::Duration;

use tyche_block::Arena;
use tyche_fcoe::fc::target_end::LaneConfig;
use tyche_fcoe::{FCOE, FurtherThread, NPort, PortConfig, Seat, TargetRole, share_of_thread};
use tyche_proto::Instant;
use tyche_wire::Mac;

use super::rules::Broken;
use super::station::Station;
use crate::random::Random;

/// Pages of memory of a thread for the data of commands.
const PAGES: usize = 256;
/// Turns of each thread at one moment: what one has for another is taken in the next one.
const TURNS_MAX: usize = 8;

/// The threads of one interface of a target: the first with the port, and further ones, each with
/// its share of the frames. One may lag behind the others.
pub(super) struct Threads {
    pub(super) first: Station<NPort<TargetRole<Broken>>>,
    further: Vec<Station<FurtherThread<Broken>>>,
    /// By thread: when it has its turn, if that is not at once.
    turns: Vec<Option<Instant>>,
    naps: Random,
    nap_ms_max: u64,
}

impl Threads {
    /// Threads at these places, in an interface with that address and MTU.
    pub(super) fn new(
        seats: Vec<Seat>,
        interface: (Mac, usize),
        config: PortConfig,
        (lane, rules): (LaneConfig, Broken),
        (random, nap_ms_max): (&mut Random, u64),
    ) -> Self {
        let turns = vec![None; seats.len()];
        let mut roles = seats.into_iter().map(|seat| {
            let arena = Arena::untouched(PAGES).expect("memory for the simulator");
            let lane = LaneConfig { seed: random.next(), ..lane };
            TargetRole::with_rules(seat, arena, lane, rules)
        });
        let first = roles.next().expect("there is a thread");
        let further: Vec<_> = roles
            .map(|role| Station::further_thread(interface, FurtherThread::new(role)))
            .collect();
        let first = Station::new(interface, config, first, random.next());
        // Worlds with one thread each are what they were without this.
        let naps = if further.is_empty() { Random::new(0) } else { random.fork() };
        Self { first, further, turns, naps, nap_ms_max }
    }

    /// Whether they receive frames to an address by a port of the loop.
    pub(super) fn takes(&self, port: usize, to: [u8; 6]) -> bool {
        self.first.takes(port, to)
    }

    /// A frame arrives, at its thread.
    pub(super) fn arrive(&mut self, now: Instant, port: usize, frame: &[u8]) {
        let threads = self.turns.len();
        let is_its = |thread: &usize| share_of_thread(*thread, threads).has(frame);
        let Some(thread) = (0..threads).find(|thread| port != FCOE || is_its(thread)) else {
            return;
        };
        let to = frame.first_chunk::<6>().copied().unwrap_or_default();
        match thread.checked_sub(1).map(|index| &self.further[index]) {
            None => self.first.arrive(port, frame),
            Some(further) if further.takes(port, to) => further.arrive(port, frame),
            Some(_) => return,
        }
        if threads > 1 && self.naps.chance(0.05) {
            let longest = self.naps.pick(&[1, 1, 10, u64::MAX]).min(self.nap_ms_max);
            let nap = Duration::from_micros(self.naps.between(1, 1000 * longest));
            self.turns[thread].get_or_insert(now + nap);
        }
    }

    /// The MTU of their interface is another from now on.
    pub(super) fn set_mtu(&mut self, mtu: usize) {
        self.first.set_mtu(mtu);
        self.further.iter_mut().for_each(|it| it.set_mtu(mtu));
    }

    /// Their interface goes down for a moment.
    pub(super) fn lose_carrier(&self) {
        self.first.lose_carrier();
        self.further.iter().for_each(Station::lose_carrier);
    }

    /// When to call [`settle`](Self::settle), if nothing arrives before.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let further = self.further.iter().map(Station::poll_timeout);
        let threads = std::iter::once(self.first.poll_timeout()).chain(further).zip(&self.turns);
        threads.filter_map(|(timer, turn)| turn.or(timer)).min()
    }

    /// Has the threads whose turn it is do what there is to do; returns the frames to send, by port
    /// of the loop.
    pub(super) fn settle(&mut self, now: Instant) -> Vec<(usize, Vec<u8>)> {
        for turn in &mut self.turns {
            *turn = turn.filter(|at| *at > now);
        }
        for _ in 0..TURNS_MAX {
            let mut worked = false;
            for thread in 0..self.turns.len() {
                worked |= self.turns[thread].is_none() && self.turn(now, thread);
            }
            if !worked {
                break;
            }
        }
        let mut frames = Vec::new();
        if self.turns[0].is_none() {
            frames.extend(self.first.transmit(now));
        }
        for (further, turn) in self.further.iter_mut().zip(&self.turns[1..]) {
            if turn.is_none() {
                frames.extend(further.transmit(now));
            }
        }
        frames
    }

    /// One turn of a thread's loop; false if there was nothing to do for others.
    fn turn(&mut self, now: Instant, thread: usize) -> bool {
        if let Some(index) = thread.checked_sub(1) {
            let further = &mut self.further[index];
            further.receive(now);
            return further.port.role.work(now);
        }
        let port = &mut self.first.port;
        port.role.listen(now);
        while let Some(sent_on) = port.role.poll_sent_on() {
            port.handle_sent_on(now, &sent_on.frame());
        }
        self.first.receive(now);
        let worked = self.first.port.role.work(now);
        self.first.port.settle(now);
        worked
    }
}
