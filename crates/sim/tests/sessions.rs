//! Thousands of sessions at one target, whose memory is too small for all of them.

use std::time::Duration;

use tyche_proto::CHANNEL_PAGES;
use tyche_proto::wire::{CREDIT_MIN, Opcode};
use tyche_sim::{HostPlan, Plan, UdpPlan, World};

use crate::drive::{SECOND, operation};

/// Sessions, unless `TYCHE_SIM_HOSTS` says another number: 10,000 take a minute and 4 GiB.
const HOSTS: usize = 2000;
/// Those that are busy at the same time.
const BUSY: usize = 100;
/// Pages that each of these may have in the end.
const FAIR: u32 = CREDIT_MIN + 200;

/// Runs in steps until `done` holds, which looks at all hosts.
fn wait(world: &mut World, limit: Duration, done: impl Fn(&World) -> bool) {
    let end = world.elapsed() + limit;
    while !done(world) {
        assert!(world.elapsed() < end, "{} requests wait", world.in_progress());
        world.run_for(Duration::from_millis(20)).unwrap();
    }
}

/// Has hosts read at the same time, each so often and so many bytes.
fn read(world: &mut World, hosts: usize, count: u64, len: u32) {
    for host in 0..hosts {
        for index in 0..count {
            world.request(host, operation(Opcode::Read, index * u64::from(len), len)).unwrap();
        }
    }
    wait(world, 60 * SECOND, |world| world.in_progress() == 0);
}

/// All begin at the same moment, as when a target is back; then all have something to read, then a
/// few want more than there is. Frames are lost all the time.
#[test]
fn thousands_of_hosts_share_too_little_memory() {
    let hosts = std::env::var("TYCHE_SIM_HOSTS").map_or(HOSTS, |hosts| hosts.parse().unwrap());
    let mut plan = Plan::clean(5);
    plan.shared = true;
    let spare = BUSY as u64 * u64::from(FAIR - CREDIT_MIN);
    plan.target.memory_pages = hosts as u64 * CHANNEL_PAGES + spare;
    let links = plan.hosts[0].links.clone();
    plan.hosts = vec![HostPlan { links, keep_alive: 30 * SECOND, ..HostPlan::quiet() }; hosts];
    plan.set_mtu(4000);
    plan.set_udp(0, UdpPlan::clean());
    plan.segments[0].faults.drop = 0.01;
    let mut world = World::new(plan, None);
    wait(&mut world, 10 * SECOND, |world| (0..hosts).all(|host| world.is_connected(host)));
    // Those whose longest probes were lost have found out since that longer frames get through.
    world.run_for(10 * SECOND).unwrap();
    read(&mut world, hosts, 2, 16 << 10);
    for _ in 0..12 {
        read(&mut world, BUSY, 8, 128 << 10);
    }
    wait(&mut world, SECOND, |world| world.credits().all(|credit| credit.is_some()));
    let pages: Vec<_> = world.credits().flatten().filter(|it| *it > CREDIT_MIN).collect();
    assert_eq!(pages.len(), BUSY);
    assert!(pages.iter().all(|it| it.abs_diff(FAIR) <= FAIR / 5), "{pages:?}, and {FAIR} is fair");
    assert!((0..hosts).all(|host| world.is_connected(host)));
    assert_eq!(world.report().failed, 0);
    world.audit().unwrap();
}
