//! Counters of both ends of our sessions: what a batch had in it.

use std::fs;
use std::ops::{AddAssign, Sub};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::process::{Doing, Result, failed};

/// Counters of one side, under the names of `tyche stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Counters {
    /// Frames sent with entries, without those sent again.
    pub(crate) batches: u64,
    /// Entries in them: requests or answers, and parts of data.
    pub(crate) batch_entries: u64,
    /// Sum of the tuned batch sizes that were in force when they were sent.
    pub(crate) batch_sizes: u64,
    /// Trains sent over UDP, and frames in them.
    pub(crate) udp_trains_sent: u64,
    pub(crate) udp_train_frames_sent: u64,
    pub(crate) retransmitted: u64,
}

impl Counters {
    /// The sum over all jobs in a file that the engine has written.
    pub(crate) fn of_jobs(file: &Path) -> Result<Self> {
        let mut sum = Self::default();
        for line in fs::read_to_string(file).doing("the engine's counters")?.lines() {
            sum += serde_json::from_str(line).doing("the engine's counters")?;
        }
        Ok(sum)
    }

    /// The sum over all links of the only target in the output of `tyche stats`.
    pub(crate) fn of_target(stats: &str) -> Result<Self> {
        let stats: Value = serde_json::from_str(stats).doing("tyche stats")?;
        let Some(links) = stats["targets"][0]["links"].as_array() else {
            return failed("tyche stats: no target");
        };
        let mut sum = Self::default();
        for link in links {
            // Those of the protocol, and those of the link's kind.
            for part in [&link["channel"], link] {
                let counters: Self = serde_json::from_value(part.clone()).doing("tyche stats")?;
                sum += counters;
            }
        }
        Ok(sum)
    }

    /// Entries in a frame, on average; NaN without frames.
    pub(crate) fn entries_per_frame(&self) -> f64 {
        ratio(self.batch_entries, self.batches)
    }

    /// The tuned batch size on average, by frames; NaN if none was tuned.
    pub(crate) fn batch_size(&self) -> f64 {
        if self.batch_sizes == 0 { f64::NAN } else { ratio(self.batch_sizes, self.batches) }
    }

    /// Frames in a train, on average; NaN without trains.
    pub(crate) fn frames_per_train(&self) -> f64 {
        ratio(self.udp_train_frames_sent, self.udp_trains_sent)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { f64::NAN } else { part as f64 / whole as f64 }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.batches += other.batches;
        self.batch_entries += other.batch_entries;
        self.batch_sizes += other.batch_sizes;
        self.udp_trains_sent += other.udp_trains_sent;
        self.udp_train_frames_sent += other.udp_train_frames_sent;
        self.retransmitted += other.retransmitted;
    }
}

impl Sub for Counters {
    type Output = Self;

    /// The counts since `before`.
    fn sub(self, before: Self) -> Self {
        let less = u64::saturating_sub;
        Self {
            batches: less(self.batches, before.batches),
            batch_entries: less(self.batch_entries, before.batch_entries),
            batch_sizes: less(self.batch_sizes, before.batch_sizes),
            udp_trains_sent: less(self.udp_trains_sent, before.udp_trains_sent),
            udp_train_frames_sent: less(self.udp_train_frames_sent, before.udp_train_frames_sent),
            retransmitted: less(self.retransmitted, before.retransmitted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_links_are_summed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("counters");
        let job = r#"{"tx_frames":9,"batches":2,"batch_entries":6,"udp_trains_sent":1}"#;
        fs::write(&file, format!("{job}\n{job}\n")).unwrap();
        let jobs = Counters::of_jobs(&file).unwrap();
        assert_eq!((jobs.batches, jobs.entries_per_frame(), jobs.udp_trains_sent), (4, 3.0, 2));
        assert!(jobs.batch_size().is_nan());
        let link = r#"{"udp_trains_sent":2,"udp_train_frames_sent":8,
            "channel":{"batches":4,"batch_sizes":12,"retransmitted":1}}"#;
        let stats = format!(r#"{{"targets":[{{"links":[{link},{link}]}}]}}"#);
        let target = Counters::of_target(&stats).unwrap();
        assert_eq!((target.batch_size(), target.frames_per_train()), (3.0, 4.0));
        assert_eq!((target - jobs).batches, 4);
        assert!(Counters::of_target("{}").is_err());
    }
}
