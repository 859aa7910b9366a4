//! When a request passes from one stage to the next. Kept by slot, and only on channels whose host
//! asked for it (PROTOCOL.md, "Stage times"); nothing else depends on it.

use tyche_wire::Times;

use crate::time::Instant;

/// How an operation got through its channel. Of one in several pieces, the piece that ended last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// When it got its place at the target, a slot of the `remq`.
    pub issued_at: Instant,
    /// When the last of its frames was composed for the first time.
    pub sent_at: Instant,
    /// What the target says of its time there. Not to be trusted.
    pub target: Times,
}

/// The host's view of all slots of a channel.
pub(crate) struct Exchanges(Box<[Exchange]>);

impl Exchanges {
    pub(crate) fn new(slots: u16) -> Self {
        Self(vec![Exchange::default(); slots.into()].into())
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

    pub(crate) fn of(&self, slot: u16) -> Exchange {
        self.0[usize::from(slot)]
    }
}

/// The target's view: the requests that the disk has answered and that wait to be told.
pub(crate) struct Answers(Box<[Option<Answer>]>);

#[derive(Clone, Copy)]
struct Answer {
    /// When the disk's answer was taken.
    at: Instant,
    /// Everything up to then.
    times: Times,
}

impl Answers {
    pub(crate) fn new(slots: u16) -> Self {
        Self(vec![None; slots.into()].into())
    }

    pub(crate) fn put(&mut self, slot: u16, at: Instant, times: Times) {
        self.0[usize::from(slot)] = Some(Answer { at, times });
    }

    /// What the completion shall say that is composed now.
    pub(crate) fn take(&mut self, slot: u16, now: Instant) -> Times {
        let Some(Answer { at, times }) = self.0[usize::from(slot)].take() else {
            return Times::ZERO;
        };
        let waited = u32::try_from(now.since(at).as_nanos()).unwrap_or(u32::MAX);
        Times { transmit_ns: waited, ..times }
    }
}
