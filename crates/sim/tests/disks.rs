//! Directed scenarios of disks that fail.

use tyche_block::Errno;
use tyche_proto::wire::{CommandFlags, Opcode};
use tyche_proto::{AllRules, Operation};
use tyche_remote::Notice;
use tyche_sim::{Plan, World};

use crate::drive::{MIB, SECOND, connected, has, operation, perform, submit_many};

/// A host that has written what no flush has covered.
fn with_unflushed() -> World<AllRules> {
    let mut plan = Plan::clean(1);
    plan.disk.write_cache = true;
    let mut world = connected(plan);
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, MIB)), Ok(()));
    world
}

fn flush(world: &mut World<AllRules>) -> Result<(), Errno> {
    perform(world, operation(Opcode::Flush, 0, 0))
}

#[test]
fn after_a_flush_that_failed_the_session_goes_on() {
    let mut world = with_unflushed();
    world.set_sync_errors(1.0);
    assert_eq!(flush(&mut world), Err(Errno::IO));
    world.set_sync_errors(0.0);
    assert_eq!(flush(&mut world), Ok(()), "it was told");
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, MIB)), Ok(()));
    assert_eq!(flush(&mut world), Ok(()));
    world.kill_target(true);
    world.start_target().unwrap();
    assert!(!has(&world, 0, &Notice::CacheLost), "nothing was in it");
    world.audit().unwrap();
}

#[test]
fn a_write_with_fua_that_failed_does_not_hide_what_else_was_lost() {
    let mut world = with_unflushed();
    world.set_sync_errors(1.0);
    let write = operation(Opcode::Write, 2 * u64::from(MIB), 4096);
    let fua = Operation { flags: CommandFlags::FUA, ..write };
    assert_eq!(perform(&mut world, fua), Err(Errno::IO));
    world.set_sync_errors(0.0);
    assert_eq!(flush(&mut world), Err(Errno::IO));
    world.audit().unwrap();
}

#[test]
fn what_a_crash_tears_is_written_again() {
    for seed in 0..10 {
        let mut plan = Plan::clean(seed);
        plan.disk.tears = 0.5;
        let mut world = connected(plan);
        let many = submit_many(&mut world, 60);
        world.run_for(SECOND / 5000).unwrap();
        world.kill_target(true);
        assert!(world.report().torn > 0, "seed {seed}");
        world.start_target().unwrap();
        let answered = |world: &World| world.answers(0).count() == many;
        assert!(world.run_until(3 * SECOND, answered).unwrap());
        world.audit().unwrap();
    }
}
