//! Who is let in in the place of whom: connects as they come, and the target's answers.

#![allow(clippy::unwrap_used)]

mod pair;

use tyche_proto::wire::{
    ChannelId, Connect, ConnectFlags, Control, Cookie, Header, Kind, Reason, Uuid,
};
use tyche_proto::{Instant, Listener, ListenerConfig, Outgoing, Registry, Writer};

use pair::{FRAME_LEN, HOST, TARGET, name, registry_of, seal};

const DEVICE: Uuid = Uuid::from_u128(0xde);
const WRITER: ConnectFlags = ConnectFlags::NONE;
const READER: ConnectFlags = ConnectFlags::READ_ONLY;
const RESUME: ConnectFlags = ConnectFlags::RESUME;

/// A target on one link.
struct Door {
    listener: Listener,
    registry: Registry,
    attempts: u64,
}

fn session(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

impl Door {
    fn new(shared: bool) -> Self {
        let config = ListenerConfig { link: 0, frame_len_max: FRAME_LEN, rings: [64; 2] };
        let listener = Listener::new(config, Uuid::from_u128(3), pair::random(2));
        Self { listener, registry: registry_of(shared), attempts: 0 }
    }

    /// What the target answers to a session of that number and device; its host is the number of
    /// hundreds.
    fn ask(&mut self, number: u128, device: Uuid, flags: ConnectFlags) -> Result<(), Reason> {
        self.attempts += 1;
        let connect = Connect {
            attempt: self.attempts,
            host: Uuid::from_u128(number / 100),
            session: session(number),
            device,
            export: name("disk"),
            host_name: name("host"),
            cookie: Cookie(self.attempts),
            channel: ChannelId(0),
            queue_size: 8,
            rings: [64; 2],
            frame_len: FRAME_LEN as u32,
            damq_pages: 256,
            flags,
            keep_alive_ms: 3000,
        };
        let mut out = Outgoing::new();
        out.destination = TARGET;
        out.header = Header::new(Kind::Connect);
        out.control = Some(Control::Connect(connect));
        let (now, frame) = (Instant(0), seal(&out, HOST));
        let (head, payload) = frame.split_first_chunk().unwrap();
        self.listener.handle_frame(now, head, payload);
        self.listener.serve_requests(now, &mut self.registry);
        let answers = self.listener.poll_transmit(now, &mut out);
        assert!(answers, "every connect is answered at once: nothing is with the disk");
        assert_eq!(out.destination, HOST);
        match out.control.take() {
            Some(Control::Accept(_)) => Ok(()),
            Some(Control::Reject(rejection)) => Err(rejection.reason),
            other => panic!("{other:?}"),
        }
    }

    /// The sessions that are connected.
    fn sessions(&self) -> Vec<Uuid> {
        self.registry.sessions(0).iter().map(|it| it.session).collect()
    }
}

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
    let last = door.registry.last_writer(0);
    assert_eq!(last, Some(Writer { session: session(101), device: session(100) }));

    let restarted = |last| {
        let mut door = Door::new(false);
        door.registry.restore_last_writer(0, last);
        door
    };
    assert_eq!(restarted(last).ask(101, session(100), RESUME), Ok(()));
    assert_eq!(restarted(last).ask(102, session(100), WRITER), Ok(()));
    assert_eq!(restarted(last).ask(100, session(100), RESUME), Err(Reason::SessionLost));
    let other = Some(Writer { session: session(200), device: session(200) });
    assert_eq!(restarted(other).ask(102, session(100), WRITER), Err(Reason::SessionLost));
    assert_eq!(restarted(None).ask(102, session(100), WRITER), Ok(()), "nobody has written");
}
