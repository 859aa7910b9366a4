//! The plan of faults, and the counts of the faults applied.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tyche_counters::counters;

/// Probabilities are in parts per million.
pub(super) const MILLION: u32 = 1_000_000;

/// The faults of one or several links, changeable at any time from any thread. Clones are handles
/// of the same plan. A new plan has no faults.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan(Arc<Knobs>);

#[derive(Debug, Default)]
struct Knobs {
    drop_ppm: AtomicU32,
    duplicate_ppm: AtomicU32,
    reorder_ppm: AtomicU32,
    corrupt_ppm: AtomicU32,
    delay_us: AtomicU32,
    /// 0: no limit.
    frame_len_max: AtomicUsize,
    cut: AtomicBool,
    counts: Mutex<FaultCounts>,
}

counters! {
    /// Counts of faulty frames, by fault. A frame may count more than once.
    pub struct FaultCounts as "fault_" {
        /// Frames dropped by chance.
        dropped: Counter in Frames,
        /// Frames delivered a second time, up to 32 frames later.
        duplicated: Counter in Frames,
        /// Frames overtaken by up to 8 others.
        reordered: Counter in Frames,
        /// Frames delivered with one bit flipped.
        corrupted: Counter in Frames,
        /// Frames dropped because of their length.
        too_long: Counter in Frames,
        /// Frames dropped because the link was cut.
        cut: Counter in Frames,
    }
}

impl FaultPlan {
    /// A plan without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Drops this share of the frames, in parts per million.
    pub fn set_drop_ppm(&self, ppm: u32) {
        self.0.drop_ppm.store(ppm.min(MILLION), Relaxed);
    }

    /// Delivers this share of the frames twice, in parts per million.
    pub fn set_duplicate_ppm(&self, ppm: u32) {
        self.0.duplicate_ppm.store(ppm.min(MILLION), Relaxed);
    }

    /// Lets later frames overtake this share of the frames, in parts per million. If none follows,
    /// such a frame leaves after a millisecond.
    pub fn set_reorder_ppm(&self, ppm: u32) {
        self.0.reorder_ppm.store(ppm.min(MILLION), Relaxed);
    }

    /// Flips one bit in this share of the frames, in parts per million; never in the Ethernet
    /// header, so that the frame still arrives.
    pub fn set_corrupt_ppm(&self, ppm: u32) {
        self.0.corrupt_ppm.store(ppm.min(MILLION), Relaxed);
    }

    /// Delays every frame, by up to 4,294 seconds, in microseconds.
    pub fn set_delay(&self, delay: Duration) {
        self.0.delay_us.store(u32::try_from(delay.as_micros()).unwrap_or(u32::MAX), Relaxed);
    }

    /// Silently drops frames longer than this many bytes, as a switch with a smaller MTU does.
    /// `None` lifts the limit.
    pub fn set_frame_len_max(&self, bytes: Option<usize>) {
        self.0.frame_len_max.store(bytes.unwrap_or(0), Relaxed);
    }

    /// Drops every frame while `cut`.
    pub fn set_cut(&self, cut: bool) {
        self.0.cut.store(cut, Relaxed);
    }

    /// Removes all faults. Held frames still leave when they are due.
    pub fn heal(&self) {
        self.set_drop_ppm(0);
        self.set_duplicate_ppm(0);
        self.set_reorder_ppm(0);
        self.set_corrupt_ppm(0);
        self.set_delay(Duration::ZERO);
        self.set_frame_len_max(None);
        self.set_cut(false);
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> FaultCounts {
        *self.counting()
    }

    /// Whether the plan has no faults now.
    pub(super) fn is_quiet(&self) -> bool {
        let Knobs { drop_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm, delay_us, .. } = &*self.0;
        [drop_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm, delay_us]
            .iter()
            .all(|knob| knob.load(Relaxed) == 0)
            && self.frame_len_max() == 0
            && !self.is_cut()
    }

    /// The counts, to add to them.
    pub(super) fn counting(&self) -> MutexGuard<'_, FaultCounts> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn drop_ppm(&self) -> u32 {
        self.0.drop_ppm.load(Relaxed)
    }

    pub(super) fn duplicate_ppm(&self) -> u32 {
        self.0.duplicate_ppm.load(Relaxed)
    }

    pub(super) fn reorder_ppm(&self) -> u32 {
        self.0.reorder_ppm.load(Relaxed)
    }

    pub(super) fn corrupt_ppm(&self) -> u32 {
        self.0.corrupt_ppm.load(Relaxed)
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_micros(self.0.delay_us.load(Relaxed).into())
    }

    pub(super) fn frame_len_max(&self) -> usize {
        self.0.frame_len_max.load(Relaxed)
    }

    pub(super) fn is_cut(&self) -> bool {
        self.0.cut.load(Relaxed)
    }
}
