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
    /// Requests that were answered meanwhile.
    pub(crate) requests: u64,
    /// Writes into the peer's window over RDMA, and those of them that announced frames.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) rdma_writes: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) rdma_announcements: u64,
    /// Announcements of the peer that interrupted.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) rdma_interrupts: u64,
    /// Frames that found no room in the peer's window.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) rdma_waited: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
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

    /// Requests that each thread of the only target in the output of `tyche stats` has answered, on
    /// all links, and over FCoE.
    pub(crate) fn by_thread(stats: &str) -> Result<Vec<u64>> {
        let stats: Value = serde_json::from_str(stats).doing("tyche stats")?;
        let mut threads = Vec::new();
        for (list, name) in [("links", "requests_by_thread"), ("fcoe", "commands_by_thread")] {
            for place in stats["targets"][0][list].as_array().into_iter().flatten() {
                let counts = place[name].as_array().into_iter().flatten();
                for (thread, count) in counts.filter_map(Value::as_u64).enumerate() {
                    threads.resize(threads.len().max(thread + 1), 0);
                    threads[thread] += count;
                }
            }
        }
        Ok(threads)
    }

    /// Entries in a frame, on average; NaN without frames.
    pub(crate) fn entries_per_frame(&self) -> f64 {
        ratio(self.batch_entries, self.batches)
    }

    /// The tuned batch size on average, by frames; NaN if none was tuned.
    pub(crate) fn batch_size(&self) -> f64 {
        if self.batch_sizes == 0 { f64::NAN } else { ratio(self.batch_sizes, self.batches) }
    }

    /// Writes over RDMA for each request, and interrupts; NaN without requests.
    pub(crate) fn writes_per_request(&self) -> f64 {
        ratio(self.rdma_writes, self.requests)
    }

    pub(crate) fn interrupts_per_request(&self) -> f64 {
        ratio(self.rdma_interrupts, self.requests)
    }

    /// Combines each counter with the same one of others.
    fn with(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        let both = |counter: fn(&Self) -> u64| combine(counter(&self), counter(&other));
        Self {
            batches: both(|it| it.batches),
            batch_entries: both(|it| it.batch_entries),
            batch_sizes: both(|it| it.batch_sizes),
            udp_trains_sent: both(|it| it.udp_trains_sent),
            udp_train_frames_sent: both(|it| it.udp_train_frames_sent),
            retransmitted: both(|it| it.retransmitted),
            requests: both(|it| it.requests),
            rdma_writes: both(|it| it.rdma_writes),
            rdma_announcements: both(|it| it.rdma_announcements),
            rdma_interrupts: both(|it| it.rdma_interrupts),
            rdma_waited: both(|it| it.rdma_waited),
        }
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
        *self = self.with(other, |a, b| a + b);
    }
}

impl Sub for Counters {
    type Output = Self;

    /// The counts since `before`.
    fn sub(self, before: Self) -> Self {
        self.with(before, u64::saturating_sub)
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
            "requests":3,"rdma_writes":9,
            "channel":{"batches":4,"batch_sizes":12,"retransmitted":1}}"#;
        let stats = format!(r#"{{"targets":[{{"links":[{link},{link}]}}]}}"#);
        let target = Counters::of_target(&stats).unwrap();
        assert_eq!((target.batch_size(), target.frames_per_train()), (3.0, 4.0));
        assert_eq!(((target - jobs).batches, target.writes_per_request()), (4, 3.0));
        assert_eq!(target.interrupts_per_request(), 0.0);
        assert!(Counters::of_target("{}").is_err());
    }

    #[test]
    fn requests_by_thread_are_those_of_links_and_of_fcoe() {
        let link = r#"{"requests":9,"requests_by_thread":[4,5]}"#;
        let port = r#"{"commands_by_thread":[1,2,3]}"#;
        let stats = format!(r#"{{"targets":[{{"links":[{link},{link}],"fcoe":[{port}]}}]}}"#);
        assert_eq!(Counters::by_thread(&stats).unwrap(), [9, 12, 3]);
        assert!(Counters::by_thread("{}").unwrap().is_empty());
    }
}
