//! Times at which a request passes from one stage to the next, kept by slot. They are kept only on
//! channels whose host has asked for them (docs/protocol-annexes.md, "Stage times"), and nothing
//! else depends on them.

use tyche_wire::Times;

use crate::time::Instant;

/// Stage times of an operation on its channel. If it was cut into pieces, those of the piece that
/// ended last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageSample {
    /// When it took a slot of the `remq`.
    pub issued_at: Instant,
    /// When the last of its frames was composed for the first time.
    pub sent_at: Instant,
    /// Stage times as reported by the target, unchecked.
    pub target: Times,
}

/// Stage times of a channel's slots, at the host.
pub(crate) struct StageSamples(Box<[StageSample]>);

impl StageSamples {
    pub(crate) fn new(slots: u16) -> Self {
        Self(vec![StageSample::default(); slots.into()].into())
    }

    pub(crate) fn issued(&mut self, slot: u16, now: Instant) {
        self.0[usize::from(slot)].issued_at = now;
    }

    pub(crate) fn sent(&mut self, slot: u16, now: Instant) {
        self.0[usize::from(slot)].sent_at = now;
    }

    pub(crate) fn answered(&mut self, slot: u16, target: Times) {
        self.0[usize::from(slot)].target = target;
    }

    pub(crate) fn of(&self, slot: u16) -> StageSample {
        self.0[usize::from(slot)]
    }
}

/// Stage times of a channel's slots, at the target: of requests that the disk has completed and
/// whose completions wait to be sent.
pub(crate) struct KeptTimesBySlot(Box<[Option<KeptTimes>]>);

#[derive(Clone, Copy)]
struct KeptTimes {
    /// When the completion was taken from the disk.
    at: Instant,
    /// Stage times up to that moment.
    times: Times,
}

impl KeptTimesBySlot {
    pub(crate) fn new(slots: u16) -> Self {
        Self(vec![None; slots.into()].into())
    }

    pub(crate) fn put(&mut self, slot: u16, at: Instant, times: Times) {
        self.0[usize::from(slot)] = Some(KeptTimes { at, times });
    }

    /// Takes the stage times for the completion that is composed now.
    pub(crate) fn take(&mut self, slot: u16, now: Instant) -> Times {
        let Some(KeptTimes { at, times }) = self.0[usize::from(slot)].take() else {
            return Times::ZERO;
        };
        let waited = u32::try_from(now.since(at).as_nanos()).unwrap_or(u32::MAX);
        Times { transmit_ns: waited, ..times }
    }
}
