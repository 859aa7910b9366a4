//! The course of a job during which links were cut and came back.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::job::Job;
use crate::network::Cut;

/// Interval of the throughput figures.
pub(crate) const BUCKET_MS: u64 = 100;

/// A job during which links were cut and came back. Times are in milliseconds since its first
/// request was done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Timeline {
    pub(crate) set: String,
    pub(crate) peer: String,
    pub(crate) turn: u32,
    pub(crate) job: Job,
    pub(crate) how: Cut,
    /// Number of the job's links that were cut.
    pub(crate) links: u16,
    pub(crate) cut_ms: u64,
    pub(crate) back_ms: u64,
    /// The longest time in which no request was done.
    pub(crate) gap_ms: u64,
    /// The longest time of a request.
    pub(crate) slowest_ms: u64,
    /// Bytes done in each tenth of a second.
    pub(crate) bytes: Vec<u64>,
}

impl Timeline {
    /// Share of the usual throughput that counts as recovered.
    const RETURNED: f64 = 0.9;
    /// Consecutive tenths of a second that must reach it together.
    const RETURNED_BUCKETS: usize = 3;

    /// Bytes per second before the cut, without the first half second.
    pub(crate) fn usual(&self) -> f64 {
        self.mean(500, self.cut_ms)
    }

    /// Bytes per second while links are cut, from a second after it happened.
    pub(crate) fn during(&self) -> f64 {
        self.mean(self.cut_ms + 1000, self.back_ms)
    }

    fn mean(&self, from_ms: u64, to_ms: u64) -> f64 {
        let at = |ms: u64| ((ms / BUCKET_MS) as usize).min(self.bytes.len());
        let (from, to) = (at(from_ms), at(to_ms));
        let buckets = &self.bytes[from.min(to)..to];
        per_s(buckets.iter().sum(), buckets.len().max(1))
    }

    /// Time from the links' return until throughput had recovered, in milliseconds; `None`: never.
    pub(crate) fn returned_ms(&self) -> Option<u64> {
        let from = (self.back_ms / BUCKET_MS) as usize;
        let after = self.bytes.get(from..)?.windows(Self::RETURNED_BUCKETS);
        let rates = after.map(|it| per_s(it.iter().sum(), it.len()));
        let enough = self.usual() * Self::RETURNED;
        let buckets = rates.into_iter().position(|rate| rate >= enough)?;
        Some(buckets as u64 * BUCKET_MS)
    }

    /// The outage in words.
    pub(crate) fn outage(&self) -> String {
        let how = match self.how {
            Cut::Down => "interfaces down",
            Cut::Silent => "silently",
        };
        let (cut, links) = (self.links, self.job.bundle().links);
        let who = if self.peer == "tyche" { String::new() } else { format!("{} ", self.peer) };
        format!("{who}{}: {cut} of {links} links cut, {how}", self.job.rw.fio())
    }
}

/// Bytes per second, for bytes done in that many tenths of a second.
fn per_s(bytes: u64, buckets: usize) -> f64 {
    bytes as f64 / (buckets as f64 * BUCKET_MS as f64 / 1e3)
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (usual, during) = (self.usual() / 1e6, self.during() / 1e6);
        write!(f, "{usual:.0} MB/s, then {during:.0}, longest gap {} ms, ", self.gap_ms)?;
        write!(f, "slowest request {} ms, ", self.slowest_ms)?;
        match self.returned_ms() {
            Some(ms) => write!(f, "back after {ms} ms"),
            None => f.write_str("never back"),
        }
    }
}
