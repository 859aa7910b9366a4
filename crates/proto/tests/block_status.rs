//! Block status with a target that does not take it, and the loss of a channel with half of an
//! answer.

use std::cell::Cell;

use tyche_proto::wire::{
    ChannelId, CommandFlags, ConnectFlags, Content, Control, Entry, Opcode, Reject, Status,
};
use tyche_proto::{
    Action, ChannelChoice, ListenerEvent, Operation, Problem, SessionConfig, SessionEvent,
};

use crate::pair::{HOST, Pair, seal, session};

const LEN: u32 = 4096;
const STATUS: Operation =
    Operation { opcode: Opcode::BlockStatus, flags: CommandFlags::NONE, offset: 8192, len: LEN };

/// A session with a target that does not grant it: it is not asked.
fn connected_without() -> Pair {
    connected_with(session(), |_| false)
}

/// A session with a target that grants it on some channels, by their numbers at the host.
fn connected_with(config: SessionConfig, is_granted: impl Fn(ChannelId) -> bool) -> Pair {
    let channels = config.channels;
    let mut pair = Pair::asking_over(config, false);
    while joined(&pair) < channels {
        while let Some(mut frame) = pair.host_sends() {
            if let Content::Control(Control::Connect(connect)) = &mut pair.out.content {
                assert!(connect.flags.contains(ConnectFlags::BLOCK_STATUS));
                if !is_granted(connect.channel) {
                    connect.flags = ConnectFlags::CHECKSUM;
                    frame = seal(&pair.out, HOST);
                }
            }
            pair.target_takes(&frame);
        }
        // Lets the target answer, and time pass.
        pair.step();
        assert!(pair.now.0 < 10_000_000_000, "it does not connect");
    }
    pair.connect();
    pair
}

/// Live channels of the host.
fn joined(pair: &Pair) -> usize {
    pair.session.paths().filter(|path| path.live).count()
}

/// The requests that the target has to execute, each with its offset and length.
fn executed(pair: &mut Pair) -> Vec<(Opcode, u64, u32)> {
    let mut executed = Vec::new();
    while let Some(event) = pair.listener.poll_event() {
        if let ListenerEvent::Action { channel, action: Action::Execute { command } } = event {
            executed.push((command.opcode, command.offset, command.len));
            pair.listener.complete(channel, command.tag, Status::Success);
        }
    }
    executed
}

/// Bytes of data that the host has got, and how its operation has ended.
fn ended(pair: &mut Pair) -> (u32, Option<Status>) {
    let (mut bytes, mut end) = (0, None);
    while let Some(event) = pair.session.poll_event() {
        match event {
            SessionEvent::Data { len, .. } => bytes += len,
            SessionEvent::Completed { status, .. } => end = Some(status),
            _ => {}
        }
    }
    (bytes, end)
}

#[test]
fn an_answer_travels_as_the_data_of_a_read() {
    let mut pair = Pair::connected(session());
    pair.session.submit(pair.now, STATUS).unwrap();
    let frame = pair.host_sends().unwrap();
    pair.target_takes(&frame);
    assert_eq!(executed(&mut pair), [(Opcode::BlockStatus, 8192, LEN)]);
    while let Some(frame) = pair.target_sends() {
        pair.host_takes(&frame);
    }
    assert_eq!(ended(&mut pair), (LEN, Some(Status::Success)));
    assert_eq!((pair.listener.rejects().total(), pair.session.rejects().total()), (0, 0));
}

#[test]
fn a_target_that_does_not_take_it_is_not_asked() {
    let mut pair = connected_without();
    ended(&mut pair);
    pair.session.submit(pair.now, STATUS).unwrap();
    assert_eq!(ended(&mut pair), (0, Some(Status::Unsupported)), "at once");
    assert!(pair.host_sends().is_none_or(|_| pair.out.content.entries().is_empty()));
    // Other operations are not affected.
    let read = Operation { opcode: Opcode::Read, ..STATUS };
    pair.session.submit(pair.now, read).unwrap();
    pair.step();
    assert_eq!(executed(&mut pair), [(Opcode::Read, 8192, LEN)]);
}

#[test]
fn all_channels_of_a_session_are_asked_or_none() {
    let config = SessionConfig { channels: 2, choice: ChannelChoice::RoundRobin, ..session() };
    let first = Cell::new(None);
    let is_other = |channel| first.get().is_some_and(|it| it != channel);
    let mut pair = connected_with(config, |channel| {
        first.set(first.get().or(Some(channel)));
        is_other(channel)
    });
    ended(&mut pair);
    for _ in 0..6 {
        pair.session.submit(pair.now, STATUS).unwrap();
        assert_eq!(ended(&mut pair), (0, Some(Status::Unsupported)), "whoever's turn it is");
    }
    pair.step();
    assert_eq!(executed(&mut pair), []);
    // The next channels have it.
    pair.session.lose_port(pair.now, 0, Problem::Narrowed);
    while joined(&pair) < 2 {
        pair.step();
    }
    ended(&mut pair);
    pair.session.submit(pair.now, STATUS).unwrap();
    pair.step();
    assert_eq!(executed(&mut pair), [(Opcode::BlockStatus, 8192, LEN)]);
    pair.step();
    assert_eq!(ended(&mut pair), (LEN, Some(Status::Success)));
}

#[test]
fn a_request_on_a_channel_without_it_is_rejected() {
    let mut pair = connected_without();
    let read = Operation { opcode: Opcode::Read, ..STATUS };
    pair.session.submit(pair.now, read).unwrap();
    while pair.out.content.entries().is_empty() {
        pair.host_sends().unwrap();
    }
    let Content::Entries(entries) = &mut pair.out.content else { panic!("it has entries") };
    for entry in entries.iter_mut() {
        if let Entry::Command(command) = entry {
            command.opcode = Opcode::BlockStatus;
        }
    }
    let frame = seal(&pair.out, HOST);
    pair.target_takes(&frame);
    assert_eq!(pair.listener.rejects().of(Reject::Unexpected), 1);
    assert_eq!(executed(&mut pair), []);
}

#[test]
fn half_of_an_answer_is_forgotten_with_its_channel() {
    let mut pair = Pair::connected(session());
    pair.session.submit(pair.now, STATUS).unwrap();
    let frame = pair.host_sends().unwrap();
    pair.target_takes(&frame);
    assert_eq!(executed(&mut pair).len(), 1);
    // The first of three frames.
    let frame = pair.target_sends().unwrap();
    pair.host_takes(&frame);
    let (bytes, end) = ended(&mut pair);
    assert!((1..LEN).contains(&bytes) && end.is_none());
    pair.session.lose_port(pair.now, 0, Problem::Narrowed);
    pair.connect();
    pair.step();
    assert_eq!(executed(&mut pair), [(Opcode::BlockStatus, 8192, LEN)], "all of it, once more");
    pair.step();
    assert_eq!(ended(&mut pair), (LEN, Some(Status::Success)));
}
