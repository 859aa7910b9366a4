//! Fences that a target does not answer.

use tyche_proto::wire::{
    Accept, ChannelId, Connect, Content, Control, Cookie, Fate, Fence, Fenced, Header, Kind,
    Reject, Tag,
};

use crate::door::{Door, WRITER, session};
use crate::pair::HOST;

fn open(door: &mut Door, number: u128) -> Accept {
    let connect = door.connect(number, session(number), WRITER);
    let accept = door.insist(&connect).unwrap().unwrap();
    door.give(HOST, Door::keepalive(&accept, 1), None);
    accept
}

/// The target's answer to a fence of `closed` on the channel of `asker`, if it gives one.
fn fence(
    door: &mut Door,
    (asker, packet): (&Accept, u64),
    closed: (Cookie, &Accept),
    tags: &[Tag],
) -> Option<Fenced> {
    let header = Header { kind: Kind::Fence, ..Door::keepalive(asker, packet) };
    let tags = tags.iter().copied().collect();
    let fence = Fence { cookie: closed.0, channel: closed.1.channel, tags };
    let sent = door.give(HOST, header, Some(Control::Fence(fence)));
    sent.into_iter().find_map(|out| match out.content {
        Content::Control(Control::Fenced(fenced)) => Some(fenced),
        _ => None,
    })
}

/// Whether the target answers a fence of `closed` on the channel of `asker`.
fn is_fenced(door: &mut Door, asker: &Accept, packet: u64, closed: (Cookie, &Accept)) -> bool {
    fence(door, (asker, packet), closed, &[]).is_some()
}

/// The outcomes of a channel are kept for hosts that need them: so one that is fenced without
/// requests must not take the place of another.
#[test]
fn a_fence_without_requests_closes_the_channel_and_keeps_nothing_of_it() {
    for (tags, fate) in
        [(&[][..], Fate::Unknown), (&[Tag { slot: 0, generation: 1 }], Fate::NotExecuted)]
    {
        let mut door = Door::new(true);
        let stays = open(&mut door, 100);
        let connect = door.connect(100, session(100), WRITER);
        let connect = Connect { channel: ChannelId(1), ..connect };
        let goes = door.insist(&connect).unwrap().unwrap();
        door.give(HOST, Door::keepalive(&goes, 1), None);
        assert_eq!(door.listener.channels().count(), 2);
        let closed = (goes.cookie, &goes);
        fence(&mut door, (&stays, 2), closed, tags);
        assert_eq!(door.listener.channels().count(), 1, "it is closed");
        assert!(fence(&mut door, (&stays, 3), closed, tags).is_some());
        let asked = fence(&mut door, (&stays, 4), closed, &[Tag { slot: 0, generation: 1 }]);
        assert_eq!(asked.unwrap().outcomes[0].fate, fate);
    }
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
