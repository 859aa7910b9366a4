//! A local link of a session, and the target's addresses that are heard on it.
//!
//! A port sends Discovers in rounds, by broadcast or to the one address that it was given. A round
//! ends shortly after the first answer, so that all interfaces of the target on the same switch are
//! heard, or when nobody answers. While a path of the port is missing, rounds follow each other;
//! later they are rare, and find interfaces that were added to the target.

use std::time::Duration;

use arrayvec::ArrayVec;
use tyche_wire::{Control, Mac, Uuid, Versions};

use super::repeat::{Repeat, spread};
use super::sample::Sample;
use super::target_search::TargetSearch;
use crate::channel::outgoing::Outgoing;
use crate::time::Instant;

/// Rounds without an answer after which the pause between them doubles; after as many again, it
/// doubles once more.
const PATIENT: u32 = 8;
/// Addresses that a port remembers. More are not used.
pub(super) const PEERS_MAX: usize = 32;
/// How long a round waits for further answers after the first.
const GATHERING: Duration = Duration::from_millis(50);
/// Pause after a round with an answer, unless a path is missing.
const LOOK_AROUND: Duration = Duration::from_secs(5);
/// Longest pause between two rounds of a port on which the target was never heard, while the
/// session lives on others: most likely the port leads to another network.
const STRANGER: Duration = Duration::from_secs(30);

/// A local link that may reach the target.
#[derive(Clone, Copy, Debug)]
pub struct PortConfig {
    /// Longest frame of the link in bytes.
    pub frame_len_max: usize,
    /// Positions of the receive rings of each channel.
    pub rings: [u16; 2],
    /// The target's address if it is known; otherwise Discovers are broadcast.
    pub target: Option<Mac>,
    /// The NUMA node of the link's NIC, if it has one.
    pub node: Option<u16>,
    /// A number for what carries the link's frames: the path scheduler compares links of different
    /// transports.
    pub transport: u8,
    /// Whether the link is reached through routers, without connections: questions are padded to
    /// the length of their answers.
    pub routed: bool,
    /// Whether the link checks data from memory to memory: then their frames' checksums do not
    /// cover them, even if the session is configured so.
    pub checks_data: bool,
}

#[derive(Clone, Copy, Debug)]
enum Round {
    /// The next one begins at `until`.
    Over { until: Instant },
    Asking {
        nonce: u64,
        repeat: Repeat,
        /// The end of the round, set by the first answer.
        until: Option<Instant>,
    },
}

/// The discovery state of one local link: the round of Discovers, and the addresses of the target
/// that have answered. Paths are made of these addresses.
pub(super) struct Port {
    pub(super) config: PortConfig,
    round: Round,
    /// Addresses that answered in the previous round, with their targets.
    before: ArrayVec<(Mac, Uuid), PEERS_MAX>,
    /// Addresses that have answered in the current round.
    answered: Sample<(Mac, Uuid), PEERS_MAX>,
    /// Rounds without an answer since the last one with an answer.
    deaf: u32,
    /// Whether a target was ever heard on this port.
    is_known: bool,
    /// A target that speaks other versions only, if one was heard since the last round with an
    /// answer.
    other_version: Option<(Mac, Versions)>,
}

impl Port {
    pub(super) fn new(config: PortConfig, now: Instant) -> Self {
        Self {
            config,
            round: Round::Over { until: now },
            before: ArrayVec::new(),
            answered: Sample::new(),
            deaf: 0,
            is_known: false,
            other_version: None,
        }
    }

    /// Whether the last round had no answer.
    pub(super) fn is_deaf(&self) -> bool {
        self.deaf > 0
    }

    /// The addresses of `target` that were heard in the current or previous round.
    pub(super) fn heard(&self, target: Uuid) -> ArrayVec<Mac, { 2 * PEERS_MAX }> {
        let mut heard = ArrayVec::new();
        let answered = self.answered.iter().map(|(answer, _)| answer);
        for &(mac, of) in answered.chain(&self.before) {
            if of == target && !heard.contains(&mac) {
                heard.push(mac);
            }
        }
        heard
    }

    /// Discards all answers.
    pub(super) fn forget(&mut self) {
        self.before.clear();
        self.answered.clear();
    }

    /// Has the next round begin at `at` at the latest.
    pub(super) fn ask_at(&mut self, at: Instant) {
        if let Round::Over { until } = &mut self.round {
            *until = at.min(*until);
        }
    }

    /// Whether a frame from `src` with that nonce answers this round's Discover.
    pub(super) fn has_asked(&self, src: Mac, nonce: u64) -> bool {
        let ours = matches!(self.round, Round::Asking { nonce: asked, .. } if asked == nonce);
        ours && self.config.target.is_none_or(|target| target == src)
    }

    /// Notes that the target at `src` speaks other versions only; returns whether that is new.
    pub(super) fn note_version(&mut self, src: Mac, versions: Versions) -> bool {
        let news = self.other_version != Some((src, versions));
        self.other_version = Some((src, versions));
        news
    }

    /// Whether a target was heard that speaks other versions only.
    pub(super) fn hears_other_version(&self) -> bool {
        self.other_version.is_some()
    }

    /// Notes that a target has answered from an address. Of more than `PEERS_MAX`, a sample is
    /// used; preferred ones come first. `lot`: a random number.
    pub(super) fn hear(&mut self, now: Instant, answer: (Mac, Uuid), is_preferred: bool, lot: u64) {
        if !self.answered.iter().any(|(known, _)| *known == answer) {
            self.answered.take(answer, is_preferred, lot);
        }
        if let Round::Asking { until, .. } = &mut self.round {
            let gathering = if self.config.target.is_some() { Duration::ZERO } else { GATHERING };
            until.get_or_insert(now + gathering);
        }
    }

    /// Runs the timers that have expired; true if a round has ended. `again`: the pause after a
    /// round without an answer; `others`: whether the session is live on other ports.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        again: Duration,
        others: bool,
        nonce: &mut dyn FnMut() -> u64,
    ) -> bool {
        match &self.round {
            Round::Over { until } => {
                if now >= *until {
                    let nonce = nonce();
                    let repeat = Repeat::new(now, nonce);
                    self.round = Round::Asking { nonce, repeat, until: None };
                }
                return false;
            }
            Round::Asking { repeat, until, .. } => {
                if until.map_or(!repeat.is_exhausted(now), |until| now < until) {
                    return false;
                }
            }
        }
        self.before = self.answered.iter().map(|(answer, _)| *answer).collect();
        self.answered.clear();
        let pause = if !self.before.is_empty() {
            (self.deaf, self.is_known, self.other_version) = (0, true, None);
            LOOK_AROUND
        } else if others && !self.is_known {
            self.deaf += 1;
            again.saturating_mul(1 << self.deaf.min(16)).min(STRANGER.max(again))
        } else {
            self.deaf += 1;
            again.saturating_mul(1 << (self.deaf / PATIENT).min(2))
        };
        self.round = Round::Over { until: now + spread(pause, nonce()) };
        true
    }

    /// Composes a Discover, if one is due.
    #[inline]
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        (host, search): (Uuid, &TargetSearch),
        out: &mut Outgoing,
    ) -> bool {
        let Round::Asking { nonce, repeat, .. } = &mut self.round else { return false };
        if !repeat.due(now) {
            return false;
        }
        let nonce = *nonce;
        self.ask(nonce, (host, search), out);
        true
    }

    /// Composes a Discover. Not inlined: each request asks whether one is due, and none is.
    #[cold]
    fn ask(&self, nonce: u64, (host, search): (Uuid, &TargetSearch), out: &mut Outgoing) {
        let to = self.config.target.unwrap_or(Mac::BROADCAST);
        let mut discover = search.discover(nonce, host);
        if self.config.routed {
            // Names and UUIDs of exports are unique at a target.
            discover = discover.with_room_for(1);
        }
        out.set_control(to, Control::Discover(discover));
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit).
    pub(super) fn poll_timeout(&self) -> Instant {
        match &self.round {
            Round::Over { until } => *until,
            Round::Asking { repeat, until, .. } => {
                until.map_or(repeat.next(), |until| until.min(repeat.next()))
            }
        }
    }
}
