//! The amount of what a session has had done, for the log of the target.

use std::ops::AddAssign;

use tyche_wire::{Command, Opcode, Status};

/// Requests that the disk has executed, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Successful reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Successful writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests that have failed.
    pub failed: u64,
}

impl Amounts {
    /// Adds a request that has ended.
    pub(super) fn add(&mut self, command: Option<&Command>, status: Status) {
        let Some(&Command { opcode, len, .. }) = command else { return };
        if status != Status::Success {
            self.failed += 1;
            return;
        }
        match opcode {
            Opcode::Read => {
                self.reads += 1;
                self.read_bytes += u64::from(len);
            }
            Opcode::Write => {
                self.writes += 1;
                self.written_bytes += u64::from(len);
            }
            _ => {}
        }
    }
}

impl AddAssign for Amounts {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.failed += other.failed;
    }
}
