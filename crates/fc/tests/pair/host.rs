//! The initiator's user: writes versions to blocks, and checks what it reads.

use std::collections::BTreeMap;

use tyche_fc::initiator::{Command, Completion, Data, Event, Lane, Unit};
use tyche_testkit::random::Random;
use tyche_time::Instant;

use crate::disk::{BLOCK, BLOCKS, Operation, Order, content, version};

/// Orders at a time.
const DEPTH: usize = 8;

/// The user of an initiator lane: draws orders from a seed, submits those that have failed again,
/// and asserts that a read returns the last version that was written.
pub(crate) struct Host {
    pub(crate) lane: Lane,
    pub(crate) unit: Unit,
    pub(crate) random: Random,
    /// The version of each block, and whether an order for it is under way.
    pub(crate) versions: Vec<u64>,
    busy: Vec<bool>,
    under_way: BTreeMap<u16, (Order, Vec<u8>)>,
    /// Orders that have failed.
    again: Vec<Order>,
    next_version: u64,
    /// Orders that are to be made.
    pub(crate) left: usize,
    /// Orders that were made again.
    pub(crate) repetitions: u64,
    /// Whether the lane wants another login.
    pub(crate) is_stuck: bool,
}

impl Host {
    pub(crate) fn new(lane: Lane, unit: Unit, seed: u64) -> Self {
        Self {
            lane,
            unit,
            random: Random(seed),
            versions: vec![0; BLOCKS],
            busy: vec![false; BLOCKS],
            under_way: BTreeMap::new(),
            again: Vec::new(),
            next_version: 1,
            left: 0,
            repetitions: 0,
            is_stuck: false,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.left == 0 && self.under_way.is_empty() && self.again.is_empty()
    }

    /// Makes orders, as long as the lane takes them.
    pub(crate) fn submit(&mut self) {
        while self.under_way.len() < DEPTH {
            let is_repetition = !self.again.is_empty();
            let Some(order) = self.again.pop().or_else(|| self.draw()) else { return };
            if !self.submit_one(order) {
                self.again.push(order);
                return;
            }
            self.repetitions += u64::from(is_repetition);
        }
    }

    fn submit_one(&mut self, order: Order) -> bool {
        let len = order.len();
        let data = match order.operation {
            Operation::Read => Data::In(len),
            Operation::Write => Data::Out(len),
            Operation::Stamp => Data::None,
        };
        let modifies = order.operation != Operation::Read;
        let command =
            Command { unit: self.unit, cdb: order.cdb(), data, modifies, hears_attentions: true };
        let Ok(name) = self.lane.submit(&command) else { return false };
        let blocks = order.block..order.block + order.blocks;
        let buffer = match order.operation {
            Operation::Read => vec![0xee; len as usize],
            _ => blocks.flat_map(|block| content(block, order.version)).collect(),
        };
        assert!(self.under_way.insert(name, (order, buffer)).is_none());
        true
    }

    /// Another order, for blocks that none is under way for.
    fn draw(&mut self) -> Option<Order> {
        self.left = self.left.checked_sub(1)?;
        let random = &mut self.random;
        for _ in 0..100 {
            let blocks = 1 + random.below(16) as usize;
            let block = random.below((BLOCKS - blocks) as u64) as usize;
            let range = block..block + blocks;
            if self.busy[range.clone()].contains(&true) {
                continue;
            }
            self.busy[range].fill(true);
            let operation =
                [Operation::Read, Operation::Write, Operation::Stamp][random.below(3) as usize];
            let version = self.next_version;
            self.next_version += 1;
            return Some(Order { operation, block, blocks, version });
        }
        self.left += 1;
        None
    }

    pub(crate) fn place(&mut self, name: u16, offset: u32, payload: &[u8]) {
        let (_, buffer) = self.under_way.get_mut(&name).unwrap();
        buffer[offset as usize..][..payload.len()].copy_from_slice(payload);
    }

    /// Takes the events of the lane.
    pub(crate) fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.lane.poll_event() {
            match event {
                Event::Completed(completion) => self.complete(now, &completion),
                Event::Restart(_) => self.is_stuck = true,
            }
        }
    }

    fn complete(&mut self, now: Instant, completion: &Completion) {
        let (order, buffer) = self.under_way.remove(&completion.exchange).unwrap();
        if completion.end.is_err() || completion.end.is_ok_and(|it| it.status != 0) {
            self.again.push(order);
            return;
        }
        for at in 0..order.blocks {
            let block = order.block + at;
            self.busy[block] = false;
            if order.operation == Operation::Read {
                let read = version(block, &buffer[at * BLOCK..][..BLOCK]);
                let written = self.versions[block];
                assert_eq!(read, written, "block {block} at {now:?}: {order:?}");
            } else {
                self.versions[block] = order.version;
            }
        }
    }

    /// The data of a frame that is sent. The command may be over: then it does not matter what the
    /// frame has.
    pub(crate) fn data(&self, name: u16, offset: u32, len: u32) -> Vec<u8> {
        let all = self.under_way.get(&name).map(|(_, buffer)| buffer);
        all.and_then(|it| it.get(offset as usize..(offset + len) as usize))
            .map_or(vec![0xdd; len as usize], <[u8]>::to_vec)
    }
}
