//! The answers of a target to commands that our initiator does not send, or not in that way.

use std::time::Duration;

use tyche_block::{Errno, OperationKind};
use tyche_fcoe::scsi::cdb::{Command, Form, Range};
use tyche_fcoe::scsi::{Code, Status};
use tyche_store::fault::{FaultStore, Rule};
use tyche_store::memory::MemoryStore;

use crate::target::{SIZE, Target};

fn store() -> FaultStore {
    FaultStore::with_volatile_cache(MemoryStore::new(SIZE, 512).unwrap()).unwrap()
}

fn range(lba: u64, blocks: u32) -> Range {
    Range { form: Form::Ten, lba, blocks }
}

#[test]
fn verify_reads_and_sends_nothing() {
    let store = store();
    let faults = store.faults();
    let mut target = Target::told(store);
    faults.add(Rule::fail(Errno::IO).on(OperationKind::Read).within(4096..8192));
    let end = target.run(Command::Verify(range(0, 1)), &[]);
    assert_eq!((end.status, end.data.len()), (Status::Good, 0));
    let end = target.run(Command::Verify(range(8, 1)), &[]);
    assert_eq!(end.code, Some(Code::UNRECOVERED_READ_ERROR), "a bad spot is found");
}

#[test]
fn what_is_read_with_fua_is_on_stable_storage() {
    for fua in [true, false] {
        let store = store();
        let faults = store.faults();
        let mut target = Target::told(store);
        let write = Command::Write { range: range(0, 1), fua: false };
        assert_eq!(target.run(write, &[7; 512]).status, Status::Good);
        let read = Command::Read { range: range(0, 1), fua };
        assert_eq!(target.run(read, &[]).data, [7; 512]);
        faults.crash().unwrap();
        let read = Command::Read { range: range(0, 1), fua: false };
        let expected = if fua { 7 } else { 0 };
        let end = target.run(read, &[]);
        // The crash is told first.
        let end = if end.confirm {
            target.confirm(&end);
            target.run(read, &[])
        } else {
            end
        };
        assert_eq!(end.data, [expected; 512], "fua: {fua}");
    }
}

#[test]
fn one_of_many_commands_tells_of_a_reset_and_the_others_are_put_off() {
    let mut target = Target::new(store());
    for _ in 0..100 {
        target.send(Command::TestUnitReady, 0);
    }
    let ends = target.ends(&[]);
    let told: Vec<_> = ends.iter().filter(|it| it.status == Status::CheckCondition).collect();
    assert_eq!((ends.len(), told.len()), (100, 1));
    assert!(ends.iter().all(|it| it.status != Status::Good), "nothing passes it by");
    let exchange = told[0].exchange;
    // Without a confirmation it is told again.
    target.now = target.now + Duration::from_millis(200);
    let end = target.run(Command::TestUnitReady, &[]);
    assert_eq!((end.status, end.code), (Status::CheckCondition, Some(Code::POWER_ON_OR_RESET)));
    assert_ne!(end.exchange, exchange);
    target.confirm(&end);
    assert_eq!(target.run(Command::TestUnitReady, &[]).status, Status::Good);
}
