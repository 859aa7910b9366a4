//! Tests of the checker on one sector, which is zero at first.

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
    /// With a write cache, so that writes are not compared with the medium.
    fn new() -> Self {
        Self::of(false)
    }

    fn of(shared: bool) -> Self {
        let plan = DiskPlan { size: SIZE, write_cache: true, ..Plan::clean(1).disk };
        let promises = Promises { outcomes: true, ..Promises::KEPT };
        let history = History::new(&plan, promises, 0, shared);
        Self { history, disk: Disk::new(plan, Random::new(1)), ops: 0 }
    }

    /// Begins an operation on the first sector; returns its number and stamp.
    fn begin(&mut self, opcode: Opcode) -> (OpId, u64) {
        self.ops += 1;
        let stamp = if opcode.modifies() { self.history.stamp() } else { 0 };
        let range = if opcode == Opcode::Flush { (0, 0) } else { (0, SECTOR as u32) };
        let kind = (opcode, CommandFlags::NONE);
        self.history.submit(HOST, OpId(self.ops), kind, range, stamp).unwrap();
        (OpId(self.ops), stamp)
    }

    fn end(&mut self, (op, _): (OpId, u64)) {
        self.history.complete(HOST, op, Ok(()), &[], &self.disk).unwrap();
    }

    /// Begins and ends a modifying operation; returns its stamp.
    fn done(&mut self, opcode: Opcode) -> u64 {
        let op = self.begin(opcode);
        self.end(op);
        op.1
    }

    /// Ends a read that has seen the content of the operation with that stamp; zeroes if it is 0.
    fn saw(&mut self, (op, _): (OpId, u64), stamp: u64) -> Result<(), String> {
        let mut data = [0; SECTOR];
        if stamp > 0 {
            fill(&mut data, stamp, 0);
        }
        self.history.complete(HOST, op, Ok(()), &data, &self.disk).map(drop)
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

#[test]
fn what_one_read_saw_overwritten_no_later_one_sees() {
    let mut bench = Bench::new();
    let (first, second) = (bench.begin(Opcode::Write), bench.begin(Opcode::Write));
    bench.end(second);
    bench.end(first);
    bench.sees(second.1).unwrap();
    bench.sees(first.1).unwrap_err();
}

#[test]
fn reads_at_the_same_time_agree_on_what_was_written_last_before_both() {
    let mut bench = Bench::new();
    let (first, second) = (bench.begin(Opcode::Write), bench.begin(Opcode::Write));
    bench.end(first);
    bench.end(second);
    let reads = [bench.begin(Opcode::Read), bench.begin(Opcode::Read)];
    bench.saw(reads[0], second.1).unwrap();
    assert!(bench.saw(reads[1], first.1).unwrap_err().contains(OVERWRITTEN));
}

#[test]
fn reads_at_the_same_time_as_two_writes_may_see_them_in_any_order() {
    let mut bench = Bench::new();
    let (first, second) = (bench.begin(Opcode::Write), bench.begin(Opcode::Write));
    let reads = [bench.begin(Opcode::Read), bench.begin(Opcode::Read)];
    bench.end(first);
    bench.end(second);
    bench.saw(reads[0], second.1).unwrap();
    bench.saw(reads[1], first.1).unwrap();
}

#[test]
fn a_write_that_failed_without_effect_has_none_later() {
    let mut bench = Bench::new();
    let before = bench.done(Opcode::Write);
    let failed = bench.begin(Opcode::Write);
    bench.history.complete(HOST, failed.0, Err(Errno::IO), &[], &bench.disk).unwrap();
    bench.sees(before).unwrap();
    bench.sees(failed.1).unwrap_err();
}

#[test]
fn what_was_in_progress_when_its_memory_died_may_come_back_until_it_is_over() {
    let deaths: [fn(&mut Bench); 2] =
        [|bench| bench.history.lose_target(false), |bench| bench.history.succeed(HOST, HOST)];
    for death in deaths {
        let mut bench = Bench::new();
        let (first, second) = (bench.begin(Opcode::Write), bench.begin(Opcode::Write));
        bench.sees(first.1).unwrap();
        bench.end(second);
        bench.sees(second.1).unwrap();
        death(&mut bench);
        bench.sees(first.1).unwrap();
        bench.end(first);
        bench.sees(first.1).unwrap();
        bench.sees(second.1).unwrap_err();
    }
}

#[test]
fn of_the_values_that_a_lost_cache_may_leave_one_is_left() {
    for last in 0..2 {
        let mut bench = Bench::new();
        let values = [bench.done(Opcode::Write), bench.done(Opcode::Write)];
        bench.history.lose_target(true);
        bench.sees(values[last]).unwrap();
        bench.sees(values[1 - last]).unwrap_err();
    }
}

#[test]
fn what_is_torn_is_there_until_it_is_written_again() {
    let mut bench = Bench::new();
    let before = bench.done(Opcode::Write);
    let write = bench.begin(Opcode::Write);
    let overwritten = bench.begin(Opcode::Write);
    bench.history.lose_target(false);
    let torn = bench.history.tear(0, Content::Stamp(write.1)).unwrap();
    bench.sees(torn).unwrap();
    bench.sees(before).unwrap_err();
    bench.end(overwritten);
    bench.sees(torn).unwrap();
    bench.end(write);
    bench.sees(torn).unwrap_err();
    bench.sees(write.1).unwrap();
}

#[test]
fn what_rots_stays_so_until_it_is_written() {
    let mut bench = Bench::new();
    let write = bench.done(Opcode::Write);
    let rotten = bench.history.rot(0);
    bench.sees(rotten).unwrap();
    bench.sees(write).unwrap_err();
    let write = bench.done(Opcode::Write);
    bench.sees(write).unwrap();
    bench.sees(rotten).unwrap_err();
}

#[test]
fn a_session_must_be_told_of_a_restored_target_before_a_flush_succeeds() {
    let mut bench = Bench::new();
    let (write, open) = (bench.done(Opcode::Write), bench.begin(Opcode::Write));
    bench.history.restore(&bench.disk, [HOST].into_iter());
    bench.sees(write).unwrap_err();
    bench.sees(0).unwrap();
    bench.sees(open.1).unwrap();
    let flushes = [(); 3].map(|()| bench.begin(Opcode::Flush).0);
    let mut end = |flush, status| bench.history.complete(HOST, flush, status, &[], &bench.disk);
    end(flushes[0], Ok(())).unwrap_err();
    end(flushes[1], Err(Errno::IO)).unwrap();
    end(flushes[2], Ok(())).unwrap();
}

#[test]
fn an_answer_that_was_on_its_way_says_nothing_of_what_was_torn_meanwhile() {
    let mut bench = Bench::new();
    let write = bench.begin(Opcode::Write);
    bench.history.lose_target(true);
    let torn = bench.history.tear(0, Content::Stamp(write.1)).unwrap();
    bench.disk.spoil(0, torn);
    bench.end(write);
    bench.sees(torn).unwrap();
    bench.sees(write.1).unwrap_err();
}

#[test]
fn what_a_session_leaves_on_a_shared_export_may_take_effect_until_the_target_dies() {
    for shared in [false, true] {
        let mut bench = Bench::of(shared);
        let left = bench.begin(Opcode::Write);
        bench.history.abandon(HOST, left.0).unwrap();
        let write = bench.done(Opcode::Write);
        bench.sees(write).unwrap();
        assert_eq!(bench.sees(left.1).is_ok(), shared);
        let write = bench.done(Opcode::Write);
        bench.history.lose_target(false);
        bench.sees(write).unwrap();
        bench.sees(left.1).unwrap_err();
    }
}

#[test]
fn who_knows_of_a_lost_cache_has_done_again_what_it_answers() {
    for knows in [false, true] {
        let mut bench = Bench::new();
        let write = bench.begin(Opcode::Write);
        bench.history.lose_target(true);
        if knows {
            bench.history.learn(HOST, 0);
        }
        // The disk has only zeroes: the write was lost with its cache.
        bench.end(write);
        assert_eq!(bench.sees(0).is_err(), knows, "of zeroes, which were there before");
    }
}

#[test]
fn who_has_written_must_be_told_of_a_restored_target_flushed_or_not() {
    for flushed in [false, true] {
        let mut bench = Bench::new();
        bench.done(Opcode::Write);
        if flushed {
            bench.history.forgive(HOST, Step::MAX);
        }
        bench.history.restore(&bench.disk, [HOST].into_iter());
        let flush = bench.begin(Opcode::Flush);
        let told = bench.history.complete(HOST, flush.0, Ok(()), &[], &bench.disk);
        assert!(told.is_err());
    }
}

#[test]
fn what_was_done_before_a_loss_may_be_done_again_even_for_a_dead_host() {
    let mut bench = Bench::new();
    let (_, before) = bench.begin(Opcode::Write);
    bench.history.tell(HOST);
    let (_, after) = bench.begin(Opcode::Write);
    assert_eq!(bench.history.vanish(HOST), 2);
    assert!(bench.history.is_repeatable(before));
    assert!(!bench.history.is_repeatable(after), "nothing was lost since");
}

/// The write was executed and seen, executed again, torn then, and has failed.
#[test]
fn what_is_torn_may_be_seen_after_a_read_that_had_begun_before() {
    let mut bench = Bench::new();
    let (write, read) = (bench.begin(Opcode::Write), bench.begin(Opcode::Read));
    bench.history.lose_target(false);
    let torn = bench.history.tear(0, Content::Stamp(write.1)).unwrap();
    bench.history.complete(HOST, write.0, Err(Errno::IO), &[], &bench.disk).unwrap();
    bench.saw(read, write.1).unwrap();
    bench.sees(torn).unwrap();
}
