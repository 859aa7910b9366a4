//! A local link of a session, and which of the target's addresses can be heard on it.
//!
//! A port asks in rounds, by broadcast or at the one address that it was given. A round ends a
//! moment after the first answer, so that all interfaces that the target has on the same switch
//! are heard, or when nobody answers. While a path of the port is missing, rounds follow each
//! other; later they become rare, and find what was added to the target.

use std::time::Duration;

use arrayvec::ArrayVec;
use tyche_wire::{Control, Mac, Uuid, Versions};

use super::quest::Quest;
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
    /// Addresses that answered in the last round that is over, with their targets.
    before: ArrayVec<(Mac, Uuid), PEERS_MAX>,
    /// Those that have answered in this one.
    answered: ArrayVec<(Mac, Uuid), PEERS_MAX>,
    /// Rounds without an answer since the last that had one.
    deaf: u32,
    /// The target has been heard here.
    is_known: bool,
    /// A target that speaks other versions only, if it was heard in place of the wanted one.
    other_version: Option<(Mac, Versions)>,
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
            other_version: None,
        }
    }

    /// Whether nobody has answered lately.
    pub(super) fn is_deaf(&self) -> bool {
        self.deaf > 0
    }

    /// The target's addresses that can be heard.
    pub(super) fn heard(&self, target: Uuid) -> ArrayVec<Mac, { 2 * PEERS_MAX }> {
        let mut heard = ArrayVec::new();
        for &(mac, of) in self.answered.iter().chain(&self.before) {
            if of == target && !heard.contains(&mac) {
                heard.push(mac);
            }
        }
        heard
    }

    /// Answers heard so far are discarded.
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

    /// A target at `src` speaks other versions only; says whether that is news.
    pub(super) fn note_version(&mut self, src: Mac, versions: Versions) -> bool {
        let news = self.other_version != Some((src, versions));
        self.other_version = Some((src, versions));
        news
    }

    /// Whether a target was heard that speaks other versions only.
    pub(super) fn hears_other_version(&self) -> bool {
        self.other_version.is_some()
    }

    /// The target can be reached at `src`.
    pub(super) fn hear(&mut self, now: Instant, src: Mac, target: Uuid) {
        if !self.answered.contains(&(src, target)) {
            // There is a limit to how many interfaces of a target are worth using.
            let _ = self.answered.try_push((src, target));
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
            (self.deaf, self.is_known, self.other_version) = (0, true, None);
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
        (host, quest): (Uuid, &Quest),
        out: &mut Outgoing,
    ) -> bool {
        let Round::Asking { nonce, repeat, .. } = &mut self.round else { return false };
        if !repeat.due(now) {
            return false;
        }
        let to = self.config.target.unwrap_or(Mac::BROADCAST);
        let discover = quest.discover(*nonce, host);
        out.set_control(to, Control::Discover(discover));
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
