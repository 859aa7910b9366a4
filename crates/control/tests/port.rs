//! Admins at the port, and what somebody between them and the target can do.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tyche_control::{Client, ClientError, REQUEST_MAX};
use tyche_crypto::SecretKey;
use tyche_testkit::wait::{PATIENCE, wait_until};

use crate::middle::{Middle, Plan};
use crate::rig::{Rig, WAIT, patient};

const CHALLENGE_LEN: usize = 24;
const HELLO_LEN: usize = 112;
const VERDICT_LEN: usize = 129;
/// Bytes of a record beside its text.
const AROUND: usize = 20;

#[test]
fn an_admin_asks_as_often_as_he_likes() {
    let rig = Rig::new(patient());
    let mut client = rig.connect(&rig.admin).unwrap();
    assert_eq!((&*client.target().name, client.target().uuid), ("store1", [7; 16]));
    assert!(!client.is_read_only());
    for request in [&b""[..], b"a", &[7; REQUEST_MAX]] {
        let answer = client.ask(request, PATIENCE).unwrap();
        assert_eq!(answer, [b"ops: ", request].concat());
    }
    let too_long = client.ask(&[7; REQUEST_MAX + 1], PATIENCE);
    assert!(matches!(too_long, Err(ClientError::TooLong)), "it is not sent");
    assert_eq!(client.ask(b"on", PATIENCE).unwrap(), b"ops: on");
    assert!(rig.connect(&rig.reader).unwrap().is_read_only());
    drop(client);
    wait_until("all are gone", || rig.port.guests() == 0);
    assert_eq!(rig.port.counts().requests, 4);
}

#[test]
fn who_is_no_admin_is_told_so_and_one_who_is_none_any_more_is_out_at_once() {
    let rig = Rig::new(patient());
    let stranger = SecretKey::generate();
    assert!(matches!(rig.connect(&stranger), Err(ClientError::Unknown)));
    assert_eq!(rig.refused(), [stranger.public()]);
    let mut reader = rig.connect(&rig.reader).unwrap();
    let mut admin = rig.connect(&rig.admin).unwrap();
    admin.ask(b"a", PATIENCE).unwrap();
    rig.dismiss(&rig.admin);
    assert!(matches!(admin.ask(b"a", PATIENCE), Err(ClientError::Lost(_))));
    assert!(matches!(rig.connect(&rig.admin), Err(ClientError::Unknown)));
    assert_eq!(reader.ask(b"a", PATIENCE).unwrap(), b"monitor: a");
    let other = SecretKey::generate().public();
    let keys = (&rig.reader, &other);
    let wrong = Client::connect(&[rig.address()], keys, PATIENCE);
    assert!(matches!(wrong, Err(ClientError::Closed)), "another target's key");
    assert!(rig.port.counts().no_proof > 0);
}

/// Asks once through somebody in the middle, with these plans for both directions.
fn ask_through(rig: &Rig, plans: [Plan; 2], request: &[u8]) -> (Result<(), ClientError>, Vec<u8>) {
    let middle = Middle::new(rig.address(), plans);
    let stream = TcpStream::connect(middle.address).unwrap();
    let keys = (&rig.admin, &rig.target);
    let client = Client::over(stream, keys, Instant::now() + PATIENCE);
    let asked = client.and_then(|mut client| {
        client.ask(request, PATIENCE)?;
        // One more, if the connection is still good.
        client.ask(b"more", PATIENCE).map(|_| ())
    });
    (asked, middle.heard())
}

#[test]
fn a_recorded_handshake_is_good_for_nothing() {
    let rig = Rig::new(patient());
    let (asked, heard) = ask_through(&rig, [Plan::default(), Plan::default()], b"evict");
    asked.unwrap();
    let before = rig.port.counts();
    for _ in 0..10 {
        let mut stream = TcpStream::connect(rig.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read_exact(&mut [0; CHALLENGE_LEN]).unwrap();
        stream.write_all(&heard).unwrap();
        // Nothing is said to it. It is a reset, because more has come than was read.
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
    wait_until("all are gone", || rig.port.guests() == 0);
    let after = rig.port.counts();
    assert_eq!(after.no_proof - before.no_proof, 10, "nothing is computed for it: {after:?}");
    assert_eq!(after.requests, before.requests);
}

#[test]
fn a_request_that_is_sent_again_is_forged() {
    let rig = Rig::new(patient());
    let request = b"evict";
    let record = HELLO_LEN..HELLO_LEN + request.len() + AROUND;
    let plan = Plan { repeat: Some(record), ..Plan::default() };
    let (asked, _) = ask_through(&rig, [plan, Plan::default()], request);
    assert!(asked.is_err(), "the connection ends");
    wait_until("all are gone", || rig.port.guests() == 0);
    let counts = rig.port.counts();
    assert_eq!((counts.requests, counts.forged), (1, 1), "{counts:?}");
}

#[test]
fn a_bit_that_is_changed_ends_the_connection() {
    let rig = Rig::new(patient());
    let of_guest = HELLO_LEN + 5 + AROUND;
    let of_target = CHALLENGE_LEN + VERDICT_LEN + 10 + AROUND;
    for (direction, len) in [(0, of_guest), (1, of_target)] {
        for at in (0..len).step_by(3) {
            let before = rig.port.counts().requests;
            let mut plans = [Plan::default(), Plan::default()];
            plans[direction].flip = Some((at, 1 << (at % 8)));
            // A length that is larger than what comes is waited for: the test ends that.
            let header = if direction == 0 { HELLO_LEN } else { CHALLENGE_LEN + VERDICT_LEN };
            if (header..header + 4).contains(&at) {
                plans[direction].cut = Some(len);
            }
            let (asked, _) = ask_through(&rig, plans, b"evict");
            assert!(asked.is_err(), "byte {at} of direction {direction}");
            wait_until("all are gone", || rig.port.guests() == 0);
            let done = rig.port.counts().requests - before;
            let is_heard = direction == 1 && at >= CHALLENGE_LEN + VERDICT_LEN;
            assert_eq!(done, u64::from(is_heard), "byte {at} of direction {direction}");
        }
    }
}

#[test]
fn a_request_that_is_too_long_or_cut_off_is_none() {
    let rig = Rig::new(patient());
    let flip = |at, bits| Plan { flip: Some((at, bits)), ..Plan::default() };
    for (at, bits) in [(HELLO_LEN + 2, 0x10), (HELLO_LEN + 3, 0x40)] {
        let (asked, _) = ask_through(&rig, [flip(at, bits), Plan::default()], b"evict");
        assert!(asked.is_err(), "it says that it is longer");
    }
    wait_until("all are gone", || rig.port.guests() == 0);
    assert_eq!(rig.port.counts().too_long, 2);
    for cut in [0, 1, 15, 16, 50, HELLO_LEN - 1, HELLO_LEN, HELLO_LEN + 3, HELLO_LEN + 20] {
        let plan = Plan { cut: Some(cut.max(1)), ..Plan::default() };
        assert!(ask_through(&rig, [plan, Plan::default()], b"evict").0.is_err());
        wait_until("all are gone", || rig.port.guests() == 0);
    }
    assert_eq!(rig.port.counts().requests, 0);
}

#[test]
fn idle_admins_and_slow_requests_are_ended() {
    let mut limits = patient();
    limits.admins.idle = Duration::from_millis(300);
    let rig = Rig::new(limits);
    let mut idle = rig.connect(&rig.admin).unwrap();
    wait_until("it is gone", || rig.port.guests() == 0);
    assert_eq!(rig.port.counts().late, 1);
    assert!(matches!(idle.ask(b"a", PATIENCE), Err(ClientError::Lost(_))));
    limits.admins.idle = PATIENCE;
    limits.admins.request = Duration::from_millis(300);
    let rig = Rig::new(limits);
    let begin = Instant::now();
    // The length says that more comes.
    let flip = Some((HELLO_LEN + 1, 0x10));
    let plan = Plan { flip, ..Plan::default() };
    assert!(ask_through(&rig, [plan, Plan::default()], b"evict").0.is_err());
    wait_until("it is gone", || rig.port.guests() == 0);
    assert_eq!(rig.port.counts().late, 1, "{:?}", rig.port.counts());
    assert!(begin.elapsed() < PATIENCE);
}

#[test]
fn admins_who_do_not_take_their_answers_make_room() {
    let mut limits = patient();
    (limits.bounds.admins_of_one, limits.bounds.silence) = (2, Duration::from_millis(300));
    let rig = Rig::new(limits);
    // One that has not asked yet, and one that does not ask again.
    let mut idle = [rig.connect(&rig.admin).unwrap(), rig.connect(&rig.admin).unwrap()];
    assert_eq!(idle[1].ask(b"a", PATIENCE).unwrap(), b"ops: a");
    let mut others = Vec::new();
    for _ in 0..2 {
        wait_until("there is room", || {
            let next = rig.connect(&rig.admin);
            next.is_ok_and(|mut next| {
                let is_answered = next.ask(b"a", PATIENCE).is_ok();
                others.push(next);
                is_answered
            })
        });
        let next = rig.connect(&rig.reader).unwrap().ask(b"a", PATIENCE);
        assert_eq!(next.unwrap(), b"monitor: a", "who has another key is in any case");
    }
    for client in &mut idle {
        assert!(matches!(client.ask(b"a", PATIENCE), Err(ClientError::Lost(_))), "it had to go");
    }
}

/// A request goes on though the admin is gone, and though the port is closed.
#[test]
fn a_request_in_progress_is_executed_to_its_end() {
    let rig = Rig::new(patient());
    let mut client = rig.connect(&rig.admin).unwrap();
    let asking = std::thread::spawn(move || client.ask(WAIT, PATIENCE));
    rig.begun.recv_timeout(PATIENCE).unwrap();
    rig.dismiss(&rig.admin);
    assert!(asking.join().unwrap().is_err(), "it is out at once");
    assert_eq!(rig.port.counts().requests, 0);
    rig.go.send(()).unwrap();
    wait_until("it is done", || rig.port.counts().requests == 1);
    let address = rig.address();
    drop(rig);
    assert!(TcpStream::connect(address).is_err(), "nobody listens");
}
