//! Rings: one sequence space in one direction, at its sender and at its receiver.
//!
//! A frame keeps its position in the ring until it is acknowledged. The sender's ring remembers
//! what a position carries (its entries; the data that they describe lies with the request), the
//! receiver's ring remembers which positions have arrived. Positions are freed in order.
//! (MSST 2014, section II.B: `TX_ring` and `RX_ring` with two pointers each.)

use tyche_wire::{Bitmap, ENTRIES_MAX, Entry, Event, PacketNumber, Position, Reject};

use crate::{Instant, Rule, Rules};

/// Transmissions of a frame before its missing ack counts. Lower: a thread that was stopped for a
/// while takes late acks for lost ones. Higher: dead links are given up later.
const STUCK_SENDINGS: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In flight, as far as is known.
    Sent,
    /// Taken for lost: to be sent again.
    Lost,
    /// Known to have arrived, ahead of the cumulative ack.
    Arrived,
}

#[derive(Clone, Copy, Debug)]
struct TxSlot {
    state: State,
    /// Number of transmissions. With more than one, the round trip is ambiguous (Karn).
    sendings: u8,
    entries: u8,
    /// Index of the first entry, free-running.
    first: u32,
    /// Bytes of its frame.
    bytes: u32,
    /// Number of the last frame that carried this position.
    packet: PacketNumber,
    sent_at: Instant,
}

/// The effect of an ack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Acked {
    /// Bytes of the frames of positions newly known to have arrived.
    pub(crate) bytes: u64,
    /// Round-trip time of the newest of them that was sent only once.
    pub(crate) sample_ns: Option<u64>,
    /// The highest packet number among them.
    pub(crate) newest: PacketNumber,
}

impl Acked {
    /// This and what the same ack did to another ring.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.bytes += other.bytes;
        self.newest = self.newest.max(other.newest);
        self.sample_ns = other.sample_ns.or(self.sample_ns);
        self
    }
}

/// Slots of a sender's ring before more were in use at once. Lower: less memory for channels that
/// rest, 160 bytes a slot with its entries.
const SLOTS_MIN: usize = 64;

/// The sender's side of a ring. Its memory grows with the positions that are in use at once.
pub(crate) struct TxRing {
    slots: Box<[TxSlot]>,
    /// Positions of the receiver's ring.
    len: u32,
    /// Entries of all positions, as a ring: positions take and free them in order.
    entries: Box<[Entry]>,
    entries_head: u32,
    /// The first of the oldest position.
    entries_tail: u32,
    /// The next position to use.
    head: Position,
    /// The oldest position that is not cumulatively acknowledged.
    tail: Position,
    /// When the oldest position became the oldest.
    waiting_since: Instant,
    in_flight: u32,
    bytes_in_flight: u64,
    lost: u32,
    /// No position before it is lost.
    lost_from: Position,
}

/// Memory for `len` positions: their slots, and a ring of entries.
fn slots(len: usize) -> (Box<[TxSlot]>, Box<[Entry]>) {
    let slot = TxSlot {
        state: State::Arrived,
        sendings: 0,
        entries: 0,
        first: 0,
        bytes: 0,
        packet: PacketNumber(0),
        sent_at: Instant(0),
    };
    let entries = (len * 4).max(8 * ENTRIES_MAX);
    (vec![slot; len].into(), vec![Entry::Event(Event::Removed); entries].into())
}

impl TxRing {
    /// `len`: positions, a power of two; `first`: the first to be used.
    pub(crate) fn new(len: u16, first: Position) -> Self {
        let (slots, entries) = slots(usize::from(len).min(SLOTS_MIN));
        Self {
            slots,
            len: len.into(),
            entries,
            entries_head: 0,
            entries_tail: 0,
            head: first,
            tail: first,
            waiting_since: Instant(0),
            in_flight: 0,
            bytes_in_flight: 0,
            lost: 0,
            lost_from: first,
        }
    }

    /// Whether there is room for another position with any number of entries, without growth.
    fn has_memory(&self) -> bool {
        (self.used() as usize) < self.slots.len() && self.entries_free() >= ENTRIES_MAX
    }

    fn can_grow(&self) -> bool {
        self.slots.len() < self.len as usize
    }

    #[cold]
    fn grow(&mut self) {
        let (mut slots, mut entries) = slots(2 * self.slots.len());
        let mut position = self.tail;
        while position != self.head {
            let slot = *self.slot(position);
            let places = (0..u32::from(slot.entries)).map(|i| slot.first.wrapping_add(i) as usize);
            for place in places {
                let from = place & (self.entries.len() - 1);
                entries[place & (entries.len() - 1)] = self.entries[from];
            }
            slots[position.0 as usize & (slots.len() - 1)] = slot;
            position = position.plus(1);
        }
        (self.slots, self.entries) = (slots, entries);
    }

    fn slot(&self, position: Position) -> &TxSlot {
        &self.slots[position.0 as usize & (self.slots.len() - 1)]
    }

    fn slot_mut(&mut self, position: Position) -> &mut TxSlot {
        let mask = self.slots.len() - 1;
        &mut self.slots[position.0 as usize & mask]
    }

    /// Positions in use.
    fn used(&self) -> u32 {
        self.head.ahead_of(self.tail).cast_unsigned()
    }

    fn entries_free(&self) -> usize {
        self.entries.len() - self.entries_head.wrapping_sub(self.entries_tail) as usize
    }

    /// Whether there is room for another position with any number of entries. `window`: positions
    /// from the ack on that the receiver has room for.
    pub(crate) fn has_room(&self, window: u16) -> bool {
        self.used() < self.len.min(window.into()) && (self.can_grow() || self.has_memory())
    }

    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Since when the oldest position has been waiting for its ack, if it was sent
    /// [`STUCK_SENDINGS`] times: after a pause of this thread, the ack may have come unnoticed.
    pub(crate) fn stuck_since(&self) -> Option<Instant> {
        let is_stuck = !self.is_empty() && self.slot(self.tail).sendings >= STUCK_SENDINGS;
        is_stuck.then_some(self.waiting_since)
    }

    /// Uses the next position for `entries`, in a frame of so many bytes.
    pub(crate) fn push(
        &mut self,
        entries: &[Entry],
        bytes: u32,
        packet: PacketNumber,
        now: Instant,
    ) -> Position {
        if !self.has_memory() {
            assert!(self.can_grow(), "ring is full");
            self.grow();
        }
        let (position, first) = (self.head, self.entries_head);
        if self.is_empty() {
            self.waiting_since = now;
        }
        let mask = self.entries.len() - 1;
        for (index, entry) in entries.iter().enumerate() {
            self.entries[(first as usize + index) & mask] = *entry;
        }
        self.entries_head = first.wrapping_add(entries.len() as u32);
        self.head = self.head.plus(1);
        *self.slot_mut(position) = TxSlot {
            state: State::Sent,
            sendings: 1,
            entries: entries.len() as u8,
            first,
            bytes,
            packet,
            sent_at: now,
        };
        self.in_flight += 1;
        self.bytes_in_flight += u64::from(bytes);
        position
    }

    /// The entries of a position.
    pub(crate) fn entries(&self, position: Position) -> impl Iterator<Item = Entry> {
        let slot = self.slot(position);
        let (first, mask) = (slot.first as usize, self.entries.len() - 1);
        (0..usize::from(slot.entries)).map(move |i| self.entries[(first + i) & mask])
    }

    /// Marks a position as arrived.
    fn arrived(&mut self, position: Position, now: Instant, acked: &mut Acked) {
        let slot = self.slot_mut(position);
        let (state, fresh) = (slot.state, slot.sendings == 1);
        let (elapsed_ns, packet) = (now.ns_since(slot.sent_at), slot.packet);
        let bytes = u64::from(slot.bytes);
        slot.state = State::Arrived;
        match state {
            State::Sent => {
                self.in_flight -= 1;
                self.bytes_in_flight -= bytes;
            }
            State::Lost => self.lost -= 1,
            State::Arrived => return,
        }
        acked.bytes += bytes;
        acked.newest = acked.newest.max(packet);
        if fresh {
            acked.sample_ns = Some(elapsed_ns);
        }
    }

    /// Checks that an ack covers only positions that were sent.
    pub(crate) fn check_ack(&self, ack: Position) -> Result<(), Reject> {
        if ack.ahead_of(self.head) <= 0 { Ok(()) } else { Err(Reject::AckOfUnsent) }
    }

    /// Checks the same of a nack's bitmap, which begins at `ack`. A bitmap that lies far behind is
    /// valid: it is only old.
    pub(crate) fn check_bitmap(&self, ack: Position, bitmap: &Bitmap) -> Result<(), Reject> {
        let named = highest_bit(bitmap).map_or(0, |bit| bit + 1);
        self.check_ack(ack.plus(named))
    }

    /// Takes a cumulative ack that was [checked](Self::check_ack): everything before `ack` has
    /// arrived.
    pub(crate) fn acked(&mut self, ack: Position, now: Instant) -> Acked {
        let mut acked = Acked::default();
        while ack.ahead_of(self.tail) > 0 {
            self.arrived(self.tail, now, &mut acked);
            let entries = self.slot(self.tail).entries;
            self.entries_tail = self.entries_tail.wrapping_add(entries.into());
            self.tail = self.tail.plus(1);
            self.waiting_since = now;
        }
        acked
    }

    /// Takes a nack: when the receiver had seen packets up to `newest`, it had the positions that
    /// `bitmap` names from `ack` on, and lacked the others. Calls `lost` with the packet number of
    /// every position that is newly lost.
    pub(crate) fn nacked(
        &mut self,
        ack: Position,
        bitmap: &Bitmap,
        newest: PacketNumber,
        now: Instant,
        mut lost: impl FnMut(PacketNumber),
    ) -> Acked {
        let mut acked = Acked::default();
        let Some(highest) = highest_bit(bitmap) else { return acked };
        for bit in 0..highest + 1 {
            let position = ack.plus(bit);
            if position.ahead_of(self.tail) < 0 || position.ahead_of(self.head) >= 0 {
                continue;
            }
            if is_set(bitmap, bit) {
                self.arrived(position, now, &mut acked);
            } else if self.slot(position).packet < newest && self.mark_lost(position) {
                lost(self.slot(position).packet);
            }
        }
        acked
    }

    fn mark_lost(&mut self, position: Position) -> bool {
        let slot = self.slot_mut(position);
        if slot.state != State::Sent {
            return false;
        }
        slot.state = State::Lost;
        let bytes = u64::from(slot.bytes);
        self.in_flight -= 1;
        self.bytes_in_flight -= bytes;
        if self.lost == 0 || position.ahead_of(self.lost_from) < 0 {
            self.lost_from = position;
        }
        self.lost += 1;
        true
    }

    /// Marks the newest position in flight as lost. Sent again, it reveals which positions before
    /// it are missing.
    pub(crate) fn mark_newest_lost(&mut self) {
        let mut position = self.head;
        while self.in_flight > 0 && position.ahead_of(self.tail) > 0 {
            position = Position(position.0.wrapping_sub(1));
            if self.mark_lost(position) {
                return;
            }
        }
    }

    /// Marks all positions in flight as lost, to be sent again, the oldest first. Returns the bytes
    /// of their frames.
    pub(crate) fn mark_all_lost(&mut self) -> u64 {
        let marked = self.bytes_in_flight;
        let mut position = self.tail;
        while self.in_flight > 0 {
            self.mark_lost(position);
            position = position.plus(1);
        }
        marked
    }

    /// Whether a position is to be sent again.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// The oldest position to be sent again.
    pub(crate) fn next_lost(&mut self) -> Option<Position> {
        if self.lost == 0 {
            return None;
        }
        if self.tail.ahead_of(self.lost_from) > 0 {
            self.lost_from = self.tail;
        }
        while self.slot(self.lost_from).state != State::Lost {
            self.lost_from = self.lost_from.plus(1);
        }
        Some(self.lost_from)
    }

    /// Marks a lost position as in flight again, in the frame `packet`. Returns its bytes.
    pub(crate) fn resent(&mut self, position: Position, packet: PacketNumber, now: Instant) -> u32 {
        let slot = self.slot_mut(position);
        assert_eq!(slot.state, State::Lost, "only lost positions are sent again");
        slot.sendings = slot.sendings.saturating_add(1);
        (slot.state, slot.packet, slot.sent_at) = (State::Sent, packet, now);
        let bytes = slot.bytes;
        self.lost -= 1;
        self.in_flight += 1;
        self.bytes_in_flight += u64::from(bytes);
        bytes
    }
}

/// The highest bit that is set in a bitmap: it stands for the newest position that has arrived.
fn highest_bit(bitmap: &Bitmap) -> Option<u32> {
    let last = bitmap.last()?;
    (bitmap.len() as u32 * 64).checked_sub(last.leading_zeros() + 1)
}

fn is_set(bitmap: &Bitmap, bit: u32) -> bool {
    bitmap[bit as usize / 64] >> (bit % 64) & 1 != 0
}

/// Whether a received position is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    New,
    Duplicate,
}

/// The receiver's side of a ring.
pub(crate) struct RxRing {
    /// One bit for each position from `next` on: whether it has arrived.
    arrived: Box<[u64]>,
    len: u32,
    /// The first position that has not arrived.
    next: Position,
    /// The position after the highest that has arrived.
    end: Position,
}

impl RxRing {
    /// `len`: positions, a power of two; `first`: the first to arrive.
    pub(crate) fn new(len: u16, first: Position) -> Self {
        let words = usize::from(len).div_ceil(64);
        Self { arrived: vec![0; words].into(), len: u32::from(len), next: first, end: first }
    }

    /// The cumulative ack.
    pub(crate) fn ack<R: Rules>(&self) -> Position {
        if R::keeps(Rule::AckInOrder) { self.next } else { self.end }
    }

    fn bit(&self, position: Position) -> (usize, u64) {
        let bits = self.arrived.len() as u32 * 64;
        let index = position.0 % bits;
        (index as usize / 64, 1 << (index % 64))
    }

    fn has(&self, position: Position) -> bool {
        let (word, bit) = self.bit(position);
        self.arrived[word] & bit != 0
    }

    /// Returns whether a frame with this position is new.
    ///
    /// # Errors
    /// `Window` if it is farther ahead than the ring is long.
    pub(crate) fn check(&self, position: Position) -> Result<Arrival, Reject> {
        let ahead = position.ahead_of(self.next);
        if ahead < 0 {
            return Ok(Arrival::Duplicate);
        }
        if ahead.cast_unsigned() >= self.len {
            return Err(Reject::Window);
        }
        Ok(if self.has(position) { Arrival::Duplicate } else { Arrival::New })
    }

    /// Marks a new position as arrived.
    pub(crate) fn arrive(&mut self, position: Position) {
        if position == self.next && !self.has_gap() {
            // In order, the usual case: no bits to set.
            self.next = position.plus(1);
            self.end = self.next;
            return;
        }
        let (word, bit) = self.bit(position);
        self.arrived[word] |= bit;
        if position.ahead_of(self.end) >= 0 {
            self.end = position.plus(1);
        }
        while self.next != self.end && self.has(self.next) {
            let (word, bit) = self.bit(self.next);
            self.arrived[word] &= !bit;
            self.next = self.next.plus(1);
        }
    }

    /// Whether a position is missing before one that has arrived.
    pub(crate) fn has_gap(&self) -> bool {
        self.next != self.end
    }

    /// The positions that have arrived from [`next`](Self::next) on; empty if none is missing.
    pub(crate) fn bitmap(&self) -> Bitmap {
        let mut bitmap = Bitmap::new();
        let span = self.end.ahead_of(self.next).cast_unsigned();
        for word in 0..span.div_ceil(64) {
            let mut bits = 0;
            for bit in 0..64.min(span - word * 64) {
                bits |= u64::from(self.has(self.next.plus(word * 64 + bit))) << bit;
            }
            bitmap.push(bits);
        }
        bitmap
    }
}

#[cfg(test)]
mod tests {
    use tyche_wire::Event;

    use super::*;
    use crate::AllRules;

    const ENTRY: Entry = Entry::Event(Event::Removed);

    #[test]
    fn the_receiver_takes_each_position_once_in_any_order() {
        let base = Position(u32::MAX - 1);
        let mut ring = RxRing::new(16, base);
        for n in [2, 0, 5, 1] {
            assert_eq!(ring.check(base.plus(n)), Ok(Arrival::New));
            ring.arrive(base.plus(n));
            assert_eq!(ring.check(base.plus(n)), Ok(Arrival::Duplicate));
        }
        assert_eq!(ring.ack::<AllRules>(), base.plus(3));
        assert!(ring.has_gap());
        assert_eq!(ring.bitmap().as_slice(), [0b100]);
        assert_eq!(ring.check(base.plus(3 + 16)), Err(Reject::Window));
        ring.arrive(base.plus(3));
        ring.arrive(base.plus(4));
        assert_eq!((ring.ack::<AllRules>(), ring.has_gap()), (base.plus(6), false));
        assert!(ring.bitmap().is_empty());
    }

    #[test]
    fn a_nack_loses_only_what_was_sent_before_what_arrived() {
        let mut ring = TxRing::new(16, Position(0));
        for packet in 0..4 {
            ring.push(&[ENTRY], 100, PacketNumber(packet), Instant(packet));
        }
        let mut bitmap = Bitmap::new();
        bitmap.push(0b1000);
        let mut lost = vec![];
        let acked = ring
            .nacked(Position(0), &bitmap, PacketNumber(2), Instant(9), |packet| lost.push(packet));
        assert_eq!(lost, [PacketNumber(0), PacketNumber(1)], "2 is not older than the newest");
        assert_eq!((acked.bytes, ring.bytes_in_flight()), (100, 100));
        assert_eq!(ring.next_lost(), Some(Position(0)));
        assert_eq!(ring.resent(Position(0), PacketNumber(4), Instant(10)), 100);
        assert_eq!(ring.next_lost(), Some(Position(1)));
        let acked = ring.acked(Position(4), Instant(20));
        assert_eq!((acked.bytes, acked.sample_ns), (300, Some(18)));
        assert!(ring.is_empty());
        assert_eq!(ring.next_lost(), None);
        assert_eq!(ring.check_ack(Position(4)), Ok(()));
        assert_eq!(ring.check_ack(Position(5)), Err(Reject::AckOfUnsent));
        assert_eq!(ring.check_bitmap(Position(1), &bitmap), Err(Reject::AckOfUnsent));
        assert_eq!(ring.check_bitmap(Position(0), &bitmap), Ok(()));
    }

    #[test]
    fn a_frame_is_stuck_once_it_was_sent_often() {
        let mut ring = TxRing::new(16, Position(0));
        ring.push(&[ENTRY], 100, PacketNumber(1), Instant(7));
        for packet in 2..4 {
            assert_eq!(ring.stuck_since(), None);
            ring.mark_all_lost();
            ring.resent(Position(0), PacketNumber(packet), Instant(packet * 10));
        }
        assert_eq!(ring.stuck_since(), Some(Instant(7)));
        ring.push(&[ENTRY], 100, PacketNumber(4), Instant(40));
        ring.acked(Position(1), Instant(50));
        assert_eq!(ring.stuck_since(), None, "the next was sent once");
    }

    #[test]
    fn a_ring_grows_with_what_is_in_flight() {
        let resized = |size| Entry::Event(Event::Resized(size));
        let base = Position(u32::MAX - 40);
        let mut ring = TxRing::new(4096, base);
        for packet in 0..50 {
            ring.push(&[ENTRY], 100, PacketNumber(packet), Instant(packet));
        }
        ring.acked(base.plus(50), Instant(60));
        assert_eq!(ring.slots.len(), SLOTS_MIN);
        for packet in 50..4146 {
            assert!(ring.has_room(4096));
            let entries = vec![resized(packet); 1 + packet as usize % 6];
            ring.push(&entries, packet as u32, PacketNumber(packet), Instant(packet));
        }
        assert!(!ring.has_room(4096));
        for packet in 50..4146 {
            let position = base.plus(packet as u32);
            let entries: Vec<Entry> = ring.entries(position).collect();
            assert_eq!(entries.len(), 1 + packet as usize % 6);
            assert!(entries.iter().all(|it| *it == resized(packet)));
        }
        ring.mark_all_lost();
        for packet in 50..4146 {
            let position = base.plus(packet);
            assert_eq!(ring.next_lost(), Some(position));
            assert_eq!(ring.resent(position, PacketNumber(5000), Instant(5000)), packet);
        }
        assert_eq!(ring.acked(base.plus(4146), Instant(6000)).bytes, (50..4146).sum());
        assert_eq!(ring.bytes_in_flight(), 0);
    }

    #[test]
    fn room_ends_with_the_window_and_with_the_entries() {
        let mut ring = TxRing::new(64, Position(0));
        assert!(ring.has_room(64));
        for packet in 0..8 {
            assert!(ring.has_room(16));
            ring.push(&[ENTRY; ENTRIES_MAX], 100, PacketNumber(packet), Instant(0));
        }
        assert!(!ring.has_room(64), "256 entries are 8 full frames");
        ring.acked(Position(1), Instant(0));
        assert!(ring.has_room(64));
        assert!(!ring.has_room(7));
    }
}
