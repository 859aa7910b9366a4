//! Stores whose requests are executed by a worker thread.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "the tests of stores use all of it")]
#[path = "../../store/tests/stores/drive.rs"]
mod drive;
#[path = "../../store/tests/stores/model.rs"]
mod model;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tyche_baseline::{DiskArray, DiskArrayStore, HandOverStore};
use tyche_block::{Arena, Completion, Errno, Geometry, Operation, OperationKind, PAGE, Request};
use tyche_store::fault::{FaultStore, Rule};
use tyche_store::file::{FileOptions, FileStore};
use tyche_store::memory::MemoryStore;
use tyche_store::{Queue, ResizeError, Store};
use tyche_testkit::wait::PATIENCE;

use drive::{Driver, WRITE};

const MIB: usize = 1 << 20;
const SPIN: Duration = Duration::from_micros(50);

fn memory() -> MemoryStore {
    MemoryStore::new(MIB as u64, 512).unwrap()
}

fn wrapped(inner: impl Store + 'static) -> HandOverStore {
    HandOverStore::new(Arc::new(inner), Duration::ZERO)
}

#[test]
fn a_hand_over_store_is_a_disk() {
    for (seed, spin) in [(7, Duration::ZERO), (8, SPIN)] {
        model::run(&HandOverStore::new(Arc::new(memory()), spin), seed, false, 100);
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(MIB as u64).unwrap();
        let file = FileStore::open(file.path(), &FileOptions::default()).unwrap();
        model::run(&HandOverStore::new(Arc::new(file), spin), seed, true, 20);
    }
    // Wrappers outside and inside.
    model::run(&FaultStore::new(wrapped(memory())), 9, false, 20);
    model::run(&wrapped(FaultStore::new(memory())), 10, false, 20);
}

#[test]
fn an_array_of_disks_is_a_disk() {
    let seek = Duration::from_micros(20);
    for batch in [1, 4] {
        let array = DiskArray { seek, rate: 1 << 30, batch, ..DiskArray::ICS_2006 };
        model::run(&DiskArrayStore::new(Arc::new(memory()), array), 11, false, 50);
    }
}

#[test]
fn geometry_losses_and_errors_are_those_of_the_inner_store() {
    let inner = Arc::new(memory());
    let store = HandOverStore::new(Arc::clone(&inner) as Arc<dyn Store>, SPIN);
    assert_eq!(store.geometry(), inner.geometry());
    let failing = FaultStore::new(memory());
    failing.faults().add(Rule::fail(Errno::IO).on(OperationKind::Flush));
    let store_of_failing = wrapped(failing);
    assert_eq!(Driver::new(&store_of_failing, 1).flush(), Err(Errno::IO));
    assert_eq!(store_of_failing.losses(), 1);
    assert_eq!(store.queue(0).err().map(|error| error.kind()), Some(io::ErrorKind::InvalidInput));
}

#[test]
fn the_descriptor_is_readable_exactly_while_completions_wait() {
    let mut driver = Driver::new(&wrapped(memory()), 4);
    let mut done = Vec::new();
    for _ in 0..200 {
        assert!(!driver.readable(Duration::ZERO));
        driver.submit(5, Operation::Read, 0, 512);
        driver.queue.kick().unwrap();
        assert!(driver.readable(PATIENCE), "slept on a completion");
        assert!(driver.readable(Duration::ZERO), "still, as nobody has reaped");
        driver.queue.reap(&mut done);
        assert_eq!(done.pop().unwrap().result, Ok(()));
        assert_eq!(driver.queue.in_flight(), 0);
    }
}

#[test]
fn a_slow_disk_does_not_hold_up_the_submitting_thread() {
    let inner = FaultStore::new(memory());
    let faults = inner.faults();
    faults.add(Rule::delay(Duration::from_millis(30)).on(OperationKind::Read).times(1));
    faults.add(Rule::fail(Errno::IO).on(OperationKind::Flush));
    let mut driver = Driver::new(&wrapped(inner), 4);
    let start = Instant::now();
    driver.submit(1, Operation::Read, 0, 512);
    driver.submit(2, Operation::Read, 0, 512);
    driver.submit(3, Operation::Flush, 0, 0);
    let done = driver.finish();
    let order: Vec<_> = done.iter().map(|it| (it.token, it.result)).collect();
    assert_eq!(order, [(2, Ok(())), (3, Err(Errno::IO)), (1, Ok(()))]);
    assert!(start.elapsed() >= Duration::from_millis(30));
}

#[test]
#[should_panic(expected = "more than 2 requests in flight")]
fn a_queue_keeps_to_its_depth() {
    let mut driver = Driver::new(&wrapped(memory()), 2);
    for token in 0..3 {
        driver.submit(token, Operation::Read, 0, 512);
    }
}

#[test]
fn a_drop_executes_kicked_requests_alone_and_returns_all_memory() {
    const DEPTH: u64 = 64;
    for spin in [Duration::ZERO, SPIN] {
        let inner = Arc::new(memory());
        let store = HandOverStore::new(Arc::clone(&inner) as Arc<dyn Store>, spin);
        let mut driver = Driver::new(&store, DEPTH as usize);
        let arena = driver.arena.clone();
        driver.queue.register(&arena);
        for token in 0..DEPTH {
            let buffer = driver.buffer(&[0x22; PAGE]);
            driver.submit_with(token, WRITE, token * PAGE as u64, PAGE, Some(buffer));
            if token == DEPTH / 2 - 1 {
                driver.queue.kick().unwrap();
            }
        }
        drop(driver);
        assert!(arena.claim(0, arena.pages() * PAGE).is_some(), "a buffer has not come back");
        let half = MIB / 8;
        let disk = Driver::new(&*inner, 1).read(0, 2 * half);
        assert!(disk[..half].iter().all(|&byte| byte == 0x22));
        assert!(disk[half..].iter().all(|&byte| byte == 0));
        drop(store);
        // The worker keeps the disk alive, and the drop of the queue has waited for its end.
        assert_eq!(Arc::strong_count(&inner), 1);
    }
}

/// A disk whose queue has a bug, or cannot reach the kernel.
struct Broken {
    panics: bool,
}

struct BrokenQueue {
    panics: bool,
    inner: Box<dyn Queue>,
    kicks: u32,
}

impl Store for Broken {
    fn resize(&self, _: Option<u64>) -> Result<u64, ResizeError> {
        Err(ResizeError::Memory)
    }

    fn geometry(&self) -> Geometry {
        memory().geometry()
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        let inner = memory().queue(depth)?;
        Ok(Box::new(BrokenQueue { panics: self.panics, inner, kicks: 0 }))
    }
}

impl Queue for BrokenQueue {
    fn register(&mut self, _: &Arena) {}

    fn unregister(&mut self, _: &Arena) {}

    fn submit(&mut self, token: u64, request: Request) {
        assert!(!self.panics, "a request too many, as this test wants it");
        self.inner.submit(token, request);
    }

    fn kick(&mut self) -> io::Result<()> {
        self.kicks += 1;
        if self.kicks == 1 { Err(io::Error::other("no way in")) } else { Ok(()) }
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        if self.kicks > 1 {
            self.inner.reap(out);
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[test]
fn a_failed_kick_is_told_and_tried_again() {
    let mut driver = Driver::new(&wrapped(Broken { panics: false }), 1);
    driver.submit(1, Operation::Read, 0, 512);
    // The worker may be fast enough for this very call to report it.
    let told = driver.queue.kick().and_then(|()| {
        assert!(driver.readable(PATIENCE), "the news wakes the sleeper");
        driver.queue.kick()
    });
    assert_eq!(told.unwrap_err().to_string(), "no way in");
    assert_eq!(driver.finish()[0].result, Ok(()));
}

#[test]
#[should_panic(expected = "the store's worker has panicked")]
fn a_panic_of_the_worker_reaches_the_submitting_thread() {
    let mut driver = Driver::new(&wrapped(Broken { panics: true }), 1);
    driver.submit(1, Operation::Read, 0, 512);
    driver.finish();
}
