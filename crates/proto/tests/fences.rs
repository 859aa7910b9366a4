//! Fences that a target does not answer.

use arrayvec::ArrayVec;
use tyche_proto::wire::{Accept, Content, Control, Cookie, Fence, Header, Kind, Reject};

use crate::door::{Door, WRITER, session};
use crate::pair::HOST;

fn open(door: &mut Door, number: u128) -> Accept {
    let connect = door.connect(number, session(number), WRITER);
    let accept = door.insist(&connect).unwrap().unwrap();
    door.give(HOST, Door::keepalive(&accept, 1), None);
    accept
}

/// Whether the target answers a fence of `closed` on the channel of `asker`.
fn is_fenced(door: &mut Door, asker: &Accept, packet: u64, closed: (Cookie, &Accept)) -> bool {
    let header = Header { kind: Kind::Fence, ..Door::keepalive(asker, packet) };
    let tags = ArrayVec::new();
    let fence = Fence { cookie: closed.0, channel: closed.1.channel, tags };
    let sent = door.give(HOST, header, Some(Control::Fence(fence)));
    sent.iter().any(|out| matches!(out.content, Content::Control(Control::Fenced(_))))
}

#[test]
fn of_an_open_channel_of_another_session_nothing_is_said() {
    let mut door = Door::new(true);
    let (first, second) = (open(&mut door, 100), open(&mut door, 200));
    assert!(!is_fenced(&mut door, &first, 2, (second.cookie, &second)));
    assert_eq!(door.listener.rejects().of(Reject::Mismatch), 1);
    assert_eq!(door.listener.channels().count(), 2, "nor is it closed");
    assert!(!is_fenced(&mut door, &first, 3, (first.cookie, &first)), "nor of the asker's own");
    assert_eq!(door.listener.rejects().of(Reject::Mismatch), 2);
    let unknown = Cookie(second.cookie.0 ^ 1);
    assert!(is_fenced(&mut door, &first, 4, (unknown, &second)), "that is over");
}
