//! Resets that are asked for at one interface, and writes of another; initiators that are shut out;
//! units that are removed.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tyche_block::{Arena, Completion, Geometry, Request};
use tyche_engine::{Exported, RateLimit};
use tyche_fcoe::fc::wire::fcp::TaskManagement;
use tyche_fcoe::scsi::cdb::{Command, Form, Range};
use tyche_fcoe::scsi::{Code, Status};
use tyche_fcoe::{Departure, LunTaken, Role, TargetUnit, Units, VisibleTo};
use tyche_store::memory::MemoryStore;
use tyche_store::{Queue, ResizeError, Store};

use crate::target::{HOST, Host, OTHER, SIZE, Target, exported, unit, units_of};

const RANGE: Range = Range { form: Form::Ten, lba: 0, blocks: 1 };
pub(crate) const WRITE: Command = Command::Write { range: RANGE, fua: false };
pub(crate) const READ: Command = Command::Read { range: RANGE, fua: false };
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
    let (both, is_held, _) = interfaces_of(true);
    (both, is_held)
}

/// A disk, and whether it is held.
pub(crate) fn held_disk() -> (Arc<Exported>, Arc<AtomicBool>) {
    let is_held = Arc::<AtomicBool>::default();
    let store = HeldStore(MemoryStore::new(SIZE, 512).unwrap(), Arc::clone(&is_held));
    (exported(store), is_held)
}

/// The same, and the units. `shared`: whether both may write.
fn interfaces_of(shared: bool) -> ([Target; 2], Arc<AtomicBool>, Arc<Units>) {
    let (disk, is_held) = held_disk();
    let units = units_of(disk, None, shared);
    let mut both = [1, 2].map(|number| Target::of(&units, number));
    both[0].welcome(HOST);
    both[1].welcome(OTHER);
    (both, is_held, units)
}

pub(crate) fn read(target: &mut Target) -> u8 {
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
        while one.turn() | other.turn() {}
        assert!(other.ends(&[]).is_empty(), "{function:?}: the disk is at work with it");
        is_held.store(false, Ordering::Relaxed);
        while one.turn() | other.turn() {}
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
        while one.turn() | other.turn() {}
        assert_eq!(other.ends(&[]).len(), 1, "{function:?}");
        one.deliver(write, &[7; 512]);
        while one.turn() | other.turn() {}
        assert_eq!(read(&mut other), 0, "{function:?}: its data are late");
    }
}

/// Shuts an initiator out.
pub(crate) fn evict(units: &Units, host: Host) -> Departure {
    units.set_initiators(vec![(0, VisibleTo { except: vec![host.1], ..VisibleTo::default() })])
}

fn work([one, other]: &mut [Target; 2]) {
    while one.turn() | other.turn() {}
}

#[test]
fn an_initiator_that_is_shut_out_has_left_when_its_write_is_over_and_then_another_may_write() {
    let (mut both, is_held, units) = interfaces_of(false);
    is_held.store(true, Ordering::Relaxed);
    both[0].send(WRITE, 512);
    assert!(both[0].ends(&[7; 512]).is_empty(), "it is with the disk");
    let departure = evict(&units, HOST);
    work(&mut both);
    assert!(!departure.wait(Duration::ZERO), "its write may still change the disk");
    both[1].attend();
    let refused = both[1].run(WRITE, &[]);
    assert_eq!(refused.status, Status::ReservationConflict, "not before that is over");
    is_held.store(false, Ordering::Relaxed);
    work(&mut both);
    assert!(departure.wait(Duration::ZERO));
    assert_eq!(both[0].ends(&[])[0].status, Status::TaskAborted);
    for command in [WRITE, READ, Command::TestUnitReady] {
        let end = both[0].run(command, &[]);
        assert_eq!(end.code, Some(Code::LOGICAL_UNIT_NOT_SUPPORTED), "{command:?}");
    }
    assert_eq!(both[1].run(WRITE, &[9; 512]).status, Status::Good);
    // At another interface, and anew, it is the same.
    both[1].login(HOST);
    let end = both[1].run(READ, &[]);
    assert_eq!(end.code, Some(Code::LOGICAL_UNIT_NOT_SUPPORTED));
    let back = units.set_initiators(vec![(0, VisibleTo::default())]);
    work(&mut both);
    assert!(back.wait(Duration::ZERO));
    assert_eq!(read(&mut both[0]), 9);
}

#[test]
fn a_write_that_waits_for_its_data_is_not_executed_once_its_initiator_is_shut_out() {
    let (mut both, _, units) = interfaces_of(true);
    both[0].send(WRITE, 512);
    assert!(both[0].ends(&[]).is_empty());
    let write = both[0].asked.pop().unwrap();
    let departure = evict(&units, HOST);
    work(&mut both);
    assert!(departure.wait(Duration::ZERO));
    assert_eq!(both[0].ends(&[])[0].status, Status::TaskAborted);
    both[0].deliver(write, &[7; 512]);
    work(&mut both);
    assert_eq!(read(&mut both[1]), 0, "its data are late");
}

#[test]
fn a_command_of_a_former_login_is_waited_for_as_well() {
    let (mut both, is_held, units) = interfaces_of(true);
    is_held.store(true, Ordering::Relaxed);
    both[0].send(WRITE, 512);
    assert!(both[0].ends(&[7; 512]).is_empty());
    both[0].logout();
    let departure = evict(&units, HOST);
    work(&mut both);
    assert!(!departure.wait(Duration::ZERO));
    is_held.store(false, Ordering::Relaxed);
    work(&mut both);
    assert!(departure.wait(Duration::ZERO));
}

#[test]
fn a_unit_is_removed_when_its_commands_are_over_and_added_again_with_what_was_written() {
    let (disk, is_held) = held_disk();
    let again = || TargetUnit { shared: true, ..unit(Arc::clone(&disk), None) };
    let units = Arc::new(Units::new(vec![again()]));
    let mut both = [1, 2].map(|number| Target::of(&units, number));
    both[0].welcome(HOST);
    both[1].welcome(OTHER);
    assert_eq!(read(&mut both[1]), 0);
    is_held.store(true, Ordering::Relaxed);
    both[0].send(WRITE, 512);
    assert!(both[0].ends(&[7; 512]).is_empty(), "it is with the disk");
    let removal = units.remove(0).unwrap();
    assert!(units.remove(0).is_none() && units.lun("disk").is_none());
    work(&mut both);
    assert!(!removal.wait(Duration::ZERO), "its write may still change the disk");
    assert_eq!(units.add(again()), Err(LunTaken(0)));
    let end = both[1].run(READ, &[]);
    assert_eq!(end.code, Some(Code::LOGICAL_UNIT_NOT_SUPPORTED));
    is_held.store(false, Ordering::Relaxed);
    work(&mut both);
    assert!(removal.wait(Duration::ZERO));
    assert_eq!(both[0].ends(&[])[0].status, Status::TaskAborted);
    assert_eq!(Arc::strong_count(&disk), 1, "no thread has it any more");
    units.add(again()).unwrap();
    for target in &mut both {
        assert!(target.attend().contains(&Code::LUNS_CHANGED), "there is another unit");
        assert_eq!(target.run(READ, &[]).data[0], 7, "the same disk");
    }
}

#[test]
fn a_unit_that_no_thread_serves_is_removed_at_once() {
    let (disk, _) = held_disk();
    let units = units_of(Arc::clone(&disk), None, true);
    assert!(units.remove(0).unwrap().wait(Duration::ZERO));
    assert_eq!(Arc::strong_count(&disk), 1);
    units.add(unit(disk, None)).unwrap();
}

/// An export that lets nearly nothing through: what comes after the first command waits.
#[test]
fn a_write_that_waits_at_a_limit_is_not_executed_once_its_initiator_is_shut_out() {
    let (disk, _) = held_disk();
    let units = units_of(Arc::clone(&disk), None, true);
    let mut both = [1, 2].map(|number| Target::of(&units, number));
    both[0].welcome(HOST);
    both[1].welcome(OTHER);
    both[0].attend();
    let bytes_per_second = NonZeroU64::new(1);
    disk.limiter().set(RateLimit { iops: None, bytes_per_second });
    let write = |both: &mut [Target; 2], data| {
        both[0].send(WRITE, 512);
        let mut ends = both[0].ends(&[data; 512]);
        work(both);
        ends.extend(both[0].ends(&[]));
        ends
    };
    assert_eq!(write(&mut both, 7).len(), 1, "the first is executed");
    assert!(write(&mut both, 8).is_empty() && write(&mut both, 9).is_empty());
    assert!(both[0].role.poll_timeout().is_some());
    let departure = evict(&units, HOST);
    work(&mut both);
    assert!(departure.wait(Duration::ZERO), "nothing of it is with the disk");
    disk.limiter().set(RateLimit::default());
    work(&mut both);
    assert_eq!(read(&mut both[1]), 7, "the others are not executed");
}

#[test]
fn commands_that_wait_go_on_when_their_limit_is_lifted() {
    let (disk, _) = held_disk();
    let units = units_of(Arc::clone(&disk), None, false);
    let mut target = Target::of(&units, 1);
    target.welcome(HOST);
    target.attend();
    let bytes_per_second = NonZeroU64::new(1);
    disk.limiter().set(RateLimit { iops: None, bytes_per_second });
    for _ in 0..3 {
        target.send(WRITE, 512);
        target.ends(&[7; 512]);
        while target.turn() {}
    }
    let before = target.role.commands();
    disk.limiter().set(RateLimit::default());
    while target.turn() {}
    assert_eq!(target.role.commands(), before + 2);
    assert_eq!(target.ends(&[]).len(), 2);
}
