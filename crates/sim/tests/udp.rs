//! Directed scenarios of links over UDP: trains that are lost or torn, marks of congestion, routers
//! that change addresses, and paths that become narrow.

use std::time::Duration;

use tyche_proto::wire::Opcode;
use tyche_proto::{AllRules, Problem, Rule, Rules};
use tyche_remote::Notice;
use tyche_sim::{Plan, TrainFaults, UdpPlan, World};

use crate::drive::{MIB, SECOND, connected, has, operation, perform, submit_many};

/// One host on a segment with UDP, at this MTU.
fn over_udp(seed: u64, mtu: usize, udp: UdpPlan) -> Plan {
    let mut plan = Plan::clean(seed);
    plan.set_mtu(mtu);
    plan.set_udp(0, udp);
    plan
}

fn expect_answers(world: &mut World, count: usize, limit: Duration) {
    let answered = |world: &World| world.answers(0).count() == count;
    assert!(world.run_until(limit, answered).unwrap(), "{:?} are left", world.in_progress());
    assert!(world.answers(0).all(|status| status == Ok(())));
}

#[test]
fn frames_leave_in_trains() {
    let mut world = connected(over_udp(1, 1500, UdpPlan::clean()));
    assert_eq!(world.frame_len(0, 0), 1472, "the headers of IP and UDP take 28 bytes");
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, MIB)), Ok(()));
    assert_eq!(perform(&mut world, operation(Opcode::Read, 0, MIB)), Ok(()));
    let report = world.report();
    assert!(report.trains * 4 < report.frames, "{} of {}", report.trains, report.frames);
    assert_eq!((report.drops, report.retransmissions), (0, 0));
    world.audit().unwrap();
}

#[test]
fn whatever_befalls_trains_costs_time_only() {
    let faults = TrainFaults { drop: 0.05, tear: 0.2, duplicate: 0.05, delay: 0.05, shuffle: 0.2 };
    for (seed, joins, pads_last) in [(1, 0.0, false), (2, 0.5, true), (3, 1.0, true)] {
        let udp = UdpPlan { joins, pads_last, faults, marks: 0.1, ..UdpPlan::clean() };
        let mut world = connected(over_udp(seed, 1500, udp));
        let many = submit_many(&mut world, 60);
        expect_answers(&mut world, many, 5 * SECOND);
        let report = world.report();
        assert!(report.torn_trains > 20 && report.marks > 20, "{report:?}");
        world.audit().unwrap();
    }
}

#[test]
fn a_host_whose_address_changes_connects_again() {
    let mut world = connected(over_udp(4, 1500, UdpPlan::clean()));
    let mut count = 0;
    for _ in 0..3 {
        count += submit_many(&mut world, 20);
        world.run_for(Duration::from_micros(100)).unwrap();
        assert!(world.in_progress() > 0);
        world.rebind_link(0, 0);
        expect_answers(&mut world, count, 3 * SECOND);
    }
    assert!(has(&world, 0, &Notice::Lost(Problem::Silence)), "nothing comes to the new address");
    assert!(world.report().channels > 3, "each address has a channel of its own");
    world.audit().unwrap();
}

#[test]
fn raw_links_carry_on_when_the_address_of_another_changes() {
    let mut plan = Plan::clean(5);
    plan.add_segment(1500);
    plan.set_udp(1, UdpPlan::clean());
    let mut world = connected(plan);
    let both = |world: &World| (0..2).all(|link| world.is_link_live(0, link));
    assert!(world.run_until(SECOND, both).unwrap(), "both kinds in one session");
    assert_eq!((world.frame_len(0, 0), world.frame_len(0, 1)), (9014, 1472));
    let many = submit_many(&mut world, 40);
    world.run_for(Duration::from_micros(50)).unwrap();
    world.rebind_link(0, 1);
    expect_answers(&mut world, many, 2 * SECOND);
    assert!(!world.notices(0).any(|event| matches!(event, Notice::Lost(_))), "never lost");
    assert!(world.run_until(5 * SECOND, both).unwrap(), "the other comes back");
    world.audit().unwrap();
}

#[test]
fn a_path_becomes_as_narrow_as_ipv6_allows() {
    let mut world = connected(over_udp(6, 1500, UdpPlan { headers: 48, ..UdpPlan::clean() }));
    assert_eq!(world.frame_len(0, 0), 1452);
    let many = submit_many(&mut world, 40);
    world.run_for(Duration::from_micros(100)).unwrap();
    world.set_frame_len_passed(0, Some(1232));
    expect_answers(&mut world, many, 5 * SECOND);
    assert_eq!(world.frame_len(0, 0), 1232);
    world.audit().unwrap();
}

/// The shrinking of the window by every frame that tells of congestion.
#[derive(Clone, Copy)]
struct ShrinksEachTime;

impl Rules for ShrinksEachTime {
    fn keeps(rule: Rule) -> bool {
        rule != Rule::ShrinkOnce
    }
}

/// The shrinking of the window without a limit.
#[derive(Clone, Copy)]
struct ShrinksToNothing;

impl Rules for ShrinksToNothing {
    fn keeps(rule: Rule) -> bool {
        rule != Rule::LimitShrinking
    }
}

/// A host that writes and reads 64 KiB at a time on a path of 10 Gb/s with a round trip of a
/// millisecond.
fn busy<R: Rules>() -> World<R> {
    let mut plan = over_udp(7, 9000, UdpPlan::clean());
    plan.operations = u32::MAX;
    plan.segments[0].latency = SECOND / 2000;
    let host = &mut plan.hosts[0];
    (host.busy, host.whole, host.depth, host.mix.len_max) = (true, true, 32, 64 << 10);
    let mut world = World::new(plan, None);
    assert!(world.run_until(SECOND, |world| world.is_connected(0)).unwrap());
    world
}

/// MB/s of a host in the next `time`.
fn rate<R: Rules>(world: &mut World<R>, time: Duration) -> f64 {
    let before = world.answers(0).count();
    world.run_for(time).unwrap();
    let bytes = (world.answers(0).count() - before) << 16;
    bytes as f64 / time.as_secs_f64() / 1e6
}

/// The rate before the network marks all frames for five round trips, just after, and later.
fn rates<R: Rules>() -> [f64; 3] {
    let mut world = busy::<R>();
    let before = rate(&mut world, SECOND / 5);
    world.set_marks(0, 1.0);
    world.run_for(SECOND / 200).unwrap();
    world.set_marks(0, 0.0);
    let rates = [before, rate(&mut world, SECOND / 50), rate(&mut world, SECOND / 2)];
    println!("MB/s before the marks, just after and later: {rates:.0?}");
    rates
}

#[test]
fn marks_shrink_the_window_once_a_flight_and_for_a_while() {
    let [before, after, later] = rates::<AllRules>();
    assert!(after < before * 0.9, "marks slow a channel down");
    assert!(later > before * 0.6, "and the rate comes back");
    let [_, stuck, _] = rates::<ShrinksEachTime>();
    assert!(stuck < after * 0.6, "every frame that tells of the same marks counts");
}

#[test]
fn marks_on_all_frames_leave_a_minimum_and_cost_no_channel() {
    let mut world = busy::<AllRules>();
    world.set_marks(0, 1.0);
    let always = [rate(&mut world, SECOND / 5), rate(&mut world, SECOND)];
    println!("MB/s with marks on all frames: {always:.0?}");
    assert!(always[1] > 10.0, "the window keeps its minimum");
    assert_eq!(world.report().channels, 1);
    world.set_marks(0, 0.0);
    rate(&mut world, SECOND / 5);
    assert!(rate(&mut world, SECOND / 5) > 4.0 * always[1], "the window grows again");

    let mut world = busy::<ShrinksToNothing>();
    world.set_marks(0, 1.0);
    rate(&mut world, SECOND / 5);
    let stalls = rate(&mut world, SECOND / 5);
    // Nothing has room in a window of 0, until a retransmission timer has expired.
    assert!(stalls < always[1] * 0.9, "{stalls:.0} MB/s");
}
