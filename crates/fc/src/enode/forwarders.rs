//! The forwarders that are heard, and which of them is the best.

use std::time::Duration;

use tyche_fc_wire::fip::{Advertisement, Flags, padded_len};
use tyche_fc_wire::{FcMap, Mac, Wwn};
use tyche_time::Instant;

/// The most forwarders that are known at a time.
const FORWARDERS_MAX: usize = 16;
/// The shortest interval of advertisements that is believed, and the longest (FC-BB-6).
const PERIOD_MIN: Duration = Duration::from_millis(250);
const PERIOD_MAX: Duration = Duration::from_secs(90);

/// A forwarder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarder {
    pub(super) mac: Mac,
    /// The name of the switch.
    pub(super) name: Wwn,
    /// The upper half of the addresses that it grants.
    pub(super) map: FcMap,
    priority: u8,
    /// The interval of its advertisements, and of our keep alives.
    pub(super) period: Duration,
    /// Whether it wants keep alives.
    pub(super) wants_alive: bool,
    /// Whether it accepts logins.
    is_available: bool,
    /// Whether it has shown that the longest frames pass.
    pub(super) is_proven: bool,
    /// Logins that it has refused, or not answered, since one that it has accepted.
    pub(super) failures: u32,
    heard: Instant,
}

impl Forwarder {
    /// As an advertisement shows it; `None` if that is not one of a fabric that gives addresses.
    /// `proof`: bytes of an advertisement that was asked for; `size`: the longest FCoE frame that
    /// our interface takes.
    pub(super) fn heard(
        now: Instant,
        advertisement: &Advertisement,
        flags: Flags,
        proof: usize,
        size: u16,
    ) -> Option<Self> {
        let Advertisement { mac, name, priority, fabric, keep_alive } = *advertisement;
        let has_map = fabric.map.0[..2] == FcMap::FABRIC.0[..2];
        if !flags.has(Flags::F) || !flags.has(Flags::FP) || !has_map || mac.is_group() {
            return None;
        }
        let period = Duration::from_millis(keep_alive.ms.into());
        Some(Self {
            mac,
            name,
            map: fabric.map,
            priority,
            period: period.clamp(PERIOD_MIN, PERIOD_MAX),
            wants_alive: keep_alive.wanted,
            is_available: flags.has(Flags::A),
            is_proven: flags.has(Flags::S) && proof >= padded_len(size),
            failures: 0,
            heard: now,
        })
    }

    /// Whether a login there makes sense.
    pub(super) fn is_usable(&self) -> bool {
        self.is_available && self.is_proven
    }

    /// When it has been silent for too long: two advertisements may be lost.
    fn silent_at(&self) -> Instant {
        self.heard + self.period * 5 / 2
    }
}

/// The list of forwarders that are heard, a bounded number, with what each has proved and how many
/// logins there have failed.
#[derive(Default)]
pub(super) struct Forwarders(Vec<Forwarder>);

impl Forwarders {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn find(&self, mac: Mac) -> Option<&Forwarder> {
        self.0.iter().find(|it| it.mac == mac)
    }

    pub(super) fn find_mut(&mut self, mac: Mac) -> Option<&mut Forwarder> {
        self.0.iter_mut().find(|it| it.mac == mac)
    }

    /// Takes what an advertisement shows; returns the forwarder as it is known now, `None` if there
    /// is no room. What it has proved, and how often it has failed, stays.
    pub(super) fn note(&mut self, heard: Forwarder) -> Option<Forwarder> {
        if let Some(known) = self.find_mut(heard.mac) {
            let is_proven = known.is_proven || heard.is_proven;
            *known = Forwarder { is_proven, failures: known.failures, ..heard };
            return Some(*known);
        }
        if self.0.len() == FORWARDERS_MAX {
            return None;
        }
        self.0.push(heard);
        Some(heard)
    }

    /// The best of those that can be used.
    pub(super) fn best(&self) -> Option<Mac> {
        let usable = self.0.iter().filter(|it| it.is_usable());
        usable.min_by_key(|it| (it.failures, it.priority, it.name, it.mac)).map(|it| it.mac)
    }

    /// Forgets those that have been silent for too long.
    pub(super) fn expire(&mut self, now: Instant) {
        self.0.retain(|it| now < it.silent_at());
    }

    /// When to call [`expire`](Self::expire).
    pub(super) fn silent_at(&self) -> Option<Instant> {
        self.0.iter().map(Forwarder::silent_at).min()
    }
}
