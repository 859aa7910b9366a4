//! Farewells of a session: what the target learns, and how long its answer is waited for.

use std::time::Duration;

use tyche_proto::wire::{CommandFlags, Kind, Opcode, Status};
use tyche_proto::{Instant, Operation, SessionEvent};

use crate::pair::{Pair, session};

/// Time limit of a session that is to end soon.
const SOON: Duration = Duration::from_millis(250);

/// A session with a request in flight, whose target is silent from now on.
fn busy() -> Pair {
    let mut pair = Pair::connected(session());
    let (opcode, flags) = (Opcode::Read, CommandFlags::NONE);
    pair.session.submit(pair.now, Operation { opcode, flags, offset: 0, len: 4096 }).unwrap();
    pair.host_sends().unwrap();
    while pair.session.poll_event().is_some() {}
    pair
}

/// Lets the host alone say what it has to say until it has ended. Returns its farewells, the time,
/// and how its request has ended.
fn end(pair: &mut Pair, begun: Instant) -> (usize, Duration, Option<Status>) {
    let (mut farewells, mut ended) = (0, None);
    for _ in 0..10_000 {
        while pair.host_sends().is_some() {
            farewells += usize::from(pair.out.header.kind == Kind::Disconnect);
        }
        while let Some(event) = pair.session.poll_event() {
            match event {
                SessionEvent::Completed { status, .. } => ended = Some(status),
                SessionEvent::Closed => return (farewells, pair.now.since(begun), ended),
                _ => {}
            }
        }
        pair.now = pair.now + Duration::from_millis(1);
        pair.session.handle_timeout(pair.now);
    }
    panic!("it does not end");
}

#[test]
fn a_session_that_ends_soon_tells_the_target_and_does_not_wait_for_it() {
    let mut pair = busy();
    let begun = pair.now;
    pair.session.disconnect_soon(begun);
    let (farewells, took, ended) = end(&mut pair, begun);
    assert_eq!((farewells, ended), (5, Some(Status::Io)));
    assert!(took <= SOON, "{took:?}");
}

#[test]
fn an_end_that_has_begun_is_hastened() {
    let mut pair = busy();
    pair.session.disconnect(pair.now);
    pair.host_sends().unwrap();
    pair.now = pair.now + Duration::from_millis(1);
    let begun = pair.now;
    pair.session.disconnect_soon(begun);
    let (farewells, took, ended) = end(&mut pair, begun);
    assert!(farewells > 0 && took <= SOON, "{farewells}, {took:?}");
    assert_eq!(ended, Some(Status::Io));
}

#[test]
fn a_target_that_hears_it_lets_go_at_once() {
    let mut pair = busy();
    pair.session.disconnect_soon(pair.now);
    pair.step();
    pair.step();
    let ended = std::iter::from_fn(|| pair.session.poll_event());
    assert!(ended.into_iter().any(|event| matches!(event, SessionEvent::Closed)));
    assert_eq!(pair.listener.channels().count(), 0);
}
