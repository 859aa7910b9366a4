//! Directed scenarios of devices that outlive the program that serves them.

use std::time::Duration;

use tyche_block::Errno;
use tyche_proto::wire::{Opcode, Reason};
use tyche_proto::{Failure, Operation};
use tyche_remote::Notice;
use tyche_sim::{HostPlan, Plan, World};

use crate::drive::{MIB, SECOND, connected, has, operation, perform, submit_many};

const LOST: Notice = Notice::Failed(Failure::Rejected(Reason::SessionLost));

fn flush() -> Operation {
    operation(Opcode::Flush, 0, 0)
}

fn cached(seed: u64) -> World {
    let mut plan = Plan::clean(seed);
    plan.disk.write_cache = true;
    connected(plan)
}

/// The program of host 0 dies, and another takes the device over. What was to be kept has been.
fn replace_program(world: &mut World) {
    world.run_for(SECOND / 10).unwrap();
    world.kill_program(0);
    world.begin_session(0).unwrap();
}

#[test]
fn another_program_ends_what_the_dead_one_has_begun() {
    for pause in [Duration::ZERO, SECOND / 10, 3 * SECOND] {
        let mut world = connected(Plan::clean(30));
        let many = submit_many(&mut world, 60);
        world.run_for(Duration::from_micros(300)).unwrap();
        assert!(world.in_progress() > 0, "the program dies with work in flight");
        world.kill_program(0);
        world.run_for(pause).unwrap();
        world.begin_session(0).unwrap();
        let answered = |world: &World| world.answers(0).count() == many;
        assert!(world.run_until(SECOND / 5, answered).unwrap(), "after {pause:?}");
        assert!(world.answers(0).all(|status| status == Ok(())));
        assert!(world.report().reissued > 0);
        world.audit().unwrap();
    }
}

#[test]
fn programs_may_die_one_after_the_other_before_they_are_in() {
    let mut world = connected(Plan::clean(31));
    let many = submit_many(&mut world, 60);
    world.run_for(Duration::from_micros(300)).unwrap();
    for steps in 0..40 {
        world.kill_program(0);
        world.begin_session(0).unwrap();
        world.run_for(Duration::from_micros(steps * 50)).unwrap();
    }
    let answered = |world: &World| world.answers(0).count() == many;
    assert!(world.run_until(SECOND, answered).unwrap());
    assert!(world.answers(0).all(|status| status == Ok(())));
    world.audit().unwrap();
}

#[test]
fn a_device_that_another_host_has_followed_is_lost() {
    for restart in [false, true] {
        let mut world = connected(Plan::clean(32));
        submit_many(&mut world, 60);
        world.run_for(Duration::from_micros(300)).unwrap();
        world.kill_program(0);
        // Long enough for the target to find out, and forget the session.
        world.run_for(SECOND).unwrap();
        let other = world.join(HostPlan::quiet()).unwrap();
        assert!(world.run_until(SECOND, |world| world.is_connected(other)).unwrap());
        world.disconnect(other).unwrap();
        world.run_for(SECOND / 10).unwrap();
        if restart {
            world.kill_target(false);
            world.start_target().unwrap();
        }
        world.begin_session(0).unwrap();
        world.run_for(SECOND).unwrap();
        assert!(has(&world, 0, &LOST), "restart of the target: {restart}");
        assert_eq!(world.in_progress(), 0, "what was reissued has failed");
        world.audit().unwrap();
    }
}

#[test]
fn a_device_waits_while_another_host_only_reads() {
    let mut world = connected(Plan::clean(33));
    world.kill_program(0);
    let reader = world.join(HostPlan { read_only: true, ..HostPlan::quiet() }).unwrap();
    assert!(world.run_until(SECOND, |world| world.is_connected(reader)).unwrap());
    world.begin_session(0).unwrap();
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, MIB)), Ok(()));
    world.audit().unwrap();
}

#[test]
fn a_cache_that_was_lost_while_nobody_looked_fails_the_next_flush_once() {
    let mut world = cached(34);
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, MIB)), Ok(()));
    world.run_for(SECOND / 10).unwrap();
    world.kill_program(0);
    world.kill_target(true);
    world.start_target().unwrap();
    world.begin_session(0).unwrap();
    assert_eq!(perform(&mut world, operation(Opcode::Read, 0, MIB)), Ok(()));
    assert!(has(&world, 0, &Notice::CacheLost));
    // The one that knows dies before it could tell: so does the next.
    for _ in 0..2 {
        replace_program(&mut world);
        assert_eq!(perform(&mut world, operation(Opcode::Read, 0, MIB)), Ok(()));
    }
    assert_eq!(perform(&mut world, flush()), Err(Errno::IO));
    assert_eq!(perform(&mut world, flush()), Ok(()));
    replace_program(&mut world);
    assert_eq!(perform(&mut world, flush()), Ok(()), "it was told");
    world.audit().unwrap();
}

#[test]
fn a_cache_that_survives_is_flushed_by_the_next_program() {
    let mut world = cached(35);
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, MIB)), Ok(()));
    replace_program(&mut world);
    assert_eq!(perform(&mut world, flush()), Ok(()));
    world.kill_target(true);
    world.start_target().unwrap();
    assert_eq!(perform(&mut world, flush()), Ok(()), "all of it was durable");
    assert_eq!(world.report().losses_told, 0);
    replace_program(&mut world);
    assert_eq!(perform(&mut world, flush()), Ok(()), "the new run was kept");
    world.audit().unwrap();
}

#[test]
fn a_write_through_disk_has_nothing_to_lose() {
    let mut world = connected(Plan::clean(36));
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, MIB)), Ok(()));
    world.kill_target(true);
    world.kill_program(0);
    world.start_target().unwrap();
    world.begin_session(0).unwrap();
    assert_eq!(perform(&mut world, flush()), Ok(()));
}

#[test]
fn a_resize_that_nobody_has_seen_is_told() {
    let mut world = connected(Plan::clean(37));
    world.run_for(SECOND / 10).unwrap();
    world.kill_program(0);
    world.resize(u64::from(MIB)).unwrap();
    world.begin_session(0).unwrap();
    assert!(world.run_until(SECOND, |world| world.is_connected(0)).unwrap());
    assert!(has(&world, 0, &Notice::Resized(u64::from(MIB))));
}

#[test]
fn a_target_that_is_not_there_is_waited_for_as_long_as_for_a_lost_one() {
    let mut plan = Plan::clean(38);
    plan.hosts[0].ctrl_loss_tmo = Some(2 * SECOND);
    let mut world = connected(plan);
    world.kill_target(false);
    submit_many(&mut world, 20);
    world.kill_program(0);
    world.begin_session(0).unwrap();
    world.run_for(2 * SECOND - Duration::from_millis(1)).unwrap();
    assert_eq!(world.in_progress(), 20, "not before");
    world.run_for(Duration::from_millis(2)).unwrap();
    assert_eq!(world.in_progress(), 0);
    assert!(has(&world, 0, &Notice::Failed(Failure::TargetLost)));
}
