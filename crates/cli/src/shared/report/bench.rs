//! The result of a measurement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tyche_proto::NodeCounts;

use super::Table;

/// The result of `tyche bench`, of all jobs together.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BenchReport {
    /// The kind of load, as in `--rw`.
    pub rw: String,
    /// Size of a request in bytes, 512 to 1048576.
    pub bs: u32,
    /// Requests in flight of each job and queue, 1 to 1024.
    pub iodepth: u16,
    /// Requests per second.
    pub iops: f64,
    /// Bytes of requests per second.
    pub bytes_per_s: f64,
    /// Latency in nanoseconds.
    pub lat_ns: TailFigures,
    /// CPU time that the jobs have used, in seconds.
    pub cpu_s: f64,
    /// Frames in both directions for each request.
    pub frames_per_io: f64,
    /// Frames sent again by the jobs.
    pub retransmitted: u64,
    /// Requests by their locality.
    #[serde(flatten)]
    pub(crate) nodes: Table<NodeCounts>,
    /// Seconds that were measured; those of the longest job.
    pub runtime_s: f64,
    /// Threads that sent requests: one for each queue of each job.
    pub jobs: u64,
}

/// Latency of requests in nanoseconds; quantiles to 3 %.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TailFigures {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
}
