//! Who is let in in the place of whom.

use std::time::Duration;

use tyche_proto::wire::{Reason, Uuid};
use tyche_proto::{Identity, Writer};

use crate::door::{Door, READER, RESUME, WRITER, session};

const DEVICE: Uuid = Uuid::from_u128(0xde);

#[test]
fn a_session_of_the_same_device_takes_the_place_of_the_former() {
    for (shared, flags) in [(false, WRITER), (false, READER), (true, WRITER), (true, READER)] {
        let mut door = Door::new(shared);
        assert_eq!(door.ask(100, session(100), flags), Ok(()));
        assert_eq!(door.ask(101, session(100), flags), Ok(()));
        assert_eq!(door.sessions(), [session(101)], "shared {shared}, {flags:?}");
        assert_eq!(door.ask(102, session(100), flags), Ok(()), "the device's name is the first's");
        assert_eq!(door.sessions(), [session(102)]);
    }
}

#[test]
fn devices_of_one_host_that_only_read_or_share_go_side_by_side() {
    for (shared, flags) in [(false, READER), (true, WRITER)] {
        let mut door = Door::new(shared);
        assert_eq!(door.ask(100, session(100), flags), Ok(()));
        assert_eq!(door.ask(101, session(101), flags), Ok(()));
        assert_eq!(door.sessions(), [session(100), session(101)]);
    }
}

#[test]
fn a_device_name_says_nothing_at_another_host() {
    let mut door = Door::new(true);
    assert_eq!(door.ask(100, DEVICE, WRITER), Ok(()));
    assert_eq!(door.ask(200, DEVICE, WRITER), Ok(()));
    assert_eq!(door.sessions(), [session(100), session(200)]);
}

#[test]
fn a_former_session_that_lives_is_shut_out() {
    for (shared, flags) in [(false, WRITER), (false, READER), (true, WRITER)] {
        let mut door = Door::new(shared);
        assert_eq!(door.ask(100, session(100), flags), Ok(()));
        assert_eq!(door.ask(101, session(100), flags), Ok(()));
        assert_eq!(door.ask(100, session(100), flags | RESUME), Err(Reason::SessionLost));
        assert_eq!(door.sessions(), [session(101)], "shared {shared}, {flags:?}");
        assert_eq!(door.ask(101, session(100), flags | RESUME), Ok(()), "the later one is not");
    }
}

#[test]
fn a_late_connect_of_a_former_session_shuts_nobody_out() {
    for (shared, flags) in [(false, WRITER), (false, READER), (true, WRITER)] {
        let mut door = Door::new(shared);
        assert_eq!(door.ask(100, session(100), flags), Ok(()));
        let late = door.connect(100, session(100), READER | RESUME);
        assert_eq!(door.ask(101, session(100), flags), Ok(()));
        door.wait(Duration::from_secs(2));
        assert!(door.sessions().is_empty(), "half-open channels do not live longer");
        assert!(door.insist(&late).is_none(), "its ticket is older than the takeover");
        assert!(door.sessions().is_empty());
        assert_eq!(door.ask(101, session(100), flags | RESUME), Ok(()));
        assert_eq!(door.sessions(), [session(101)], "shared {shared}, {flags:?}");
    }
}

#[test]
fn a_device_is_lost_when_another_was_let_in_for_writing() {
    // The second is another device of the same host, or of another one once the first is gone.
    let mut door = Door::new(false);
    assert_eq!(door.ask(100, session(100), WRITER), Ok(()));
    assert_eq!(door.ask(101, session(101), WRITER), Ok(()));
    assert_eq!(door.ask(102, session(100), WRITER), Err(Reason::SessionLost));
    assert_eq!(door.ask(100, session(100), RESUME), Err(Reason::SessionLost));
    assert_eq!(door.ask(103, session(100), READER), Ok(()), "who only reads overwrites nothing");
}

#[test]
fn who_wrote_last_is_known_over_restarts() {
    let mut door = Door::new(false);
    assert_eq!(door.ask(100, session(100), WRITER), Ok(()));
    assert_eq!(door.ask(101, session(100), WRITER), Ok(()));
    let last = door.registry.last_writer(door.export).unwrap();
    assert_eq!((last.session, last.device), (session(101), session(100)));
    let host = last.host.expect("it is kept");
    // A record of a release that did not keep the host.
    let of_any = Some(Writer { host: None, ..last });
    let of_other = Some(Writer { host: Some(Identity::Claimed(Uuid::max())), ..last });
    let last = Some(Writer { host: Some(host), ..last });

    let restarted = |last| {
        let mut door = Door::new(false);
        door.registry.restore_last_writer(door.export, last);
        door
    };
    assert_eq!(restarted(last).ask(101, session(100), RESUME), Ok(()));
    assert_eq!(restarted(last).ask(102, session(100), WRITER), Ok(()));
    assert_eq!(restarted(last).ask(100, session(100), RESUME), Err(Reason::SessionLost));
    assert_eq!(restarted(of_any).ask(101, session(100), RESUME), Ok(()));
    assert_eq!(restarted(of_any).ask(102, session(100), WRITER), Ok(()));
    assert_eq!(restarted(of_other).ask(101, session(100), RESUME), Err(Reason::SessionLost));
    assert_eq!(restarted(of_other).ask(102, session(100), WRITER), Err(Reason::SessionLost));
    let other = Some(Writer { session: session(200), device: session(200), host: None });
    assert_eq!(restarted(other).ask(102, session(100), WRITER), Err(Reason::SessionLost));
    // A target that has lost what it knew does not believe who says that it was in before.
    assert_eq!(restarted(None).ask(102, session(100), WRITER), Err(Reason::SessionLost));
    assert_eq!(restarted(None).ask(100, session(100), RESUME), Err(Reason::SessionLost));
    assert_eq!(restarted(None).ask(100, session(100), WRITER), Ok(()), "a new one is let in");
}
