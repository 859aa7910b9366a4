//! Queues that are dropped with requests in flight.

use std::fs;
use std::sync::mpsc;
use std::thread;

use tyche_block::{Operation, PAGE};
use tyche_store::file::{Direct, FileOptions, FileStore};
use tyche_testkit::wait::PATIENCE;

use crate::drive::{Driver, WRITE};
use crate::file::temporary;

const MIB: usize = 1 << 20;
const DEPTH: usize = 64;
const LEN: usize = 16 * PAGE;

fn stores(fill: u8) -> impl Iterator<Item = (tempfile::NamedTempFile, FileStore)> {
    [Direct::Auto, Direct::Off].into_iter().map(move |direct| {
        let file = temporary((DEPTH * LEN) as u64);
        fs::write(file.path(), vec![fill; DEPTH * LEN]).unwrap();
        let options = FileOptions { direct, write_back: true, ..FileOptions::default() };
        let store = FileStore::open(file.path(), &options).unwrap();
        (file, store)
    })
}

fn submit_reads(driver: &mut Driver) {
    for token in 0..DEPTH as u64 {
        driver.submit(token, Operation::Read, token * LEN as u64, LEN);
    }
}

/// Asserts that the kernel no longer writes to memory given back by the drop.
fn assert_kernel_is_done(arena: &tyche_block::Arena, store: &FileStore) {
    let mut all = arena.claim(0, arena.pages() * PAGE).expect("all buffers came back");
    all.fill(0xee);
    // Enough work for a straggler to show.
    let mut other = Driver::new(store, 1);
    assert_eq!(other.read(0, MIB), vec![0x11; MIB]);
    assert!(all.iter().all(|&byte| byte == 0xee), "the kernel wrote after the drop");
}

#[test]
fn a_drop_waits_for_the_kernel() {
    for (_file, store) in stores(0x11) {
        for register in [false, true] {
            let mut driver = Driver::new(&store, DEPTH);
            let arena = driver.arena.clone();
            if register {
                driver.queue.register(&arena);
            }
            submit_reads(&mut driver);
            driver.queue.kick().unwrap();
            drop(driver);
            assert_kernel_is_done(&arena, &store);
        }
    }
}

#[test]
fn a_drop_on_another_thread_waits_just_the_same() {
    for (_file, store) in stores(0x11) {
        let mut driver = Driver::new(&store, DEPTH);
        let arena = driver.arena.clone();
        let (to_main, from_thread) = mpsc::channel();
        let (to_thread, from_main) = mpsc::channel::<()>();
        let submitter = thread::spawn(move || {
            submit_reads(&mut driver);
            driver.queue.kick().unwrap();
            to_main.send(driver).unwrap();
            // Alive, but slow to run the kernel's completions.
            let _ = from_main.recv_timeout(PATIENCE);
        });
        drop(from_thread.recv_timeout(PATIENCE).unwrap());
        assert_kernel_is_done(&arena, &store);
        drop(to_thread);
        submitter.join().unwrap();
    }
}

#[test]
fn requests_of_a_thread_that_has_ended_still_finish() {
    for (_file, store) in stores(0x11) {
        let mut driver = Driver::new(&store, DEPTH);
        let mut driver = thread::spawn(move || {
            submit_reads(&mut driver);
            driver.queue.kick().unwrap();
            driver
        })
        .join()
        .unwrap();
        let done = driver.finish();
        assert_eq!(done.len(), DEPTH);
        for completion in done {
            completion.result.unwrap();
            assert!(completion.buffer.unwrap().iter().all(|&byte| byte == 0x11));
        }
    }
}

#[test]
fn requests_never_kicked_are_never_executed() {
    for (file, store) in stores(0x11) {
        let mut driver = Driver::new(&store, DEPTH);
        let arena = driver.arena.clone();
        submit_reads(&mut driver);
        driver.finish();
        for token in 0..DEPTH as u64 {
            let buffer = driver.buffer(&[0x22; LEN]);
            driver.submit_with(token, WRITE, token * LEN as u64, LEN, Some(buffer));
        }
        drop(driver);
        assert_kernel_is_done(&arena, &store);
        drop(store);
        assert!(fs::read(file.path()).unwrap().iter().all(|&byte| byte == 0x11));
    }
}

#[test]
fn queues_come_and_go_beside_one_that_works() {
    for (_file, store) in stores(0) {
        thread::scope(|scope| {
            let store = &store;
            for lane in 0..4_u8 {
                scope.spawn(move || {
                    // Each thread in a part of its own, as the channels of a session have.
                    let offset = u64::from(lane) * (DEPTH / 4 * LEN) as u64;
                    for round in 0..20 {
                        let mut driver = Driver::new(store, 4);
                        let pattern = vec![round ^ (lane << 6); LEN];
                        driver.write(WRITE, offset, &pattern).unwrap();
                        driver.flush().unwrap();
                        assert_eq!(driver.read(offset, LEN), pattern);
                        driver.submit(0, Operation::Read, offset, LEN);
                        driver.queue.kick().unwrap();
                    }
                });
            }
        });
    }
}
