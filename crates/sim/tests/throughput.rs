//! How much comes through, by loss and by size of the rings, on one clean and one lossy link: a
//! table that is checked in, so that a regression of the protocol shows as a difference.
//!
//! `BLESS=1 cargo test -p tyche-sim --test all throughput` writes the table anew.

use std::fmt::Write;
use std::time::Duration;

use tyche_proto::AllRules;
use tyche_sim::{HostPlan, Mix, Plan, World};

const OPERATIONS: u32 = 500;
const LEN: u32 = 64 << 10;
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/throughput.txt");

/// MB/s and frames sent again, for 64 KiB reads and writes on 10 Gb/s with a queue depth of 32.
fn measure(loss: f64, ring: u16, mtu: usize) -> (f64, u64) {
    let mut plan = Plan::clean(7);
    plan.operations = OPERATIONS;
    plan.target.rings = [ring; 2];
    plan.set_mtu(mtu);
    let quiet = HostPlan::quiet();
    let (mix, rings) = (Mix { len_max: LEN, ..quiet.mix }, [ring; 2]);
    let links = plan.hosts[0].links.clone();
    plan.hosts[0] = HostPlan { links, mix, rings, depth: 32, busy: true, whole: true, ..quiet };
    let mut world = World::<AllRules>::new(plan, None);
    world.run_until(Duration::from_secs(1), |world| world.is_connected(0)).unwrap();
    world.set_loss(0, loss);
    let begin = world.elapsed();
    let done = |world: &World| world.answers(0).count() == OPERATIONS as usize;
    assert!(world.run_until(Duration::from_secs(300), done).unwrap(), "it takes too long");
    let time = (world.elapsed() - begin).as_secs_f64();
    let bytes = f64::from(OPERATIONS) * f64::from(LEN);
    (bytes / time / 1e6, world.report().retransmissions)
}

#[test]
fn throughput_by_loss_and_ring_is_as_it_was() {
    let mut table = String::from("mtu   ring  loss %   MB/s  sent again\n");
    for mtu in [1500, 9000] {
        for ring in [16, 64, 256, 1024] {
            for loss in [0.0, 0.1, 1.0, 5.0] {
                let (rate, again) = measure(loss / 100.0, ring, mtu);
                writeln!(table, "{mtu}  {ring:>5}  {loss:>6}  {rate:>5.0}  {again:>10}").unwrap();
            }
        }
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(TABLE, &table).unwrap();
    }
    let expected = std::fs::read_to_string(TABLE).unwrap();
    assert!(table == expected, "throughput has changed; expected\n{expected}\nand got\n{table}");
}
