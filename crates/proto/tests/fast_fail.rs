//! Requests that fail while their session goes on: `fast_io_fail_tmo`.

use std::time::Duration;

use tyche_proto::wire::{ChannelId, CommandFlags, Opcode, Status, Tag};
use tyche_proto::{
    Action, Failure, ListenerEvent, OpId, Operation, SessionConfig, SessionEvent, SubmitError,
};

use crate::pair::{Pair, session};

const EARLY: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(20);

const WRITE: Operation =
    Operation { opcode: Opcode::Write, flags: CommandFlags::NONE, offset: 0, len: 512 };
const READ: Operation = Operation { opcode: Opcode::Read, ..WRITE };

/// A pair whose requests fail early. Of two channels one can be opened while the target still has
/// requests of the other.
fn pair() -> Pair {
    pair_that_fails_after(EARLY)
}

fn pair_that_fails_after(tmo: Duration) -> Pair {
    let mut pair = Pair::connected(SessionConfig {
        channels: 2,
        fast_io_fail_tmo: Some(tmo),
        ctrl_loss_tmo: Some(LATE),
        keep_alive: Duration::from_millis(100),
        ..session()
    });
    while pair.listener.channels().count() < 2 {
        pair.step();
    }
    events(&mut pair);
    pair
}

/// Lets time pass without a frame getting through, and returns what the session says.
fn cut(pair: &mut Pair, time: Duration) -> Vec<SessionEvent> {
    let (end, mut said) = (pair.now + time, Vec::new());
    while pair.now < end {
        while pair.host_sends().is_some() {}
        while pair.target_sends().is_some() {}
        pair.now = pair.now + Duration::from_millis(1);
        pair.session.handle_timeout(pair.now);
        pair.listener.handle_timeout(pair.now);
        said.extend(events(pair));
    }
    said
}

fn events(pair: &mut Pair) -> Vec<SessionEvent> {
    std::iter::from_fn(|| pair.session.poll_event()).collect()
}

fn completed(said: &[SessionEvent]) -> Vec<(OpId, Status)> {
    let ends = said.iter().filter_map(|event| match event {
        SessionEvent::Completed { op, status } => Some((*op, *status)),
        _ => None,
    });
    ends.collect()
}

/// The request that the target has to execute next.
fn executed(pair: &mut Pair) -> Option<(ChannelId, Tag)> {
    while let Some(event) = pair.listener.poll_event() {
        if let ListenerEvent::Action { channel, action: Action::Execute { command } } = event {
            return Some((channel, command.tag));
        }
    }
    None
}

/// Steps for that long, and returns what the session says.
fn steps(pair: &mut Pair, time: Duration) -> Vec<SessionEvent> {
    let (end, mut said) = (pair.now + time, Vec::new());
    while pair.now < end {
        pair.step();
        said.extend(events(pair));
    }
    said
}

/// The session has failed a write that the target's disk has not done yet.
fn in_doubt() -> (Pair, (ChannelId, Tag), OpId) {
    let mut pair = pair();
    let op = pair.session.submit(pair.now, WRITE).unwrap();
    let frame = pair.host_sends().unwrap();
    pair.target_takes(&frame);
    let request = executed(&mut pair).unwrap();
    let said = cut(&mut pair, EARLY + Duration::from_millis(200));
    assert_eq!(completed(&said), [(op, Status::Io)]);
    assert_eq!(said.last(), Some(&SessionEvent::FailsFast), "it comes after the answers");
    assert!(pair.session.fails_fast() && !pair.session.is_over());
    (pair, request, op)
}

#[test]
fn requests_fail_in_time_and_new_ones_at_once() {
    let mut pair = pair();
    let op = pair.session.submit(pair.now, READ).unwrap();
    let said = cut(&mut pair, EARLY - Duration::from_millis(1));
    assert!(completed(&said).is_empty(), "not before");
    let said = cut(&mut pair, Duration::from_millis(200));
    assert_eq!(completed(&said), [(op, Status::Io)]);
    assert_eq!(pair.session.submit(pair.now, WRITE), Err(SubmitError::Away));
    assert_eq!(pair.session.time_to_fail_fast(pair.now), None);
    let said = steps(&mut pair, Duration::from_secs(1));
    assert!(said.contains(&SessionEvent::Resumed), "nothing is in doubt");
    let op = pair.session.submit(pair.now, WRITE).unwrap();
    pair.step();
    let (channel, tag) = executed(&mut pair).unwrap();
    pair.listener.complete(channel, tag, Status::Success);
    let said = steps(&mut pair, Duration::from_millis(20));
    assert_eq!(completed(&said), [(op, Status::Success)]);
}

#[test]
fn no_request_is_taken_while_a_failed_write_may_be_executed() {
    let (mut pair, (channel, tag), failed) = in_doubt();
    let said = steps(&mut pair, Duration::from_secs(2));
    assert!(said.contains(&SessionEvent::Connected) && !said.contains(&SessionEvent::Resumed));
    assert!(pair.session.is_live(), "the target is back");
    for operation in [WRITE, READ] {
        assert_eq!(pair.session.submit(pair.now, operation), Err(SubmitError::Away));
    }
    pair.listener.complete(channel, tag, Status::Success);
    let said = steps(&mut pair, Duration::from_secs(1));
    assert!(said.contains(&SessionEvent::Resumed));
    assert!(completed(&said).is_empty(), "the failed write has been answered");
    let op = pair.session.submit(pair.now, READ).unwrap();
    assert_eq!(op, failed, "the number is used again");
    assert!(completed(&steps(&mut pair, Duration::from_millis(50))).is_empty());
    assert!(executed(&mut pair).is_some(), "only the new one is executed");
    assert!(executed(&mut pair).is_none());
}

#[test]
fn a_target_that_is_back_and_does_not_say_what_it_has_done_is_waited_for_in_vain() {
    let (mut pair, _, _) = in_doubt();
    let said = steps(&mut pair, LATE + Duration::from_secs(2));
    assert_eq!(said.last(), Some(&SessionEvent::Failed(Failure::NoProgress)));
}

#[test]
fn the_time_at_a_slow_disk_is_no_outage() {
    let tmo = Duration::from_secs(4);
    let mut pair = pair_that_fails_after(tmo);
    let op = pair.session.submit(pair.now, WRITE).unwrap();
    let frame = pair.host_sends().unwrap();
    pair.target_takes(&frame);
    let (channel, tag) = executed(&mut pair).unwrap();
    assert!(completed(&steps(&mut pair, tmo * 3)).is_empty());
    let said = cut(&mut pair, Duration::from_millis(300));
    assert!(said.iter().any(|event| matches!(event, SessionEvent::Lost(_))), "{said:?}");
    let said = steps(&mut pair, Duration::from_millis(1500));
    assert!(pair.session.is_live() && !said.contains(&SessionEvent::FailsFast), "{said:?}");
    pair.listener.complete(channel, tag, Status::Success);
    let said = steps(&mut pair, Duration::from_secs(1));
    assert_eq!(completed(&said), [(op, Status::Success)]);
}

#[test]
fn the_session_fails_for_good_later() {
    let (mut pair, _, _) = in_doubt();
    let said = cut(&mut pair, LATE);
    assert_eq!(said.last(), Some(&SessionEvent::Failed(Failure::TargetLost)));
    assert_eq!(pair.session.submit(pair.now, READ), Err(SubmitError::Over));
}

/// The target is busy for longer than it takes a farewell to be lost: it must hear of the end.
#[test]
fn a_farewell_is_repeated_until_a_busy_target_answers() {
    let keep_alive = Duration::from_secs(3);
    let mut pair = Pair::connected(SessionConfig { keep_alive, ..session() });
    events(&mut pair);
    pair.session.disconnect(pair.now);
    let said = cut(&mut pair, Duration::from_millis(800));
    assert!(said.is_empty(), "it waits for the answer: {said:?}");
    let said = steps(&mut pair, Duration::from_millis(100));
    assert_eq!(said.last(), Some(&SessionEvent::Closed));
    assert_eq!(pair.listener.channels().count(), 0);
}

#[test]
fn a_farewell_to_a_target_that_is_gone_has_an_end() {
    let mut pair = pair();
    pair.session.disconnect(pair.now);
    let said = cut(&mut pair, Duration::from_millis(1100));
    assert_eq!(said.last(), Some(&SessionEvent::Closed));
}
