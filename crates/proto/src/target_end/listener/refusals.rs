//! Hosts that were refused, for the log of the target. They are bounded in number and rate, because
//! anybody may ask.

use std::time::Duration;

use arrayvec::ArrayVec;
use tyche_counters::CountsBy;
use tyche_crypto::PublicKey;
use tyche_wire::{Mac, Name, Reason, Text, Uuid};

use crate::time::{Instant, Pace};

/// The least time between two refusals that are reported, on average. Lower: a host that tries
/// again and again fills the log.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Refusals that may be reported at once: those of several hosts, or exports.
const REPORT_BURST: u32 = 8;

/// A host that was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The address that it asked from.
    pub from: Mac,
    /// Its name: that which the target has for it, if it is known, else what it says.
    pub host_name: Name,
    /// Whether it has proved by its key that it is the host of that name.
    pub is_known: bool,
    /// Its UUID, as it says.
    pub host: Uuid,
    /// Its key, if it has proved that it owns one.
    pub key: Option<PublicKey>,
    /// The export, by its UUID.
    pub export: Uuid,
    /// The export's name; empty if there is none of that UUID.
    pub export_name: Name,
    /// Why.
    pub reason: Reason,
    /// The detail that the host is told, such as who holds the export; may be empty.
    pub detail: Text<128>,
    /// Refusals before this one that are not reported.
    pub left_out: u64,
}

/// Numbers of refusals, by reason.
pub type RefusalCounts = CountsBy<Reason, { Reason::ALL.len() }>;

/// The queue of refusals that the target's log has not taken yet. Refusals beyond its rate or room
/// are only counted, and the next one that is queued reports their number.
pub(super) struct Refusals {
    pace: Pace,
    waiting: ArrayVec<Refusal, { REPORT_BURST as usize }>,
    left_out: u64,
    counts: RefusalCounts,
}

impl Refusals {
    pub(super) fn new() -> Self {
        Self {
            pace: Pace::new(REPORT_INTERVAL, REPORT_BURST),
            waiting: ArrayVec::new(),
            left_out: 0,
            counts: RefusalCounts::default(),
        }
    }

    /// Numbers of all refusals.
    pub(super) fn counts(&self) -> &RefusalCounts {
        &self.counts
    }

    /// Notes a refusal, or only counts it.
    pub(super) fn note(&mut self, now: Instant, refusal: Refusal) {
        self.counts.add(refusal.reason);
        if self.waiting.is_full() || !self.pace.takes(now) {
            self.left_out += 1;
            return;
        }
        let left_out = std::mem::take(&mut self.left_out);
        self.waiting.push(Refusal { left_out, ..refusal });
    }

    /// The next refusal to report.
    pub(super) fn poll(&mut self) -> Option<Refusal> {
        self.waiting.pop_at(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_bounded_and_those_left_out_are_counted() {
        let mut refusals = Refusals::new();
        let refusal = Refusal {
            from: Mac([2; 6]),
            host_name: Name::EMPTY,
            is_known: false,
            host: Uuid::nil(),
            key: None,
            export: Uuid::nil(),
            export_name: Name::EMPTY,
            reason: Reason::Denied,
            detail: Text::EMPTY,
            left_out: 0,
        };
        let mut now = Instant(1_000_000_000);
        let left_out = |refusals: &mut Refusals| {
            std::iter::from_fn(|| refusals.poll()).map(|it| it.left_out).collect::<Vec<_>>()
        };
        for _ in 0..100 {
            refusals.note(now, refusal);
        }
        assert_eq!(left_out(&mut refusals), [0; REPORT_BURST as usize]);
        refusals.note(now, refusal);
        assert_eq!(left_out(&mut refusals), [0; 0], "not at once");
        now = now + REPORT_INTERVAL;
        for _ in 0..2 {
            refusals.note(now, refusal);
        }
        assert_eq!(left_out(&mut refusals), [101 - u64::from(REPORT_BURST)]);
        now = now + REPORT_INTERVAL;
        refusals.note(now, refusal);
        assert_eq!(left_out(&mut refusals), [1]);
        assert_eq!(refusals.counts().of(Reason::Denied), 104);
    }
}
