//! Counters of requests.

use tyche_block::{Errno, Operation, Request};
use tyche_counters::counters;
use tyche_time::Instant;

use crate::errors::ErrorCounts;
use crate::latency::Latency;

counters! {
    /// Successful requests, and the bytes that they moved.
    pub struct SuccessCounts {
        /// Successful reads.
        reads: Counter in Requests,
        /// Bytes read.
        read_bytes: Counter in Bytes,
        /// Successful writes.
        writes: Counter in Requests,
        /// Bytes written.
        written_bytes: Counter in Bytes,
        /// Successful flushes.
        flushes: Counter in Requests,
        /// Successful discards and write-zeroes.
        others: Counter in Requests,
    }
}

/// Counters of requests that have ended.
#[derive(Clone, Debug, Default)]
pub struct RequestCounts {
    /// Those without an error.
    pub succeeded: SuccessCounts,
    /// Those with an error.
    pub errors: ErrorCounts,
    /// Latency of successful reads.
    pub reads: Latency,
    /// Latency of successful writes.
    pub writes: Latency,
}

impl RequestCounts {
    /// No request yet.
    pub fn new(now: Instant) -> Self {
        let (succeeded, errors) = (SuccessCounts::default(), ErrorCounts::default());
        Self { succeeded, errors, reads: Latency::new(now), writes: Latency::new(now) }
    }

    /// Counts a request that began at `begun` and ends `now`.
    pub fn count(
        &mut self,
        request: &Request,
        result: Result<(), Errno>,
        begun: Instant,
        now: Instant,
    ) {
        let Self { succeeded, errors, reads, writes } = self;
        let len = u64::from(request.len);
        match result {
            // A disk that cannot tell has data everywhere.
            Err(Errno::OPNOTSUPP) if request.operation == Operation::BlockStatus => {}
            Err(errno) => return errors.add(request.operation.into(), errno),
            Ok(()) => {}
        }
        match request.operation {
            Operation::Read => {
                succeeded.reads += 1;
                succeeded.read_bytes += len;
                reads.add(begun, now);
            }
            Operation::Write { .. } => {
                succeeded.writes += 1;
                succeeded.written_bytes += len;
                writes.add(begun, now);
            }
            Operation::Flush => succeeded.flushes += 1,
            Operation::Discard | Operation::WriteZeroes { .. } | Operation::BlockStatus => {
                succeeded.others += 1;
            }
        }
    }

    /// The counters as of `now`.
    pub fn at(&mut self, now: Instant) -> Self {
        Self { reads: self.reads.at(now), writes: self.writes.at(now), ..*self }
    }

    /// The number of requests that ended, with an error or without.
    pub fn total(&self) -> u64 {
        let SuccessCounts { reads, writes, flushes, others, .. } = self.succeeded;
        reads + writes + flushes + others + self.errors.total()
    }

    /// Adds the counters of another queue.
    pub fn add(&mut self, other: &Self) {
        self.succeeded += other.succeeded;
        self.errors.merge(&other.errors);
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
    }
}
