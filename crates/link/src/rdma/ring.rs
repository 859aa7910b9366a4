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
use super::region::Region;
use super::window::{
    ANNOUNCEMENTS_MAX, HEAD_AT, INTERRUPTS_MAX, LAG, RECORD_HEAD, RING_AT, TAIL_AT, UNIT, UNUSED,
    WORD, frame_len_max, units_of,
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
    /// Notified writes that have not ended: their number, and the units up to their end.
    notified: VecDeque<(u64, u64)>,
    /// Units at the last notified write.
    notified_at: u64,
    /// Interrupts that the peer may not have seen: the units up to each.
    interrupts: VecDeque<u64>,
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
        if let Some(last) = self.notified.drain(..count).next_back() {
            (self.writes_ended, self.ended) = last;
        }
    }

    /// Whether more can be written now: two writes, where the ring ends, and a last one with the
    /// interrupt.
    pub(super) fn may_write(&self) -> bool {
        self.writes - self.writes_ended + 3 <= WRITES_MAX && self.interrupts.len() < INTERRUPTS_MAX
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
        (self.next - self.posted) as usize * UNIT
    }

    /// Stages a frame, with the report of the other direction's head.
    pub(super) fn push(&mut self, staging: &Region, frame: &TxFrame<'_>, head: u32) -> Pushed {
        if frame.len() > frame_len_max(self.units as u32) {
            return Pushed::TooLong;
        }
        let (units, at) = (units_of(frame.len()), self.next % self.units);
        let unused = if at + units > self.units { self.units - at } else { 0 };
        let room = self.units - (self.next - self.head.min(self.ended));
        if unused + units > room {
            return Pushed::Full;
        }
        if unused > 0 {
            write_head(staging, at, UNUSED, head);
            self.next += unused;
        }
        let at = self.next % self.units;
        write_head(staging, at, frame.len() as u32, head);
        let mut place = place(at) + RECORD_HEAD;
        for part in frame.parts() {
            staging.write(place, part);
            place += part.len();
        }
        self.next += units;
        Pushed::Staged
    }

    /// The next write of what is staged. The last one interrupts the peer, which knows of none
    /// before; with a queue of the base kind that is one of the tail.
    pub(super) fn write(&mut self) -> Option<Write> {
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
            || self.posted - self.notified_at >= self.units / LAG;
        if notifies {
            self.notified.push_back((self.writes, self.posted));
            self.notified_at = self.posted;
        }
        Write { at, len, immediate, number: self.writes, notifies }
    }
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

    /// Takes the next frame out, into a batch that has room; it is from `mac`. Returns the report
    /// in its record. A frame that does not fit in the batch is lost, as on an interface.
    ///
    /// # Errors
    /// `Malformed` if the peer has written no record.
    pub(super) fn pop(
        &mut self,
        window: &Region,
        batch: &mut RxBatch,
        mac: Mac,
    ) -> Result<Option<u32>, Broken> {
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
        let (len, at) = (len as usize, self.head % self.units);
        if !(HEAD..=frame_len_max(self.units as u32)).contains(&len) {
            return Err(Broken::Malformed);
        }
        if at + units_of(len) > self.units {
            return Err(Broken::Malformed);
        }
        self.take(units_of(len))?;
        let at = place(at) + RECORD_HEAD;
        // Copied before anybody looks at it: the peer may write there at any time.
        let _ = batch.push_with(len, |head, payload| {
            window.read(at, head);
            window.read(at + head.len(), payload);
            head[ADDRESS..2 * ADDRESS].copy_from_slice(&mac);
        });
        Ok(Some(head))
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

fn write_head(staging: &Region, unit: u64, len: u32, head: u32) {
    let words = [len, head].map(u32::to_le_bytes);
    staging.write(place(unit), words.as_flattened());
}

fn read_head(window: &Region, unit: u64) -> (u32, u32) {
    let mut bytes = [[0; 4]; 2];
    window.read(place(unit), bytes.as_flattened_mut());
    let [len, head] = bytes.map(u32::from_le_bytes);
    (len, head)
}

#[cfg(test)]
mod tests {
    use super::super::window::{self, window_len};
    use super::*;
    use crate::{RxBatch, TxVectors};

    const UNITS: u32 = 64;
    const FROM: Mac = [2, 0, 0, 0, 0, 9];

    /// A direction, with the memory at both ends.
    struct Direction {
        outgoing: Outgoing,
        staging: Region,
        window: Region,
        incoming: Incoming,
        /// Immediates on their way.
        immediates: VecDeque<u32>,
        /// Whether the ends of writes are notified.
        notifies: bool,
    }

    impl Direction {
        fn new() -> Self {
            Self::of(UNITS)
        }

        fn of(units: u32) -> Self {
            let kind = QueueKind::Eliminate;
            let [staging, window] =
                [(), ()].map(|()| Region::anonymous(window_len(units)).unwrap());
            let (outgoing, incoming) = (Outgoing::new(units, kind), Incoming::new(units, kind));
            let immediates = VecDeque::new();
            Self { outgoing, staging, window, incoming, immediates, notifies: true }
        }

        fn push(&mut self, frame: &[u8]) -> Pushed {
            if !self.outgoing.may_write() {
                return Pushed::Full;
            }
            let mut vectors = TxVectors::new(1, 1);
            let mut batch = vectors.batch();
            batch.push_whole(frame, HEAD);
            self.outgoing.push(&self.staging, &batch.frame(0), 0)
        }

        fn write(&mut self) {
            while let Some(write) = self.outgoing.write() {
                self.window.copy(write.at, &self.staging, write.len);
                self.immediates.extend(write.immediate);
                if write.notifies && self.notifies {
                    self.outgoing.ended(write.number);
                }
            }
        }

        fn receive(&mut self) -> Result<Vec<Vec<u8>>, Broken> {
            let mut batch = RxBatch::new(64, frame_len_max(UNITS) - HEAD);
            while let Some(tail) = self.immediates.pop_front() {
                self.incoming.arrived(tail)?;
            }
            while self.incoming.pop(&self.window, &mut batch, FROM)?.is_some() {}
            Ok(batch.iter().map(|frame| [frame.head, frame.payload].concat()).collect())
        }

        fn report(&mut self) {
            self.outgoing.reported(self.incoming.report());
        }
    }

    fn frame(len: usize, seed: u8) -> Vec<u8> {
        let mut frame: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(3) ^ seed).collect();
        frame[ADDRESS..2 * ADDRESS].copy_from_slice(&FROM);
        frame
    }

    #[test]
    fn frames_of_all_lengths_arrive_wherever_the_ring_ends() {
        let (mut direction, max) = (Direction::new(), frame_len_max(UNITS));
        for round in 0..500 {
            let lens = [HEAD + round % 70, max - round % 90, HEAD];
            let frames = lens.map(|len| frame(len, round as u8));
            for frame in &frames {
                assert_eq!(direction.push(frame), Pushed::Staged, "{round}");
            }
            direction.write();
            assert_eq!(direction.receive().unwrap(), frames, "{round}");
            direction.report();
        }
    }

    #[test]
    fn a_full_ring_takes_no_frame_until_it_is_reported_and_ended() {
        let mut direction = Direction::new();
        direction.notifies = false;
        let fill = |direction: &mut Direction| {
            let mut count = 0;
            while direction.push(&frame(HEAD, 1)) == Pushed::Staged {
                count += 1;
                direction.write();
            }
            direction.write();
            count
        };
        let count = fill(&mut direction);
        assert_eq!(count, UNITS as usize / 2, "each is two units");
        assert_eq!(direction.receive().unwrap().len(), count);
        assert_eq!(direction.push(&frame(HEAD, 2)), Pushed::Full, "not reported");
        direction.report();
        assert_eq!(direction.push(&frame(HEAD, 2)), Pushed::Full, "the card may read it again");
        direction.outgoing.ended(u64::MAX);
        assert!(fill(&mut direction) >= count - UNITS as usize / LAG as usize / 2);
    }

    #[test]
    fn a_batch_is_announced_once() {
        for kind in [QueueKind::Eliminate, QueueKind::Base] {
            let mut direction = Direction::new();
            direction.outgoing = Outgoing::new(UNITS, kind);
            direction.push(&frame(HEAD, 1));
            direction.push(&frame(HEAD, 2));
            assert!(direction.receive().unwrap().is_empty(), "nothing is announced");
            direction.write();
            assert_eq!(direction.immediates, [4], "units");
            direction.write();
            assert_eq!(direction.receive().unwrap().len(), 2);
            let writes = if kind == QueueKind::Base { 2 } else { 1 };
            assert_eq!(direction.outgoing.counts(), (writes, 1));
        }
    }

    /// The tests find what the room is for.
    #[test]
    fn without_a_look_at_the_room_frames_are_overwritten() {
        let mut direction = Direction::new();
        let frames: Vec<_> = (0..UNITS as u8).map(|seed| frame(HEAD, seed)).collect();
        for frame in &frames {
            direction.outgoing.head = direction.outgoing.next;
            direction.outgoing.ended = direction.outgoing.next;
            assert_eq!(direction.push(frame), Pushed::Staged);
            direction.write();
            direction.outgoing.interrupts.clear();
        }
        assert!(matches!(direction.receive(), Err(Broken::Malformed)));
    }

    #[test]
    fn interrupts_are_bounded_until_frames_are_taken_out() {
        let mut direction = Direction::of(1024);
        let mut count = 0;
        while direction.outgoing.may_write() {
            assert_eq!(direction.push(&frame(HEAD, 1)), Pushed::Staged);
            direction.write();
            count += 1;
        }
        assert_eq!(count, INTERRUPTS_MAX);
        direction.receive().unwrap();
        direction.report();
        assert!(direction.outgoing.may_write());
    }

    #[test]
    fn a_long_frame_is_refused_for_good() {
        let mut direction = Direction::new();
        let max = frame_len_max(UNITS);
        assert_eq!(direction.push(&frame(max + 1, 1)), Pushed::TooLong);
        assert_eq!(direction.push(&frame(max, 1)), Pushed::Staged);
    }

    #[test]
    fn a_report_of_what_was_not_sent_changes_nothing() {
        let mut direction = Direction::new();
        direction.push(&frame(HEAD, 1));
        direction.write();
        for head in [3, UNITS, u32::MAX, u32::MAX / 2] {
            direction.outgoing.reported(head);
            assert_eq!(direction.outgoing.head, 0, "{head}");
        }
        direction.outgoing.reported(2);
        direction.outgoing.reported(1);
        assert_eq!(direction.outgoing.head, 2);
    }

    #[test]
    fn the_capacity_fits_however_late_reports_and_notifications_are() {
        for units in [64, 100, 1000, 8192] {
            for len in [HEAD, 200, 900, frame_len_max(64), frame_len_max(units)] {
                let each = units_of(len);
                let needed = window::capacity(units, len) as u64 * each + u64::from(units) / LAG;
                assert!(needed + each <= u64::from(units), "{units} {len}");
            }
        }
        for (frames, len) in [(1, HEAD), (16, 1514), (128, 9014), (128, 65_549)] {
            let units = window::units_for(frames, len);
            assert!(window::capacity(units, len) >= frames as usize, "{frames} {len}");
        }
    }

    #[test]
    fn what_is_no_record_is_malformed() {
        let lie = |len: u32, tail: u32| {
            let mut direction = Direction::new();
            direction.window.write(RING_AT, &len.to_le_bytes());
            direction.immediates.push_back(tail);
            direction.receive().map(|frames| frames.len())
        };
        assert_eq!(lie(HEAD as u32, 2).unwrap(), 1);
        let max = frame_len_max(UNITS) as u32;
        for (len, tail) in [
            (0, 1),
            (HEAD as u32 - 1, 2),
            (HEAD as u32, 1),
            (max + 1, UNITS),
            (UNUSED - 1, UNITS),
            (UNUSED, 1),
            (UNUSED, UNITS),
            (HEAD as u32, UNITS + 1),
            (HEAD as u32, u32::MAX),
        ] {
            assert!(matches!(lie(len, tail), Err(Broken::Malformed)), "{len} {tail}");
        }
    }

    #[test]
    fn a_frame_does_not_change_after_it_was_taken_out() {
        let mut direction = Direction::new();
        direction.push(&frame(100, 1));
        direction.write();
        let mut batch = RxBatch::new(1, 100);
        direction.incoming.arrived(direction.immediates[0]).unwrap();
        direction.incoming.pop(&direction.window, &mut batch, FROM).unwrap();
        direction.window.write(RING_AT, &[0xff; 200]);
        let came = batch.frame(0);
        assert_eq!([came.head, came.payload].concat(), frame(100, 1));
    }
}
