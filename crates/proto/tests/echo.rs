//! Echoes between a session and a listener: what is answered, what is refused, and the bounds.

use crate::keys;
use crate::pair::{FRAME_LEN, HOST, Pair, TARGET, seal, session};
use tyche_proto::wire::{
    Content, Cookie, ECHO_REPLIES_MAX, Echo, Flags, Header, Kind, Reject, TAG_LEN,
};
use tyche_proto::{Opened, Outgoing, SessionEvent};

/// Echoes that a channel keeps to be answered. docs/protocol-annexes.md, "Echo frames".
const KEPT_MAX: u64 = 128;

impl Pair {
    /// Carries over what each side has to send now; returns the lengths of the answers to echoes.
    fn exchange(&mut self) -> Vec<usize> {
        let mut answers = Vec::new();
        while let Some(frame) = self.host_sends() {
            if matches!(self.out.content, Content::Echo { .. }) {
                self.asked = Some(self.out.header);
            }
            self.target_takes(&frame);
        }
        while self.listener.poll_event().is_some() {}
        while let Some(frame) = self.target_sends() {
            if matches!(self.out.content, Content::Echo { .. }) {
                assert!(self.out.header.flags.contains(Flags::REPLY));
                answers.push(frame.len());
            }
            self.host_takes(&frame);
        }
        answers
    }

    /// Answers that the session has seen, by their sequences.
    fn echoed(&mut self) -> Vec<u64> {
        let mut sequences = Vec::new();
        while let Some(event) = self.session.poll_event() {
            if let SessionEvent::Echoed(echo) = event {
                sequences.push(echo.sequence);
            }
        }
        sequences
    }

    /// An echo that the session would not send, in a frame that is all right otherwise.
    fn forge_echo(&mut self, change: impl FnOnce(&mut Header), echo: Echo) {
        let mut header = self.asked.expect("an echo was sent before");
        header.packet.0 += 1000;
        change(&mut header);
        let is_reply = header.flags.contains(Flags::REPLY);
        let filling = if is_reply { echo.reply_len as usize - Echo::LEN_MIN } else { 0 };
        let content = Content::Echo { echo, filling };
        let out = Outgoing { destination: TARGET, header, content, ..Outgoing::new() };
        self.target_takes(&out.to_bytes(HOST, &[]));
    }
}

fn echo(sequence: u64, replies: u16, reply_len: usize) -> Echo {
    Echo { sequence, replies, reply_len: reply_len as u32 }
}

#[test]
fn an_echo_is_answered_as_often_and_as_long_as_it_asks() {
    let mut pair = Pair::connected(session());
    for (sequence, replies, reply_len) in [(5, 1, 88), (6, 8, FRAME_LEN), (7, 3, 1000)] {
        assert!(pair.session.echo(echo(sequence, replies, reply_len), FRAME_LEN));
        assert_eq!(pair.exchange(), vec![reply_len; replies.into()]);
        assert_eq!(pair.echoed(), vec![sequence; replies.into()]);
    }
    assert!(pair.session.echo(echo(8, 0, Echo::LEN_MIN), FRAME_LEN));
    assert_eq!(pair.exchange(), []);
    assert_eq!((pair.listener.rejects().total(), pair.session.rejects().total()), (0, 0));
}

#[test]
fn a_session_refuses_what_the_channel_does_not_carry() {
    let mut pair = Pair::connected(session());
    assert!(!pair.session.echo(echo(1, 1, FRAME_LEN + 1), 88));
    assert!(!pair.session.echo(echo(1, 1, 88), FRAME_LEN + 1));
    assert_eq!(pair.exchange(), []);
    pair.session.abort(pair.now);
    assert!(!pair.session.echo(echo(1, 1, 88), 88), "no channel is live");
}

#[test]
fn a_target_rejects_by_name() {
    let mut pair = Pair::connected(session());
    assert!(pair.session.echo(echo(1, 1, 88), 88));
    pair.exchange();
    let reply = |header: &mut Header| header.flags = Flags::REPLY;
    pair.forge_echo(|header| header.cookie = Cookie(header.cookie.0 ^ 1), echo(2, 1, 88));
    pair.forge_echo(|header| header.channel.0 += 1, echo(2, 1, 88));
    pair.forge_echo(|_| {}, echo(2, ECHO_REPLIES_MAX + 1, 88));
    pair.forge_echo(|_| {}, echo(2, 1, FRAME_LEN + 1));
    pair.forge_echo(|_| {}, echo(2, 1, Echo::LEN_MIN - 1));
    pair.forge_echo(reply, echo(2, 1, 88));
    let expected =
        [(Reject::Range, 3), (Reject::Channel, 1), (Reject::Cookie, 1), (Reject::Unexpected, 1)];
    assert_eq!(pair.listener.rejects().iter().collect::<Vec<_>>(), expected);
    assert_eq!(pair.exchange(), [], "nothing of it is answered");
    pair.forge_echo(|_| {}, echo(2, 1, FRAME_LEN));
    assert_eq!(pair.exchange(), [FRAME_LEN], "and this is the frame without anything wrong");
}

#[test]
fn a_host_takes_answers_only() {
    let mut pair = Pair::connected(session());
    assert!(pair.session.echo(echo(1, 1, 88), 88));
    pair.session.poll_transmit(pair.now, 0, &mut pair.out);
    let frame = seal(&pair.out, HOST);
    pair.target_takes(&frame);
    assert!(pair.listener.poll_transmit(pair.now, &mut pair.out));
    pair.out.header.flags = Flags::NONE;
    let frame = seal(&pair.out, TARGET);
    let (head, payload) = frame.split_first_chunk().unwrap();
    pair.session.handle_frame(pair.now, 0, (head, payload), &mut Opened::default());
    assert_eq!(pair.session.rejects().of(Reject::Unexpected), 1);
    assert_eq!(pair.echoed(), []);
    assert_eq!(pair.out.header.kind, Kind::Echo);
    // As many as it asked for, and not one more.
    pair.out.header.flags = Flags::REPLY;
    let frame = seal(&pair.out, TARGET);
    for _ in 0..3 {
        let (head, payload) = frame.split_first_chunk().unwrap();
        pair.session.handle_frame(pair.now, 0, (head, payload), &mut Opened::default());
    }
    assert_eq!(pair.echoed(), [1]);
    assert_eq!(pair.session.rejects().of(Reject::Unexpected), 3);
}

#[test]
fn a_flood_is_dropped_at_both_ends() {
    let mut pair = Pair::connected(session());
    let taken = (0..1000).filter(|&n| pair.session.echo(echo(n, 1, 88), 88)).count();
    assert_eq!(taken as u64, KEPT_MAX);
    assert_eq!(pair.exchange().len() as u64, KEPT_MAX);
    for n in 0..1000 {
        pair.forge_echo(|_| {}, echo(n, ECHO_REPLIES_MAX, 88));
    }
    assert_eq!(pair.exchange().len() as u64, KEPT_MAX * u64::from(ECHO_REPLIES_MAX));
    assert_eq!(pair.listener.rejects().total(), 0);
}

#[test]
fn the_tag_of_a_sealed_channel_is_left_out_of_the_length_of_answers() {
    let mut pair = keys::connected();
    let longest = FRAME_LEN - TAG_LEN;
    assert!(!pair.session.echo(echo(1, 1, longest + 1), 88));
    for reply_len in [88, 1000, longest] {
        assert!(pair.session.echo(echo(2, 2, reply_len), 88));
        assert_eq!(pair.exchange(), [reply_len + TAG_LEN; 2]);
        assert_eq!(pair.echoed(), [2; 2]);
    }
}
