//! The queue before the path.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use super::Kind;
use super::codel::Codel;

/// Of fair queueing.
const FLOWS: usize = 1024;
/// Bytes that a flow may send in its turn: a long frame.
const QUANTUM: i64 = 1514;
/// The least size of the queue in bytes, however slow the path is.
const ROOM_MIN: u64 = 4 * QUANTUM as u64;

/// A frame in the queue.
pub(super) struct Queued {
    pub(super) since: Instant,
    pub(super) frame: Vec<u8>,
}

/// Frames that wait for the path.
pub(super) struct Queue {
    kind: Kind,
    /// The most bytes.
    room: u64,
    bytes: u64,
    /// One if the queue is not fair.
    flows: Vec<Flow>,
    /// Flows whose turn comes, the new ones before the old.
    new: VecDeque<usize>,
    old: VecDeque<usize>,
}

#[derive(Default)]
struct Flow {
    frames: VecDeque<Queued>,
    bytes: u64,
    /// Bytes that it may still send in this turn.
    credit: i64,
    is_listed: bool,
    codel: Codel,
}

impl Queue {
    pub(super) fn new(kind: Kind, room: u64) -> Self {
        let flows = if kind == Kind::DropTail { 1 } else { FLOWS };
        let flows = (0..flows).map(|_| Flow::default()).collect();
        let (new, old) = (VecDeque::new(), VecDeque::new());
        Self { kind, room: room.max(ROOM_MIN), bytes: 0, flows, new, old }
    }

    pub(super) fn put(&mut self, queued: Queued) {
        let len = queued.frame.len() as u64;
        if self.kind == Kind::DropTail && self.bytes + len > self.room {
            return;
        }
        let index = flow(&queued.frame) as usize % self.flows.len();
        let flow = &mut self.flows[index];
        flow.frames.push_back(queued);
        flow.bytes += len;
        self.bytes += len;
        if !flow.is_listed {
            (flow.is_listed, flow.credit) = (true, QUANTUM);
            self.new.push_back(index);
        }
        while self.bytes > self.room {
            let longest = (0..self.flows.len()).max_by_key(|&index| self.flows[index].bytes);
            drop(longest.and_then(|index| self.pop(index)));
        }
    }

    /// The frame whose turn it is.
    pub(super) fn take(&mut self, now: Instant) -> Option<Vec<u8>> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            let flow = &mut self.flows[index];
            if flow.credit <= 0 {
                flow.credit += QUANTUM;
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            if let Some(frame) = self.next_of(index, now) {
                self.flows[index].credit -= frame.len() as i64;
                return Some(frame);
            }
            // A new flow that is empty waits for a turn behind the old, so that it is not new again
            // with its next frame.
            if is_new {
                self.new.pop_front();
                self.old.push_back(index);
            } else {
                self.old.pop_front();
                self.flows[index].is_listed = false;
            }
        }
    }

    /// A flow's next frame that is not dropped.
    fn next_of(&mut self, index: usize, now: Instant) -> Option<Vec<u8>> {
        loop {
            let Queued { since, mut frame } = self.pop(index)?;
            let flow = &mut self.flows[index];
            let is_told = match self.kind {
                Kind::DropTail => false,
                Kind::FqCodel | Kind::FqCodelEcn => {
                    flow.codel.tells(now, since, flow.bytes <= QUANTUM as u64)
                }
            };
            if !is_told || (self.kind == Kind::FqCodelEcn && mark(&mut frame)) {
                return Some(frame);
            }
        }
    }

    fn pop(&mut self, index: usize) -> Option<Queued> {
        let queued = self.flows[index].frames.pop_front()?;
        let len = queued.frame.len() as u64;
        self.flows[index].bytes -= len;
        self.bytes -= len;
        Some(queued)
    }
}

/// Bytes before the packet in a frame.
const ETHERNET_LEN: usize = 14;
const IPV6_LEN: usize = 40;

/// A packet's version of IP, if it is one, and its header's length.
fn ip(frame: &[u8]) -> Option<(u8, usize)> {
    let kind = frame.get(12..ETHERNET_LEN)?;
    match (kind, frame.get(ETHERNET_LEN)? & 0xf) {
        ([0x08, 0x00], words @ 5..) => Some((4, usize::from(words) * 4)),
        ([0x86, 0xdd], _) => Some((6, IPV6_LEN)),
        _ => None,
    }
}

/// A hash of addresses, protocol and ports, or of the Ethernet header: the same for all frames of a
/// flow.
fn flow(frame: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Some((version, len)) = ip(frame) else {
        frame.get(..ETHERNET_LEN).hash(&mut hasher);
        return hasher.finish();
    };
    let packet = &frame[ETHERNET_LEN..];
    let (protocol, addresses) = if version == 4 { (9, 12..20) } else { (6, 8..40) };
    packet.get(protocol).hash(&mut hasher);
    packet.get(addresses).hash(&mut hasher);
    packet.get(len..len + 4).hash(&mut hasher);
    hasher.finish()
}

/// Marks a packet as one that has met congestion; `false` if its sender does not know of marks.
fn mark(frame: &mut [u8]) -> bool {
    let Some((version, len)) = ip(frame) else { return false };
    let Some(header) = frame.get_mut(ETHERNET_LEN..ETHERNET_LEN + len) else { return false };
    let shift = if version == 4 { 0 } else { 4 };
    if header[1] >> shift & 3 == 0 {
        return false;
    }
    header[1] |= 3 << shift;
    if version == 4 {
        header[10..12].fill(0);
        let sum = checksum(header).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
    }
    true
}

/// The Internet's checksum (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let words = header.as_chunks::<2>().0.iter().map(|&word| u32::from(u16::from_be_bytes(word)));
    let sum: u32 = words.sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    !((sum >> 16) + sum) as u16
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// An IPv4 packet of 1,500 bytes of a flow, that may be marked or not.
    fn packet(port: u8, can_mark: bool) -> Vec<u8> {
        let mut frame = vec![0; 1514];
        frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, u8::from(can_mark) * 2]);
        frame[ETHERNET_LEN + 20] = port;
        let sum = checksum(&frame[ETHERNET_LEN..ETHERNET_LEN + 20]).to_be_bytes();
        frame[ETHERNET_LEN + 10..ETHERNET_LEN + 12].copy_from_slice(&sum);
        frame
    }

    fn queue(kind: Kind, frames: &[Vec<u8>], since: Instant) -> Queue {
        let mut queue = Queue::new(kind, 100 * 1514);
        frames.iter().for_each(|frame| queue.put(Queued { since, frame: frame.clone() }));
        queue
    }

    #[test]
    fn what_does_not_fit_is_dropped() {
        let now = Instant::now();
        let mut queue = queue(Kind::DropTail, &vec![packet(1, false); 150], now);
        let later = now + Duration::from_secs(1);
        assert_eq!(std::iter::from_fn(|| queue.take(later)).count(), 100);
    }

    #[test]
    fn flows_take_turns_and_the_longest_loses() {
        let now = Instant::now();
        let frames = [vec![packet(1, false); 150], vec![packet(2, false); 20]].concat();
        let mut queue = queue(Kind::FqCodel, &frames, now);
        let ports: Vec<u8> = std::iter::from_fn(|| queue.take(now)).map(|it| it[34]).collect();
        assert_eq!(ports.len(), 100);
        assert_eq!(ports[..40].iter().filter(|&&port| port == 2).count(), 20, "{ports:?}");
    }

    #[test]
    fn a_long_queue_is_told_by_drops_or_marks() {
        for (kind, can_mark) in
            [(Kind::FqCodel, true), (Kind::FqCodelEcn, false), (Kind::FqCodelEcn, true)]
        {
            let begun = Instant::now();
            let mut queue = queue(kind, &vec![packet(1, can_mark); 100], begun);
            let taken =
                (1..=100).filter_map(|at| queue.take(begun + Duration::from_millis(at * 10)));
            let taken: Vec<_> = taken.collect();
            let marked = taken.iter().filter(|frame| frame[15] == 3);
            let are_sound = marked.clone().all(|it| checksum(&it[14..34]) == 0);
            assert!(are_sound);
            if kind == Kind::FqCodelEcn && can_mark {
                assert_eq!((taken.len(), marked.count() > 10), (100, true));
            } else {
                assert_eq!((taken.len() < 90, marked.count()), (true, 0), "{}", taken.len());
            }
        }
    }
}
