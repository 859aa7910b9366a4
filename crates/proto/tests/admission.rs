//! What a connect must prove before it is let in, and what strangers can't do.

use std::time::Duration;

use tyche_proto::Opened;
use tyche_proto::wire::{
    ChannelId, Connect, Control, Discover, Fence, Flags, Header, Kind, Mac, Position, Reason,
    Reject, Ticket, Uuid,
};

use crate::door;
use crate::door::{Door, RESUME, WRITER, session};
use crate::pair;
use crate::pair::HOST;

const STRANGER: Mac = Mac([2, 0, 0, 0, 0, 9]);

#[test]
fn a_connect_without_a_ticket_of_its_address_is_a_counter() {
    let mut door = Door::new(false);
    let connect = door.connect(100, session(100), WRITER);
    let bare = Connect { ticket: Ticket::NONE, ..connect.clone() };
    assert!(door.knock(HOST, &bare).is_none());
    assert!(door.knock(STRANGER, &connect).is_none(), "the ticket is another's");
    door.wait(Duration::from_secs(5));
    assert!(door.knock(HOST, &connect).is_none(), "it is too old");
    assert_eq!(door.listener.rejects().of(Reject::Ticket), 3);
    assert!(door.sessions().is_empty());
}

#[test]
fn a_connect_for_another_target_is_none_of_ours() {
    let mut door = Door::new(false);
    let connect = door.connect(100, session(100), WRITER);
    let other = Connect { target: Uuid::from_u128(33), ..connect };
    assert!(door.knock(HOST, &other).is_none(), "neither accepted nor rejected");
    assert_eq!(door.listener.rejects().of(Reject::Target), 1);
}

#[test]
fn an_attempt_is_decided_once() {
    let mut door = Door::new(false);
    let connect = door.connect(100, session(100), WRITER);
    let accept = door.insist(&connect).unwrap().unwrap();
    let again = door.knock(HOST, &connect).unwrap().unwrap();
    assert_eq!(again, accept, "repeats are answered alike");
    door.give(HOST, Door::keepalive(&accept, 1), None);
    let farewell = Header { kind: Kind::Disconnect, ..Door::keepalive(&accept, 2) };
    door.give(HOST, farewell, None);
    door.wait(Duration::from_millis(1));
    assert!(door.sessions().is_empty());
    assert!(door.knock(HOST, &connect).is_none(), "the channel is gone, and stays gone");
    assert!(door.sessions().is_empty());
}

#[test]
fn a_late_connect_takes_nothing_from_what_is_newer() {
    let mut door = Door::new(false);
    // Of a session that was given up before its connect arrived.
    let late = door.connect(100, session(100), WRITER);
    let other_host = door.connect(200, session(200), WRITER);
    assert_eq!(door.ask(101, session(101), WRITER), Ok(()));
    assert!(door.insist(&late).is_none());
    assert!(door.knock(HOST, &other_host).is_none());
    assert_eq!(door.sessions(), [session(101)]);
    // Nor from a later channel of its own.
    let before = door.connect(101, session(101), RESUME);
    assert_eq!(door.ask(101, session(101), RESUME), Ok(()));
    assert!(door.insist(&before).is_none());
}

#[test]
fn a_session_that_lives_is_not_displaced_by_a_clone() {
    let mut door = Door::new(false);
    let connect = door.connect(100, session(100), WRITER);
    let accept = door.insist(&connect).unwrap().unwrap();
    door.give(HOST, Door::keepalive(&accept, 1), None);
    let clone = door.connect(101, session(101), WRITER);
    assert!(door.knock(HOST, &clone).is_none(), "the holder is asked for a sign of life");
    door.wait(Duration::from_millis(20));
    door.give(HOST, Door::keepalive(&accept, 2), None);
    let refusal = door.knock(HOST, &clone).unwrap().unwrap_err();
    assert_eq!(refusal.reason, Reason::Cloned);
    assert_eq!(door.sessions(), [session(100)]);
    // The holder has died: its machine is back after less than a second.
    door.wait(Duration::from_secs(1));
    let begun = door.now;
    assert_eq!(door.ask(102, session(102), WRITER), Ok(()));
    assert!(door.now.since(begun) < Duration::from_secs(1));
    assert_eq!(door.sessions(), [session(102)]);
}

#[test]
fn a_session_shows_life_on_channels_that_are_half_open_or_new() {
    for is_new in [false, true] {
        let mut door = Door::new(false);
        let connect = door.connect(100, session(100), WRITER);
        let mut accept = door.insist(&connect).unwrap().unwrap();
        let clone = door.connect(101, session(101), WRITER);
        assert!(door.knock(HOST, &clone).is_none(), "nothing was heard of the holder so far");
        if is_new {
            let other = door.connect(100, session(100), RESUME);
            let other = Connect { channel: ChannelId(1), ..other };
            accept = door.insist(&other).unwrap().unwrap();
        }
        door.wait(Duration::from_millis(20));
        door.give(HOST, Door::keepalive(&accept, 1), None);
        // The clone is heard again only now: it was cut off meanwhile.
        door.wait(Duration::from_millis(300));
        let clone = door.connect(101, session(101), WRITER);
        let refusal = door.knock(HOST, &clone).unwrap().unwrap_err();
        assert_eq!(refusal.reason, Reason::Cloned);
        assert_eq!(door.sessions(), [session(100)]);
    }
}

#[test]
fn the_holder_is_noted_on_every_way_in() {
    let mut door = Door::new(false);
    assert_eq!(door.ask(100, session(100), door::READER), Ok(()));
    let writing = door.connect(100, session(100), WRITER);
    let writing = Connect { channel: ChannelId(1), ..writing };
    assert!(door.insist(&writing).unwrap().is_ok());
    assert_eq!(door.ask(200, session(200), WRITER), Err(Reason::Held));
}

#[test]
fn a_writer_that_cannot_be_kept_is_refused_and_told_why() {
    let mut door = Door::new(false);
    door.not_kept = Some("no space left: free some".into());
    let connect = door.connect(100, session(100), WRITER);
    let refusal = door.insist(&connect).unwrap().unwrap_err();
    assert_eq!(refusal.reason, Reason::NoState);
    assert_eq!(refusal.detail.as_str(), "no space left: free some");
    assert_eq!(door.ask(101, session(101), door::READER), Ok(()), "readers are let in");
    door.not_kept = None;
    assert_eq!(door.ask(102, session(102), WRITER), Ok(()));
}

#[test]
fn a_channel_is_opened_with_the_boot_that_its_host_was_told() {
    let mut door = Door::new(false);
    let connect = door.connect(100, session(100), WRITER);
    let accept = door.insist(&connect).unwrap().unwrap();
    door.registry.renew(door.export, Uuid::from_u128(99));
    door.give(HOST, Door::keepalive(&accept, 1), None);
    assert_eq!(
        door.generations,
        [accept.generation],
        "what was lost between accept and first frame counts"
    );
    let connect = door.connect(100, session(100), RESUME);
    assert_eq!(door.insist(&connect).unwrap().unwrap().generation, Uuid::from_u128(99));
}

#[test]
fn channels_that_no_frame_comes_for_are_closed() {
    let mut door = Door::new(true);
    for number in 0..3 {
        assert_eq!(door.ask(100 * number, session(100 * number), WRITER), Ok(()));
    }
    assert_eq!(door.listener.channels().count(), 0, "nothing was taken for them");
    door.wait(Duration::from_secs(2));
    assert!(door.sessions().is_empty());
}

#[test]
fn a_first_frame_that_is_wrong_opens_nothing() {
    let mut door = Door::new(false);
    let connect = door.connect(100, session(100), WRITER);
    let accept = door.insist(&connect).unwrap().unwrap();
    // It acknowledges what was never sent.
    let first = Door::keepalive(&accept, 1);
    let wrong = Header { acks: [Position(7); 2], ..first };
    door.give(HOST, wrong, None);
    assert_eq!(door.listener.rejects().of(Reject::AckOfUnsent), 1);
    assert_eq!(door.listener.channels().count(), 0, "no memory is taken for it");
    door.give(HOST, first, None);
    assert_eq!(door.listener.channels().count(), 1);
}

#[test]
fn frames_for_one_address_are_not_taken_from_broadcast() {
    let mut door = Door::new(false);
    let connect = door.connect(100, session(100), WRITER);
    let mut out = tyche_proto::Outgoing::new();
    out.set_control(Mac::BROADCAST, Control::Connect(connect));
    let frame = pair::seal(&out, HOST);
    let (head, payload) = frame.split_first_chunk().unwrap();
    door.listener.handle_frame(door.now, (head, payload), &mut Opened::default());
    assert_eq!(door.listener.rejects().of(Reject::Destination), 1);
    assert!(!door.listener.has_requests());
}

#[test]
fn a_repeated_farewell_is_answered_though_the_channel_is_gone() {
    let mut door = Door::new(false);
    let connect = door.connect(100, session(100), WRITER);
    let accept = door.insist(&connect).unwrap().unwrap();
    door.give(HOST, Door::keepalive(&accept, 1), None);
    let mut answers = Vec::new();
    for packet in 2..5 {
        let keepalive = Door::keepalive(&accept, packet);
        let farewell = Header { kind: Kind::Disconnect, ..keepalive };
        assert!(
            door.give(STRANGER, farewell, None).iter().all(|out| out.content.control().is_some())
        );
        let sent = door.give(HOST, farewell, None);
        let answer = sent.iter().find(|out| out.header.kind == Kind::Disconnect);
        answers.push(answer.expect("it is answered").header.packet);
        door.wait(Duration::from_millis(50));
        assert!(door.sessions().is_empty());
    }
    assert!(answers.is_sorted_by(|a, b| a < b), "packet numbers never repeat: {answers:?}");
}

#[test]
fn the_cookie_of_a_living_channel_is_not_taken_for_another() {
    let mut door = Door::new(false);
    let connect = door.connect(100, session(100), WRITER);
    let accept = door.insist(&connect).unwrap().unwrap();
    let other = door.connect(100, session(100), WRITER);
    let same = Connect { cookie: connect.cookie, ..other.clone() };
    assert!(door.knock(HOST, &same).is_none());
    assert_eq!(door.listener.rejects().of(Reject::Cookie), 1);
    assert_eq!(door.knock(HOST, &connect).unwrap().unwrap(), accept, "a repeat is none");
    assert!(door.knock(HOST, &other).unwrap().is_ok());
}

#[test]
fn a_crowd_without_channels_does_not_keep_a_fence_from_being_answered() {
    let mut door = Door::new(false);
    let first = door.connect(100, session(100), WRITER);
    let lost = door.insist(&first).unwrap().unwrap();
    let second = Connect { channel: ChannelId(1), ..door.connect(100, session(100), RESUME) };
    let living = door.insist(&second).unwrap().unwrap();
    let discover = Discover::any(1, Uuid::from_u128(9));
    let mut out = tyche_proto::Outgoing::new();
    out.set_control(Mac::BROADCAST, Control::Discover(discover));
    let frame = pair::seal(&out, STRANGER);
    let (head, payload) = frame.split_first_chunk().unwrap();
    for _ in 0..1000 {
        door.listener.handle_frame(door.now, (head, payload), &mut Opened::default());
    }
    let tags = Default::default();
    let fence = Fence { cookie: lost.cookie, channel: lost.channel, tags };
    let header = Header { kind: Kind::Fence, ..Door::keepalive(&living, 1) };
    let sent = door.give(HOST, header, Some(Control::Fence(fence)));
    assert!(sent.iter().any(|out| out.header.kind == Kind::Fenced), "{sent:?}");
}

#[test]
fn a_channel_counts_in_the_division_of_the_window_from_its_first_frame_on() {
    let mut door = Door::new(true);
    let mut accepts = Vec::new();
    for count in 1..=4_u16 {
        let number = 100 * u128::from(count);
        let connect = door.connect(number, session(number), WRITER);
        accepts.push(door.insist(&connect).unwrap().unwrap());
        // The newest first: it has its part without another that opens later.
        for accept in accepts.iter().rev() {
            let asks = Door::keepalive(accept, u64::from(count));
            let sent = door.give(HOST, Header { flags: Flags::ACK_REQUEST, ..asks }, None);
            let windows: Vec<_> = sent.iter().map(|out| out.header.window).collect();
            assert_eq!(windows, [64 / count], "of {count} channels");
        }
    }
}
