//! Counters of requests.

use tyche_block::{Errno, Operation};

use crate::errors::ErrorCounts;

/// Counters of the session's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Reads answered.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes answered.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes answered.
    pub flushes: u64,
    /// Discards and write-zeroes answered.
    pub others: u64,
    /// Requests that ended with an error.
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
        match operation {
            Operation::Read => {
                self.reads += 1;
                self.read_bytes += len;
            }
            Operation::Write { .. } => {
                self.writes += 1;
                self.written_bytes += len;
            }
            Operation::Flush => self.flushes += 1,
            Operation::Discard | Operation::WriteZeroes { .. } => self.others += 1,
        }
    }

    /// The number of requests that ended, with an error or without.
    pub fn total(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.others + self.errors.total()
    }

    /// Adds the counters of another queue.
    pub fn add(&mut self, other: &Self) {
        let Self { reads, read_bytes, writes, written_bytes, flushes, others, errors } = self;
        *reads += other.reads;
        *read_bytes += other.read_bytes;
        *writes += other.writes;
        *written_bytes += other.written_bytes;
        *flushes += other.flushes;
        *others += other.others;
        errors.merge(&other.errors);
    }
}
