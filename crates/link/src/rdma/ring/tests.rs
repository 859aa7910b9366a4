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
        let [staging, window] = [(), ()].map(|()| Region::anonymous(window_len(units)).unwrap());
        let (outgoing, incoming) = (Outgoing::new(units, kind), Incoming::new(units, kind));
        let immediates = VecDeque::new();
        Self { outgoing, staging, window, incoming, immediates, notifies: true }
    }

    fn push(&mut self, frame: &[u8]) -> Pushed {
        if !self.outgoing.may_write(0) {
            return Pushed::Full;
        }
        let mut vectors = TxVectors::new(1, 1);
        let mut batch = vectors.batch();
        batch.push_whole(frame, HEAD);
        self.outgoing.push(&self.staging, &batch.frame(0), 0)
    }

    fn write(&mut self) {
        while let Some(write) = self.outgoing.write() {
            self.window.copy(write.at, (&self.staging, write.from), write.len);
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
        while self.incoming.pop(&self.window, &mut batch, (FROM, |_| false))?.is_some() {}
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
    while direction.outgoing.may_write(0) {
        assert_eq!(direction.push(&frame(HEAD, 1)), Pushed::Staged);
        direction.write();
        count += 1;
    }
    assert_eq!(count, INTERRUPTS_MAX);
    direction.receive().unwrap();
    direction.report();
    assert!(direction.outgoing.may_write(0));
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
    direction.incoming.pop(&direction.window, &mut batch, (FROM, |_| false)).unwrap();
    direction.window.write(RING_AT, &[0xff; 200]);
    let came = batch.frame(0);
    assert_eq!([came.head, came.payload].concat(), frame(100, 1));
}
