//! Limits of exports, and shares of their hosts.

use std::num::NonZeroU64;
use std::time::Duration;

use tyche_engine::RateLimit;
use tyche_proto::wire::Opcode;
use tyche_sim::{Plan, World};

use crate::drive::{SECOND, operation};

/// Requests in a second: one in 50 ms, and two that are saved up.
const IOPS: u64 = 20;
/// Requests at once.
const REQUESTS: u64 = 60;

#[test]
fn requests_end_at_the_rate_of_the_limit_and_no_channel_is_lost() {
    let mut plan = Plan::clean(1);
    plan.add_segment(9000);
    let iops = NonZeroU64::new(IOPS);
    plan.target.limit = RateLimit { iops, bytes_per_second: None };
    let mut world = World::new(plan, None);
    let whole = |world: &World| (0..2).all(|link| world.is_link_live(0, link));
    assert!(world.run_until(20 * SECOND, whole).unwrap());
    let (before, begun) = (world.answers(0).count(), world.elapsed());
    for index in 0..REQUESTS {
        world.request(0, operation(Opcode::Read, index * 4096, 4096)).unwrap();
    }
    let ended = |world: &World| world.answers(0).count() == before + REQUESTS as usize;
    assert!(world.run_until(20 * SECOND, ended).unwrap());
    let took = world.elapsed() - begun;
    let (least, most) = (Duration::from_millis(2849), Duration::from_millis(2860));
    assert!((least..most).contains(&took), "{took:?}");
    assert!((0..2).all(|link| world.is_link_live(0, link)));
    assert_eq!(world.report().reissued, 0);
    world.audit().unwrap();
}
