//! A target gives up a channel whose frames do not get through, if the session has another.

use std::time::Duration;

use tyche_proto::wire::{
    Accept, ChannelId, Connect, Content, Control, Event, Flags, Header, Kind, Position,
};
use tyche_proto::{Outgoing, Problem};

use crate::door::{Door, WRITER, session};
use crate::pair::{self, HOST, Pair};

/// The host is heard that often, or twice: as one that goes on asking for a frame that it lacks.
const STEP: Duration = Duration::from_millis(1);

/// A channel as its host knows it.
struct End {
    accept: Accept,
    /// The host's index.
    index: ChannelId,
    /// Frames that the host has sent.
    packets: u64,
}

impl End {
    fn open(door: &mut Door, index: u16) -> Self {
        let index = ChannelId(index);
        let connect = Connect { channel: index, ..door.connect(100, session(100), WRITER) };
        let accept = door.insist(&connect).unwrap().unwrap();
        let mut end = Self { accept, index, packets: 0 };
        end.says(door, Kind::Keepalive, 0);
        end
    }

    /// The host sends a frame that acknowledges so many frames of the command ring.
    fn says(&mut self, door: &mut Door, kind: Kind, acked: u32) -> Vec<Outgoing> {
        self.packets += 1;
        let keepalive = Door::keepalive(&self.accept, self.packets);
        let acks = [Position(acked), Position(0)];
        door.give(HOST, Header { kind, acks, ..keepalive }, None)
    }
}

/// The target sends a frame on both of a session's channels. On the first it never gets through,
/// though all else does. Returns when the target has given up that channel, if it has in 2.5 s.
fn given_up(second_answers: bool) -> Option<Duration> {
    let mut door = Door::new(false);
    let (mut first, mut second) = (End::open(&mut door, 0), End::open(&mut door, 1));
    assert_eq!(door.listener.channels().count(), 2);
    door.listener.notify(door.export, Event::Resized(1 << 20));
    let mut sent = second.says(&mut door, Kind::Keepalive, 0);
    assert!(sent.iter().any(|out| out.header.kind == Kind::Command));
    second.says(&mut door, Kind::Ack, 1);
    let began = door.now;
    while door.now.since(began) < Duration::from_millis(2500) {
        door.wait(STEP);
        sent.extend(first.says(&mut door, Kind::Keepalive, 0));
        let asks = |out: &Outgoing| {
            out.header.kind == Kind::Keepalive
                && out.header.channel == second.index
                && out.header.flags.contains(Flags::ACK_REQUEST)
        };
        if sent.drain(..).any(|out| asks(&out)) && second_answers {
            sent.extend(second.says(&mut door, Kind::Ack, 1));
        }
        door.wait(STEP);
        let open = door.listener.channels().count();
        if open < 2 {
            assert_eq!(door.listener.channels().next().unwrap().channel, second.accept.channel);
            return Some(door.now.since(began));
        }
    }
    None
}

#[test]
fn a_stalled_channel_is_given_up_for_one_that_lives() {
    let time = given_up(true).expect("it is given up");
    let (least, most) = (Duration::from_millis(600), Duration::from_millis(700));
    assert!((least..most).contains(&time), "{time:?}");
}

#[test]
fn a_stalled_channel_is_kept_while_no_other_is_heard() {
    assert_eq!(given_up(false), None);
}

/// Why a session has lost its target after 20 s in which that has offered its export so many times,
/// and has answered nothing else.
fn why_lost(offers: u32) -> Option<Problem> {
    let mut pair = Pair::connected_over(pair::session(), false);
    let (began, mut offered) = (pair.now, 0);
    while pair.now.since(began) < Duration::from_secs(20) {
        while let Some(frame) = pair.host_sends() {
            let asks = matches!(&pair.out.content, Content::Control(Control::Discover(_)));
            if asks && offered < offers && !pair.session.is_live() {
                offered += 1;
                pair.target_takes(&frame);
            }
        }
        pair.step();
    }
    assert!(!pair.session.is_live());
    pair.session.problem()
}

#[test]
fn a_target_that_stops_after_its_offer_is_not_blamed_on_the_length_of_frames() {
    assert_eq!(why_lost(0), Some(Problem::Silence));
    assert_eq!(why_lost(1), Some(Problem::Silence));
    assert_eq!(why_lost(u32::MAX), Some(Problem::NoHello));
}
