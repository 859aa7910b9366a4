//! Exports that are removed while hosts use them, and added again.

use std::time::Duration;

use tyche_proto::wire::{ConnectFlags, Reason, Status, Uuid};
use tyche_proto::{
    AllRules, ExportConfig, ExportTaken, Failure, Instant, RenameRefused, SessionEvent,
};

use crate::door::{Door, session as session_of};
use crate::evictions::executed;
use crate::keys::{connected, events, write};
use crate::pair::{Pair, name};

/// Time after which a channel is closed whose host does not say that it was told.
const TOLD: Duration = Duration::from_millis(500);

fn erase(pair: &mut Pair) -> bool {
    pair.registry.erase_export::<AllRules>(pair.export)
}

fn has_failed(pair: &mut Pair) -> bool {
    events(pair).contains(&SessionEvent::Failed(Failure::ExportRemoved))
}

/// Lets time pass for the target alone: its host has failed, and says nothing.
fn wait(pair: &mut Pair, time: Duration) {
    pair.now = pair.now + time;
    pair.listener.handle_timeout(pair.now);
    pair.serve();
}

#[test]
fn a_host_is_told_at_once_and_the_disk_is_given_back_when_its_requests_are_over() {
    let mut pair = connected();
    let frame = write(&mut pair);
    pair.target_takes(&frame);
    let [(channel, tag)] = executed(&mut pair)[..] else { panic!("one request is executed") };
    let later = write(&mut pair);
    let config = pair.registry.export(pair.export).clone();
    assert_eq!(pair.registry.remove_export(pair.export).len(), 1);
    assert_eq!(pair.registry.exports().count(), 0, "it is not there any more");
    pair.listener.serve_requests(pair.now, &mut pair.registry);
    pair.target_takes(&later);
    assert!(executed(&mut pair).is_empty(), "nothing more is executed");
    while let Some(frame) = pair.target_sends() {
        pair.host_takes(&frame);
    }
    assert!(has_failed(&mut pair) && pair.session.is_over());
    wait(&mut pair, TOLD);
    assert!(!erase(&mut pair), "a request is with the disk");
    let again = |pair: &mut Pair| pair.registry.add_export(pair.now, config.clone());
    assert_eq!(again(&mut pair), Err(ExportTaken::Name(config.name)));
    pair.listener.complete(channel, tag, Status::Success);
    pair.serve();
    assert!(erase(&mut pair) && erase(&mut pair), "it is gone for good");
    assert_ne!(again(&mut pair).unwrap(), pair.export, "another export, though the same disk");
}

#[test]
fn a_host_is_told_again_if_the_first_frame_is_lost() {
    let mut pair = connected();
    pair.registry.remove_export(pair.export);
    pair.listener.serve_requests(pair.now, &mut pair.registry);
    assert!(pair.target_sends().is_some(), "it is lost");
    let until = pair.now + TOLD;
    while !pair.session.is_over() {
        assert!(pair.now < until, "the host is not told any more");
        pair.step();
    }
    assert!(has_failed(&mut pair));
}

#[test]
fn an_export_that_nobody_uses_is_erased_at_once() {
    let mut pair = connected();
    assert!(!erase(&mut pair), "it was not removed");
    let mut door = Door::new(false);
    door.registry.remove_export(door.export);
    assert!(door.registry.erase_export::<AllRules>(door.export));
    let answer = door.ask(100, session_of(100), ConnectFlags::NONE);
    assert_eq!(answer, Err(Reason::UnknownExport));
}

/// A Connect that is late must not displace a session that has come since.
#[test]
fn a_ticket_does_not_open_an_export_that_was_added_since() {
    let mut door = Door::new(false);
    let config = door.registry.export(door.export).clone();
    let late = door.connect(100, session_of(100), ConnectFlags::NONE);
    door.wait(Duration::from_millis(10));
    door.registry.remove_export(door.export);
    assert!(door.registry.erase_export::<AllRules>(door.export));
    door.export = door.registry.add_export(door.now, config).unwrap();
    assert_eq!(door.registry.last_writer(door.export), None, "that is in the state, or nowhere");
    assert_eq!(door.insist(&late), None);
    assert_eq!(door.ask(100, session_of(100), ConnectFlags::NONE), Ok(()));
}

#[test]
fn two_exports_have_neither_the_name_nor_the_uuid_in_common() {
    let mut door = Door::new(false);
    let config = door.registry.export(door.export).clone();
    let other = ExportConfig { name: name("other"), ..config };
    let taken = door.registry.add_export(Instant(0), other);
    assert_eq!(taken, Err(ExportTaken::Uuid(Uuid::from_u128(4))));
}

#[test]
fn an_export_that_hosts_have_keeps_its_name() {
    let pair = connected();
    let refused = pair.registry.check_rename(pair.export, name("other"));
    assert!(matches!(refused, Err(RenameRefused::InUse(hosts)) if hosts.len() == 1));
}

#[test]
fn a_ticket_does_not_open_an_export_that_was_renamed_since() {
    let mut door = Door::new(false);
    let config = door.registry.export(door.export).clone();
    let other = ExportConfig { name: name("other"), uuid: Uuid::from_u128(9), ..config };
    door.registry.add_export(door.now, other).unwrap();
    let rename = |door: &mut Door, to| {
        door.registry.check_rename(door.export, to)?;
        door.registry.rename(door.now, door.export, to);
        Ok(())
    };
    let taken = ExportTaken::Name(name("other"));
    assert_eq!(rename(&mut door, name("other")), Err(RenameRefused::Taken(taken)));
    let late = door.connect(100, session_of(100), ConnectFlags::NONE);
    door.wait(Duration::from_millis(10));
    assert_eq!(rename(&mut door, name("third")), Ok(()));
    assert_eq!(door.registry.export(door.export).name, name("third"));
    // The ticket may be for another export, which had that name before.
    assert_eq!(door.insist(&late), None);
    assert_eq!(door.ask(100, session_of(100), ConnectFlags::NONE), Ok(()));
    door.registry.remove_export(door.export);
    assert_eq!(rename(&mut door, name("fourth")), Err(RenameRefused::Unknown));
}
