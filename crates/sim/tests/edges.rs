//! Directed scenarios at the edges: numbers that wrap, several exports, several writers, and a host
//! that breaks the protocol.

use tyche_proto::Rules;
use tyche_proto::wire::Opcode;
use tyche_sim::{BreakerPlan, ExportPlan, HostPlan, Plan, World};

use crate::drive::{MIB, SECOND, connected, operation, perform, submit_many};

/// A plan of two hosts that may both write.
fn of_two_hosts() -> Plan {
    let mut plan = Plan::clean(1);
    let second = HostPlan { links: plan.hosts[0].links.clone(), ..HostPlan::quiet() };
    plan.hosts.push(second);
    plan
}

/// Both hosts write to the same places, many times at once.
fn write_at_once<R: Rules>(world: &mut World<R>) {
    for round in 0..50 {
        for host in 0..2 {
            let offset = round % 5 * 4096;
            world.request(host, operation(Opcode::Write, offset, 16 << 10)).unwrap();
        }
    }
    assert!(world.run_until(SECOND, |world| world.in_progress() == 0).unwrap());
    for host in 0..2 {
        assert!(world.answers(host).all(|status| status == Ok(())));
        assert_eq!(world.answers(host).count(), 50);
    }
}

#[test]
fn two_hosts_write_to_a_shared_export_at_once() {
    let mut plan = of_two_hosts();
    plan.shared = true;
    let mut world = connected(plan);
    write_at_once(&mut world);
    world.audit().unwrap();
}

#[test]
fn the_second_writer_of_an_export_that_is_not_shared_is_refused() {
    let mut world: World = World::new(of_two_hosts(), None);
    let both = |world: &World| world.is_connected(0) && world.is_connected(1);
    assert!(!world.run_until(SECOND, both).unwrap());
}

#[test]
fn exports_are_apart() {
    let mut plan = of_two_hosts();
    let disk = plan.disk.clone();
    plan.further.push(ExportPlan { disk, shared: false, wild: false });
    plan.hosts[1].export = 1;
    let mut world = connected(plan);
    write_at_once(&mut world);
    world.kill_target(true);
    world.start_target().unwrap();
    world.audit().unwrap();
}

/// Numbers that wrap when the channels of a test have been in use for a moment.
#[derive(Clone, Copy)]
struct SoonWraps;

impl Rules for SoonWraps {
    const POSITION_FIRST: u32 = u32::MAX - 20;
    const GENERATION_FIRST: u16 = u16::MAX - 2;
}

#[test]
fn numbers_wrap_unnoticed() {
    let mut plan = of_two_hosts();
    plan.shared = true;
    plan.segments[0].faults.drop = 0.01;
    plan.segments[0].faults.duplicate = 0.02;
    let mut world = World::<SoonWraps>::new(plan, None);
    let both = |world: &World<SoonWraps>| world.is_connected(0) && world.is_connected(1);
    assert!(world.run_until(SECOND, both).unwrap());
    write_at_once(&mut world);
    world.audit().unwrap();
}

#[test]
fn who_breaks_the_protocol_disturbs_nobody_else() {
    for seed in 0..20 {
        for (writes, floods) in [(true, false), (false, false), (true, true)] {
            let mut plan = Plan::clean(seed);
            let breaker = BreakerPlan::new(plan.hosts[0].links.clone());
            plan.breaker = Some(BreakerPlan { writes, floods, ..breaker });
            plan.stall_max = Some(SECOND / 20);
            let mut world = connected(plan);
            let many = submit_many(&mut world, 60);
            let answered = |world: &World| world.answers(0).count() == many;
            assert!(world.run_until(SECOND, answered).unwrap());
            world.run_for(2 * SECOND).unwrap();
            let write = operation(Opcode::Write, 0, MIB);
            assert_eq!(perform(&mut world, write), Ok(()));
            let report = world.report();
            assert!(report.broken >= 500 && world.rejects() > 50, "{}", world.rejects());
            world.audit().unwrap();
        }
    }
}
