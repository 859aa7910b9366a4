//! Echoes between a session and a listener: what is answered, what is refused, and the bounds.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

use std::time::Duration;

use tyche_proto::wire::{Control, ENTRIES_MAX, ENTRY_LEN, emit_entries};
use tyche_proto::wire::{
    Cookie, ECHO_REPLIES_MAX, ETHERTYPE, Echo, Flags, HEAD_LEN, Header, Kind, Mac, Name, Reject,
    Uuid,
};
use tyche_proto::{
    BatchPolicy, ExportConfig, Instant, Listener, ListenerConfig, Outgoing, PathConfig, Registry,
    Session, SessionConfig, SessionEvent, TargetConfig,
};

const FRAME_LEN: usize = 1514;
const HOST: Mac = Mac([2, 0, 0, 0, 0, 1]);
const TARGET: Mac = Mac([2, 0, 0, 0, 0, 2]);
/// Echoes that a channel keeps to be answered. PROTOCOL.md, "Echo frames".
const KEPT_MAX: u64 = 128;

/// A host and a target that are connected, and the time.
struct Pair {
    session: Session,
    listener: Listener,
    registry: Registry,
    now: Instant,
    out: Outgoing,
    /// The last echo that went to the target, for forging more.
    asked: Option<Header>,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn session() -> SessionConfig {
    SessionConfig {
        host: Uuid::from_u128(1),
        host_name: name("host"),
        session: Uuid::from_u128(2),
        export: name("disk"),
        target: None,
        queue_size: 8,
        damq_pages: 256,
        operations_max: 8,
        read_only: false,
        checksum: true,
        batch: BatchPolicy::default(),
        keep_alive: Duration::from_secs(3),
        reconnect_delay: Duration::from_millis(20),
        ctrl_loss_tmo: None,
    }
}

fn registry() -> Registry {
    let mut registry = Registry::new(TargetConfig {
        uuid: Uuid::from_u128(3),
        name: name("target"),
        queue_size_max: 8,
        damq_pages_max: 256,
        channels_max: 1,
        batch: BatchPolicy::default(),
    });
    registry.add_export(ExportConfig {
        name: name("disk"),
        uuid: Uuid::from_u128(4),
        boot: Uuid::nil(),
        size: 1 << 20,
        block_size: 512,
        read_only: false,
        write_cache: false,
        discard: false,
        shared: false,
        hosts: Vec::new(),
    });
    registry
}

/// Numbers that differ from each other.
fn random(mut state: u64) -> Box<dyn FnMut() -> u64 + Send> {
    Box::new(move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        state
    })
}

/// The bytes of a frame that carries no data.
fn seal(out: &Outgoing, src: Mac) -> Vec<u8> {
    let (mut data, mut tail) = (Vec::new(), [0; ENTRIES_MAX * ENTRY_LEN]);
    let mut tail_len = emit_entries(&out.entries, &mut tail);
    if let Some(control) = &out.control {
        let mut body = [0; Control::LEN_MAX];
        let len = control.emit(&mut body);
        data = body[..len].to_vec();
        data.resize(data.len() + control.padding_len(), 0);
    }
    if let Some(outgoing) = out.echo {
        data.resize(outgoing.filling, 0xee);
        outgoing.echo.emit(tail.first_chunk_mut().unwrap());
        tail_len = ENTRY_LEN;
    }
    let mut head = [0; HEAD_LEN];
    let addresses = (out.destination, src, ETHERTYPE);
    out.header.seal(addresses, [&data[..]], &tail[..tail_len], &mut head);
    [&head[..], &data, &tail[..tail_len]].concat()
}

impl Pair {
    fn connected() -> Self {
        let now = Instant(0);
        let rings = [64; 2];
        let path = PathConfig { frame_len_max: FRAME_LEN, rings, target: Some(TARGET) };
        let config = ListenerConfig { link: 0, frame_len_max: FRAME_LEN, rings };
        let mut pair = Self {
            session: Session::new(session(), &[path], random(1), now),
            listener: Listener::new(config, Uuid::from_u128(3), random(2)),
            registry: registry(),
            now,
            out: Outgoing::new(),
            asked: None,
        };
        while !pair.session.is_live() {
            pair.exchange();
            pair.now = pair.now + Duration::from_millis(1);
            pair.session.handle_timeout(pair.now);
        }
        pair
    }

    /// Carries over what each side has to send now; returns the lengths of the answers to echoes.
    fn exchange(&mut self) -> Vec<usize> {
        let (now, mut answers) = (self.now, Vec::new());
        while self.session.poll_transmit(now, 0, &mut self.out) {
            if self.out.echo.is_some() {
                self.asked = Some(self.out.header);
            }
            let frame = seal(&self.out, HOST);
            self.deliver(&frame);
        }
        self.listener.serve_requests(now, &mut self.registry);
        while self.listener.poll_event().is_some() {}
        while self.listener.poll_transmit(now, &mut self.out) {
            let frame = seal(&self.out, TARGET);
            if self.out.echo.is_some() {
                assert!(self.out.header.flags.contains(Flags::REPLY));
                answers.push(frame.len());
            }
            let (head, payload) = frame.split_first_chunk().unwrap();
            self.session.handle_frame(now, 0, head, payload);
        }
        answers
    }

    fn deliver(&mut self, frame: &[u8]) {
        let (head, payload) = frame.split_first_chunk().unwrap();
        self.listener.handle_frame(self.now, head, payload);
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
    fn forge(&mut self, change: impl FnOnce(&mut Header), echo: Echo) {
        let mut header = self.asked.expect("an echo was sent before");
        header.packet.0 += 1000;
        change(&mut header);
        let (mut tail, mut head) = ([0; ENTRY_LEN], [0; HEAD_LEN]);
        echo.emit(&mut tail);
        let is_reply = header.flags.contains(Flags::REPLY);
        let filling = vec![0; if is_reply { echo.reply_len as usize - Echo::LEN_MIN } else { 0 }];
        header.seal((TARGET, HOST, ETHERTYPE), [&filling[..]], &tail, &mut head);
        self.deliver(&[&head[..], &filling, &tail].concat());
    }
}

fn echo(sequence: u64, replies: u16, reply_len: usize) -> Echo {
    Echo { sequence, replies, reply_len: reply_len as u32 }
}

#[test]
fn an_echo_is_answered_as_often_and_as_long_as_it_asks() {
    let mut pair = Pair::connected();
    for (sequence, replies, reply_len) in [(5, 1, 88), (6, 8, FRAME_LEN), (7, 3, 1000)] {
        assert!(pair.session.echo(0, echo(sequence, replies, reply_len), FRAME_LEN));
        assert_eq!(pair.exchange(), vec![reply_len; replies.into()]);
        assert_eq!(pair.echoed(), vec![sequence; replies.into()]);
    }
    assert!(pair.session.echo(0, echo(8, 0, Echo::LEN_MIN), FRAME_LEN));
    assert_eq!(pair.exchange(), []);
    assert_eq!((pair.listener.rejects().total(), pair.session.rejects().total()), (0, 0));
}

#[test]
fn a_session_refuses_what_the_channel_does_not_carry() {
    let mut pair = Pair::connected();
    assert!(!pair.session.echo(0, echo(1, 1, FRAME_LEN + 1), 88));
    assert!(!pair.session.echo(0, echo(1, 1, 88), FRAME_LEN + 1));
    assert_eq!(pair.exchange(), []);
    pair.session.abort(pair.now);
    assert!(!pair.session.echo(0, echo(1, 1, 88), 88), "no channel is live");
}

#[test]
fn a_target_rejects_by_name() {
    let mut pair = Pair::connected();
    assert!(pair.session.echo(0, echo(1, 1, 88), 88));
    pair.exchange();
    let reply = |header: &mut Header| header.flags = Flags::REPLY;
    pair.forge(|header| header.cookie = Cookie(header.cookie.0 ^ 1), echo(2, 1, 88));
    pair.forge(|header| header.channel.0 += 1, echo(2, 1, 88));
    pair.forge(|_| {}, echo(2, ECHO_REPLIES_MAX + 1, 88));
    pair.forge(|_| {}, echo(2, 1, FRAME_LEN + 1));
    pair.forge(|_| {}, echo(2, 1, Echo::LEN_MIN - 1));
    pair.forge(reply, echo(2, 1, 88));
    let expected =
        [(Reject::Range, 3), (Reject::Channel, 1), (Reject::Cookie, 1), (Reject::Unexpected, 1)];
    assert_eq!(pair.listener.rejects().iter().collect::<Vec<_>>(), expected);
    assert_eq!(pair.exchange(), [], "nothing of it is answered");
    pair.forge(|_| {}, echo(2, 1, FRAME_LEN));
    assert_eq!(pair.exchange(), [FRAME_LEN], "and this is the frame without anything wrong");
}

#[test]
fn a_host_takes_answers_only() {
    let mut pair = Pair::connected();
    assert!(pair.session.echo(0, echo(1, 1, 88), 88));
    pair.session.poll_transmit(pair.now, 0, &mut pair.out);
    let frame = seal(&pair.out, HOST);
    pair.deliver(&frame);
    assert!(pair.listener.poll_transmit(pair.now, &mut pair.out));
    pair.out.header.flags = Flags::NONE;
    let frame = seal(&pair.out, TARGET);
    let (head, payload) = frame.split_first_chunk().unwrap();
    pair.session.handle_frame(pair.now, 0, head, payload);
    assert_eq!(pair.session.rejects().of(Reject::Unexpected), 1);
    assert_eq!(pair.echoed(), []);
    assert_eq!(pair.out.header.kind, Kind::Echo);
    // As many as it asked for, and not one more.
    pair.out.header.flags = Flags::REPLY;
    let frame = seal(&pair.out, TARGET);
    for _ in 0..3 {
        let (head, payload) = frame.split_first_chunk().unwrap();
        pair.session.handle_frame(pair.now, 0, head, payload);
    }
    assert_eq!(pair.echoed(), [1]);
    assert_eq!(pair.session.rejects().of(Reject::Unexpected), 3);
}

#[test]
fn a_flood_is_dropped_at_both_ends() {
    let mut pair = Pair::connected();
    let taken = (0..1000).filter(|&n| pair.session.echo(0, echo(n, 1, 88), 88)).count();
    assert_eq!(taken as u64, KEPT_MAX);
    assert_eq!(pair.exchange().len() as u64, KEPT_MAX);
    for n in 0..1000 {
        pair.forge(|_| {}, echo(n, ECHO_REPLIES_MAX, 88));
    }
    assert_eq!(pair.exchange().len() as u64, KEPT_MAX * u64::from(ECHO_REPLIES_MAX));
    assert_eq!(pair.listener.rejects().total(), 0);
}
