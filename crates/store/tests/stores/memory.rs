//! Memory under several threads, and the null store.

use std::thread;

use tyche_block::{Errno, Operation, PAGE};
use tyche_store::memory::MemoryStore;
use tyche_store::null::NullStore;
use tyche_store::{ResizeError, Store};
use tyche_testkit::random::Random;

use crate::drive::{Driver, WRITE};

/// Threads write whole pages of one byte across the borders of locks; no reader may see a page
/// of two bytes.
#[test]
fn concurrent_writes_never_tear_a_page() {
    const SIZE: u64 = 256 << 10;
    let store = MemoryStore::new(SIZE, 4096).unwrap();
    thread::scope(|scope| {
        for thread in 1..=4_u8 {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random(u64::from(thread));
                let mut driver = Driver::new(store, 1);
                for round in 0..3000 {
                    let pages = 1 + random.below(32) as usize;
                    let offset = random.below(SIZE / 4096 - pages as u64 + 1) * 4096;
                    if round % 2 == 0 {
                        driver.write(WRITE, offset, &vec![thread; pages * PAGE]).unwrap();
                        continue;
                    }
                    for page in driver.read(offset, pages * PAGE).chunks(PAGE) {
                        assert!(page.iter().all(|&byte| byte == page[0]), "a torn page");
                    }
                }
            });
        }
    });
}

#[test]
fn a_huge_disk_costs_nothing_until_written() {
    let store = MemoryStore::new(1 << 40, 512).unwrap();
    let mut driver = Driver::new(&store, 1);
    let end = (1 << 40) - 512;
    driver.write(WRITE, end, &[7; 512]).unwrap();
    assert_eq!(driver.read(end, 512), [7; 512]);
    assert_eq!(driver.write(WRITE, 1 << 40, &[7; 512]), Err(Errno::NOSPC));
    let zero = Operation::WriteZeroes { fua: true, may_unmap: true };
    driver.run(zero, end - (64 << 10), (64 << 10) + 512).result.unwrap();
    assert_eq!(driver.read(end, 512), [0; 512]);
}

#[test]
fn more_memory_than_there_is_cannot_be_populated() {
    let store = MemoryStore::new(1 << 40, 512).unwrap();
    let error = store.populate().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("available"), "{error}");
}

#[test]
fn geometry_is_checked_and_says_that_memory_is_volatile() {
    for (size, block_size) in [(0, 512), (511, 512), (4096, 1024), (512, 4096), (u64::MAX, 512)] {
        assert!(MemoryStore::new(size, block_size).is_err(), "{size} {block_size}");
        assert!(NullStore::new(size, block_size).is_err(), "{size} {block_size}");
    }
    assert!(MemoryStore::new(4096, 4096).unwrap().geometry().write_cache);
    assert!(!NullStore::new(4096, 4096).unwrap().geometry().write_cache, "nothing to lose");
}

#[test]
fn read_only_disks_are_not_written() {
    let stores: [&dyn Store; 2] = [
        &MemoryStore::new(8192, 4096).unwrap().read_only(),
        &NullStore::new(8192, 4096).unwrap().read_only(),
    ];
    for store in stores {
        let mut driver = Driver::new(store, 1);
        assert_eq!(driver.write(WRITE, 0, &[1; 4096]), Err(Errno::ROFS));
        assert_eq!(driver.read(0, 4096), [0; 4096]);
    }
}

#[test]
fn null_reads_zeroes_and_takes_everything() {
    let store = NullStore::new(1 << 50, 4096).unwrap();
    let mut driver = Driver::new(&store, 2);
    driver.write(WRITE, 4096, &[1; 4096]).unwrap();
    driver.submit_with(0, Operation::Read, 4096, 4096, Some(driver.buffer(&[1; 4096])));
    driver.submit(1, Operation::Discard, 0, 4096);
    assert_eq!(driver.queue.in_flight(), 2);
    let done = driver.finish();
    assert!(done[0].buffer.as_ref().unwrap().iter().all(|&byte| byte == 0));
    assert_eq!(driver.run(Operation::Read, 1 << 50, 4096).result, Err(Errno::INVAL));
    assert_eq!(store.resize(Some(1 << 51)).unwrap(), 1 << 51);
    assert_eq!(driver.run(Operation::Read, 1 << 50, 4096).result, Ok(()));
    assert!(matches!(store.resize(Some(1 << 50)), Err(ResizeError::Shrinks { .. })));
}

#[test]
fn memory_keeps_its_size() {
    let store = MemoryStore::new(1 << 20, 512).unwrap();
    assert!(matches!(store.resize(Some(2 << 20)), Err(ResizeError::Memory)));
    assert_eq!(store.resize(Some(1 << 20)).unwrap(), 1 << 20);
    assert_eq!(store.resize(None).unwrap(), 1 << 20);
}
