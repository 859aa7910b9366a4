//! Requests that a target holds back: whoever waits for the end of a channel does not wait for
//! them, and they are never executed after it.

use std::time::Duration;

use tyche_proto::wire::{
    Accept, ChannelId, Command, CommandFlags, Connect, Content, Control, Entry, Fate, Fence,
    Fenced, Header, Kind, Opcode, Outcome, Status, Tag,
};
use tyche_proto::{AllRules, Allowed, Amounts, HostId, Outgoing, Visit};

use crate::door::{Door, WRITER, session};
use crate::evictions::executed;
use crate::keys::{connected, write};
use crate::pair::{HOST, Pair, name};

/// A host with a request that is handed out for execution, and held back.
fn holding() -> (Pair, ChannelId, Tag) {
    let mut pair = connected();
    let frame = write(&mut pair);
    pair.target_takes(&frame);
    let [(channel, tag)] = executed(&mut pair)[..] else { panic!("one request is executed") };
    pair.listener.hold(channel, tag);
    (pair, channel, tag)
}

#[test]
fn a_request_that_was_held_back_is_executed_when_it_is_resumed() {
    let (mut pair, channel, tag) = holding();
    for _ in 0..100 {
        pair.step();
    }
    assert!(executed(&mut pair).is_empty(), "though the host may have repeated it");
    assert!(pair.listener.resume(channel, tag));
    pair.listener.complete(channel, tag, Status::Success);
    while pair.session.operations() > 0 {
        pair.step();
    }
}

#[test]
fn a_denied_host_has_left_at_once() {
    let (mut pair, channel, tag) = holding();
    let alpha = HostId::Name(name("alpha"));
    let denied = Allowed { denied: [alpha].into(), ..Allowed::default() };
    assert_eq!(pair.registry.set_allowed(pair.export, denied).len(), 1);
    assert!(!pair.registry.is_drained::<AllRules>(pair.export, alpha));
    pair.serve();
    pair.listener.serve_requests(pair.now, &mut pair.registry);
    assert!(pair.registry.is_drained::<AllRules>(pair.export, alpha));
    assert!(!pair.listener.resume(channel, tag));
}

#[test]
fn a_removed_export_is_given_back_when_its_hosts_were_told() {
    let (mut pair, channel, tag) = holding();
    pair.registry.remove_export(pair.export);
    pair.listener.serve_requests(pair.now, &mut pair.registry);
    assert!(!pair.listener.resume(channel, tag), "it is removed, though the channel is open");
    while !pair.registry.erase_export::<AllRules>(pair.export) {
        assert!(pair.now.0 < 10_000_000_000, "it is still there");
        pair.step();
    }
}

/// Sends a frame of a host on its channel.
fn say(door: &mut Door, accept: &Accept, packet: u64, (kind, content): (Kind, Content)) {
    let header = Header { kind, ..Door::keepalive(accept, packet) };
    let entries = content.entries().len() as u16;
    let header = Header { entries, ..header };
    let out = Outgoing { header, content, ..Outgoing::new() };
    let out = Outgoing { destination: crate::pair::TARGET, ..out };
    let frame = crate::pair::seal(&out, HOST);
    let (head, payload) = frame.split_first_chunk().unwrap();
    let mut opened = tyche_proto::Opened::default();
    door.listener.handle_frame(door.now, (head, payload), &mut opened);
}

/// Opens a session's channel of that index.
fn open(door: &mut Door, index: u16) -> Accept {
    let connect = door.connect(100, session(100), WRITER);
    let accept = door.insist(&Connect { channel: ChannelId(index), ..connect }).unwrap().unwrap();
    door.give(HOST, Door::keepalive(&accept, 1), None);
    accept
}

#[test]
fn a_fence_is_answered_at_once_with_what_was_not_executed() {
    let mut door = Door::new(false);
    let (lost, other) = (open(&mut door, 0), open(&mut door, 1));
    let tags = [0, 1].map(|slot| Tag { slot, generation: 1 });
    let flush = |tag| {
        let (opcode, flags) = (Opcode::Flush, CommandFlags::NONE);
        Entry::Command(Command { opcode, flags, tag, offset: 0, len: 0, damq_page: 0 })
    };
    let commands = Content::Entries(tags.into_iter().map(flush).collect());
    say(&mut door, &lost, 2, (Kind::Command, commands));
    let executed = std::iter::from_fn(|| door.listener.poll_event()).count();
    assert_eq!(executed, 2, "both flushes");
    let [held, done] = tags;
    door.listener.hold(lost.channel, held);
    door.listener.complete(lost.channel, done, Status::Success);
    let fence =
        Fence { cookie: lost.cookie, channel: lost.channel, tags: tags.into_iter().collect() };
    let header = Header { kind: Kind::Fence, ..Door::keepalive(&other, 2) };
    let sent = door.give(HOST, header, Some(Control::Fence(fence)));
    let fenced = sent.iter().find_map(|out| match out.content.control() {
        Some(Control::Fenced(Fenced { outcomes, .. })) => Some(outcomes.to_vec()),
        _ => None,
    });
    let fates = [Fate::NotExecuted, Fate::Executed(Status::Success)];
    let outcome = |(tag, fate)| Outcome { tag, fate };
    assert_eq!(fenced.unwrap(), tags.into_iter().zip(fates).map(outcome).collect::<Vec<_>>());
    assert!(!door.listener.resume(lost.channel, held));
}

#[test]
fn a_visit_that_is_over_says_how_much_was_done() {
    let mut pair = connected();
    let first: Vec<Visit> = std::iter::from_fn(|| pair.registry.poll_visit()).collect();
    assert_eq!(first.len(), 1);
    for status in [Status::Success, Status::Success, Status::Io] {
        let frame = write(&mut pair);
        pair.target_takes(&frame);
        let [(channel, tag)] = executed(&mut pair)[..] else { panic!("one request is executed") };
        pair.listener.complete(channel, tag, status);
    }
    pair.listener.shut_down(pair.now);
    while pair.target_sends().is_some() {}
    pair.now = pair.now + Duration::from_millis(1);
    pair.serve();
    let gone = pair.registry.poll_visit().unwrap();
    assert!(gone.is_over && !gone.is_displaced);
    let done = Amounts { writes: 2, written_bytes: 1024, failed: 1, ..Amounts::default() };
    assert_eq!(gone.amounts, done);
}
