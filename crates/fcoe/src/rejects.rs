//! Counters of frames that are dropped, by reason.

use tyche_counters::counters;
use tyche_fc::wire::Reject;

counters! {
    /// The sum of dropped frames.
    pub(crate) struct Dropped as "fc_" {
        /// Frames dropped, for whatever reason.
        dropped: Counter in Frames,
    }
}

/// The number of dropped frames for each reason to reject one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejects([u64; Reject::ALL.len()]);

impl Default for Rejects {
    fn default() -> Self {
        Self([0; Reject::ALL.len()])
    }
}

impl Rejects {
    /// Counts a frame.
    pub fn count(&mut self, reject: Reject) {
        self.0[reject as usize] += 1;
    }

    /// The number of frames, for each reason.
    pub fn iter(&self) -> impl Iterator<Item = (Reject, u64)> {
        Reject::ALL.iter().copied().zip(self.0)
    }

    /// The number of all of them.
    pub(crate) fn dropped(&self) -> Dropped {
        Dropped { dropped: self.0.iter().sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_counter() {
        let mut rejects = Rejects::default();
        for (times, reject) in Reject::ALL.iter().enumerate() {
            (0..times).for_each(|_| rejects.count(*reject));
        }
        assert!((0..).zip(rejects.iter()).all(|(times, (_, count))| count == times));
    }
}
