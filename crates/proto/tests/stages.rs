//! Where the time of requests goes, to the nanosecond: what each side notes, what travels, and what
//! a host makes of a target that talks nonsense.

use std::time::Duration;

use crate::pair::{Pair, TARGET, seal, session};
use tyche_proto::wire::{
    ChannelId, CommandFlags, Completion, Content, Entry, EntryList, Opcode, Reject, Status, Tag,
    Times,
};
use tyche_proto::{
    Action, Instant, ListenerEvent, OpId, Operation, SessionConfig, SessionEvent, StageSample,
};

fn timed() -> SessionConfig {
    SessionConfig { stages: true, ..session() }
}

fn operation(opcode: Opcode, len: u32) -> Operation {
    Operation { opcode, flags: CommandFlags::NONE, offset: 0, len }
}

impl Pair {
    /// Lets time pass; nothing is due in so little.
    fn pass(&mut self, nanoseconds: u64) {
        self.now = self.now + Duration::from_nanos(nanoseconds);
    }

    /// Whether the handshake said that the channel has times.
    fn is_timed(&mut self) -> bool {
        let mut timed = false;
        while let Some(event) = self.listener.poll_event() {
            if let ListenerEvent::Opened(opened) = event {
                timed = opened.stages;
            }
        }
        timed
    }

    /// The request that the target has to execute next.
    fn executed(&mut self) -> Option<(ChannelId, Tag)> {
        while let Some(event) = self.listener.poll_event() {
            if let ListenerEvent::Action { channel, action: Action::Execute { command } } = event {
                return Some((channel, command.tag));
            }
        }
        None
    }

    fn completed(&mut self) -> Option<(OpId, Status)> {
        while let Some(event) = self.session.poll_event() {
            if let SessionEvent::Completed { op, status } = event {
                return Some((op, status));
            }
        }
        None
    }

    /// Sends a frame of the target with other entries than it has.
    fn send_with(&mut self, change: impl FnOnce(&mut EntryList)) {
        let Content::Entries(entries) = &mut self.out.content else { panic!("it has entries") };
        change(entries);
        let frame = seal(&self.out, TARGET);
        self.host_takes(&frame);
    }
}

fn times_of(entries: &[Entry]) -> Vec<Times> {
    let times = entries.iter().filter_map(|entry| match entry {
        Entry::Completion(completion) => Some(completion.times),
        _ => None,
    });
    times.collect()
}

const SPENT: Times = Times { wake_ns: 11, receive_ns: 22, store_ns: 33, transmit_ns: 0 };

#[test]
fn a_write_in_three_frames() {
    let mut pair = Pair::connected(timed());
    assert!(pair.is_timed());
    let issued_at = pair.now;
    let op = pair.session.submit(pair.now, operation(Opcode::Write, 4096)).unwrap();
    for frame in 0..3 {
        assert_eq!(pair.executed(), None, "{frame} frames are not all");
        pair.pass(100);
        let frame = pair.host_sends().unwrap();
        pair.target_takes(&frame);
    }
    let sent_at = issued_at + Duration::from_nanos(300);
    let (channel, tag) = pair.executed().unwrap();
    pair.pass(500);
    pair.listener.note_times(pair.now, channel, tag, SPENT);
    pair.listener.complete(channel, tag, Status::Success);
    pair.pass(40);
    let frame = pair.target_sends().unwrap();
    let target = Times { transmit_ns: 40, ..SPENT };
    assert_eq!(times_of(pair.out.content.entries()), [target]);
    pair.pass(3000);
    pair.host_takes(&frame);
    assert_eq!(pair.completed(), Some((op, Status::Success)));
    assert_eq!(pair.session.stage_sample(op), Some(StageSample { issued_at, sent_at, target }));
    assert_eq!((pair.listener.rejects().total(), pair.session.rejects().total()), (0, 0));
}

#[test]
fn a_read_in_three_frames() {
    let mut pair = Pair::connected(timed());
    let issued_at = pair.now;
    let op = pair.session.submit(pair.now, operation(Opcode::Read, 4096)).unwrap();
    pair.pass(100);
    let sent_at = pair.now;
    let frame = pair.host_sends().unwrap();
    pair.target_takes(&frame);
    let (channel, tag) = pair.executed().unwrap();
    pair.pass(500);
    pair.listener.note_times(pair.now, channel, tag, SPENT);
    pair.listener.complete(channel, tag, Status::Success);
    let target = Times { transmit_ns: 120, ..SPENT };
    // The completion rides on the last of the data.
    for times in [&[][..], &[], &[target]] {
        assert_eq!(pair.completed(), None);
        pair.pass(40);
        let frame = pair.target_sends().unwrap();
        assert_eq!(times_of(pair.out.content.entries()), times);
        pair.host_takes(&frame);
    }
    assert_eq!(pair.completed(), Some((op, Status::Success)));
    assert_eq!(pair.session.stage_sample(op), Some(StageSample { issued_at, sent_at, target }));
    assert_eq!((pair.listener.rejects().total(), pair.session.rejects().total()), (0, 0));
}

/// Submits a read of a sector and lets the target execute it; the completion is the target's next
/// frame.
fn executed_read(pair: &mut Pair) -> OpId {
    let op = pair.session.submit(pair.now, operation(Opcode::Read, 512)).unwrap();
    let frame = pair.host_sends().unwrap();
    pair.target_takes(&frame);
    let (channel, tag) = pair.executed().unwrap();
    pair.listener.note_times(pair.now, channel, tag, SPENT);
    pair.listener.complete(channel, tag, Status::Success);
    op
}

#[test]
fn waiting_for_a_slot_comes_before_the_exchange() {
    let mut pair = Pair::connected(SessionConfig { queue_size: 1, operations_max: 2, ..timed() });
    let first = executed_read(&mut pair);
    let second = pair.session.submit(pair.now, operation(Opcode::Read, 512)).unwrap();
    assert!(pair.host_sends().is_none(), "the only slot is taken");
    pair.pass(700);
    let freed_at = pair.now;
    let frame = pair.target_sends().unwrap();
    pair.host_takes(&frame);
    assert_eq!(pair.completed(), Some((first, Status::Success)));
    pair.pass(30);
    let frame = pair.host_sends().unwrap();
    pair.target_takes(&frame);
    let (channel, tag) = pair.executed().unwrap();
    pair.listener.complete(channel, tag, Status::Success);
    let frame = pair.target_sends().unwrap();
    pair.host_takes(&frame);
    assert_eq!(pair.completed(), Some((second, Status::Success)));
    let sent_at = freed_at + Duration::from_nanos(30);
    // Nothing was noted of it at the target, and nothing of the first is left.
    let expected = StageSample { issued_at: freed_at, sent_at, target: Times::ZERO };
    assert_eq!(pair.session.stage_sample(second), Some(expected));
}

#[test]
fn what_is_sent_again_says_what_it_said_first() {
    let mut pair = Pair::connected(timed());
    let op = executed_read(&mut pair);
    pair.pass(5);
    let _lost = pair.target_sends().unwrap();
    let mut again = None;
    while again.is_none() {
        pair.pass(1_000_000);
        pair.listener.handle_timeout(pair.now);
        while let Some(frame) = pair.target_sends() {
            if !pair.out.content.entries().is_empty() {
                again = Some((frame, times_of(pair.out.content.entries())));
            }
        }
    }
    let (frame, times) = again.unwrap();
    let first = Times { transmit_ns: 5, ..SPENT };
    assert_eq!(times, [first]);
    pair.host_takes(&frame);
    assert_eq!(pair.completed(), Some((op, Status::Success)));
    assert_eq!(pair.session.stage_sample(op).unwrap().target, first);
}

#[test]
fn a_host_that_does_not_ask_is_told_nothing() {
    let mut pair = Pair::connected(session());
    assert!(!pair.is_timed());
    let op = executed_read(&mut pair);
    let frame = pair.target_sends().unwrap();
    assert_eq!(times_of(pair.out.content.entries()), [Times::ZERO]);
    pair.host_takes(&frame);
    assert_eq!(pair.completed(), Some((op, Status::Success)));
    assert_eq!(pair.session.stage_sample(op), None);
}

#[test]
fn times_that_were_not_asked_for_are_rejected() {
    let mut pair = Pair::connected(session());
    executed_read(&mut pair);
    pair.target_sends().unwrap();
    pair.send_with(|entries| {
        for entry in entries {
            if let Entry::Completion(completion) = entry {
                completion.times.store_ns = 1;
            }
        }
    });
    assert_eq!(pair.completed(), None);
    assert_eq!(pair.session.rejects().iter().collect::<Vec<_>>(), [(Reject::Unexpected, 1)]);
}

#[test]
fn times_of_no_request_are_rejected_and_absurd_ones_kept_apart() {
    let mut pair = Pair::connected(timed());
    let op = executed_read(&mut pair);
    pair.target_sends().unwrap();
    let most = u32::MAX;
    let absurd = Times { wake_ns: most, receive_ns: most, store_ns: most, transmit_ns: most };
    pair.send_with(|entries| {
        let strangers = [Tag { slot: 0, generation: 9 }, Tag { slot: 7, generation: 0 }]
            .into_iter()
            .chain([Tag { slot: 8, generation: 1 }, Tag { slot: most as u16, generation: 1 }]);
        let forged =
            |tag| Entry::Completion(Completion { tag, status: Status::Success, times: absurd });
        for entry in entries.iter_mut() {
            if let Entry::Completion(completion) = entry {
                completion.times = absurd;
            }
        }
        entries.extend(strangers.map(forged));
    });
    assert_eq!(pair.session.rejects().iter().collect::<Vec<_>>(), [(Reject::Tag, 1)]);
    assert_eq!(pair.completed(), None, "the frame has no effect at all");
    pair.send_with(|entries| entries.truncate(entries.len() - 4));
    assert_eq!(pair.completed(), Some((op, Status::Success)));
    assert_eq!(pair.session.stage_sample(op).unwrap().target, absurd);
}

#[test]
fn a_longer_time_than_fits_is_the_longest() {
    let mut pair = Pair::connected(timed());
    executed_read(&mut pair);
    // The frame is not composed for a while: longer than 32 bits of nanoseconds.
    pair.now = Instant(pair.now.0 + (1 << 33));
    while times_of(pair.out.content.entries()).is_empty() {
        pair.target_sends().unwrap();
    }
    assert_eq!(times_of(pair.out.content.entries()), [Times { transmit_ns: u32::MAX, ..SPENT }]);
}
