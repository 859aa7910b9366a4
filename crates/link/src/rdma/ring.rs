//! The two directions of a connection: frames into the peer's ring, and out of ours.
//!
//! Independent of network cards: [`Outgoing`] says which bytes to write, [`Incoming`] is told how
//! far the ring is filled.
//!
//! ```text
//!                units that are written, and not taken out
//!                 .-------------^-------------.
//!  ring   [      |record|record|..|record|     ]      Incoming: head --> tail
//!                ^                       ^
//!               head                    tail          Outgoing: head --> next
//! ```

use std::collections::VecDeque;

use super::pair::Write;
use super::placed::{Placed, PlacedWrite};
use super::region::Region;
use super::window::{
    ANNOUNCEMENTS_MAX, HEAD_AT, INTERRUPTS_MAX, LAG, NOTE, PLACED, PLACED_HEAD, PeerRegion,
    RECORD_HEAD, REGION, RING_AT, TAIL_AT, UNIT, UNUSED, WORD, frame_len_max, units_of,
};
use crate::connections::Broken;
use crate::{HEAD, Mac, RxBatch, TxFrame};

/// The most writes that have begun and are not known to have ended.
pub(super) const WRITES_MAX: u64 = 128;
/// A write out of so many is notified.
const NOTIFIED_EACH: u64 = 16;
/// Bytes of an Ethernet address; the source comes after the destination.
const ADDRESS: usize = 6;

/// How two ends tell each other how far a ring is filled, and how far it was emptied. Any two of
/// them understand each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueKind {
    /// Along with the frames: the paper's elimination of small messages (section 4.6).
    #[default]
    Eliminate,
    /// By writes of their own, for each frame, as in the paper's base protocol: for comparison.
    Base,
}

/// The result of a push into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It is in the staging memory.
    Staged,
    /// There is no room now.
    Full,
    /// The peer's ring takes no frame of that length.
    TooLong,
}

/// Frames into the ring of the peer. The staging memory is a copy of that ring: frames that are
/// staged together are one write, or two where the ring ends.
pub(super) struct Outgoing {
    kind: QueueKind,
    /// Units of the ring.
    units: u64,
    /// Units that are staged, and those of them whose writes have begun.
    next: u64,
    posted: u64,
    /// Units that the peer was interrupted for, and how often it was.
    announced: u64,
    announcements: u64,
    /// Units that the peer has taken out.
    head: u64,
    /// Units whose writes have ended: until then, the card may read them again.
    ended: u64,
    /// Writes that have begun, and those of them known to have ended.
    writes: u64,
    writes_ended: u64,
    /// Notified writes that have not ended: their number, and the units and the placed bytes up to
    /// their end.
    notified: VecDeque<(u64, u64, u64)>,
    /// Units at the last notified write.
    notified_at: u64,
    /// Interrupts that the peer may not have seen: the units up to each.
    interrupts: VecDeque<u64>,
    /// Data that go to where they belong instead of into the ring.
    placed: Placed,
}

impl Outgoing {
    /// An empty ring of so many units.
    pub(super) fn new(units: u32, kind: QueueKind) -> Self {
        Self {
            kind,
            units: units.into(),
            next: 0,
            posted: 0,
            announced: 0,
            announcements: 0,
            head: 0,
            ended: 0,
            writes: 0,
            writes_ended: 0,
            notified: VecDeque::with_capacity(WRITES_MAX as usize),
            notified_at: 0,
            interrupts: VecDeque::with_capacity(INTERRUPTS_MAX),
            placed: Placed::default(),
        }
    }

    /// Notes how far the peer says that it has taken frames out. An older report changes nothing,
    /// nor one of what was not sent: whoever sends that harms himself alone.
    pub(super) fn reported(&mut self, head: u32) {
        let more = u64::from(head.wrapping_sub(self.head as u32));
        if more <= self.posted - self.head {
            self.head += more;
            let head = self.head;
            let seen = self.interrupts.iter().take_while(|end| **end <= head).count();
            self.interrupts.drain(..seen);
        }
    }

    /// Notes that this write, and all before it, have ended.
    pub(super) fn ended(&mut self, number: u64) {
        let count = self.notified.iter().take_while(|it| it.0 <= number).count();
        if let Some((writes, units, placed)) = self.notified.drain(..count).next_back() {
            (self.writes_ended, self.ended) = (writes, units);
            self.placed.ended(placed);
        }
    }

    /// Whether a record can be written now, with so many pieces of data that are placed: two
    /// writes, where the ring ends, and a last one with the interrupt.
    pub(super) fn may_write(&self, pieces: usize) -> bool {
        let more = (self.placed.waiting() + pieces + 3) as u64;
        self.writes - self.writes_ended + more <= WRITES_MAX
            && self.interrupts.len() < INTERRUPTS_MAX
    }

    /// Writes that have begun, and those of them that interrupt the peer.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.writes, self.announcements)
    }

    /// Whether the head can be written now. It interrupts nobody, so it may be written when nothing
    /// else may: the peer may wait for it, with as many announcements on their way.
    pub(super) fn may_report(&self) -> bool {
        self.writes - self.writes_ended < WRITES_MAX
    }

    /// Bytes that are staged, and whose write has not begun.
    pub(super) fn staged(&self) -> usize {
        (self.next - self.posted) as usize * UNIT + self.placed.staged()
    }

    /// Stages a frame, with the report of the other direction's head.
    pub(super) fn push(&mut self, staging: &Region, frame: &TxFrame<'_>, head: u32) -> Pushed {
        if frame.len() > frame_len_max(self.units as u32) {
            return Pushed::TooLong;
        }
        let Some(place) = self.take(staging, frame.len(), head) else { return Pushed::Full };
        write_head(staging, place, frame.len() as u32, head);
        write_all(staging, place + RECORD_HEAD, frame.parts());
        Pushed::Staged
    }

    /// Stages a frame whose data go to a region of the peer, where they [fit](Placed::fits).
    pub(super) fn push_placed(
        &mut self,
        (staging, data): (&Region, &Region),
        frame: &TxFrame<'_>,
        region: PeerRegion,
        head: u32,
    ) -> Pushed {
        let placed = frame.data().map(<[u8]>::len).sum::<usize>();
        let len = frame.len() - placed;
        if len > frame_len_max(self.units as u32) {
            return Pushed::TooLong;
        }
        if !self.placed.has_room(frame) {
            return Pushed::Full;
        }
        let Some(place) = self.take(staging, PLACED_HEAD + len, head) else { return Pushed::Full };
        for (piece, &at) in frame.data().zip(frame.places()) {
            data.write(self.placed.push(region, at, piece.len()), piece);
        }
        write_head(staging, place, PLACED | len as u32, head);
        let placed = [placed as u32, region.number.into()].map(u32::to_le_bytes);
        let parts = [placed.as_flattened(), frame.front(), frame.tail()];
        write_all(staging, place + RECORD_HEAD, parts.into_iter());
        Pushed::Staged
    }

    /// Stages a note of a region of ours; false if there is no room now.
    pub(super) fn push_note(&mut self, staging: &Region, note: &PeerRegion, head: u32) -> bool {
        if !self.may_write(0) {
            return false;
        }
        let Some(place) = self.take(staging, REGION, head) else { return false };
        write_head(staging, place, NOTE, head);
        staging.write(place + RECORD_HEAD, &note.encode());
        true
    }

    /// Takes room for a record of so many bytes behind its head. Returns its place; `None` if there
    /// is no room now.
    fn take(&mut self, staging: &Region, len: usize, head: u32) -> Option<usize> {
        let (units, at) = (units_of(len), self.next % self.units);
        let unused = if at + units > self.units { self.units - at } else { 0 };
        let room = self.units - (self.next - self.head.min(self.ended));
        if unused + units > room {
            return None;
        }
        if unused > 0 {
            write_head(staging, place(at), UNUSED, head);
        }
        let at = (self.next + unused) % self.units;
        self.next += unused + units;
        Some(place(at))
    }

    /// The next write of what is staged: data first, then the records that tell of them. The last
    /// one interrupts the peer, which knows of none before; with a queue of the base kind that is
    /// one of the tail.
    pub(super) fn write(&mut self) -> Option<Write> {
        if let Some(PlacedWrite { region, at, from, len, .. }) = self.placed.write() {
            return Some(Write { region: Some(region), from, ..self.post(at, len, None) });
        }
        let at = self.posted % self.units;
        let units = (self.next - self.posted).min(self.units - at);
        if units == 0 && self.announced == self.posted {
            return None;
        }
        self.posted += units;
        let mut immediate = None;
        let is_eliminated = self.kind == QueueKind::Eliminate || units == 0;
        if self.posted == self.next && is_eliminated {
            self.announced = self.posted;
            self.announcements += 1;
            self.interrupts.push_back(self.posted);
            immediate = Some(self.posted as u32);
        }
        Some(match units {
            0 => self.post(TAIL_AT, WORD, immediate),
            _ => self.post(place(at), units as usize * UNIT, immediate),
        })
    }

    /// A write of the head alone, which the caller has staged. It interrupts nobody.
    pub(super) fn write_head(&mut self) -> Write {
        self.post(HEAD_AT, WORD, None)
    }

    fn post(&mut self, at: usize, len: usize, immediate: Option<u32>) -> Write {
        self.writes += 1;
        // Also when much is staged: there must be a notification to wait for, whatever is full.
        let notifies = self.writes.is_multiple_of(NOTIFIED_EACH)
            || self.posted - self.notified_at >= self.units / LAG
            || self.placed.is_notice_due();
        if notifies {
            self.notified.push_back((self.writes, self.posted, self.placed.notifies()));
            self.notified_at = self.posted;
        }
        Write { region: None, at, from: at, len, immediate, number: self.writes, notifies }
    }
}

/// A record that was taken out of a ring.
#[derive(Debug)]
pub(super) struct Record {
    /// The report in it.
    pub(super) head: u32,
    /// A region of the peer, if it tells of one; otherwise it was a frame.
    pub(super) note: Option<PeerRegion>,
}

/// Frames out of our ring.
pub(super) struct Incoming {
    kind: QueueKind,
    /// Units of the ring.
    units: u64,
    /// Units taken out.
    head: u64,
    /// Units that were written, as far as the peer has said.
    tail: u64,
    /// Units taken out that the peer was told of.
    told: u64,
    /// Announcements since then.
    announcements: usize,
}

impl Incoming {
    /// An empty ring of so many units.
    pub(super) fn new(units: u32, kind: QueueKind) -> Self {
        Self { kind, units: units.into(), head: 0, tail: 0, told: 0, announcements: 0 }
    }

    /// Notes how far the ring is filled, as the peer says.
    ///
    /// # Errors
    /// `Malformed` if that is less than before, or more than the ring holds.
    pub(super) fn arrived(&mut self, tail: u32) -> Result<(), Broken> {
        let tail = self.tail + u64::from(tail.wrapping_sub(self.tail as u32));
        if tail - self.head > self.units {
            return Err(Broken::Malformed);
        }
        self.tail = tail;
        self.announcements += 1;
        Ok(())
    }

    /// Whether there are frames.
    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Takes the next record out: a frame into a batch that has room; it is from `mac`. A frame
    /// that does not fit in the batch is lost, as on an interface, and so is one whose data were
    /// placed in a region that the peer does not have any more.
    ///
    /// # Errors
    /// `Malformed` if the peer has written no record.
    pub(super) fn pop(
        &mut self,
        window: &Region,
        batch: &mut RxBatch,
        (mac, has_region): (Mac, impl Fn(u16) -> bool),
    ) -> Result<Option<Record>, Broken> {
        if self.is_empty() {
            return Ok(None);
        }
        let (mut len, mut head) = read_head(window, self.head % self.units);
        if len == UNUSED {
            self.take(self.units - self.head % self.units)?;
            if self.is_empty() {
                return Err(Broken::Malformed);
            }
            (len, head) = read_head(window, 0);
        }
        let at = place(self.head % self.units) + RECORD_HEAD;
        if len == NOTE {
            self.take_record(REGION)?;
            let mut note = [0; REGION];
            window.read(at, &mut note);
            return Ok(Some(Record { head, note: Some(PeerRegion::decode(&note)) }));
        }
        let is_placed = len & PLACED != 0;
        let (len, before) = ((len & !PLACED) as usize, if is_placed { PLACED_HEAD } else { 0 });
        if !(HEAD..=frame_len_max(self.units as u32)).contains(&len) {
            return Err(Broken::Malformed);
        }
        self.take_record(before + len)?;
        let mut words = [[0; 4]; 2];
        if is_placed {
            window.read(at, words.as_flattened_mut());
        }
        let [placed, region] = words.map(u32::from_le_bytes);
        let is_known = |region: u32| u16::try_from(region).is_ok_and(&has_region);
        if !is_placed || is_known(region) {
            let at = at + before;
            // Copied before anybody looks at it: the peer may write there at any time.
            let pushed = batch.push_with(len, |head, payload| {
                window.read(at, head);
                window.read(at + head.len(), payload);
                head[ADDRESS..2 * ADDRESS].copy_from_slice(&mac);
            });
            if is_placed && pushed.is_ok() {
                batch.mark_placed(placed);
            }
        }
        Ok(Some(Record { head, note: None }))
    }

    /// Takes out a record of so many bytes behind its head.
    fn take_record(&mut self, len: usize) -> Result<(), Broken> {
        if self.head % self.units + units_of(len) > self.units {
            return Err(Broken::Malformed);
        }
        self.take(units_of(len))
    }

    fn take(&mut self, units: u64) -> Result<(), Broken> {
        if units > self.tail - self.head {
            return Err(Broken::Malformed);
        }
        self.head += units;
        Ok(())
    }

    /// The report for the peer.
    pub(super) fn head(&self) -> u32 {
        self.head as u32
    }

    /// Notes that the peer is told of the head along with a frame.
    pub(super) fn told(&mut self) {
        if self.kind == QueueKind::Eliminate {
            self.report();
        }
    }

    /// The report for the peer, which is told of it.
    pub(super) fn report(&mut self) -> u32 {
        self.told = self.head;
        // Of what is not taken out, the announcements are still to be told.
        if self.is_empty() {
            self.announcements = 0;
        }
        self.head as u32
    }

    /// Whether so much was taken out that the peer has to be told, even if nothing else is sent.
    pub(super) fn is_report_due(&self) -> bool {
        let most = match self.kind {
            QueueKind::Eliminate => self.units / LAG,
            QueueKind::Base => 1,
        };
        self.head - self.told >= most || self.announcements >= ANNOUNCEMENTS_MAX && self.is_empty()
    }
}

/// Where the unit is in the window.
fn place(unit: u64) -> usize {
    RING_AT + unit as usize * UNIT
}

fn write_head(staging: &Region, place: usize, len: u32, head: u32) {
    let words = [len, head].map(u32::to_le_bytes);
    staging.write(place, words.as_flattened());
}

/// Writes parts one behind the other.
fn write_all<'a>(staging: &Region, mut place: usize, parts: impl Iterator<Item = &'a [u8]>) {
    for part in parts {
        staging.write(place, part);
        place += part.len();
    }
}

fn read_head(window: &Region, unit: u64) -> (u32, u32) {
    let mut bytes = [[0; 4]; 2];
    window.read(place(unit), bytes.as_flattened_mut());
    let [len, head] = bytes.map(u32::from_le_bytes);
    (len, head)
}

#[cfg(test)]
mod tests;
