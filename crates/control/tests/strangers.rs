//! Guests who take their time, or come in great numbers.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tyche_control::{Bounds, ClientError, Limits};
use tyche_testkit::wait::{PATIENCE, wait_until};

use crate::rig::{Rig, WAIT, dial_from, patient};

/// Sends a byte of a hello at a time, until the target ends that; returns how long that took.
fn drip(from: IpAddr, to: SocketAddr, stop: &AtomicBool) -> Option<Duration> {
    let began = Instant::now();
    let mut stream = dial_from(from, to).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(20))).ok()?;
    loop {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        // The pause between two bytes.
        match stream.read(&mut [0; 64]) {
            Ok(1..) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return Some(began.elapsed()),
        }
        if stream.write_all(&[0x5a]).is_err() {
            return Some(began.elapsed());
        }
    }
}

/// Fifty guests who drip, all of one address or each of another, come again and again, while an
/// admin asks twenty times over a connection of its own each time.
fn drips_delay_nobody(of_one: bool) {
    let rig = Rig::new(Limits::default());
    let (stop, ended, longest) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let threads = Bounds::default();
    let threads = 2 * threads.strangers + threads.admins;
    thread::scope(|scope| {
        for number in 0..50 {
            let last = if of_one { 7 } else { 10 + number };
            let from = IpAddr::V4(Ipv4Addr::new(127, 0, 1, last));
            let (to, stop, ended, longest) = (rig.address(), &stop, &ended, &longest);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if let Some(took) = drip(from, to, stop) {
                        ended.fetch_add(1, Ordering::Relaxed);
                        longest.fetch_max(took.as_millis() as u64, Ordering::Relaxed);
                    }
                }
            });
        }
        wait_until("they have come", || rig.port.counts().guests >= 50);
        for number in 0..20 {
            let answer = rig.connect(&rig.admin).unwrap().ask(b"a", PATIENCE);
            assert_eq!(answer.unwrap(), b"ops: a", "{number}");
            assert!(rig.port.guests() <= threads);
        }
        wait_until("some have ended", || ended.load(Ordering::Relaxed) >= 50);
        stop.store(true, Ordering::Relaxed);
    });
    println!("{:?}, the longest {longest:?} ms", rig.port.counts());
    wait_until("all are gone", || rig.port.guests() == 0);
    assert_eq!(rig.port.counts().requests, 20);
    let patience = u64::try_from(PATIENCE.as_millis()).unwrap();
    assert!(longest.into_inner() < patience, "a drip has an end");
}

#[test]
fn fifty_drips_of_one_address_delay_nobody() {
    drips_delay_nobody(true);
}

#[test]
fn fifty_drips_of_fifty_addresses_delay_nobody() {
    drips_delay_nobody(false);
}

/// The limit is one for all bytes together.
#[test]
fn a_drip_ends_after_the_time_of_a_handshake() {
    let limits = Limits { handshake: Duration::from_millis(500), ..Limits::default() };
    let rig = Rig::new(limits);
    let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let stop = AtomicBool::new(false);
    let took = drip(from, rig.address(), &stop).unwrap();
    assert!(took >= Duration::from_millis(490) && took < PATIENCE, "{took:?}");
    wait_until("it is gone", || rig.port.guests() == 0);
    assert_eq!(rig.port.counts().late, 1, "{:?}", rig.port.counts());
}

#[test]
fn silent_strangers_yield_to_new_ones() {
    let rig = Rig::new(patient());
    let mut all = Vec::new();
    for last in 1..=5 {
        for _ in 0..10 {
            let from = IpAddr::V4(Ipv4Addr::new(127, 0, 2, last));
            let mut stream = dial_from(from, rig.address()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            // It is received.
            stream.read_exact(&mut [0; 24]).unwrap();
            all.push(stream);
        }
    }
    // Eight of each address at most, and 32 of all.
    wait_until("those who were displaced are gone", || rig.port.guests() == 32);
    assert_eq!(rig.port.counts().displaced, 18);
    assert!(matches!(all[0].read(&mut [0]), Ok(0) | Err(_)), "the first had to go");
    rig.connect_from("127.0.2.9").unwrap().ask(b"a", PATIENCE).unwrap();
}

#[test]
fn strangers_take_no_place_of_an_admin() {
    let mut limits = patient();
    let (admins, silence) = (2, PATIENCE);
    limits.bounds = Bounds { strangers: 4, strangers_of_one: 2, admins, admins_of_one: 2, silence };
    let rig = Rig::new(limits);
    let mut busy = rig.connect(&rig.admin).unwrap();
    let asking = thread::spawn(move || busy.ask(WAIT, PATIENCE));
    rig.begun.recv_timeout(PATIENCE).unwrap();
    let mut idle = rig.connect(&rig.reader).unwrap();
    for _ in 0..100 {
        // The reset of one that is displaced is no matter.
        drop(TcpStream::connect(rig.address()).unwrap());
    }
    wait_until("they have come", || rig.port.counts().guests >= 102);
    wait_until("they are gone", || rig.port.guests() == 2);
    let third = rig.connect_from("127.0.3.1");
    assert!(matches!(third, Err(ClientError::Busy)), "{third:?}");
    assert_eq!(idle.ask(b"a", PATIENCE).unwrap(), b"monitor: a");
    rig.go.send(()).unwrap();
    assert_eq!(asking.join().unwrap().unwrap(), b"ops: wait");
}
