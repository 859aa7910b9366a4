//! Links whose frames a thread of its own receives.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../../link/tests/harness/mod.rs"]
mod harness;

use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::sync::MutexGuard;
use std::thread;
use std::time::{Duration, Instant};

use harness::{BROADCAST, Cable, NAMES, contents, frame, receive_all, send_all, wait};
use tyche_baseline::{BATCHES, HandOverLink, hand_over};
use tyche_link::fault::{FaultLink, FaultPlan, Side};
use tyche_link::memory::{self, MemoryLink};
use tyche_link::tcp::{TcpOptions, TcpServer};
use tyche_link::{HEAD, Link, Receiver, RxBatch};
use tyche_testkit::alone;
use tyche_testkit::leaks::{descriptors, threads};
use tyche_testkit::need_root;
use tyche_testkit::wait::{PATIENCE, wait_until};

const NOW: Duration = Duration::ZERO;
const SPIN: Duration = Duration::from_micros(50);

/// One test at a time, and none before the threads of the last one have ended: threads and
/// descriptors belong to the whole process.
fn alone() -> MutexGuard<'static, ()> {
    let alone = alone::in_program();
    await_threads(0);
    alone
}

/// Waits for threads: one gets its name when it runs, and may be listed briefly after it ended.
fn await_threads(wanted: usize) {
    let threads = || threads(std::process::id(), "tyche-receive").len();
    wait_until(&format!("{wanted} receive threads run"), || threads() == wanted);
}

fn wrapped(link: impl Link + 'static, spin: Duration) -> HandOverLink {
    hand_over(vec![Box::new(link)], spin).unwrap().pop().unwrap()
}

fn frames(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| frame([2; 6], [4; 6], HEAD + n * 31 % 1400, n as u64)).collect()
}

/// Calls `receive` until its result is `wanted`.
fn await_result(link: &mut impl Link, wanted: impl Fn(&io::Result<usize>) -> bool) {
    let mut batch = RxBatch::new(8, 1450);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let result = link.receive(&mut batch);
        if wanted(&result) {
            return;
        }
        assert!(Instant::now() < deadline, "still {result:?}");
        wait(link, Duration::from_millis(20));
    }
}

#[test]
fn frames_arrive_in_order_asleep_and_spinning() {
    let _alone = alone();
    for spin in [NOW, SPIN] {
        let (mut a, b) = memory::pair(1514).unwrap();
        let mut b = wrapped(b, spin);
        let out = frames(20_000);
        thread::scope(|scope| {
            scope.spawn(|| send_all(&mut a, &out));
            let all = receive_all(&mut b, &mut RxBatch::new(16, 1450), out.len());
            assert!(all == out);
        });
        // The way back does not involve the thread.
        send_all(&mut b, &out[..100]);
        assert!(receive_all(&mut a, &mut RxBatch::new(16, 1450), 100) == out[..100]);
    }
}

#[test]
fn frames_that_nobody_takes_wait_in_the_link() {
    let _alone = alone();
    let (mut a, b) = memory::pair(1514).unwrap();
    let mut b = wrapped(b, NOW);
    let mut batch = RxBatch::new(4, 1450);
    assert_eq!(b.receive(&mut batch).unwrap(), 0);
    // The capacity of the thread and the inner link together, twice.
    let out = frames(memory::QUEUE + 4 * BATCHES);
    for _ in 0..2 {
        send_all(&mut a, &out);
        assert!(receive_all(&mut b, &mut batch, out.len()) == out);
    }
}

#[test]
fn the_descriptor_is_readable_exactly_while_frames_wait() {
    let _alone = alone();
    let (mut a, b) = memory::pair(1514).unwrap();
    let mut b = wrapped(b, NOW);
    let mut batch = RxBatch::new(2, 1450);
    let out = frames(1);
    for _ in 0..200 {
        assert_eq!(b.receive(&mut batch).unwrap(), 0);
        assert!(!wait(&b, NOW));
        send_all(&mut a, &out);
        assert!(wait(&b, PATIENCE), "slept on a frame");
        assert!(wait(&b, NOW), "still, as nobody has received");
        assert_eq!(b.receive(&mut batch).unwrap(), 1);
        assert_eq!(contents(&batch), out);
    }
}

#[test]
fn a_link_that_goes_down_gives_what_it_has_and_says_so() {
    let _alone = alone();
    let (mut a, b) = memory::pair(1514).unwrap();
    let mut b = wrapped(b, NOW);
    let out = frames(100);
    send_all(&mut a, &out);
    drop(a);
    assert!(receive_all(&mut b, &mut RxBatch::new(8, 1450), 100) == out);
    let down = |result: &io::Result<usize>| {
        result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NetworkDown)
    };
    await_result(&mut b, down);
    assert!(wait(&b, NOW), "as a socket with an error");
    await_result(&mut b, down);
}

#[test]
fn one_thread_receives_for_several_links() {
    let _alone = alone();
    let (mut ours, theirs): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| memory::pair(1514).unwrap())
        .map(|(a, b)| (a, Box::new(b) as Box<dyn Link>))
        .unzip();
    let mut theirs = hand_over(theirs, SPIN).unwrap();
    await_threads(1);
    let out = frames(1500);
    let exchange = |(a, b): (&mut MemoryLink, &mut HandOverLink)| {
        thread::scope(|scope| {
            scope.spawn(|| send_all(a, &out));
            assert!(receive_all(b, &mut RxBatch::new(16, 1450), out.len()) == out);
        });
    };
    thread::scope(|scope| {
        for pair in ours.iter_mut().zip(&mut theirs) {
            scope.spawn(|| exchange(pair));
        }
    });
    // The thread goes on for the others when one is gone, and ends with the last.
    drop((ours.remove(1), theirs.remove(1)));
    ours.iter_mut().zip(&mut theirs).for_each(exchange);
    drop(theirs);
    await_threads(0);
}

#[test]
fn dropping_a_link_leaves_no_thread_and_no_descriptor() {
    let _alone = alone();
    let before = descriptors();
    for received in [0, 1, 30] {
        for spin in [NOW, SPIN] {
            let (mut a, b) = memory::pair(1514).unwrap();
            let mut b = wrapped(b, spin);
            // With frames in the link, in the thread, and handed over by it.
            send_all(&mut a, &frames(500));
            receive_all(&mut b, &mut RxBatch::new(4, 1450), received);
            drop(b);
        }
    }
    await_threads(0);
    assert_eq!(descriptors(), before);
}

#[test]
fn a_wrapper_around_it_wakes_as_well() {
    let _alone = alone();
    let (mut a, b) = memory::pair(1514).unwrap();
    let plan = FaultPlan::new();
    let mut b = FaultLink::new(wrapped(b, NOW), 1, Side::Both, plan.clone()).unwrap();
    let (out, mut batch) = (frames(50), RxBatch::new(4, 1450));
    for drop_ppm in [0, 1] {
        plan.set_drop_ppm(drop_ppm);
        for frame in &out {
            send_all(&mut a, std::slice::from_ref(frame));
            assert!(receive_all(&mut b, &mut batch, 1) == std::slice::from_ref(frame));
        }
    }
}

#[test]
fn links_without_halves_are_refused_by_name() {
    let _alone = alone();
    let before = descriptors();
    let address = "127.0.0.1:0".parse().unwrap();
    let server = TcpServer::listen(&[address], &TcpOptions::default()).unwrap();
    let name = server.name().to_owned();
    let error = hand_over(vec![Box::new(server)], NOW).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains(&name), "{error}");
    await_threads(0);
    assert_eq!(descriptors(), before);
}

#[test]
#[should_panic(expected = "batches of one shape")]
fn batches_of_another_shape_are_not_taken() {
    let _alone = alone();
    let (mut a, b) = memory::pair(1514).unwrap();
    let mut b = wrapped(b, NOW);
    let out = frames(2);
    send_all(&mut a, &out[..1]);
    receive_all(&mut b, &mut RxBatch::new(4, 1450), 1);
    send_all(&mut a, &out[1..]);
    receive_all(&mut b, &mut RxBatch::new(8, 1450), 1);
}

/// A link whose receiving half has a bug.
struct Broken(MemoryLink);

impl tyche_link::Wrapper for Broken {
    type Inner = MemoryLink;

    fn inner(&self) -> &MemoryLink {
        &self.0
    }

    fn inner_mut(&mut self) -> &mut MemoryLink {
        &mut self.0
    }

    fn take_receiver(&mut self) -> io::Result<Box<dyn Receiver>> {
        Ok(Box::new(BrokenReceiver(self.0.take_receiver()?)))
    }
}

struct BrokenReceiver(Box<dyn Receiver>);

impl Receiver for BrokenReceiver {
    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        assert_eq!(self.0.receive(batch)?, 0, "a frame too many, as this test wants it");
        Ok(0)
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.0.wait_fd()
    }
}

#[test]
fn a_panic_of_the_thread_is_an_error_of_the_link() {
    let _alone = alone();
    let (mut a, b) = memory::pair(1514).unwrap();
    let mut b = wrapped(Broken(b), NOW);
    assert_eq!(b.receive(&mut RxBatch::new(8, 1450)).unwrap(), 0);
    send_all(&mut a, &frames(1));
    assert!(wait(&b, PATIENCE), "it wakes the waiter");
    let error = b.receive(&mut RxBatch::new(8, 1450)).unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
}

#[test]
fn interfaces_come_and_go() {
    need_root!();
    let _alone = alone();
    let cable = Cable::new(1500);
    let (mut a, mut b) = (wrapped(cable.open(0), NOW), wrapped(cable.open(1), NOW));
    let connected = |a: &mut HandOverLink, b: &mut HandOverLink| {
        let mut batch = RxBatch::new(8, 1450);
        let (there, back) = (frame(b.mac(), a.mac(), 700, 1), frame(a.mac(), b.mac(), 900, 2));
        send_all(a, std::slice::from_ref(&there));
        assert!(receive_all(b, &mut batch, 1) == [there]);
        send_all(b, std::slice::from_ref(&back));
        assert!(receive_all(a, &mut batch, 1) == [back]);
    };
    let fails = |link: &mut HandOverLink, kind| {
        await_result(link, |result| result.as_ref().is_err_and(|it| it.kind() == kind));
    };
    let works = |link: &mut HandOverLink| await_result(link, |result| matches!(result, Ok(0)));
    connected(&mut a, &mut b);

    cable.ip(1, &["link", "set", NAMES[1], "down"]);
    fails(&mut b, ErrorKind::NetworkDown);
    cable.ip(1, &["link", "set", NAMES[1], "up"]);
    works(&mut b);
    connected(&mut a, &mut b);

    // The sending half is the first to see the fall; the receiving half binds to the new interface,
    // and both know its address.
    let out = frame(BROADCAST, b.mac(), 100, 1);
    let former = b.mac();
    cable.ip(1, &["link", "del", NAMES[1]]);
    let mut vectors = tyche_link::TxVectors::new(1, 1);
    let mut batch = vectors.batch();
    let (head, rest) = out.split_first_chunk::<HEAD>().unwrap();
    batch.push(head, [rest], &[]);
    assert_eq!(b.send(&batch).unwrap_err().kind(), ErrorKind::NotFound);
    fails(&mut b, ErrorKind::NotFound);
    fails(&mut a, ErrorKind::NotFound);
    cable.plug(2000);
    works(&mut b);
    works(&mut a);
    assert_ne!(b.mac(), former);
    connected(&mut a, &mut b);
}
