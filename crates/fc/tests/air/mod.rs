//! The network between simulated ports: it loses, repeats and delays frames, from a seed.

use std::collections::BTreeMap;
use std::time::Duration;

use tyche_testkit::random::Random;
use tyche_time::Instant;

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The medium between simulated ports: frames on the way, each with the time of its arrival. It
/// knows neither ports nor contents; a test carries a frame to each of its receivers.
pub(crate) struct Air {
    pub(crate) random: Random,
    /// Percent of the frames that are lost and repeated.
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    /// Whether a frame is never overtaken by another.
    pub(crate) keeps_order: bool,
    /// The time that frames take, in nanoseconds.
    pub(crate) delay: u64,
    /// Frames on the way, with their receivers.
    flying: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    number: u64,
}

impl Air {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            lost: 0,
            repeated: 0,
            keeps_order: false,
            delay: 50_000,
            flying: BTreeMap::new(),
            number: 0,
        }
    }

    /// Carries a frame to a receiver.
    pub(crate) fn carry(&mut self, now: Instant, to: usize, frame: &[u8]) {
        if self.random.below(100) >= self.lost {
            self.fly(now, to, frame);
        }
        if self.random.below(100) < self.repeated {
            self.fly(now, to, frame);
        }
    }

    fn fly(&mut self, now: Instant, to: usize, frame: &[u8]) {
        // A few are overtaken by far, and more where frames are repeated: they took several ways.
        let is_slow = self.random.chance(50) && !self.keeps_order;
        let slow = if is_slow { 20_000_000 } else { 0 };
        let spread = if self.repeated > 0 { self.random.below(500_000) } else { 0 };
        self.number += 1;
        let key = (now.plus_ns(self.delay + spread + slow), self.number);
        self.flying.insert(key, (to, frame.to_vec()));
    }

    /// The next event until then, its time and its node: the arrival of a frame, or otherwise the
    /// expiry of the node's timer. Of both at the same time, the frame.
    pub(crate) fn next(
        &mut self,
        timers: impl Iterator<Item = Option<Instant>>,
        end: Instant,
    ) -> Option<(Instant, usize, Option<Vec<u8>>)> {
        let timers = timers.enumerate().filter_map(|(index, at)| Some((at?, index)));
        let timer = timers.min().filter(|(at, _)| *at <= end);
        let until = timer.map_or(end, |(at, _)| at);
        match self.flying.first_entry().filter(|it| it.key().0 <= until) {
            Some(frame) => {
                let ((at, _), (to, frame)) = frame.remove_entry();
                Some((at, to, Some(frame)))
            }
            None => timer.map(|(at, index)| (at, index, None)),
        }
    }
}
