//! Counters of requests.

use tyche_block::{Errno, Operation};
use tyche_counters::counters;

use crate::errors::ErrorCounts;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Those without an error.
    pub succeeded: SuccessCounts,
    /// Those with an error.
    pub errors: ErrorCounts,
}

impl RequestCounts {
    /// Counts a request that has ended.
    pub fn count(&mut self, operation: Operation, len: u32, result: Result<(), Errno>) {
        if let Err(errno) = result {
            self.errors.add(operation.into(), errno);
            return;
        }
        let len = u64::from(len);
        let succeeded = &mut self.succeeded;
        match operation {
            Operation::Read => {
                succeeded.reads += 1;
                succeeded.read_bytes += len;
            }
            Operation::Write { .. } => {
                succeeded.writes += 1;
                succeeded.written_bytes += len;
            }
            Operation::Flush => succeeded.flushes += 1,
            Operation::Discard | Operation::WriteZeroes { .. } => succeeded.others += 1,
        }
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
    }
}
