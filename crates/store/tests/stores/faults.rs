//! Faults on request, and lost power.

use std::time::{Duration, Instant};

use tyche_block::{Errno, Operation, OperationKind};
use tyche_store::Store;
use tyche_store::fault::{FaultStore, Faults, Rule};
use tyche_store::file::{FileOptions, FileStore};
use tyche_store::memory::MemoryStore;
use tyche_testkit::wait::PATIENCE;

use crate::drive::{Driver, WRITE, WRITE_FUA};
use crate::file::temporary;

const SIZE: u64 = 1 << 20;
const ZERO: Operation = Operation::WriteZeroes { fua: false, may_unmap: true };

fn memory() -> MemoryStore {
    MemoryStore::new(SIZE, 512).unwrap()
}

fn volatile() -> (FaultStore, Faults) {
    let store = FaultStore::with_volatile_cache(memory()).unwrap();
    let faults = store.faults();
    (store, faults)
}

#[test]
fn failures_strike_by_count_and_by_place_and_do_nothing() {
    let store = FaultStore::new(memory());
    let faults = store.faults();
    let mut driver = Driver::new(&store, 4);
    let two = faults.add(Rule::fail(Errno::NOSPC).on(OperationKind::Write).times(2));
    assert_eq!(driver.write(WRITE, 0, &[1; 512]), Err(Errno::NOSPC));
    assert_eq!(driver.read(0, 512), [0; 512], "a failed write did nothing");
    assert_eq!(driver.write(WRITE, 0, &[2; 512]), Err(Errno::NOSPC));
    assert_eq!(driver.write(WRITE, 0, &[3; 512]), Ok(()));
    assert_eq!(faults.remove(two), Some(2));

    faults.add(Rule::fail(Errno::IO).within(4096..4608));
    assert_eq!(driver.run(Operation::Read, 0, 8192).result, Err(Errno::IO));
    assert_eq!(driver.run(Operation::Read, 4608, 512).result, Ok(()));
    faults.clear();
    assert_eq!(driver.read(0, 512), [3; 512]);
    driver.assert_nothing_is_lent();
}

#[test]
fn delayed_completions_come_in_time_order_and_wake_the_sleeper() {
    let file = temporary(SIZE);
    let inner = FileStore::open(file.path(), &FileOptions::default()).unwrap();
    for store in [FaultStore::new(memory()), FaultStore::new(inner)] {
        let (short, long) = (Duration::from_millis(20), Duration::from_millis(60));
        store.faults().add(Rule::delay(long).on(OperationKind::Write));
        store.faults().add(Rule::delay(short).on(OperationKind::Flush));
        let mut driver = Driver::new(&store, 4);
        let start = Instant::now();
        driver.submit(0, WRITE, 0, 512);
        driver.submit(1, Operation::Flush, 0, 0);
        driver.submit(2, Operation::Read, 0, 512);
        let mut done = Vec::new();
        for (token, after) in [(2, Duration::ZERO), (1, short), (0, long)] {
            while done.is_empty() {
                driver.queue.kick().unwrap();
                assert!(driver.readable(PATIENCE), "the descriptor wakes");
                driver.queue.reap(&mut done);
            }
            let completion = done.remove(0);
            assert_eq!(completion.token, token);
            assert!(start.elapsed() >= after, "not before its time");
        }
        assert!(!driver.readable(Duration::ZERO));
        assert_eq!(driver.queue.in_flight(), 0);
    }
}

#[test]
fn a_crash_loses_what_was_not_flushed_and_nothing_else() {
    let (store, faults) = volatile();
    assert!(store.geometry().write_cache, "hosts must be told to flush");
    let mut driver = Driver::new(&store, 4);
    driver.write(WRITE, 0, &[1; 2048]).unwrap();
    driver.flush().unwrap();
    assert_eq!(faults.volatile_blocks(), 0);
    driver.write(WRITE, 512, &[2; 1024]).unwrap();
    driver.write(WRITE, 512, &[3; 512]).unwrap();
    driver.write(WRITE_FUA, 4096, &[4; 512]).unwrap();
    driver.run(ZERO, 1536, 512).result.unwrap();
    assert_eq!(faults.volatile_blocks(), 3);
    assert_eq!(driver.read(512, 512), [3; 512], "until the crash it is there");
    faults.crash().unwrap();
    assert_eq!(store.losses(), 1);
    assert_eq!(driver.read(0, 2048), [1; 2048]);
    assert_eq!(driver.read(4096, 512), [4; 512]);
    assert_eq!(faults.volatile_blocks(), 0);
}

#[test]
fn a_swallowed_or_failed_flush_makes_nothing_durable() {
    let (store, faults) = volatile();
    let mut driver = Driver::new(&store, 4);
    for (rule, result) in [(Rule::swallow(), Ok(())), (Rule::fail(Errno::IO), Err(Errno::IO))] {
        driver.write(WRITE, 0, &[9; 512]).unwrap();
        faults.add(rule.on(OperationKind::Flush).times(1));
        assert_eq!(driver.flush(), result);
        faults.crash().unwrap();
        assert_eq!(driver.read(0, 512), [0; 512]);
    }
}

#[test]
fn durable_steps_that_fail_are_losses() {
    let (store, faults) = volatile();
    let mut driver = Driver::new(&store, 4);
    let steps = [(Operation::Flush, 1), (WRITE_FUA, 1), (ZERO, 0), (Operation::Read, 0)];
    for (operation, losses) in steps {
        faults.add(Rule::fail(Errno::IO).on(operation.into()).times(1));
        let before = store.losses();
        let ended = match operation {
            Operation::Flush => driver.flush(),
            WRITE_FUA => driver.write(WRITE_FUA, 0, &[1; 512]),
            _ => driver.run(operation, 0, 512).result,
        };
        assert_eq!(ended, Err(Errno::IO));
        assert_eq!(store.losses() - before, losses, "{operation:?}");
    }
}

/// A flush covers writes that completed before it began, not those in flight.
#[test]
fn a_write_beside_a_flush_may_be_lost() {
    let (store, faults) = volatile();
    let mut driver = Driver::new(&store, 4);
    driver.write(WRITE, 0, &[1; 512]).unwrap();
    let beside = driver.buffer(&[2; 512]);
    driver.submit_with(0, WRITE, 512, 512, Some(beside));
    driver.submit(1, Operation::Flush, 0, 0);
    driver.finish();
    assert_eq!(faults.volatile_blocks(), 1);
    faults.crash().unwrap();
    assert_eq!(driver.read(0, 512), [1; 512]);
    assert_eq!(driver.read(512, 512), [0; 512]);
}

#[test]
fn a_disk_may_have_written_part_of_its_cache() {
    let (store, faults) = volatile();
    let mut driver = Driver::new(&store, 4);
    driver.write(WRITE, 0, &[5; 4096]).unwrap();
    faults.crash_keeping(|block| block % 2 == 0).unwrap();
    let expected: Vec<u8> =
        (0..8).flat_map(|block| [if block % 2 == 0 { 5 } else { 0 }; 512]).collect();
    assert_eq!(driver.read(0, 4096), expected);
}

/// The same over a file, whose requests are really in flight at the crash.
#[test]
fn requests_in_flight_at_the_crash_fail() {
    let file = temporary(SIZE);
    let options = FileOptions { write_back: true, ..FileOptions::default() };
    let inner = FileStore::open(file.path(), &options).unwrap();
    let store = FaultStore::with_volatile_cache(inner).unwrap();
    let faults = store.faults();
    let mut driver = Driver::new(&store, 8);
    driver.write(WRITE, 0, &[6; 65536]).unwrap();
    for token in 0..8 {
        let buffer = driver.buffer(&[7; 512]);
        driver.submit_with(token, WRITE, SIZE / 2 + token * 512, 512, Some(buffer));
    }
    driver.queue.kick().unwrap();
    faults.crash().unwrap();
    let done = driver.finish();
    assert_eq!(done.len(), 8);
    assert!(done.iter().all(|completion| completion.result == Err(Errno::IO)));
    assert!(driver.read(0, 65536).iter().all(|&byte| byte == 0));
}
