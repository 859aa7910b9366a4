//! Worlds with keys: the target and all hosts have them, and each segment belongs to an adversary.

use std::time::Duration;

use super::{ForgerPlan, Plan, STALL_MAX_FORGED};
use crate::random::Random;

/// Salt of a seed for the random stream of this module.
const KEYS: u64 = 0x6b65_7973;

impl Plan {
    /// Draws whether there are keys. If so, there is more often somebody who makes use of what is
    /// heard on the segments: see [`Strangers`](super::Strangers).
    pub(super) fn draw_keys(&mut self) {
        let random = &mut Random::new(self.seed ^ KEYS);
        self.keyed = random.chance(0.4);
        let (forges, pause) = (random.chance(0.6), random.pick(&[2, 5, 20, 100]));
        let evicts = random.chance(0.3).then(|| Duration::from_millis(random.pick(&[300, 2000])));
        let is_silent = random.chance(0.3);
        if !self.keyed {
            return;
        }
        // A clone has the key of its host, and a host that is out waits for longer than for a link.
        let are_apart = self.strangers.clone.is_none() && self.stall_max.is_none();
        self.incidents.evict = evicts.filter(|_| are_apart);
        self.target.silent = is_silent && self.requires_keys() && self.stall_max.is_none();
        // Its connects are changed on their way.
        self.strangers.reads_first = None;
        if forges {
            let pause = Duration::from_millis(pause);
            self.strangers.forger = Some(ForgerPlan { segment: None, pause, repeats_only: false });
            self.stall_max = self.stall_max.map(|_| STALL_MAX_FORGED);
        }
    }

    /// Whether hosts without a key are refused. The host that breaks the protocol has none.
    pub fn requires_keys(&self) -> bool {
        self.keyed && self.breaker.is_none()
    }
}
