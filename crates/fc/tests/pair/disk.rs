//! The target's user: a disk whose blocks have versions, and which takes its time.

use std::collections::BTreeMap;
use std::time::Duration;

use tyche_fc::target_end::{Action, Completion, Data, Lane};
use tyche_fc::wire::Wwn;
use tyche_testkit::random::Random;
use tyche_time::Instant;

pub(crate) const BLOCK: usize = 512;
pub(crate) const BLOCKS: usize = 48;

/// The commands of this disk, which has a protocol of its own: that of SCSI is tested elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    /// Writes its data.
    Write,
    /// Writes the version, and has no data.
    Stamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) operation: Operation,
    pub(crate) block: usize,
    pub(crate) blocks: usize,
    pub(crate) version: u64,
}

impl Order {
    pub(crate) fn cdb(&self) -> [u8; 16] {
        let mut cdb = [0; 16];
        cdb[..3].copy_from_slice(&[self.operation as u8, self.block as u8, self.blocks as u8]);
        cdb[8..].copy_from_slice(&self.version.to_be_bytes());
        cdb
    }

    fn parse(cdb: [u8; 16]) -> Self {
        let [operation, block, blocks, ..] = cdb;
        Self {
            operation: [Operation::Read, Operation::Write, Operation::Stamp]
                [usize::from(operation)],
            block: block.into(),
            blocks: blocks.into(),
            version: u64::from_be_bytes(cdb[8..].try_into().unwrap()),
        }
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u32 {
        (self.blocks * BLOCK) as u32
    }
}

/// The content of a block of that version.
pub(crate) fn content(block: usize, version: u64) -> Vec<u8> {
    (version << 8 | block as u64).to_be_bytes().repeat(BLOCK / 8)
}

/// The version of a block with that content.
pub(crate) fn version(block: usize, bytes: &[u8]) -> u64 {
    let word = u64::from_be_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, content(block, word >> 8), "block {block} is torn, or another");
    word >> 8
}

/// The user of a target lane: executes orders after a random delay, and answers reads with the
/// blocks as they are then.
pub(crate) struct Disk {
    pub(crate) lane: Lane,
    pub(crate) random: Random,
    pub(crate) versions: Vec<u64>,
    orders: BTreeMap<u16, Order>,
    memory: BTreeMap<u16, Vec<u8>>,
    /// Orders at work, by the time of their ends.
    at_work: BTreeMap<(Instant, u16), ()>,
    /// The longest time that an order takes, and that of a few.
    pub(crate) slow: Duration,
    pub(crate) drained: Option<Wwn>,
}

impl Disk {
    pub(crate) fn new(lane: Lane, seed: u64) -> Self {
        Self {
            lane,
            random: Random(seed),
            versions: vec![0; BLOCKS],
            orders: BTreeMap::new(),
            memory: BTreeMap::new(),
            at_work: BTreeMap::new(),
            slow: Duration::ZERO,
            drained: None,
        }
    }

    /// When the next order ends.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.at_work.first_key_value().map(|((at, _), ())| *at)
    }

    /// Ends an order. What it does to the disk, it does now.
    pub(crate) fn work(&mut self, now: Instant) {
        let Some(((_, exchange), ())) = self.at_work.pop_first() else { return };
        let order = self.orders[&exchange];
        let mut len = 0;
        for at in 0..order.blocks {
            let block = order.block + at;
            let version_now = &mut self.versions[block];
            match order.operation {
                Operation::Read => {
                    let content = content(block, *version_now);
                    self.memory.get_mut(&exchange).unwrap()[at * BLOCK..][..BLOCK]
                        .copy_from_slice(&content);
                    len = order.len();
                }
                Operation::Write => {
                    *version_now = version(block, &self.memory[&exchange][at * BLOCK..][..BLOCK]);
                    assert_eq!(*version_now, order.version);
                }
                Operation::Stamp => *version_now = order.version,
            }
        }
        let completion = Completion { len, ..Completion::default() };
        self.lane.complete(now, exchange, &completion);
    }

    /// Does what the lane wants. `payload` is that of the frame that it has taken.
    pub(crate) fn act(&mut self, now: Instant, payload: &[u8]) {
        while let Some(action) = self.lane.poll_action() {
            match action {
                Action::Command(command) => {
                    let order = Order::parse(command.cdb);
                    self.orders.insert(command.exchange, order);
                    let data = match order.operation {
                        Operation::Read => Data::In(order.len()),
                        Operation::Write => Data::Out(order.len()),
                        Operation::Stamp => Data::None,
                    };
                    self.memory.insert(command.exchange, vec![0; order.len() as usize]);
                    self.lane.accept(now, command.exchange, data);
                }
                Action::Place { exchange, offset, .. } => {
                    let memory = self.memory.get_mut(&exchange).unwrap();
                    memory[offset as usize..][..payload.len()].copy_from_slice(payload);
                }
                Action::Execute { exchange } => {
                    let slow = self.slow.as_nanos() as u64;
                    let is_slow = slow > 0 && self.random.chance(40);
                    let time = self.random.below(if is_slow { slow } else { 2_000_000 });
                    self.at_work.insert((now.plus_ns(time), exchange), ());
                }
                Action::Release { exchange } => {
                    assert!(self.at_work.keys().all(|(_, it)| *it != exchange));
                    self.memory.remove(&exchange).unwrap();
                    self.orders.remove(&exchange).unwrap();
                }
                Action::Confirmed { .. } => unreachable!("nothing is to be confirmed"),
                Action::Manage { .. } | Action::Unmanage { .. } => {
                    unreachable!("nobody manages")
                }
                Action::Drained(wwpn) => {
                    assert!(self.at_work.is_empty());
                    self.drained = Some(wwpn);
                }
            }
        }
    }

    /// The data of a frame that is sent.
    pub(crate) fn data(&self, exchange: u16, offset: u32, len: u32) -> &[u8] {
        &self.memory[&exchange][offset as usize..][..len as usize]
    }
}
