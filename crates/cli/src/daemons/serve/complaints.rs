//! Lines of the log about requests of admins that have changed nothing: refused, failed, or done
//! before. They are bounded for each key, so that no admin fills the log, nor keeps another out of
//! it. A change is always in the log: it takes a write to stable storage, which bounds it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tyche_proto::Pace;
use tyche_proto::crypto::PublicKey;

/// The least time between two lines, on average. Lower: a program that asks again and again fills
/// the log.
const INTERVAL: Duration = Duration::from_secs(10);
/// Lines that may come at once.
const BURST: u32 = 8;

/// See the [module](self).
pub(super) struct Complaints {
    begun: Instant,
    by_key: Mutex<BTreeMap<PublicKey, OfKey>>,
}

struct OfKey {
    pace: Pace,
    left_out: u64,
}

impl Complaints {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), by_key: Mutex::default() }
    }

    /// Takes a line of the owner of a key; returns how many were left out before it. `None`: it is
    /// left out, too.
    pub(super) fn take(&self, key: &PublicKey) -> Option<u64> {
        self.take_at(self.begun.elapsed(), key)
    }

    fn take_at(&self, now: Duration, key: &PublicKey) -> Option<u64> {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || OfKey { pace: Pace::new(INTERVAL, BURST), left_out: 0 };
        let of_key = by_key.entry(*key).or_insert_with(new);
        if of_key.pace.takes(tyche_proto::Instant(0) + now) {
            return Some(std::mem::take(&mut of_key.left_out));
        }
        of_key.left_out += 1;
        None
    }

    /// Forgets the keys for which this is false.
    pub(super) fn retain(&self, is_known: impl Fn(&PublicKey) -> bool) {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        by_key.retain(|key, _| is_known(key));
    }
}

#[cfg(test)]
mod tests {
    use tyche_proto::crypto::SecretKey;

    use super::*;

    #[test]
    fn lines_are_bounded_for_each_key_and_those_left_out_are_counted() {
        let complaints = Complaints::new();
        let [noisy, other] = [1, 2].map(|it| SecretKey::from_random([it; 32]).public());
        let now = Duration::from_secs(100);
        let taken = (0..100).filter(|_| complaints.take_at(now, &noisy).is_some()).count();
        assert_eq!(taken, BURST as usize);
        assert_eq!(complaints.take_at(now, &other), Some(0), "it is not kept out");
        assert_eq!(complaints.take_at(now + INTERVAL, &noisy), Some(92));
        assert_eq!(complaints.take_at(now + INTERVAL, &noisy), None);
        complaints.retain(|key| *key == other);
        assert_eq!(complaints.take_at(now + INTERVAL, &noisy), Some(0), "as new");
    }
}
