//! Resets that are asked for at one interface, and writes of another.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tyche_block::{Arena, Completion, Geometry, Request};
use tyche_fcoe::fc::wire::fcp::TaskManagement;
use tyche_fcoe::scsi::Status;
use tyche_fcoe::scsi::cdb::{Command, Form, Range};
use tyche_store::memory::MemoryStore;
use tyche_store::{Queue, ResizeError, Store};

use crate::target::{HOST, OTHER, SIZE, Target, exported, units};

const RANGE: Range = Range { form: Form::Ten, lba: 0, blocks: 1 };
const WRITE: Command = Command::Write { range: RANGE, fua: false };
const READ: Command = Command::Read { range: RANGE, fua: false };
const FUNCTIONS: [TaskManagement; 3] =
    [TaskManagement::LU_RESET, TaskManagement::CLEAR_TASK_SET, TaskManagement::TARGET_RESET];

/// A disk that begins no request while it is held.
struct HeldStore(MemoryStore, Arc<AtomicBool>);

struct HeldQueue {
    inner: Box<dyn Queue>,
    is_held: Arc<AtomicBool>,
    waiting: Vec<(u64, Request)>,
}

impl Store for HeldStore {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        let (inner, is_held) = (self.0.queue(depth)?, Arc::clone(&self.1));
        Ok(Box::new(HeldQueue { inner, is_held, waiting: Vec::new() }))
    }

    fn resize(&self, size: Option<u64>) -> Result<u64, ResizeError> {
        self.0.resize(size)
    }
}

impl Queue for HeldQueue {
    fn register(&mut self, arena: &Arena) {
        self.inner.register(arena);
    }

    fn unregister(&mut self, arena: &Arena) {
        self.inner.unregister(arena);
    }

    fn submit(&mut self, token: u64, request: Request) {
        self.waiting.push((token, request));
    }

    fn kick(&mut self) -> io::Result<()> {
        if !self.is_held.load(Ordering::Relaxed) {
            for (token, request) in self.waiting.drain(..) {
                self.inner.submit(token, request);
            }
        }
        self.inner.kick()
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        self.inner.reap(out);
    }

    fn in_flight(&self) -> usize {
        self.waiting.len() + self.inner.in_flight()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Two interfaces, each with an initiator, and whether the disk is held.
fn interfaces() -> ([Target; 2], Arc<AtomicBool>) {
    let is_held = Arc::<AtomicBool>::default();
    let store = HeldStore(MemoryStore::new(SIZE, 512).unwrap(), Arc::clone(&is_held));
    let units = units(exported(store), None);
    let mut both = [1, 2].map(|number| Target::of(&units, number));
    both[0].welcome(HOST);
    both[1].welcome(OTHER);
    (both, is_held)
}

fn read(target: &mut Target) -> u8 {
    target.attend();
    target.run(READ, &[]).data[0]
}

#[test]
fn a_reset_is_answered_when_a_write_of_the_other_interface_is_over() {
    for function in FUNCTIONS {
        let ([mut one, mut other], is_held) = interfaces();
        is_held.store(true, Ordering::Relaxed);
        one.send(WRITE, 512);
        assert!(one.ends(&[7; 512]).is_empty(), "it is with the disk");
        other.manage(function);
        assert!(other.ends(&[]).is_empty());
        while one.role.work(one.now) | other.role.work(other.now) {}
        assert!(other.ends(&[]).is_empty(), "{function:?}: the disk is at work with it");
        is_held.store(false, Ordering::Relaxed);
        while one.role.work(one.now) | other.role.work(other.now) {}
        let ends = other.ends(&[]);
        assert!(ends.len() == 1 && ends[0].status == Status::Good, "{function:?}: {ends:?}");
        let ended = one.ends(&[]);
        assert!(ended.iter().all(|end| end.status != Status::Good), "{ended:?}");
        assert_eq!(read(&mut other), 7, "it was done before");
    }
}

#[test]
fn a_write_that_a_reset_of_the_other_interface_has_ended_is_not_executed_after() {
    for function in FUNCTIONS {
        let ([mut one, mut other], _) = interfaces();
        one.send(WRITE, 512);
        assert!(one.ends(&[]).is_empty());
        let write = one.asked.pop().unwrap();
        other.manage(function);
        while one.role.work(one.now) | other.role.work(other.now) {}
        assert_eq!(other.ends(&[]).len(), 1, "{function:?}");
        one.deliver(write, &[7; 512]);
        while one.role.work(one.now) | other.role.work(other.now) {}
        assert_eq!(read(&mut other), 0, "{function:?}: its data are late");
    }
}
