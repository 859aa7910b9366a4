//! Stage times of requests: a breakdown like that of MSST 2015 ("End-to-end Overhead Analysis").
//! docs/protocol-annexes.md, "Stage times".
//!
//! ```text
//! host    called-submit->slot-transmit->frame           read-receive->completed-complete->returned
//!                                         \            /
//!                                          wire      wire, wake
//!                                            \        /
//! target                             arrived-wake->read-receive->store->answer-transmit->frame
//! ```
//!
//! The target measures its stages by its own clock, the host the rest by its own. A frame counts as
//! transmitted when it is composed: data checksums, the rest of its batch and the system call that
//! sends it count as wire time, as do all repairs of the network. The wire is not measured: it is
//! the remaining time, cut into two equal halves.

use std::time::Duration;

use tyche_counters::labels;
use tyche_proto::{Instant, StageSample};

labels! {
    /// A stage of a request, by its name.
    pub enum Stage {
        /// From the call until the target has a free slot for the request.
        Submit = "submit",
        /// Until the last frame of the request is composed.
        Transmit = "transmit",
        /// Until the frame that completes the request arrives at the target.
        WireThere = "wire there",
        /// Until the target reads that frame: its thread wakes up, or polls again.
        TargetWake = "target wake",
        /// Until the request is submitted to the store.
        TargetReceive = "target receive",
        /// Until the store has answered.
        Store = "store",
        /// Until the frame with the completion is composed.
        TargetTransmit = "target transmit",
        /// Until it arrives at the host.
        WireBack = "wire back",
        /// Until the host reads it.
        Wake = "wake",
        /// Until the request is known to have finished.
        Receive = "receive",
        /// Until the caller is told.
        Complete = "complete",
    }
}

/// The time of a request in each stage. The sum is the time from the call until its return, to the
/// nanosecond, whatever the target reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes([u64; Stage::ALL.len()]);

impl StageTimes {
    /// Nanoseconds in each of [`Stage::ALL`].
    pub fn from_nanoseconds(times: [u64; Stage::ALL.len()]) -> Self {
        Self(times)
    }

    /// Nanoseconds in a stage.
    pub fn nanoseconds(&self, stage: Stage) -> u64 {
        self.0[stage as usize]
    }

    /// Nanoseconds in all stages.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Timestamps of a request at its host.
#[derive(Clone, Copy, Debug)]
struct Moments {
    called: Instant,
    stage_sample: StageSample,
    /// The arrival of the frame that ended it: when it was read, and its time in the kernel.
    read: Instant,
    waited: Duration,
    completed: Instant,
    returned: Instant,
}

impl Moments {
    fn times(&self) -> StageTimes {
        let StageSample { issued_at, sent_at, target } = self.stage_sample;
        let mut times = StageTimes::default();
        let mut now = self.called;
        // The loop does not read the clock at every step, so a step may seem to precede the last.
        let mut until = |stage: Stage, at: Instant| {
            times.0[stage as usize] = at.since(now).as_nanos() as u64;
            now = now.max(at);
        };
        until(Stage::Submit, issued_at);
        until(Stage::Transmit, sent_at);
        until(Stage::WireBack, self.read);
        until(Stage::Receive, self.completed);
        until(Stage::Complete, self.returned);
        // Reported times are subtracted from the wire's, at most all of it.
        let mut wire = times.0[Stage::WireBack as usize];
        let mut spent = |stage: Stage, claimed_ns: u64| {
            times.0[stage as usize] = claimed_ns.min(wire);
            wire -= claimed_ns.min(wire);
        };
        spent(Stage::Wake, u64::try_from(self.waited.as_nanos()).unwrap_or(u64::MAX));
        spent(Stage::TargetWake, target.wake_ns.into());
        spent(Stage::TargetReceive, target.receive_ns.into());
        spent(Stage::Store, target.store_ns.into());
        spent(Stage::TargetTransmit, target.transmit_ns.into());
        times.0[Stage::WireThere as usize] = wire / 2;
        times.0[Stage::WireBack as usize] = wire - wire / 2;
        times
    }
}

/// The host's timestamps of its requests.
pub(crate) struct HostStages {
    /// The time of the call, by index of the operation in progress.
    called: Box<[Instant]>,
    /// When the current frame was read, and its time in the kernel.
    read: Instant,
    waited: Duration,
    /// Finished operations.
    over: Vec<Moments>,
}

impl HostStages {
    pub(crate) fn new(operations_max: usize) -> Self {
        Self {
            called: vec![Instant(0); operations_max].into(),
            read: Instant(0),
            waited: Duration::ZERO,
            over: Vec::with_capacity(operations_max),
        }
    }

    pub(crate) fn called(&mut self, op: u32, now: Instant) {
        self.called[op as usize] = now;
    }

    /// Sets the timestamps of the frame that is handled next.
    pub(crate) fn read(&mut self, at: Instant, waited: Duration) {
        (self.read, self.waited) = (at, waited);
    }

    pub(crate) fn completed(&mut self, op: u32, stage_sample: StageSample, now: Instant) {
        // A full list was never taken, so further entries are dropped.
        if self.over.len() == self.called.len() {
            self.over.clear();
        }
        let (called, read, waited) = (self.called[op as usize], self.read, self.waited);
        let (completed, returned) = (now, now);
        self.over.push(Moments { called, stage_sample, read, waited, completed, returned });
    }

    /// Stamps all finished operations as returned to the caller.
    pub(crate) fn returned(&mut self, now: Instant) {
        self.over.iter_mut().for_each(|moments| moments.returned = now);
    }

    pub(crate) fn forget(&mut self) {
        self.over.clear();
    }

    /// Takes the times of finished operations.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = StageTimes> {
        self.over.drain(..).map(|moments| moments.times())
    }
}

#[cfg(test)]
mod tests {
    use tyche_proto::wire::Times;

    use super::*;

    fn moments() -> Moments {
        let target = Times { wake_ns: 1_000, receive_ns: 200, store_ns: 3_000, transmit_ns: 400 };
        let stage_sample = StageSample { issued_at: Instant(100), sent_at: Instant(300), target };
        Moments {
            called: Instant(50),
            stage_sample,
            read: Instant(10_301),
            waited: Duration::from_nanos(2_000),
            completed: Instant(10_801),
            returned: Instant(11_000),
        }
    }

    fn all(moments: &Moments) -> Vec<u64> {
        let times = moments.times();
        Stage::ALL.iter().map(|&stage| times.nanoseconds(stage)).collect()
    }

    #[test]
    fn what_nobody_measured_is_the_wire() {
        // 10 001 ns between the frames, of which 6600 are known; half of the rest each way.
        let expected = [50, 200, 1_700, 1_000, 200, 3_000, 400, 1_701, 2_000, 500, 199];
        assert_eq!(all(&moments()), expected);
        assert_eq!(moments().times().total(), 11_000 - 50);
    }

    #[test]
    fn a_target_that_claims_too_much_gets_no_more_than_there_is() {
        let most = u32::MAX;
        for target in [
            Times { wake_ns: most, receive_ns: most, store_ns: most, transmit_ns: most },
            Times { wake_ns: 0, receive_ns: 7_000, store_ns: 7_000, transmit_ns: 1 },
            Times { store_ns: 8_002, ..Times::ZERO },
        ] {
            let mut moments = moments();
            moments.stage_sample.target = target;
            let times = moments.times();
            assert_eq!(times.total(), 11_000 - 50, "{times:?}");
            assert_eq!(times.nanoseconds(Stage::WireThere), 0);
            assert_eq!(times.nanoseconds(Stage::Wake), 2_000, "the host trusts itself first");
        }
    }

    #[test]
    fn a_clock_that_was_set_breaks_no_sum() {
        let moments = Moments { waited: Duration::MAX, ..moments() };
        assert_eq!(moments.times().total(), 11_000 - 50);
        assert_eq!(moments.times().nanoseconds(Stage::Wake), 10_001);
    }

    #[test]
    fn steps_that_seem_to_be_out_of_order_break_no_sum() {
        for late in [100, 300, 10_301, 10_801, 10_999] {
            let moments = Moments { called: Instant(late), ..moments() };
            assert_eq!(moments.times().total(), 11_000 - late);
        }
        let mut moments = moments();
        moments.stage_sample.sent_at = Instant(20);
        moments.read = Instant(10);
        assert_eq!(moments.times().total(), 11_000 - 50);
    }

    #[test]
    fn what_nobody_takes_is_forgotten() {
        let mut stages = HostStages::new(2);
        for now in 0..5 {
            stages.called(1, Instant(now));
            stages.completed(1, StageSample::default(), Instant(now + 1));
        }
        assert!(stages.take().count() <= 2);
    }
}
