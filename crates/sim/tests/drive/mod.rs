//! Driving a world through a directed scenario.

use std::time::Duration;

use tyche_block::Errno;
use tyche_proto::wire::{CommandFlags, Opcode};
use tyche_proto::{AllRules, Operation};
use tyche_remote::Notice;
use tyche_sim::{Plan, World};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MIB: u32 = 1 << 20;

pub(crate) fn operation(opcode: Opcode, offset: u64, len: u32) -> Operation {
    Operation { opcode, flags: CommandFlags::NONE, offset, len }
}

/// A world whose hosts are all connected.
pub(crate) fn connected(plan: Plan) -> World<AllRules> {
    let hosts = plan.hosts.len();
    let mut world = World::new(plan, None);
    let all = |world: &World| (0..hosts).all(|host| world.is_connected(host));
    assert!(world.run_until(SECOND, all).unwrap(), "not connected within a second");
    world
}

/// Has host 0 do an operation; returns how it ended.
pub(crate) fn perform(world: &mut World, operation: Operation) -> Result<(), Errno> {
    let before = world.answers(0).count();
    world.request(0, operation).unwrap();
    let answered = |world: &World| world.answers(0).count() > before;
    assert!(world.run_until(10 * SECOND, answered).unwrap(), "{operation:?} is not answered");
    world.answers(0).last().unwrap()
}

/// Host 0 writes, reads and flushes all over the disk, many operations at once, as far as its
/// depth allows; returns how many.
pub(crate) fn submit_many(world: &mut World, count: u64) -> usize {
    for i in 0..count {
        let opcode = [Opcode::Write, Opcode::Read][i as usize % 2];
        world.request(0, operation(opcode, i * 8192, 64 << 10)).unwrap();
    }
    count as usize
}

#[allow(dead_code, reason = "not every test asks for events")]
pub(crate) fn has(world: &World, host: usize, event: &Notice) -> bool {
    world.notices(host).any(|other| other == event)
}
