//! Slow and lossy links: the slowest on which requests of 1 MiB end (docs/protocol-annexes.md,
//! "Slow links"), and how long a lost frame delays a request.

use std::time::Duration;

use tyche_proto::wire::Opcode;
use tyche_remote::Notice;
use tyche_sim::{Options, Plan, Profile, World, run};

use crate::drive::{MIB, SECOND, connected, operation};

/// Bits per second of each link.
const RATE: u64 = 1_000_000;
const DEPTH: u64 = 8;

/// One host and that many links of 1 Mbit/s, with a round trip of 300 ms, 1 % loss, and switches
/// that keep frames for `queue`.
fn slow(seed: u64, links: usize, queue: Duration) -> World {
    let mut plan = Plan::clean(seed);
    (1..links).for_each(|_| plan.add_segment(1500));
    plan.set_mtu(1500);
    let ends = plan.hosts.iter_mut().flat_map(|host| &mut host.links);
    ends.chain(&mut plan.target.links).for_each(|link| link.rate = RATE);
    for segment in &mut plan.segments {
        segment.latency = Duration::from_millis(150);
        segment.queue = queue;
        segment.faults.drop = 0.01;
    }
    plan.disk.size = DEPTH * u64::from(MIB);
    let mut world = World::new(plan, None);
    let whole = |world: &World| (0..links).all(|link| world.is_link_live(0, link));
    assert!(world.run_until(20 * SECOND, whole).unwrap(), "not all links are live");
    world
}

/// Eight requests of 1 MiB at once end within three times what the busiest link needs for its bytes
/// if each request takes one link.
fn expect_end(world: &mut World, opcode: Opcode, links: u64) {
    let before = world.answers(0).count();
    for index in 0..DEPTH {
        world.request(0, operation(opcode, index * u64::from(MIB), MIB)).unwrap();
    }
    let bits = DEPTH.div_ceil(links) * u64::from(MIB) * 8;
    let limit = Duration::from_secs(3 * bits / RATE);
    let begun = world.elapsed();
    let ended = |world: &World| world.answers(0).count() == before + DEPTH as usize;
    let over = world.run_until(limit, ended).unwrap();
    let took = world.elapsed() - begun;
    println!("{opcode:?} on {links} links: {took:?} of {limit:?}, {:?}", world.report());
    assert!(over, "{opcode:?} on {links} links: {} of {DEPTH} are left", world.in_progress());
    assert!(world.answers(0).all(|status| status == Ok(())));
}

#[test]
fn requests_of_a_mebibyte_end_on_the_slowest_links() {
    for links in [6, 2, 1] {
        let mut world = slow(1, links, Duration::from_millis(100));
        for opcode in [Opcode::Write, Opcode::Read] {
            expect_end(&mut world, opcode, links as u64);
        }
        world.audit().unwrap();
        let parted = world.notices(0).filter(|it| matches!(it, Notice::Parted(..))).count();
        println!("{links} links: {parted} channels lost");
    }
}

/// Worlds that random starts have found: in one, reads began anew from zero each time that a
/// channel was lost, and never ended; in the other a read waited for a second though a link was
/// whole.
#[test]
fn worlds_that_were_found_by_random_starts_end() {
    for seed in [1_035_705_785, 2_218_688_158] {
        let options = Options { profile: Profile::MultiLink, ..Options::default() };
        let report = run(seed, options).unwrap_or_else(|found| panic!("{found}"));
        println!("{report}");
    }
}

/// The frame that answers a flush is the last of its ring for as long as there are only reads: no
/// gap tells of its loss.
#[test]
fn a_flush_whose_answer_is_lost_waits_for_no_pause_of_the_reads() {
    const READS: u64 = 2000;
    let mut plan = Plan::clean(3);
    plan.disk.latency = Duration::from_millis(1);
    let mut world = connected(plan);
    world.set_loss(0, 0.03);
    for _ in 0..40 {
        world.request(0, operation(Opcode::Flush, 0, 0)).unwrap();
        for read in 0..READS {
            world.request(0, operation(Opcode::Read, (read % 8) << 12, 4096)).unwrap();
            let next = |world: &World| world.in_progress() < 16;
            assert!(world.run_until(SECOND, next).unwrap(), "reads stand still");
        }
    }
    let slowest = world.report().slowest;
    println!("the slowest request took {slowest:?} of {:?}", world.elapsed());
    assert!(slowest < Duration::from_millis(60), "{slowest:?} for one request");
}
