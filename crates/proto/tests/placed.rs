//! Data that come beside their frames, in memory that the peer writes to.

use crate::pair::{Pair, session};
use tyche_proto::wire::{CommandFlags, Header, Kind, Opcode, Reject, Status};
use tyche_proto::{
    Action, ListenerEvent, OpId, Opened, Operation, RawFrame, SessionConfig, SessionEvent,
};

const PAGE: u32 = 4096;

/// As over a link that checks data itself.
fn unchecked() -> SessionConfig {
    SessionConfig { checksum: false, ..session() }
}

fn operation(opcode: Opcode) -> Operation {
    Operation { opcode, flags: CommandFlags::NONE, offset: 0, len: PAGE }
}

/// The frame without its data.
fn placed(frame: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (head, payload) = frame.split_first_chunk().unwrap();
    let data_len = Header::parse(head).unwrap().data_len as usize;
    (head.to_vec(), payload[data_len..].to_vec())
}

fn raw<'a>((head, payload): &'a (Vec<u8>, Vec<u8>)) -> RawFrame<'a> {
    RawFrame {
        is_placed: true,
        ..RawFrame::from((head.first_chunk().unwrap(), payload.as_slice()))
    }
}

impl Pair {
    /// The target takes a frame whose data the host has placed.
    fn target_takes_placed(&mut self, frame: &[u8]) {
        self.listener.handle_frame(self.now, raw(&placed(frame)), &mut Opened::default());
    }

    fn host_takes_placed(&mut self, frame: &[u8]) {
        self.session.handle_frame(self.now, 0, raw(&placed(frame)), &mut Opened::default());
    }

    /// What the target has to do, without its other events.
    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.listener.poll_event())
            .filter_map(|event| match event {
                ListenerEvent::Action { action, .. } => Some(action),
                _ => None,
            })
            .collect()
    }

    /// The frames with data that an end sends, and the places of those.
    fn frames(&mut self, of_host: bool) -> Vec<(Vec<u8>, Vec<u32>)> {
        let mut frames = Vec::new();
        while let Some(frame) = if of_host { self.host_sends() } else { self.target_sends() } {
            let places = self.out.places().map(Iterator::collect);
            assert_eq!(places.is_some(), self.out.header.kind == Kind::Data);
            frames.extend(places.map(|places| (frame, places)));
        }
        frames
    }
}

#[test]
fn a_write_whose_data_are_in_their_pages_is_executed() {
    let mut pair = Pair::connected(unchecked());
    // The first request has the first page.
    for page in 0..2 {
        pair.session.submit(pair.now, operation(Opcode::Write)).unwrap();
        let mut sent = 0;
        for (frame, places) in pair.frames(true) {
            assert_eq!(places, [page * PAGE + sent]);
            pair.target_takes_placed(&frame);
            sent += Header::parse(frame.first_chunk().unwrap()).unwrap().data_len;
        }
        assert_eq!(sent, PAGE);
        let actions = pair.actions();
        let is_placed = |action: &Action| matches!(action, Action::Place { .. });
        assert!(!actions.iter().any(is_placed), "they are there: {actions:?}");
        assert!(matches!(actions[..], [.., Action::Execute { .. }]), "{actions:?}");
    }
}

#[test]
fn data_of_a_read_are_taken_from_the_pages_of_the_request() {
    let mut pair = Pair::connected(unchecked());
    for number in 0..2 {
        pair.session.submit(pair.now, operation(Opcode::Read)).unwrap();
        while let Some(frame) = pair.host_sends() {
            pair.target_takes(&frame);
        }
        let actions = pair.actions();
        let Some(Action::Execute { command }) = actions.last() else { panic!("{actions:?}") };
        let tag = command.tag;
        assert_eq!(command.damq_page, number);
        let channel = pair.listener.channels().next().unwrap().channel;
        pair.listener.complete(channel, tag, Status::Success);
        // The second one is answered while the first still has its page.
        if number == 0 {
            continue;
        }
        for (frame, places) in pair.frames(false) {
            pair.host_takes_placed(&frame);
            let came: Vec<_> = std::iter::from_fn(|| pair.session.poll_event())
                .filter_map(|event| match event {
                    SessionEvent::Data { op: OpId(op), offset, source, .. } => {
                        assert_eq!(source, op * PAGE + offset, "requests have pages in order");
                        Some(source)
                    }
                    _ => None,
                })
                .collect();
            assert_eq!(came, places);
        }
        assert!(pair.session.is_live() && pair.session.rejects().total() == 0);
    }
}

#[test]
fn data_that_a_checksum_covers_are_in_their_frame() {
    let mut pair = Pair::connected(session());
    pair.session.submit(pair.now, operation(Opcode::Write)).unwrap();
    let frame = pair.host_sends().unwrap();
    assert!(pair.out.places().is_none());
    pair.target_takes_placed(&frame);
    assert_eq!(pair.listener.rejects().of(Reject::Unexpected), 1);
}

#[test]
fn a_frame_without_data_has_none_elsewhere() {
    let mut pair = Pair::connected(unchecked());
    pair.session.submit(pair.now, operation(Opcode::Read)).unwrap();
    let frame = pair.host_sends().unwrap();
    pair.target_takes_placed(&frame);
    assert_eq!(pair.listener.rejects().of(Reject::Unexpected), 1);
    assert!(pair.actions().is_empty());
}
