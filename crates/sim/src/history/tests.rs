//! What the checker lets pass and what it does not, on one sector that nobody wrote before.

use super::*;
use crate::content::fill;
use crate::plan::{DiskPlan, Plan};
use crate::random::Random;

const SIZE: u64 = 4096;
const HOST: u64 = 1;

/// A checker with a disk on which nothing is ever executed.
struct Bench {
    history: History,
    disk: Disk,
    ops: u32,
}

impl Bench {
    /// With a cache: nothing is compared with what is durable.
    fn new() -> Self {
        let plan = DiskPlan { size: SIZE, write_cache: true, ..Plan::clean(1).disk };
        let disk = Disk::new(plan, Random::new(1));
        Self { history: History::new(SIZE, true), disk, ops: 0 }
    }

    /// An operation on the first sector begins; returns its name and stamp.
    fn begin(&mut self, opcode: Opcode) -> (OpId, u64) {
        self.ops += 1;
        let stamp = if opcode.modifies() { self.history.stamp() } else { 0 };
        let range = if opcode == Opcode::Flush { (0, 0) } else { (0, SECTOR as u32) };
        let kind = (opcode, CommandFlags::NONE);
        self.history.submit(HOST, OpId(self.ops), kind, range, stamp).unwrap();
        (OpId(self.ops), stamp)
    }

    fn end(&mut self, (op, _): (OpId, u64)) {
        self.history.complete(HOST, op, Status::Success, &[], &self.disk).unwrap();
    }

    /// An operation that modifies begins and ends; returns its stamp.
    fn done(&mut self, opcode: Opcode) -> u64 {
        let op = self.begin(opcode);
        self.end(op);
        op.1
    }

    /// A read ends and has seen what the operation of that stamp has left, or nothing if it is 0.
    fn saw(&mut self, (op, _): (OpId, u64), stamp: u64) -> Result<(), String> {
        let mut data = [0; SECTOR];
        if stamp > 0 {
            fill(&mut data, stamp, 0);
        }
        self.history.complete(HOST, op, Status::Success, &data, &self.disk).map(drop)
    }

    fn sees(&mut self, stamp: u64) -> Result<(), String> {
        let read = self.begin(Opcode::Read);
        self.saw(read, stamp)
    }
}

#[test]
fn zeroes_and_discards_do_not_come_back_after_a_later_write() {
    for opcode in [Opcode::WriteZeroes, Opcode::Discard] {
        let mut bench = Bench::new();
        let former = bench.done(opcode);
        bench.sees(former).unwrap();
        let write = bench.done(Opcode::Write);
        bench.sees(write).unwrap();
        bench.sees(former).unwrap_err();
    }
}

#[test]
fn a_discarded_sector_is_as_before_or_not_but_never_as_long_before() {
    let mut bench = Bench::new();
    let first = bench.done(Opcode::Write);
    let second = bench.done(Opcode::Write);
    bench.done(Opcode::Discard);
    bench.sees(second).unwrap();
    bench.sees(first).unwrap_err();
    let third = bench.done(Opcode::Write);
    let discard = bench.done(Opcode::Discard);
    bench.sees(discard).unwrap();
    bench.sees(third).unwrap_err();
}
