//! Sessions that have come and gone, for the log of the target. They are bounded in number: who
//! does not ask for them in time learns how many were left out.

use std::collections::VecDeque;

use tyche_crypto::PublicKey;
use tyche_wire::{Mac, Name, Uuid};

use crate::target_end::requests::Amounts;
use crate::time::Instant;

/// Visits that wait to be asked for.
const VISITS_MAX: usize = 64;

/// A session that has come, or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The name of the export.
    pub export: Name,
    /// The session.
    pub session: Uuid,
    /// Its host: the UUID that it says.
    pub host: Uuid,
    /// The host's name; that which the target has for it, if it has proved who it is.
    pub host_name: Name,
    /// The key with which it has proved that.
    pub key: Option<PublicKey>,
    /// Whether it may write.
    pub writer: bool,
    /// The address of its first channel, or of its last one if it has gone.
    pub from: Mac,
    /// When it came.
    pub since: Instant,
    /// Whether it has gone.
    pub is_over: bool,
    /// Whether another session of its host has taken its place.
    pub is_displaced: bool,
    /// Its amounts, if it has gone.
    pub amounts: Amounts,
    /// Visits before this one that were left out.
    pub left_out: u64,
}

/// The queue of visits that the target's log has not taken yet. When it is full, new visits are
/// only counted, and the next one that is queued reports their number.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    waiting: VecDeque<Visit>,
    left_out: u64,
}

impl Visits {
    /// Notes a visit, or only counts it.
    pub(crate) fn note(&mut self, visit: Visit) {
        if self.waiting.len() == VISITS_MAX {
            self.left_out += 1;
            return;
        }
        let left_out = std::mem::take(&mut self.left_out);
        self.waiting.push_back(Visit { left_out, ..visit });
    }

    /// The next visit.
    pub(crate) fn poll(&mut self) -> Option<Visit> {
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_are_bounded_and_those_left_out_are_counted() {
        let mut visits = Visits::default();
        let visit = Visit {
            export: Name::EMPTY,
            session: Uuid::nil(),
            host: Uuid::nil(),
            host_name: Name::EMPTY,
            key: None,
            writer: true,
            from: Mac([2; 6]),
            since: Instant(1),
            is_over: false,
            is_displaced: false,
            amounts: Amounts::default(),
            left_out: 0,
        };
        (0..VISITS_MAX + 3).for_each(|_| visits.note(visit));
        assert_eq!(std::iter::from_fn(|| visits.poll()).count(), VISITS_MAX);
        visits.note(visit);
        assert_eq!(visits.poll().map(|it| it.left_out), Some(3));
    }
}
