//! Losses of a cache: the initiators that are told, and how often.

use std::sync::Arc;
use std::time::Duration;

use tyche_block::{Errno, OperationKind};
use tyche_engine::Exported;
use tyche_fcoe::fc::wire::{PortId, Wwn};
use tyche_fcoe::scsi::cdb::{Command, Form, Range};
use tyche_fcoe::scsi::{Code, Status, Uuid};
use tyche_fcoe::{Generation, TargetUnit, Units};
use tyche_store::fault::{FaultStore, Faults, Rule};
use tyche_store::memory::MemoryStore;

use crate::target::{HOST, Host, OTHER, SIZE, Target, exported, unit};

const WRITE: Command =
    Command::Write { range: Range { form: Form::Ten, lba: 0, blocks: 1 }, fua: false };
const FLUSH: Command = Command::SynchronizeCache {
    range: Range { form: Form::Ten, lba: 0, blocks: 0 },
    immediate: false,
};
const DATA: [u8; 512] = [7; 512];
/// An initiator that logs in for the first time after the machine was restored.
const LATE: Host = (PortId::new(0x0a03), Wwn(0x2000_0000_0000_0a03));

/// A disk with a cache, whose generation is the number of its losses.
fn disk() -> (Arc<Units>, Faults) {
    let (unit, faults) = shared_unit();
    (Arc::new(Units::new(vec![unit])), faults)
}

fn shared_unit() -> (TargetUnit, Faults) {
    let store = FaultStore::with_volatile_cache(MemoryStore::new(SIZE, 512).unwrap()).unwrap();
    let faults = store.faults();
    (unit_of(&exported(store)), faults)
}

fn unit_of(exported: &Arc<Exported>) -> TargetUnit {
    let counted = Arc::clone(exported);
    let generation: Generation = Box::new(move || Uuid::from_u128(counted.losses().into()));
    TargetUnit { shared: true, ..unit(Arc::clone(exported), Some(generation)) }
}

fn fail_flush(faults: &Faults) {
    faults.add(Rule::fail(Errno::IO).on(OperationKind::Flush).times(1));
}

fn write(target: &mut Target) {
    assert_eq!(target.run(WRITE, &DATA).status, Status::Good);
}

fn flush(target: &mut Target) -> bool {
    let end = target.run(FLUSH, &[]);
    if end.confirm {
        target.confirm(&end);
    }
    end.status == Status::Good
}

#[test]
fn each_initiator_with_writes_in_the_cache_has_one_flush_fail_and_no_other_has() {
    let (units, faults) = disk();
    let mut target = Target::of(&units, 1);
    target.welcome(OTHER);
    target.welcome(HOST);
    write(&mut target);
    target.is_at(OTHER);
    fail_flush(&faults);
    assert!(flush(&mut target), "nothing of it is in the cache");
    assert_eq!(target.attend(), [Code::INQUIRY_CHANGED], "it learns the generation");
    target.is_at(HOST);
    assert_eq!(target.attend(), [Code::INQUIRY_CHANGED]);
    // Until it has confirmed that: a response may be lost.
    for confirms in [false, true] {
        let end = target.run(FLUSH, &[]);
        assert_eq!((end.status, end.code), (Status::CheckCondition, Some(Code::WRITE_ERROR)));
        assert_eq!((end.generation, end.confirm), (Some(Uuid::from_u128(1)), true));
        if confirms {
            target.confirm(&end);
        }
    }
    assert!(flush(&mut target), "it was told");
    write(&mut target);
    assert!(flush(&mut target), "and goes on");
}

#[test]
fn what_a_former_life_of_the_target_has_left_in_the_cache_is_at_stake() {
    let (unit, faults) = shared_unit();
    let units = Arc::new(Units::new(vec![TargetUnit { continues: true, ..unit }]));
    let mut target = Target::of(&units, 1);
    target.welcome(OTHER);
    target.welcome(HOST);
    assert!(flush(&mut target), "it is durable now");
    fail_flush(&faults);
    assert!(flush(&mut target));
    target.attend();
    target.is_at(OTHER);
    target.attend();
    assert!(!flush(&mut target) && flush(&mut target), "it has never flushed");
    let (unit, faults) = shared_unit();
    let units = Arc::new(Units::new(vec![TargetUnit { continues: true, ..unit }]));
    let mut target = Target::of(&units, 1);
    target.welcome(HOST);
    fail_flush(&faults);
    assert!(!flush(&mut target), "nobody knows what it has left");
    target.attend();
    assert!(flush(&mut target));
}

#[test]
fn what_was_written_to_a_unit_before_it_was_removed_is_at_stake_when_it_is_added_again() {
    let (unit, faults) = shared_unit();
    let exported = Arc::clone(&unit.exported);
    let units = Arc::new(Units::new(vec![unit]));
    let mut target = Target::of(&units, 1);
    target.welcome(OTHER);
    target.welcome(HOST);
    write(&mut target);
    let removal = units.remove(0).unwrap();
    while target.turn() {}
    assert!(removal.wait(Duration::ZERO));
    units.add(TargetUnit { continues: true, ..unit_of(&exported) }).unwrap();
    for host in [OTHER, HOST] {
        target.is_at(host);
        let codes = [Code::POWER_ON_OR_RESET, Code::INQUIRY_CHANGED, Code::LUNS_CHANGED];
        assert_eq!(target.attend(), codes);
    }
    target.is_at(OTHER);
    fail_flush(&faults);
    assert!(!flush(&mut target), "nobody knows what it has left");
    target.is_at(HOST);
    target.attend();
    assert!(!flush(&mut target) && flush(&mut target), "told once");
}

#[test]
fn a_flush_tells_whichever_interface_has_noticed_the_loss() {
    let (units, faults) = disk();
    let [mut first, mut second] = [1, 2].map(|number| Target::of(&units, number));
    first.welcome(HOST);
    second.welcome(OTHER);
    write(&mut first);
    write(&mut second);
    fail_flush(&faults);
    assert!(!flush(&mut second));
    assert_eq!(first.attend(), [Code::INQUIRY_CHANGED]);
    assert!(!flush(&mut first) && flush(&mut first));
    second.attend();
    assert!(flush(&mut second));
}

#[test]
fn an_initiator_that_logs_in_anew_is_told_what_it_was_not() {
    let (units, faults) = disk();
    let [mut first, mut second] = [1, 2].map(|number| Target::of(&units, number));
    first.welcome(HOST);
    write(&mut first);
    faults.crash().unwrap();
    // At another interface, or after it was away: it is the same.
    second.welcome(HOST);
    assert!(!flush(&mut second) && flush(&mut second));
}

#[test]
fn what_is_written_after_a_loss_is_not_lost_with_it() {
    let (units, faults) = disk();
    let mut target = Target::of(&units, 1);
    target.welcome(HOST);
    write(&mut target);
    assert!(flush(&mut target));
    faults.crash().unwrap();
    let end = target.run(WRITE, &DATA);
    assert_eq!(end.code, Some(Code::INQUIRY_CHANGED), "it learns the generation before it writes");
    target.confirm(&end);
    write(&mut target);
    assert!(flush(&mut target));
}

#[test]
fn whoever_flushes_after_a_restore_of_the_machine_is_told() {
    let (unit, _) = shared_unit();
    let exported = Arc::clone(&unit.exported);
    let units = Arc::new(Units::new(vec![unit]));
    let mut both = [1, 2].map(|number| Target::of(&units, number));
    // One has written, one has not as the target knows, and one comes later.
    both[0].welcome(HOST);
    write(&mut both[0]);
    both[1].welcome(OTHER);
    assert!(flush(&mut both[1]), "nothing is at stake");
    exported.distrust();
    let end = both[0].run(WRITE, &DATA);
    assert_eq!((end.code, end.generation), (Some(Code::INQUIRY_CHANGED), Some(Uuid::from_u128(1))));
    both[0].confirm(&end);
    assert_eq!(both[1].attend(), [Code::INQUIRY_CHANGED]);
    both[1].welcome(LATE);
    for (at, host) in [(0, HOST), (1, OTHER), (1, LATE)] {
        let target = &mut both[at];
        target.is_at(host);
        let end = target.run(FLUSH, &[]);
        assert_eq!(end.code, Some(Code::WRITE_ERROR), "{host:?}");
        assert_eq!(end.generation, Some(Uuid::from_u128(1)));
        target.confirm(&end);
        assert!(flush(target), "it is told once: {host:?}");
    }
}
