//! Directed scenarios with several links: what is lost, cut, moved or frozen costs time, and never
//! an error or a wrong answer.

use std::time::Duration;

use tyche_proto::wire::Opcode;
use tyche_proto::{ChannelChoice, Problem};
use tyche_remote::Notice;
use tyche_sim::{HostPlan, LinkPlan, Plan, SegmentPlan, Station, World};

use crate::drive::{MIB, SECOND, connected, has, operation, perform, submit_many};

const HOST: Station = Station::Host(0);

/// One host on that many segments, with all links live.
fn bundle(seed: u64, links: usize) -> World {
    let mut plan = Plan::clean(seed);
    (1..links).for_each(|_| plan.add_segment(9000));
    bundle_of(plan)
}

/// The plan's world, with all links of host 0 live.
fn bundle_of(plan: Plan) -> World {
    let links = plan.hosts[0].links.len();
    let mut world = connected(plan);
    let whole = |world: &World| (0..links).all(|link| world.is_link_live(0, link));
    assert!(world.run_until(SECOND, whole).unwrap(), "not all links are live within a second");
    world
}

/// All operations succeed within `limit`, and the session never lost its target.
fn expect_answers(world: &mut World, count: usize, limit: Duration) {
    let answered = |world: &World| world.answers(0).count() == count;
    assert!(world.run_until(limit, answered).unwrap(), "{:?} are left", world.in_progress());
    assert!(world.answers(0).all(|status| status == Ok(())));
    assert!(!world.notices(0).any(|event| matches!(event, Notice::Lost(_))), "never lost");
}

/// The link comes back within `limit`.
fn expect_back(world: &mut World, link: usize, limit: Duration) {
    let back = |world: &World| world.is_link_live(0, link);
    assert!(world.run_until(limit, back).unwrap(), "link {link} does not come back");
}

/// The link is given up within `limit`.
fn expect_gone(world: &mut World, link: usize, limit: Duration) {
    let gone = |world: &World| !world.is_link_live(0, link);
    assert!(world.run_until(limit, gone).unwrap(), "link {link} is not given up");
}

#[test]
fn a_link_that_flaps_is_used_again_each_time() {
    let mut world = bundle(1, 3);
    let mut count = 0;
    for down_ms in [1, 30, 200, 700, 30, 700] {
        count += submit_many(&mut world, 20);
        world.run_for(Duration::from_micros(100)).unwrap();
        world.set_down(1, true);
        world.run_for(Duration::from_millis(down_ms)).unwrap();
        world.set_down(1, false);
        expect_answers(&mut world, count, 2 * SECOND);
        expect_back(&mut world, 1, 5 * SECOND);
    }
    assert!(world.report().channels > 3, "some of the flaps cost the channel");
    world.audit().unwrap();
}

#[test]
fn a_link_that_loses_one_direction_is_given_up_and_comes_back() {
    for (station, mute, deaf) in [
        (HOST, 1.0, 0.0),
        (HOST, 0.0, 1.0),
        (Station::Target, 1.0, 0.0),
        (Station::Target, 0.0, 1.0),
    ] {
        let mut world = bundle(2, 2);
        let many = submit_many(&mut world, 40);
        world.set_one_way(station, 1, mute, deaf);
        expect_answers(&mut world, many, 2 * SECOND);
        expect_gone(&mut world, 1, 2 * SECOND);
        world.set_one_way(station, 1, 0.0, 0.0);
        expect_back(&mut world, 1, 5 * SECOND);
        world.audit().unwrap();
    }
}

#[test]
fn a_link_that_loses_only_long_frames_comes_back_with_short_ones() {
    let mut world = bundle(3, 2);
    assert_eq!((world.frame_len(0, 0), world.frame_len(0, 1)), (9014, 9014));
    world.set_frame_len_passed(1, Some(1514));
    let many = submit_many(&mut world, 40);
    expect_answers(&mut world, many, 3 * SECOND);
    let short = |world: &World| world.is_link_live(0, 1) && world.frame_len(0, 1) == 1514;
    assert!(world.run_until(5 * SECOND, short).unwrap());
    assert_eq!(world.frame_len(0, 0), 9014, "the other link is none the worse for it");
    world.audit().unwrap();
}

/// The frames of reads are short, so the host cannot see it: only the target, whose answers are
/// refused.
#[test]
fn an_interface_of_the_target_that_refuses_long_frames_holds_reads_up_for_a_moment() {
    let mut world = connected(Plan::clean(6));
    world.set_frame_len_taken(Station::Target, 0, Some(1514));
    for i in 0..4 {
        world.request(0, operation(Opcode::Read, i * 8192, 8192)).unwrap();
    }
    let answered = |world: &World| world.answers(0).count() == 4;
    assert!(world.run_until(SECOND, answered).unwrap(), "{:?} are left", world.in_progress());
    assert!(world.answers(0).all(|status| status == Ok(())));
    assert_eq!(world.frame_len(0, 0), 1514);
    world.audit().unwrap();
}

#[test]
fn a_read_that_was_lost_with_long_frames_tries_short_ones_next() {
    for choice in [ChannelChoice::RoundRobin, ChannelChoice::LeastOutstanding] {
        for read in 0..4 {
            let mut plan = Plan::clean(15);
            (1..4).for_each(|link| plan.add_segment(if link == 3 { 1500 } else { 9000 }));
            plan.hosts[0].choice = choice;
            let mut world = bundle_of(plan);
            world.run_for(SECOND).unwrap();
            for i in 0..read {
                assert_eq!(perform(&mut world, operation(Opcode::Read, i * 512, 512)), Ok(()));
            }
            (0..3).for_each(|segment| world.set_frame_len_passed(segment, Some(1514)));
            world.request(0, operation(Opcode::Read, 0, 8192)).unwrap();
            expect_answers(&mut world, read as usize + 1, SECOND);
            world.audit().unwrap();
        }
    }
}

#[test]
fn a_switch_that_begins_to_lose_long_frames_stalls_a_read_once() {
    // Three interfaces of the target are behind it: one after the other would stall it.
    for reads in 1..8 {
        let mut plan = Plan::clean(5);
        plan.add_segment(9000);
        plan.target.links.extend([LinkPlan::clean(1, 9000), LinkPlan::clean(1, 9000)]);
        let mut world = bundle_of(plan);
        world.run_for(SECOND).unwrap();
        assert_eq!(world.peers(0).len(), 4, "every link of the target is used");
        world.set_frame_len_passed(1, Some(1514));
        for i in 0..reads {
            world.request(0, operation(Opcode::Read, i * 8192, 8192)).unwrap();
        }
        expect_answers(&mut world, reads as usize, SECOND);
        world.audit().unwrap();
    }
}

/// Nothing tells of the loss of the reads' frames but the timer of their ring: no gap, and no
/// silence.
#[test]
fn long_frames_that_are_lost_stall_no_read_for_as_long_as_short_ones_get_through() {
    let mut world = connected(Plan::clean(6));
    // Or the window would be full with what is lost, and nothing would get through.
    (0..20).for_each(|_| assert_eq!(perform(&mut world, operation(Opcode::Read, 0, MIB)), Ok(())));
    world.set_frame_len_passed(0, Some(1514));
    let begun = world.elapsed();
    for i in 0..2 {
        world.request(0, operation(Opcode::Read, i << 14, 16 << 10)).unwrap();
    }
    let mut flushes = 0;
    while world.in_progress() > 0 {
        assert!(
            world.elapsed() < begun + 10 * SECOND,
            "reads stand still beside {flushes} flushes"
        );
        if world.in_progress() < 8 {
            world.request(0, operation(Opcode::Flush, 0, 0)).unwrap();
            flushes += 1;
        }
        world.run_for(SECOND / 2000).unwrap();
    }
    println!("the reads took {:?} beside {flushes} flushes", world.elapsed() - begun);
    assert!(world.answers(0).all(|status| status == Ok(())));
    world.audit().unwrap();
}

#[test]
fn when_all_links_are_cut_everything_waits_for_one() {
    let mut world = bundle(4, 3);
    let many = submit_many(&mut world, 40);
    world.run_for(Duration::from_micros(50)).unwrap();
    (0..3).for_each(|segment| world.set_down(segment, true));
    world.run_for(3 * SECOND).unwrap();
    assert!(has(&world, 0, &Notice::Lost(Problem::Silence)));
    assert!(world.in_progress() > 0, "they are cut with work in flight");
    world.set_down(2, false);
    let answered = |world: &World| world.answers(0).count() == many;
    assert!(world.run_until(3 * SECOND, answered).unwrap(), "one link is enough");
    assert!(world.answers(0).all(|status| status == Ok(())));
    (0..2).for_each(|segment| world.set_down(segment, false));
    expect_back(&mut world, 0, 5 * SECOND);
    expect_back(&mut world, 1, 5 * SECOND);
    world.audit().unwrap();
}

/// The target has its memory back at once, and not after the keep-alive time.
#[test]
fn a_channel_that_is_given_up_without_requests_is_closed_at_the_target() {
    let mut plan = Plan::clean(4);
    plan.add_segment(9000);
    plan.hosts[0].keep_alive = 30 * SECOND;
    let mut world = bundle_of(plan);
    let channels = |count| move |world: &World| world.credits().count() == count;
    assert!(world.run_until(SECOND, channels(2)).unwrap());
    world.remove_link(0, 1).unwrap();
    assert!(world.run_until(SECOND / 10, channels(1)).unwrap(), "it stays open");
    world.audit().unwrap();
}

#[test]
fn a_fence_waits_for_the_disk_and_finds_its_way_when_its_link_is_cut_too() {
    let mut world = bundle(5, 3);
    world.stall_disk(2 * SECOND);
    let many = submit_many(&mut world, 40);
    world.run_for(SECOND / 100).unwrap();
    world.set_down(0, true);
    let asked = |world: &World| world.report().fences > 0;
    assert!(world.run_until(SECOND, asked).unwrap(), "writes of a lost channel are fenced");
    world.set_down(1, true);
    world.run_for(SECOND / 2).unwrap();
    assert!(world.answers(0).count() < many, "what the disk still has is not answered");
    expect_answers(&mut world, many, 5 * SECOND);
    world.audit().unwrap();
}

#[test]
fn a_cut_at_the_very_moment_of_the_fence_costs_no_more_than_time() {
    let mut cuts = 0;
    for seed in 0..20 {
        let mut plan = Plan::clean(seed);
        (1..4).for_each(|_| plan.add_segment(9000));
        plan.incidents.fence_cut = 0.5;
        let mut world = bundle_of(plan);
        let many = submit_many(&mut world, 60);
        world.run_for(Duration::from_micros(60)).unwrap();
        world.set_down((seed % 4) as usize, true);
        let answered = |world: &World| world.answers(0).count() == many;
        assert!(world.run_until(10 * SECOND, answered).unwrap(), "seed {seed}");
        assert!(world.answers(0).all(|status| status == Ok(())));
        cuts += world.report().fence_cuts;
        world.audit().unwrap();
    }
    assert!(cuts > 5, "{cuts} fences met a cut");
}

#[test]
fn a_target_that_comes_back_elsewhere_is_found_again() {
    for elsewhere in [false, true] {
        let mut world = bundle(6, 3);
        let many = submit_many(&mut world, 60);
        world.run_for(Duration::from_micros(100)).unwrap();
        world.kill_target(false);
        world.move_target(elsewhere);
        world.run_for(SECOND / 10).unwrap();
        world.start_target().unwrap();
        let answered = |world: &World| world.answers(0).count() == many;
        assert!(world.run_until(5 * SECOND, answered).unwrap());
        assert!(world.answers(0).all(|status| status == Ok(())));
        (0..3).for_each(|link| expect_back(&mut world, link, 5 * SECOND));
        world.audit().unwrap();
    }
}

#[test]
fn what_the_target_executed_and_did_not_answer_is_answered_by_its_next_run() {
    for seed in 0..10 {
        let mut plan = Plan::clean(seed);
        plan.disk.write_cache = seed % 2 == 0;
        plan.add_segment(9000);
        let mut world = bundle_of(plan);
        world.kill_target_unanswered();
        let many = submit_many(&mut world, 40);
        let answered = |world: &World| world.answers(0).count() == many;
        assert!(world.run_until(10 * SECOND, answered).unwrap());
        assert!(world.answers(0).all(|status| status == Ok(())));
        assert_eq!((world.report().unanswered, world.report().target_crashes), (1, 1));
        world.audit().unwrap();
    }
}

#[test]
fn frames_of_a_former_channel_do_nothing_to_its_successor() {
    let mut plan = Plan::clean(7);
    plan.add_segment(9000);
    plan.segments[1].faults.late = 1.0;
    let mut world = bundle_of(plan);
    let many = submit_many(&mut world, 60);
    expect_answers(&mut world, many, SECOND);
    world.set_down(1, true);
    expect_gone(&mut world, 1, 2 * SECOND);
    let (late, rejects) = (world.report().late, world.rejects());
    world.set_down(1, false);
    expect_back(&mut world, 1, 5 * SECOND);
    world.run_for(SECOND / 10).unwrap();
    assert!(world.report().late > late + 20, "the successor gets them");
    assert!(world.rejects() > rejects + 20, "and takes none of them");
    assert!(world.is_link_live(0, 1), "nor minds them");
    world.audit().unwrap();
}

#[test]
fn a_target_that_is_frozen_for_less_than_the_keep_alive_is_not_lost() {
    let mut world = bundle(8, 2);
    world.freeze_station(Station::Target, SECOND * 2 / 5);
    let many = submit_many(&mut world, 60);
    world.run_for(SECOND * 2 / 5).unwrap();
    assert_eq!(world.answers(0).count(), 0);
    expect_answers(&mut world, many, SECOND);
    world.audit().unwrap();
}

#[test]
fn a_target_that_is_frozen_for_long_goes_on_as_if_nothing_had_been() {
    for station in [Station::Target, HOST] {
        let mut world = bundle(9, 2);
        world.freeze_station(station, 3 * SECOND);
        let many = submit_many(&mut world, 60);
        world.run_for(3 * SECOND).unwrap();
        let answered = |world: &World| world.answers(0).count() == many;
        assert!(world.run_until(5 * SECOND, answered).unwrap(), "{station:?}");
        assert!(world.answers(0).all(|status| status == Ok(())));
        (0..2).for_each(|link| expect_back(&mut world, link, 5 * SECOND));
        world.audit().unwrap();
    }
}

#[test]
fn a_disk_that_takes_longer_than_the_keep_alive_costs_no_channel() {
    let mut world = bundle(10, 2);
    world.stall_disk(5 * SECOND);
    let many = submit_many(&mut world, 60);
    world.run_for(5 * SECOND - SECOND / 100).unwrap();
    assert_eq!(world.answers(0).count(), 0, "the disk has not even begun to answer");
    expect_answers(&mut world, many, SECOND);
    assert_eq!(world.report().channels, 2);
}

#[test]
fn more_links_at_one_side_than_at_the_other_all_work_on_one_switch() {
    for (host_links, target_links) in [(3, 1), (1, 3), (2, 6), (6, 2)] {
        let mut plan = Plan::clean(11);
        plan.target.links = vec![LinkPlan::clean(0, 9000); target_links];
        plan.hosts[0].links = vec![LinkPlan::clean(0, 9000); host_links];
        let mut world = bundle_of(plan);
        world.run_for(SECOND).unwrap();
        assert_eq!(world.peers(0).len(), target_links, "every link of the target is used");
        assert_eq!(world.report().channels, host_links.max(target_links) as u64, "and no more");
        let many = submit_many(&mut world, 60);
        expect_answers(&mut world, many, SECOND);
        world.audit().unwrap();
    }
}

#[test]
fn a_cut_of_all_links_but_one_stalls_nothing_for_a_second() {
    for (seed, left) in (20..26).zip(0..6) {
        let mut plan = Plan::clean(seed);
        (1..6).for_each(|_| plan.add_segment(9000));
        plan.hosts[0].keep_alive = 3 * SECOND;
        plan.hosts[0].reconnect_delay = SECOND;
        let mut world = bundle_of(plan);
        let mut count = submit_many(&mut world, 60);
        world.run_for(Duration::from_micros(100)).unwrap();
        (0..6).filter(|&link| link != left).for_each(|link| world.set_down(link, true));
        expect_answers(&mut world, count, SECOND);
        world.run_for(3 * SECOND).unwrap();
        (0..6).for_each(|link| world.set_down(link, false));
        count += submit_many(&mut world, 60);
        expect_answers(&mut world, count, SECOND);
        let whole = |world: &World| (0..6).all(|link| world.is_link_live(0, link));
        assert!(world.run_until(5 * SECOND, whole).unwrap(), "all are back within 5 s");
        world.audit().unwrap();
    }
}

#[test]
fn links_are_taken_out_of_a_live_session_and_put_back() {
    let mut world = bundle(14, 3);
    let mut count = 0;
    for link in [0, 1, 2, 1, 0] {
        count += submit_many(&mut world, 20);
        world.run_for(Duration::from_micros(50)).unwrap();
        world.remove_link(0, link).unwrap();
        assert!(!world.is_link_live(0, link));
        expect_answers(&mut world, count, SECOND / 2);
        world.add_link(0, link).unwrap();
        expect_back(&mut world, link, 2 * SECOND);
    }
    assert_eq!(world.report().relinks, 5);
    world.audit().unwrap();
}

/// Its hosts are told: nothing waits for them to notice.
#[test]
fn links_are_taken_out_of_a_target_under_load_and_put_back() {
    let mut world = bundle(17, 3);
    let mut count = 0;
    for link in [0, 1, 2, 1, 0] {
        count += submit_many(&mut world, 20);
        world.run_for(Duration::from_micros(50)).unwrap();
        world.remove_target_link(link).unwrap();
        expect_answers(&mut world, count, SECOND / 2);
        world.run_for(SECOND).unwrap();
        assert!(!world.is_link_live(0, link), "nobody is let in over it");
        world.add_target_link(link).unwrap();
        expect_back(&mut world, link, 5 * SECOND);
    }
    assert_eq!(world.report().unlinks, 5);
    world.audit().unwrap();
}

#[test]
fn the_last_link_stays() {
    let mut world = bundle(15, 2);
    let many = submit_many(&mut world, 40);
    world.run_for(Duration::from_micros(50)).unwrap();
    (0..2).for_each(|link| world.remove_link(0, link).unwrap());
    assert!(world.in_progress() > 0, "one was removed with work in flight");
    assert_eq!(world.report().relinks, 1);
    expect_answers(&mut world, many, SECOND / 2);
    world.audit().unwrap();
}

#[test]
fn a_link_in_the_place_of_another_is_used_as_what_it_is() {
    let mut plan = Plan::clean(16);
    plan.target.links = vec![LinkPlan::clean(0, 9000); 2];
    plan.hosts[0].links = vec![LinkPlan::clean(0, 1500), LinkPlan::clean(0, 9000)];
    let mut world = bundle_of(plan);
    assert_eq!((world.frame_len(0, 0), world.frame_len(0, 1)), (1514, 9014));
    world.remove_link(0, 0).unwrap();
    world.remove_link(0, 1).unwrap();
    // The first that comes back gets the index of the first that went.
    world.add_link(0, 1).unwrap();
    expect_back(&mut world, 1, 2 * SECOND);
    assert_eq!(world.frame_len(0, 1), 9014, "long frames are found to get through");
    world.add_link(0, 0).unwrap();
    expect_back(&mut world, 0, 2 * SECOND);
    assert_eq!((world.frame_len(0, 0), world.frame_len(0, 1)), (1514, 9014));
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, MIB)), Ok(()));
    world.audit().unwrap();
}

#[test]
fn links_of_different_speeds_mtus_and_quality_work_together() {
    let mut plan = Plan::clean(12);
    for (mtu, rate, latency_us, loss) in [
        (1500, 1_000_000_000, 500, 0.05),
        (65_535, 25_000_000_000, 5, 0.0),
        (9000, 200_000_000, 5000, 0.01),
    ] {
        let link = LinkPlan { rate, ..LinkPlan::clean(plan.segments.len(), mtu) };
        let mut segment = SegmentPlan::clean(mtu);
        segment.latency = Duration::from_micros(latency_us);
        segment.faults.drop = loss;
        plan.segments.push(segment);
        plan.target.links.push(link);
        plan.hosts[0].links.push(link);
    }
    let mut world = bundle_of(plan);
    let lens: Vec<_> = (0..4).map(|link| world.frame_len(0, link)).collect();
    assert_eq!(lens, [9014, 1514, 65_549, 9014]);
    let many = submit_many(&mut world, 60);
    expect_answers(&mut world, many, 2 * SECOND);
    world.audit().unwrap();
}

#[test]
fn an_outage_of_one_host_is_none_of_the_other_hosts_business() {
    let mut plan = Plan::clean(13);
    let reader = HostPlan { read_only: true, ..HostPlan::quiet() };
    plan.hosts.push(HostPlan { links: plan.hosts[0].links.clone(), ..reader });
    plan.add_segment(9000);
    let mut world = bundle_of(plan);
    expect_answers(&mut world, 0, SECOND);
    (0..2).for_each(|link| world.set_one_way(Station::Host(1), link, 1.0, 1.0));
    world.request(1, operation(Opcode::Read, 0, MIB)).unwrap();
    let many = submit_many(&mut world, 40);
    expect_answers(&mut world, many, SECOND / 10);
    let lost = |world: &World| has(world, 1, &Notice::Lost(Problem::Silence));
    assert!(world.run_until(SECOND, lost).unwrap());
    assert_eq!(perform(&mut world, operation(Opcode::Write, 0, MIB)), Ok(()));
    (0..2).for_each(|link| world.set_one_way(Station::Host(1), link, 0.0, 0.0));
    let read = |world: &World| world.answers(1).next() == Some(Ok(()));
    assert!(world.run_until(5 * SECOND, read).unwrap());
    world.audit().unwrap();
}
