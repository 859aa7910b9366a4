//! A local link of a session, and which of the target's addresses can be heard on it.
//!
//! A port asks in rounds, by broadcast or at the one address that it was given. A round ends a
//! moment after the first answer, so that all interfaces that the target has on the same switch
//! are heard, or when nobody answers. While a path of the port is missing, rounds follow each
//! other; later they become rare, and find what was added to the target.

use std::time::Duration;

use arrayvec::ArrayVec;
use tyche_wire::{Control, Discover, Header, Kind, Mac, Name, Uuid};

use super::repeat::Repeat;
use crate::outgoing::Outgoing;
use crate::time::Instant;

/// Rounds in vain after which the pause between them doubles, and doubles once more.
const PATIENT: u32 = 8;
/// Addresses of one target that a port remembers: more are left alone.
pub(super) const PEERS_MAX: usize = 16;
/// How long a round waits for further answers after the first.
const GATHERING: Duration = Duration::from_millis(50);
/// Time between two rounds of a port that has all of its paths.
const LOOK_AROUND: Duration = Duration::from_secs(5);
/// Time between two rounds, at most, of a port on which the target was never heard, while the
/// session lives on others: most likely it leads elsewhere, where our questions only disturb.
const STRANGER: Duration = Duration::from_secs(30);

/// A local link that may reach the target.
#[derive(Clone, Copy, Debug)]
pub struct PortConfig {
    /// Longest frame of the link in bytes.
    pub frame_len_max: usize,
    /// Positions of the receive rings of each channel.
    pub rings: [u16; 2],
    /// The target's address if it is known; otherwise it is asked for by broadcast.
    pub target: Option<Mac>,
    /// The NUMA node that the link's NIC sits on, if it sits on one.
    pub node: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
enum Round {
    /// Until the next.
    Over { until: Instant },
    Asking {
        nonce: u64,
        repeat: Repeat,
        /// Set by the first answer.
        until: Option<Instant>,
    },
}

/// See the module.
pub(super) struct Port {
    pub(super) config: PortConfig,
    round: Round,
    /// Addresses that answered in the last round that is over.
    before: ArrayVec<Mac, PEERS_MAX>,
    /// Addresses that have answered in this one.
    answered: ArrayVec<Mac, PEERS_MAX>,
    /// Rounds without an answer since the last that had one.
    deaf: u32,
    /// The target has been heard here.
    is_known: bool,
}

impl Port {
    pub(super) fn new(config: PortConfig, now: Instant) -> Self {
        Self {
            config,
            round: Round::Over { until: now },
            before: ArrayVec::new(),
            answered: ArrayVec::new(),
            deaf: 0,
            is_known: false,
        }
    }

    /// Whether nobody has answered lately.
    pub(super) fn is_deaf(&self) -> bool {
        self.deaf > 0
    }

    /// The target's addresses that can be heard.
    pub(super) fn heard(&self) -> ArrayVec<Mac, { 2 * PEERS_MAX }> {
        let mut heard: ArrayVec<_, { 2 * PEERS_MAX }> = self.answered.iter().copied().collect();
        heard.extend(self.before.iter().copied().filter(|mac| !self.answered.contains(mac)));
        heard
    }

    /// What was heard is nothing worth.
    pub(super) fn forget(&mut self) {
        self.before.clear();
        self.answered.clear();
    }

    /// The next round begins at `at` the latest.
    pub(super) fn ask_at(&mut self, at: Instant) {
        if let Round::Over { until } = &mut self.round {
            *until = at.min(*until);
        }
    }

    /// Whether an offer with that nonce answers this round's question.
    pub(super) fn has_asked(&self, src: Mac, nonce: u64) -> bool {
        let ours = matches!(self.round, Round::Asking { nonce: asked, .. } if asked == nonce);
        ours && self.config.target.is_none_or(|target| target == src)
    }

    /// The target can be reached at `src`.
    pub(super) fn hear(&mut self, now: Instant, src: Mac) {
        if !self.answered.contains(&src) {
            // There is a limit to how many interfaces of a target are worth using.
            let _ = self.answered.try_push(src);
        }
        if let Round::Asking { until, .. } = &mut self.round {
            let gathering = if self.config.target.is_some() { Duration::ZERO } else { GATHERING };
            until.get_or_insert(now + gathering);
        }
    }

    /// Time has passed; true if a round has ended. `again`: the pause after one that was in vain;
    /// `others`: whether the session lives on other ports.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        again: Duration,
        others: bool,
        random: &mut dyn FnMut() -> u64,
    ) -> bool {
        match &self.round {
            Round::Over { until } => {
                if now >= *until {
                    let (nonce, repeat) = (random(), Repeat::new(now));
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
        self.before = std::mem::take(&mut self.answered);
        let pause = if !self.before.is_empty() {
            (self.deaf, self.is_known) = (0, true);
            LOOK_AROUND
        } else if others && !self.is_known {
            self.deaf += 1;
            again.saturating_mul(1 << self.deaf.min(16)).min(STRANGER.max(again))
        } else {
            self.deaf += 1;
            again.saturating_mul(1 << (self.deaf / PATIENT).min(2))
        };
        self.round = Round::Over { until: now + pause };
        true
    }

    /// Composes the question, if it is due.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        (host, export): (Uuid, Name),
        out: &mut Outgoing,
    ) -> bool {
        let Round::Asking { nonce, repeat, .. } = &mut self.round else { return false };
        if !repeat.due(now) {
            return false;
        }
        let to = self.config.target.unwrap_or(Mac::BROADCAST);
        let discover = Discover { nonce: *nonce, host, export };
        out.set_control(to, Header::new(Kind::Discover), Some(Control::Discover(discover)));
        true
    }

    /// When there is something to do.
    pub(super) fn poll_timeout(&self) -> Instant {
        match &self.round {
            Round::Over { until } => *until,
            Round::Asking { repeat, until, .. } => {
                until.map_or(repeat.next(), |until| until.min(repeat.next()))
            }
        }
    }
}
