//! Flows through one bottleneck in virtual time: ours beside a CUBIC written from RFC 9438 in
//! floating point, without pacing, as Linux has it. The shares are a table that is checked in.
//!
//! `BLESS=1 cargo test -p tyche-proto congestion` writes the table anew.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write;

use tyche_wire::PacketNumber;

use super::{Congestion, LONG_BYTES, LONG_RATE, Pacer, Progress};
use crate::AllRules;
use crate::channel::rtt::Rtt;
use crate::time::Instant;

const SEGMENT: u64 = 1514;
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/channel/congestion/shares.txt");
const SECOND: u64 = 1_000_000_000;
/// Of the reference's receiver.
const DELAYED_ACK: u64 = 40_000_000;

/// The path that all flows share.
#[derive(Clone, Copy)]
struct Path {
    /// Megabits per second, and milliseconds of the round trip and of the queue.
    rate: u64,
    rtt: u64,
    queue: u64,
    /// Packets are marked from half of the queue on, rather than dropped at its end.
    marks: bool,
}

/// The reference.
struct Reference {
    window: f64,
    threshold: f64,
    plateau: f64,
    epoch: Option<u64>,
    distance: f64,
    reno: f64,
    answered: u64,
}

impl Reference {
    fn new() -> Self {
        let (window, threshold, plateau) = (10.0, f64::INFINITY, 0.0);
        Self { window, threshold, plateau, epoch: None, distance: 0.0, reno: 0.0, answered: 0 }
    }

    fn acked(&mut self, now: u64, rtt: u64, used: f64) {
        if used + 2.0 < self.window {
            return;
        }
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        if self.epoch.is_none() {
            self.plateau = self.plateau.max(self.window);
            self.distance = ((self.plateau - self.window) / 0.4).cbrt();
            (self.epoch, self.reno) = (Some(now), self.window);
        }
        let since = (now - self.epoch.unwrap() + rtt) as f64 / SECOND as f64;
        let target = 0.4 * (since - self.distance).powi(3) + self.plateau;
        let target = target.clamp(self.window, self.window * 1.5);
        let alpha = if self.reno < self.plateau { 9.0 / 17.0 } else { 1.0 };
        self.reno += alpha / self.window;
        self.window += (target - self.window) / self.window;
        self.window = self.window.max(self.reno);
    }

    fn lost(&mut self, packet: u64, next: u64) {
        if packet < self.answered {
            return;
        }
        self.answered = next;
        let fell_short = self.window < self.plateau;
        self.plateau = if fell_short { self.window * 0.85 } else { self.window };
        self.window = (self.window * 0.7).max(2.0);
        (self.threshold, self.epoch) = (self.window, None);
    }
}

enum Control {
    Ours(Box<(Congestion, Pacer, Rtt)>),
    Reference(Reference),
}

struct Flow {
    control: Control,
    in_flight: u64,
    next: u64,
    acked: u64,
    delivered: u64,
    wakes_at: u64,
    is_full: bool,
    /// The ack of a packet of the reference's that its receiver delays (RFC 9293, section 3.8.6.3),
    /// and until when.
    delayed: Option<((u64, u64, bool), u64)>,
}

impl Flow {
    fn ours(parts: usize) -> Self {
        let mut congestion = Congestion::new(8192, SEGMENT);
        congestion.share(parts);
        let state = (congestion, Pacer::new(Instant(0)), Rtt::new());
        Self::of(Control::Ours(Box::new(state)))
    }

    fn reference() -> Self {
        Self::of(Control::Reference(Reference::new()))
    }

    fn of(control: Control) -> Self {
        Self {
            control,
            in_flight: 0,
            next: 1,
            acked: 0,
            delivered: 0,
            wakes_at: 0,
            delayed: None,
            is_full: false,
        }
    }

    fn may_send(&mut self, now: u64) -> bool {
        match &mut self.control {
            Control::Ours(state) => {
                self.is_full = state.0.is_full(self.in_flight, self.is_full);
                !self.is_full && state.1.allows(Instant(now))
            }
            Control::Reference(it) => ((self.in_flight / SEGMENT) as f64) < it.window.floor(),
        }
    }

    /// Acks at once, or every other packet.
    fn receive(&mut self, now: u64, (packet, sent_at, marked): (u64, u64, bool)) -> Option<u64> {
        let may_wait = matches!(self.control, Control::Reference(_)) && self.delayed.is_none();
        if may_wait {
            let until = now + DELAYED_ACK;
            self.delayed = Some(((packet, sent_at, marked), until));
            return Some(until);
        }
        self.end_delay(now);
        self.handle_ack(now, packet, sent_at, marked);
        None
    }

    fn end_delay(&mut self, now: u64) {
        if let Some(((packet, sent_at, marked), _)) = self.delayed.take() {
            self.handle_ack(now, packet, sent_at, marked);
        }
    }

    fn handle_ack(&mut self, now: u64, packet: u64, sent_at: u64, marked: bool) {
        let before = self.in_flight;
        self.in_flight -= SEGMENT;
        self.delivered += SEGMENT;
        self.acked = self.acked.max(packet);
        match &mut self.control {
            Control::Ours(state) => {
                let (congestion, pacer, rtt) = &mut **state;
                rtt.sample(now - sent_at);
                congestion.acked(&Progress {
                    now: Instant(now),
                    bytes: SEGMENT,
                    in_flight: before,
                    newest: PacketNumber(packet),
                    next: PacketNumber(self.next),
                    sample_ns: Some(now - sent_at),
                    rtt_ns: rtt.smoothed_ns(),
                });
                if marked {
                    congestion.lost::<AllRules>(PacketNumber(packet), PacketNumber(self.next));
                }
                let window = (congestion.window(), SEGMENT);
                pacer.set(window, rtt.smoothed_ns(), congestion.is_starting());
            }
            Control::Reference(it) => {
                it.acked(now, now - sent_at, (before / SEGMENT) as f64);
                if marked {
                    it.lost(packet, self.next);
                }
            }
        }
    }

    fn handle_loss(&mut self, packet: u64) {
        self.in_flight -= SEGMENT;
        match &mut self.control {
            Control::Ours(state) => {
                state.0.lost::<AllRules>(PacketNumber(packet), PacketNumber(self.next));
            }
            Control::Reference(it) => it.lost(packet, self.next),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake,
    Ack { packet: u64, sent_at: u64, marked: bool },
    Loss { packet: u64 },
}

/// Runs the flows for so many seconds; returns the Mbit/s of each in the last two thirds.
fn run(path: Path, flows: &mut [Flow], seconds: u64) -> Vec<f64> {
    let ns_of = |bytes: u64| bytes * 8 * 1000 / path.rate;
    let (rtt, queue) = (path.rtt * 1_000_000, path.queue * 1_000_000);
    let mut events = BinaryHeap::new();
    // The flows begin apart.
    let begin = |flow: usize| 37_000_000 * flow as u64;
    (0..flows.len()).for_each(|flow| events.push(Reverse((begin(flow), 0, flow, Event::Wake))));
    let (mut free_at, mut number) = (0_u64, 0_u64);
    let mut at_third = vec![0; flows.len()];
    while let Some(Reverse((now, _, index, event))) = events.pop() {
        if now > seconds * SECOND {
            break;
        }
        let flow = &mut flows[index];
        match event {
            Event::Wake => {
                if flow.delayed.is_some_and(|(_, until)| until <= now) {
                    flow.end_delay(now);
                }
            }
            Event::Ack { packet, sent_at, marked } => {
                if let Some(until) = flow.receive(now, (packet, sent_at, marked)) {
                    number += 1;
                    events.push(Reverse((until, number, index, Event::Wake)));
                }
            }
            Event::Loss { packet } => {
                flow.end_delay(now);
                flow.handle_loss(packet);
            }
        }
        if now < seconds * SECOND / 3 {
            at_third[index] = flow.delivered;
        }
        while flow.may_send(now) {
            let packet = flow.next;
            flow.next += 1;
            flow.in_flight += SEGMENT;
            number += 1;
            let waits = free_at.saturating_sub(now);
            let leaves = free_at.max(now) + ns_of(SEGMENT);
            if waits > queue {
                let known = leaves + rtt;
                events.push(Reverse((known, number, index, Event::Loss { packet })));
                continue;
            }
            free_at = leaves;
            if let Control::Ours(state) = &mut flow.control {
                state.1.sent(SEGMENT);
            }
            let marked = path.marks && waits > queue / 2;
            let ack = Event::Ack { packet, sent_at: now, marked };
            events.push(Reverse((leaves + rtt, number, index, ack)));
        }
        if let Control::Ours(state) = &flow.control
            && let Some(at) = state.1.poll_timeout()
            && at.0 != flow.wakes_at
        {
            flow.wakes_at = at.0;
            number += 1;
            events.push(Reverse((at.0, number, index, Event::Wake)));
        }
    }
    let time = seconds * SECOND * 2 / 3;
    let rate =
        |(flow, third): (&Flow, &u64)| (flow.delivered - third) as f64 * 8.0 * 1000.0 / time as f64;
    flows.iter().zip(&at_third).map(rate).collect()
}

fn paths() -> impl Iterator<Item = Path> {
    let of = |rate, rtt, queue, marks| Path { rate, rtt, queue, marks };
    let all = [10, 100, 500].into_iter().flat_map(move |rate| {
        [1, 20, 100].into_iter().flat_map(move |rtt| {
            [10, 100].into_iter().flat_map(move |queue| {
                [false, true].into_iter().map(move |marks| of(rate, rtt, queue, marks))
            })
        })
    });
    all.filter(|path| path.rate < 500 || (path.rtt, path.marks) == (20, false))
}

/// Long enough that a window of the path grows several times.
fn seconds(path: Path) -> u64 {
    if path.rtt == 100 || path.queue == 100 { 90 } else { 30 }
}

#[test]
fn shares_beside_cubic_are_as_they_were() {
    let mut table =
        String::from("Mb/s  rtt  queue  marks  alone  beside 1  beside 4  two of ours\n");
    for path in paths() {
        let Path { rate, rtt, queue, marks } = path;
        let share = |streams: usize| {
            let mut flows = vec![Flow::ours(1)];
            flows.extend((0..streams).map(|_| Flow::reference()));
            let rates = run(path, &mut flows, seconds(path));
            rates[0] / (rates[1..].iter().sum::<f64>() / streams as f64)
        };
        let alone = run(path, &mut [Flow::ours(1)], seconds(path))[0] / rate as f64;
        let two = run(path, &mut [Flow::ours(1), Flow::ours(1)], seconds(path));
        let (one, four) = (share(1), share(4));
        let two = two[0].max(two[1]) / two[0].min(two[1]);
        let marks = if marks { "ECN" } else { "-" };
        write!(table, "{rate:>4}  {rtt:>3}  {queue:>5}  {marks:>5}  {alone:>5.2}").unwrap();
        writeln!(table, "  {one:>8.1}  {four:>8.1}  {two:>11.1}").unwrap();
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(TABLE, &table).unwrap();
    }
    let expected = std::fs::read_to_string(TABLE).unwrap_or_default();
    assert!(table == expected, "shares have changed; expected\n{expected}\nand got\n{table}");
}

#[test]
fn the_channels_of_a_session_take_one_share_together() {
    for (parts, queue) in [2, 4, 8].into_iter().flat_map(|parts| [(parts, 20), (parts, 100)]) {
        let path = Path { rate: 100, rtt: 20, queue, marks: false };
        let mut flows: Vec<Flow> = (0..parts).map(|_| Flow::ours(parts)).collect();
        flows.push(Flow::reference());
        let rates = run(path, &mut flows, 90);
        let share = rates[..parts].iter().sum::<f64>() / rates[parts];
        // With long queues losses hit several at once, and they take less than one flow would.
        assert!((0.3..2.0).contains(&share), "{parts} channels: {share:.2}, {rates:?}");
    }
}

#[test]
fn a_flow_that_has_rested_begins_anew_and_one_that_is_not_used_does_not_grow() {
    let mut congestion = Congestion::new(1024, SEGMENT);
    let initial = congestion.window();
    let mut packet = 0;
    let mut acked = |congestion: &mut Congestion, bytes, in_flight| {
        packet += 1;
        congestion.acked(&Progress {
            now: Instant(packet * 1000),
            bytes,
            in_flight,
            newest: PacketNumber(packet),
            next: PacketNumber(packet + 1),
            sample_ns: Some(30_000),
            rtt_ns: 30_000,
        });
    };
    acked(&mut congestion, SEGMENT, 2 * SEGMENT);
    assert_eq!(congestion.window(), initial, "it was not in use");
    for _ in 0..5 {
        let window = congestion.window();
        acked(&mut congestion, window, window);
    }
    assert_eq!(congestion.window(), initial << 5);
    congestion.rested(4_000_000, 5_000_000);
    assert_eq!(congestion.window(), initial << 5, "shorter than a timer");
    congestion.rested(11_000_000, 5_000_000);
    assert_eq!(congestion.window(), initial << 3);
    congestion.rested(SECOND, 5_000_000);
    assert_eq!(congestion.window(), initial);
}

#[test]
fn one_flight_of_losses_shrinks_the_window_once_and_never_below_two_segments() {
    let mut congestion = Congestion::new(1024, SEGMENT);
    let before = congestion.window();
    congestion.lost::<AllRules>(PacketNumber(5), PacketNumber(100));
    let once = congestion.window();
    assert_eq!(once, before * 7 / 10);
    congestion.lost::<AllRules>(PacketNumber(99), PacketNumber(120));
    assert_eq!(congestion.window(), once);
    for packet in (100..10_000).step_by(30) {
        congestion.lost::<AllRules>(PacketNumber(packet), PacketNumber(packet + 30));
    }
    assert_eq!(congestion.window(), 2 * SEGMENT);
}

#[test]
fn more_than_the_caches_hold_is_in_flight_on_long_paths_only() {
    let mut congestion = Congestion::new(8192, SEGMENT);
    let mut packet = 0;
    let mut window_after = |rtt| {
        for _ in 0..20 {
            packet += 1;
            let window = congestion.window();
            congestion.acked(&Progress {
                now: Instant(packet * 1_000_000),
                bytes: window,
                in_flight: window,
                newest: PacketNumber(packet),
                next: PacketNumber(packet + 1),
                sample_ns: None,
                rtt_ns: rtt * 1_000_000,
            });
        }
        congestion.window() / SEGMENT
    };
    assert_eq!([1_u64, 20, 1].map(&mut window_after), [512, 8192, 512]);
}

/// The window, in bytes, after round trips of so many nanoseconds in which all of it was in use.
fn window_after(congestion: &mut Congestion, rtts: &[u64]) -> u64 {
    for (packet, &rtt_ns) in (1..).zip(rtts) {
        let window = congestion.window();
        congestion.acked(&Progress {
            now: Instant(packet * rtt_ns),
            bytes: window,
            in_flight: window,
            newest: PacketNumber(packet),
            next: PacketNumber(packet + 1),
            sample_ns: Some(rtt_ns),
            rtt_ns,
        });
    }
    congestion.window()
}

#[test]
fn a_stream_holds_what_its_path_does_and_not_what_would_wait_in_it() {
    let new = || Congestion::new(256, 65_549);
    let max = 256 * 65_549;
    assert_eq!(window_after(&mut new(), &[20_000; 20]), LONG_BYTES);
    // A queue makes round trips long, and must not be let grow by that.
    let mut queued = vec![20_000];
    queued.resize(20, 8_000_000);
    assert_eq!(window_after(&mut new(), &queued), LONG_BYTES);
    assert_eq!(window_after(&mut new(), &[100_000; 20]), 100_000 * LONG_RATE);
    assert_eq!(window_after(&mut new(), &[8_000_000; 20]), max, "the rings are the limit");
    let mut known_late = vec![8_000_000; 20];
    known_late.push(20_000);
    assert_eq!(window_after(&mut new(), &known_late), LONG_BYTES);
}

#[test]
fn a_stream_whose_path_became_longer_fills_it_after_some_rests() {
    let mut congestion = Congestion::new(256, 65_549);
    let rtt = 5_000_000;
    assert_eq!(window_after(&mut congestion, &[20_000; 20]), LONG_BYTES);
    assert_eq!(window_after(&mut congestion, &[rtt; 20]), LONG_BYTES, "it is not known yet");
    for _ in 0..10 {
        congestion.rested(SECOND, 5_000_000);
    }
    assert_eq!(window_after(&mut congestion, &[rtt; 60]), 256 * 65_549);
}
