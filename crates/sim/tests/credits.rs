//! The pages that hosts may use of a target's memory.

use std::time::Duration;

use tyche_proto::CHANNEL_PAGES;
use tyche_proto::wire::{CREDIT_MIN, Opcode};
use tyche_sim::{HostPlan, Plan, World};

use crate::drive::{MIB, SECOND, connected, operation};

/// Pages that the channels have, once all hosts have answered.
fn pages(world: &mut World) -> Vec<u32> {
    let settled = |world: &World| world.credits().all(|credit| credit.is_some());
    assert!(world.run_until(SECOND, settled).unwrap(), "a host never says which pages it uses");
    world.credits().flatten().collect()
}

/// Has the first hosts keep 16 reads of 256 KiB in progress for a while. `asked`: the numbers of
/// their reads so far.
fn press(world: &mut World, asked: &mut [usize], until: Duration) {
    let begun = world.elapsed();
    while world.elapsed() - begun < until {
        for (host, asked) in asked.iter_mut().enumerate() {
            while *asked < world.answers(host).count() + 16 {
                let offset = (*asked as u64 % 12) * (256 << 10);
                world.request(host, operation(Opcode::Read, offset, 256 << 10)).unwrap();
                *asked += 1;
            }
        }
        world.run_for(Duration::from_millis(2)).unwrap();
    }
}

#[test]
fn a_busy_host_gets_pages_within_a_few_round_trips_and_gives_them_back_when_idle() {
    let mut world = connected(Plan::clean(1));
    let is_open = |world: &World| world.credits().count() == 1;
    assert!(world.run_until(SECOND, is_open).unwrap());
    assert_eq!(pages(&mut world), [CREDIT_MIN]);
    for index in 0..32 {
        world.request(0, operation(Opcode::Write, index * 65_536, 65_536)).unwrap();
    }
    let all = |world: &World| world.credits().all(|credit| credit == Some(512));
    assert!(world.run_until(SECOND / 50, all).unwrap(), "{:?}", pages(&mut world));
    world.run_for(11 * SECOND).unwrap();
    assert_eq!(pages(&mut world), [CREDIT_MIN]);
    world.audit().unwrap();
}

#[test]
fn a_request_of_any_length_passes_through_the_least() {
    let mut plan = Plan::clean(2);
    plan.target.memory_pages = 2 * CHANNEL_PAGES;
    let mut world = connected(plan);
    world.request(0, operation(Opcode::Write, 512, 3 * MIB)).unwrap();
    world.request(0, operation(Opcode::Read, 512, 3 * MIB)).unwrap();
    let answered = |world: &World| world.answers(0).count() == 2;
    assert!(world.run_until(10 * SECOND, answered).unwrap());
    assert!(world.answers(0).all(|answer| answer.is_ok()));
    world.audit().unwrap();
}

/// The hosts come one after the other, and the first ones have all pages when the last one comes.
#[test]
fn busy_hosts_have_equal_parts_of_too_little_memory() {
    const HOSTS: usize = 5;
    let mut plan = Plan::clean(3);
    plan.shared = true;
    plan.target.memory_pages = HOSTS as u64 * (CHANNEL_PAGES + 200);
    let link = plan.hosts[0].links.clone();
    plan.hosts =
        (0..HOSTS).map(|_| HostPlan { links: link.clone(), ..HostPlan::quiet() }).collect();
    let mut world = connected(plan);
    let mut asked = [0; HOSTS];
    for hosts in 1..=HOSTS {
        press(&mut world, &mut asked[..hosts], SECOND / 2);
    }
    let pages = pages(&mut world);
    let fair = 200 + CREDIT_MIN;
    assert_eq!(pages.len(), HOSTS);
    assert!(pages.iter().all(|it| it.abs_diff(fair) <= fair / 5), "{pages:?}, and {fair} is fair");
    assert_eq!(world.rejects(), 0);
    world.audit().unwrap();
}

/// A pool that is too small for all, and frames are lost: every host goes on.
#[test]
fn two_hundred_hosts_go_on_with_too_little_memory() {
    const HOSTS: usize = 200;
    let mut plan = Plan::clean(4);
    plan.shared = true;
    plan.target.memory_pages = HOSTS as u64 * (CHANNEL_PAGES + 20);
    plan.segments[0].faults.drop = 0.01;
    let host = HostPlan { keep_alive: 10 * SECOND, ..HostPlan::quiet() };
    let links = plan.hosts[0].links.clone();
    plan.hosts = (0..HOSTS).map(|_| HostPlan { links: links.clone(), ..host.clone() }).collect();
    let mut world = World::new(plan, None);
    let all = |world: &World| (0..HOSTS).all(|host| world.is_connected(host));
    assert!(world.run_until(60 * SECOND, all).unwrap());
    for host in 0..HOSTS {
        for index in 0..8 {
            world.request(host, operation(Opcode::Read, index * 65_536, 65_536)).unwrap();
        }
    }
    let answered = |world: &World| (0..HOSTS).all(|host| world.answers(host).count() == 8);
    assert!(world.run_until(60 * SECOND, answered).unwrap());
    assert!((0..HOSTS).all(|host| world.answers(host).all(|answer| answer.is_ok())));
    assert_eq!(pages(&mut world).len(), HOSTS);
}
