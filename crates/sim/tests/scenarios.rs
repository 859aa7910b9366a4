//! Directed scenarios: one thing happens, and it has the consequence that it must have.

use std::time::Duration;

use tyche_block::Errno;
use tyche_proto::wire::{CommandFlags, Opcode, Reason};
use tyche_proto::{Failure, Operation, Problem};
use tyche_remote::Notice;
use tyche_sim::{HostPlan, Plan, World};

use crate::drive::{MIB, SECOND, connected, has, operation, perform, submit_many};

fn flush() -> Operation {
    operation(Opcode::Flush, 0, 0)
}

#[test]
fn a_clean_link_carries_all_operations_without_a_retransmission() {
    let mut world = connected(Plan::clean(1));
    for len in [512, 4096, 8192 + 512, 65536, MIB, MIB + 512, 3 * MIB] {
        for offset in [0, 512, 4096 - 512, u64::from(MIB) - 512] {
            assert_eq!(perform(&mut world, operation(Opcode::Write, offset, len)), Ok(()));
            assert_eq!(perform(&mut world, operation(Opcode::Read, offset, len)), Ok(()));
        }
    }
    let fua = Operation { flags: CommandFlags::FUA, ..operation(Opcode::Write, 0, 4096) };
    for operation in [
        fua,
        flush(),
        operation(Opcode::WriteZeroes, 4096, 2 * MIB),
        operation(Opcode::Discard, 0, 4096),
        operation(Opcode::Read, 0, 4 * MIB),
    ] {
        assert_eq!(perform(&mut world, operation), Ok(()));
    }
    let beyond = operation(Opcode::Write, 4 * u64::from(MIB) - 512, 1024);
    assert_eq!(perform(&mut world, beyond), Err(Errno::NOSPC));
    world.audit().unwrap();
    let report = world.report();
    assert_eq!((report.retransmissions, report.duplicates, report.timeouts), (0, 0, 0));
    assert_eq!(world.rejects(), 0);
}

#[test]
fn an_idle_session_is_quiet_and_stays_alive() {
    let mut world = connected(Plan::clean(2));
    world.run_for(SECOND).unwrap();
    let before = world.report().frames;
    world.run_for(10 * SECOND).unwrap();
    let frames = world.report().frames - before;
    let (alive, looks) = (2 * 60..=2 * 61, 2 * 4);
    assert!(
        (alive.start() + looks..=alive.end() + looks).contains(&frames),
        "{frames}: three keepalives in 500 ms each way, and two looks around"
    );
    assert_eq!(world.notices(0).count(), 2, "joined and connected, and no more");
}

#[test]
fn a_switch_that_drops_jumbo_frames_is_worked_around() {
    for (passed, found) in [(9014, 9014), (9013, 8952), (8951, 4210), (1513, 1452), (1451, 1232)] {
        let mut plan = Plan::clean(3);
        plan.segments[0].frame_len_passed = passed;
        let mut world = connected(plan);
        assert_eq!(world.frame_len(0, 0), found);
        let many = submit_many(&mut world, 40);
        let answered = |world: &World| world.answers(0).count() == many;
        assert!(world.run_until(SECOND, answered).unwrap());
        world.audit().unwrap();
    }
}

#[test]
fn a_switch_that_begins_to_drop_jumbo_frames_is_worked_around() {
    let mut world = connected(Plan::clean(4));
    world.set_frame_len_passed(0, Some(1514));
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, 65536)), Ok(()));
    assert!(has(&world, 0, &Notice::Lost(Problem::Stall)) || world.report().channels > 1);
    assert_eq!(world.frame_len(0, 0), 1514);
    assert_eq!(perform(&mut world, operation(Opcode::Read, 0, 65536)), Ok(()));
}

#[test]
fn a_restart_of_the_target_is_noticed_only_by_the_clock() {
    for pause in [Duration::ZERO, SECOND / 10, 3 * SECOND] {
        let mut world = connected(Plan::clean(5));
        let many = submit_many(&mut world, 60);
        world.run_for(Duration::from_micros(300)).unwrap();
        assert!(world.in_progress() > 0, "the target dies with work in flight");
        world.kill_target(true);
        world.run_for(pause).unwrap();
        world.start_target().unwrap();
        let answered = |world: &World| world.answers(0).count() == many;
        assert!(world.run_until(3 * SECOND, answered).unwrap(), "after {pause:?}");
        assert!(world.answers(0).all(|status| status == Ok(())));
        assert!(!has(&world, 0, &Notice::CacheLost), "there is no cache to lose");
        world.audit().unwrap();
    }
}

#[test]
fn a_host_that_comes_back_takes_over_at_once() {
    let mut world = connected(Plan::clean(6));
    submit_many(&mut world, 60);
    world.run_for(Duration::from_micros(200)).unwrap();
    world.kill_host(0);
    world.begin_session(0).unwrap();
    // Long before the target would find out by silence that the former session is dead.
    assert!(world.run_until(SECOND, |world| world.is_connected(0)).unwrap());
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, MIB)), Ok(()));
    world.audit().unwrap();
}

#[test]
fn a_second_host_is_refused_and_told_who_holds_the_export() {
    let mut world = connected(Plan::clean(7));
    let other = world.join(HostPlan::quiet()).unwrap();
    world.run_for(SECOND).unwrap();
    assert!(has(&world, other, &Notice::Failed(Failure::Rejected(Reason::Held))));
    let names_the_holder = |event: &Notice| match event {
        Notice::Rejected(rejection) => rejection.detail.as_str().contains("host-0"),
        _ => false,
    };
    assert!(world.notices(other).any(names_the_holder));
    world.disconnect(0).unwrap();
    world.run_for(SECOND / 10).unwrap();
    world.begin_session(other).unwrap();
    assert!(world.run_until(SECOND, |world| world.is_connected(other)).unwrap());
}

#[test]
fn a_reader_may_share_the_export_but_never_write() {
    let mut world = connected(Plan::clean(8));
    let reader = world.join(HostPlan { read_only: true, ..HostPlan::quiet() }).unwrap();
    assert!(world.run_until(SECOND, |world| world.is_connected(reader)).unwrap());
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, 8192)), Ok(()));
    world.request(reader, operation(Opcode::Read, 0, 8192)).unwrap();
    world.request(reader, operation(Opcode::Write, 0, 512)).unwrap();
    world.run_for(SECOND).unwrap();
    let mut answers: Vec<_> = world.answers(reader).collect();
    answers.sort_by_key(Result::is_err);
    assert_eq!(answers, [Ok(()), Err(Errno::ROFS)]);
}

#[test]
fn a_target_that_stays_away_fails_everything_in_time() {
    let mut plan = Plan::clean(9);
    plan.hosts[0].ctrl_loss_tmo = Some(2 * SECOND);
    let mut world = connected(plan);
    world.kill_target(false);
    submit_many(&mut world, 50);
    let lost = |world: &World| world.lost_since(0).is_some();
    assert!(world.run_until(SECOND, lost).unwrap());
    world.run_for(2 * SECOND - Duration::from_millis(1)).unwrap();
    assert_eq!((world.in_progress(), world.answers(0).count()), (50, 0), "not before");
    world.run_for(Duration::from_millis(2)).unwrap();
    assert_eq!(world.in_progress(), 0);
    assert!(world.answers(0).count() == 50 && world.answers(0).all(|it| it == Err(Errno::IO)));
    assert!(has(&world, 0, &Notice::Failed(Failure::TargetLost)));
}

#[test]
fn a_target_that_stays_away_fails_requests_early_and_serves_when_it_is_back() {
    let mut plan = Plan::clean(19);
    plan.hosts[0].fast_io_fail_tmo = Some(SECOND);
    plan.hosts[0].queues = 2;
    let mut world = connected(plan);
    world.kill_target(false);
    submit_many(&mut world, 50);
    let lost = |world: &World| world.lost_since(0).is_some();
    assert!(world.run_until(SECOND, lost).unwrap());
    let failed = |world: &World| world.in_progress() == 0;
    assert!(world.run_until(SECOND + SECOND / 2, failed).unwrap());
    assert!(world.answers(0).count() == 50 && world.answers(0).all(|it| it == Err(Errno::IO)));
    assert_eq!(perform(&mut world, operation(Opcode::Read, 0, 512)), Err(Errno::IO));
    world.start_target().unwrap();
    let queues = |world: &World| world.notices(0).filter(|it| **it == Notice::Resumed).count();
    assert!(world.run_until(2 * SECOND, |world| queues(world) == 2).unwrap());
    for opcode in [Opcode::Write, Opcode::Read] {
        assert_eq!(perform(&mut world, operation(opcode, 0, MIB)), Ok(()));
    }
    world.audit().unwrap();
}

#[test]
fn a_disconnect_answers_what_is_in_flight_and_frees_the_export() {
    let mut plan = Plan::clean(10);
    plan.add_segment(1500);
    let mut world = connected(plan);
    world.run_for(SECOND / 10).unwrap();
    let many = submit_many(&mut world, 30);
    world.run_for(Duration::from_micros(100)).unwrap();
    world.disconnect(0).unwrap();
    world.run_for(SECOND / 100).unwrap();
    assert_eq!((world.in_progress(), world.answers(0).count()), (0, many));
    assert!(has(&world, 0, &Notice::Closed), "well before the farewells run out");
    let other = world.join(HostPlan::quiet()).unwrap();
    assert!(world.run_until(SECOND / 10, |world| world.is_connected(other)).unwrap());
}

#[test]
fn a_disconnect_from_a_dead_target_ends_all_the_same() {
    let mut world = connected(Plan::clean(11));
    world.kill_target(false);
    let many = submit_many(&mut world, 30);
    world.disconnect(0).unwrap();
    // It says farewell for a second.
    world.run_for(SECOND * 3 / 2).unwrap();
    assert_eq!((world.in_progress(), world.answers(0).count()), (0, many));
    assert!(has(&world, 0, &Notice::Closed));
}

#[test]
fn a_resize_is_told() {
    let mut world = connected(Plan::clean(12));
    world.resize(u64::from(MIB)).unwrap();
    world.run_for(SECOND / 100).unwrap();
    assert!(has(&world, 0, &Notice::Resized(u64::from(MIB))));
    assert_eq!(
        perform(&mut world, operation(Opcode::Read, u64::from(MIB), 512)),
        Err(Errno::INVAL)
    );
    assert_eq!(perform(&mut world, operation(Opcode::Read, 0, MIB)), Ok(()));
}

#[test]
fn resizes_in_a_row_end_with_the_last_even_if_frames_overtake_each_other() {
    for seed in 0..20 {
        let mut plan = Plan::clean(seed);
        plan.segments[0].jitter = SECOND / 100;
        let mut world = connected(plan);
        world.set_loss(0, 0.2);
        for step in 1..=20 {
            world.resize(step * 4096).unwrap();
            world.run_for(SECOND / 500).unwrap();
        }
        world.set_loss(0, 0.0);
        world.run_for(SECOND).unwrap();
        let sizes = world.notices(0).filter_map(|event| match event {
            Notice::Resized(size) => Some(*size),
            _ => None,
        });
        assert_eq!(sizes.last(), Some(20 * 4096), "seed {seed}");
    }
}

#[test]
fn a_lost_cache_fails_the_next_flush_once() {
    let mut plan = Plan::clean(13);
    plan.disk.write_cache = true;
    let mut world = connected(plan);
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, MIB)), Ok(()));
    assert_eq!(perform(&mut world, flush()), Ok(()));
    world.kill_target(true);
    world.start_target().unwrap();
    assert_eq!(perform(&mut world, flush()), Ok(()), "nothing was there to be lost");
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, MIB)), Ok(()));
    world.kill_target(false);
    world.start_target().unwrap();
    assert_eq!(perform(&mut world, flush()), Ok(()), "the process died, not its machine");
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, MIB)), Ok(()));
    world.kill_target(true);
    world.start_target().unwrap();
    assert_eq!(perform(&mut world, flush()), Err(Errno::IO));
    assert_eq!(perform(&mut world, flush()), Ok(()));
    assert_eq!(world.report().losses_told, 1);
    world.audit().unwrap();
}

#[test]
fn a_dead_link_costs_a_moment_and_no_errors() {
    let mut plan = Plan::clean(14);
    plan.add_segment(9000);
    let mut world = connected(plan);
    world.run_for(SECOND / 10).unwrap();
    let many = submit_many(&mut world, 60);
    world.run_for(Duration::from_micros(200)).unwrap();
    world.set_down(1, true);
    let answered = |world: &World| world.answers(0).count() == many;
    assert!(world.run_until(SECOND, answered).unwrap(), "fenced and sent again on the other link");
    assert!(world.answers(0).all(|status| status == Ok(())));
    assert!(!world.notices(0).any(|event| matches!(event, Notice::Lost(_))), "never lost");
    world.audit().unwrap();
}

#[test]
fn loss_on_both_ways_is_repaired() {
    for seed in 0..10 {
        let mut world = connected(Plan::clean(seed));
        world.set_loss(0, 0.1);
        let many = submit_many(&mut world, 60);
        let answered = |world: &World| world.answers(0).count() == many;
        assert!(world.run_until(5 * SECOND, answered).unwrap(), "seed {seed}");
        assert!(world.report().retransmissions > 0);
        world.audit().unwrap();
    }
}

/// All of what was completed is there when the disk is exported again; the session is not.
#[test]
fn an_export_that_is_removed_fails_its_session_at_once_and_comes_back_with_its_content() {
    let mut plan = Plan::clean(21);
    plan.disk.write_cache = true;
    let mut world = connected(plan);
    let many = submit_many(&mut world, 40);
    assert!(world.run_until(SECOND, |world| world.answers(0).count() > many / 2).unwrap());
    let submitted = submit_many(&mut world, 10);
    world.remove_export(0).unwrap();
    let has_failed = |world: &World| has(world, 0, &Notice::Failed(Failure::ExportRemoved));
    assert!(world.run_until(SECOND / 10, has_failed).unwrap(), "at once");
    assert_eq!(world.answers(0).count(), many + submitted, "nothing is left unanswered");
    world.run_for(10 * SECOND).unwrap();
    world.begin_session(0).unwrap();
    assert!(world.run_until(SECOND, |world| world.is_connected(0)).unwrap());
    assert_eq!(perform(&mut world, operation(Opcode::Read, 0, MIB)), Ok(()));
    world.audit().unwrap();
}

#[test]
fn holes_are_told_by_status_and_their_data_are_not() {
    let mut world = connected(Plan::clean(7));
    let status = |offset| operation(Opcode::BlockStatus, offset, 4096);
    let holes = |world: &World| world.report().holes;
    assert_eq!(perform(&mut world, status(0)), Ok(()));
    let all = 4 * u64::from(MIB) / 512;
    assert_eq!(holes(&world), all);
    assert_eq!(perform(&mut world, operation(Opcode::Write, 4096, MIB)), Ok(()));
    assert_eq!(perform(&mut world, status(0)), Ok(()));
    let written = u64::from(MIB) / 512;
    assert_eq!(holes(&world), all + all - written);
    assert_eq!(perform(&mut world, operation(Opcode::WriteZeroes, 4096, MIB)), Ok(()));
    assert_eq!(perform(&mut world, status(u64::from(MIB))), Ok(()));
    assert_eq!(holes(&world), all + all - written + all - u64::from(MIB) / 512);
}
