//! The target's part of the stage times of requests, as its host asks for them.

use std::time::Duration;

use tyche_proto::Instant;
use tyche_proto::wire::Times;

/// The target's stage times of a channel's requests, by slot.
pub(super) struct TargetStages(Box<[(Instant, Times)]>);

impl TargetStages {
    pub(super) fn new(slots: u16) -> Self {
        Self(vec![(Instant(0), Times::ZERO); slots.into()].into())
    }

    /// Starts the store's stage of a request at `now`. The frame that completed it was read at
    /// `read`, after it had waited in the kernel.
    pub(super) fn begun(&mut self, slot: u16, now: Instant, read: Instant, waited: Duration) {
        let (wake_ns, receive_ns) = (saturating(waited), saturating(now.since(read)));
        self.0[usize::from(slot)] = (now, Times { wake_ns, receive_ns, ..Times::ZERO });
    }

    /// Ends the store's stage of a request.
    pub(super) fn ended(&self, slot: u16, now: Instant) -> Times {
        let (begun, times) = self.0[usize::from(slot)];
        Times { store_ns: saturating(now.since(begun)), ..times }
    }
}

fn saturating(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_says_no_more_than_fits() {
        let mut stages = TargetStages::new(2);
        let (read, now) = (Instant(5), Instant(25));
        stages.begun(1, now, read, Duration::from_nanos(7));
        let times = Times { wake_ns: 7, receive_ns: 20, store_ns: 100, transmit_ns: 0 };
        assert_eq!(stages.ended(1, Instant(125)), times);
        stages.begun(1, now, Instant(0), Duration::MAX);
        let times = Times { wake_ns: u32::MAX, receive_ns: 25, store_ns: u32::MAX, ..times };
        assert_eq!(stages.ended(1, Instant(u64::MAX)), times);
    }
}
