//! Both modes against a real target in the same process, over links in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

#[path = "../../native/tests/rig/target.rs"]
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tyche::{
    Errno, HostLink, LinkError, Mode, OpenError, Operation, Options, REQUESTS_MAX, Refusal,
    Request, Volume,
};
use tyche_link::fault::{FaultLink, FaultPlan, Side};
use tyche_link::tcp::{TcpOptions, TcpServer};
use tyche_link::{Link, memory};
use tyche_native::Target;
use tyche_proto::wire::{Reason, Uuid};
use tyche_store::memory::MemoryStore;
use tyche_store::null::NullStore;
use tyche_testkit::wait::{PATIENCE, wait_readable, wait_until};

use target::{options_of_target, target};

const SIZE: u64 = 8 << 20;

fn disk() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(SIZE, 512).unwrap())
}

fn options(mode: Mode) -> Options {
    let mut options = Options::new("disk");
    options.mode = mode;
    options.memory = 16 << 20;
    options.session.queue_size = 32;
    options.native.host = Some(Uuid::from_u128(2));
    options.timeout = PATIENCE;
    options
}

fn open(mode: Mode, link: Box<dyn Link>) -> Volume {
    options(mode).open_on(vec![vec![HostLink { link, target: None }]]).unwrap()
}

/// A target, and a volume open on it.
fn pair(mode: Mode) -> (Target, Volume) {
    let (ours, theirs) = memory::pair(9014).unwrap();
    (target(Box::new(theirs), disk()), open(mode, Box::new(ours)))
}

fn write(volume: &Volume, offset: u64, fill: u8, len: usize) -> Request {
    let mut buffer = volume.arena().alloc(len).unwrap();
    buffer.fill(fill);
    let operation = Operation::Write { fua: false };
    Request { operation, offset, len: len as u32, buffer: Some(buffer) }
}

fn read(volume: &Volume, offset: u64, len: usize) -> Request {
    let buffer = volume.arena().alloc(len);
    Request { operation: Operation::Read, offset, len: len as u32, buffer }
}

fn flush() -> Request {
    Request { operation: Operation::Flush, offset: 0, len: 0, buffer: None }
}

/// Waits for all requests in flight: tokens with results and the first byte of each buffer.
fn drain(volume: &Volume) -> BTreeMap<u64, (Result<(), Errno>, Option<u8>)> {
    let mut done = Vec::new();
    volume.wait(&mut done, usize::MAX, usize::MAX, PATIENCE).unwrap();
    assert_eq!(volume.in_flight(), 0, "everything ends in time");
    done.into_iter()
        .map(|it| (it.token, (it.result, it.buffer.and_then(|buffer| buffer.first().copied()))))
        .collect()
}

#[test]
fn what_is_written_is_read_in_all_modes_despite_losses() {
    for mode in [Mode::Inline, Mode::Queue] {
        let (ours, theirs) = memory::pair(1514).unwrap();
        let plan = FaultPlan::new();
        plan.set_drop_ppm(20_000);
        let theirs = FaultLink::new(theirs, 42, Side::Both, plan).unwrap();
        let _target = target(Box::new(theirs), disk());
        let options = options(mode);
        let link = HostLink { link: Box::new(ours), target: None };
        let volume = options.open_on(vec![vec![link]]).unwrap();
        assert_eq!((volume.geometry().size, volume.geometry().block_size), (SIZE, 512));
        for token in 0..100u64 {
            let len = 512 << (token % 6);
            volume.submit(write(&volume, token << 15, token as u8, len), token).unwrap();
        }
        let done = drain(&volume);
        assert_eq!(done.len(), 100);
        assert!(done.values().all(|(result, _)| result.is_ok()), "{mode:?}: {done:?}");
        for token in 0..100u64 {
            let len = 512 << (token % 6);
            volume.submit(read(&volume, token << 15, len), token).unwrap();
        }
        for (token, (result, first)) in drain(&volume) {
            assert_eq!((result, first), (Ok(()), Some(token as u8)), "{mode:?}");
        }
        volume.close(PATIENCE);
    }
}

#[test]
fn all_queues_have_the_size_that_one_is_told_of() {
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..2).map(|_| memory::pair(9014).unwrap()).unzip();
    let mut theirs = theirs.into_iter().map(|link| Box::new(link) as Box<dyn Link>);
    let store = Arc::new(NullStore::new(SIZE, 512).unwrap());
    let mut all = options_of_target(theirs.next().unwrap(), store);
    all.links.extend(theirs);
    let target = Target::start(all).unwrap();
    let links = ours.into_iter().map(|link| {
        let link: Box<dyn Link> = Box::new(link);
        vec![HostLink { link, target: None }]
    });
    let first = Options { queues: 2, ..options(Mode::Inline) }.open_on(links.collect()).unwrap();
    let second = first.open_queue().unwrap();
    target.resize(target.export("disk").unwrap(), Some(2 * SIZE)).unwrap();
    wait_until("the first is told", || {
        first.poll(&mut Vec::new(), usize::MAX).unwrap();
        first.geometry().size == 2 * SIZE
    });
    assert_eq!(second.geometry().size, 2 * SIZE);
    second.close(PATIENCE);
    first.close(PATIENCE);
}

#[test]
fn queues_of_a_session_are_driven_by_threads_of_their_own() {
    for mode in [Mode::Inline, Mode::Queue] {
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..3).map(|_| memory::pair(9014).unwrap()).unzip();
        let mut theirs = theirs.into_iter().map(|link| Box::new(link) as Box<dyn Link>);
        let mut all = options_of_target(theirs.next().unwrap(), disk());
        all.links.extend(theirs);
        let target = Target::start(all).unwrap();
        let options = Options { queues: 3, ..options(mode) };
        let links = ours.into_iter().map(|link| {
            let link: Box<dyn Link> = Box::new(link);
            vec![HostLink { link, target: None }]
        });
        let first = options.open_on(links.collect()).unwrap();
        let queues = [first.open_queue().unwrap(), first.open_queue().unwrap()];
        assert!(matches!(first.open_queue(), Err(OpenError::Option(_))), "there are three");
        assert_eq!(target.report().sessions.len(), 1);
        std::thread::scope(|scope| {
            for (number, queue) in (1..).zip(queues) {
                scope.spawn(move || {
                    for token in 0..50 {
                        let offset = (token * 3 + number) << 9;
                        queue.submit(write(&queue, offset, number as u8, 512), token).unwrap();
                    }
                    let done = drain(&queue);
                    assert!(done.len() == 50 && done.values().all(|(result, _)| result.is_ok()));
                    queue.close(PATIENCE);
                });
            }
        });
        for token in 0..150 {
            first.submit(read(&first, token << 9, 512), token).unwrap();
        }
        first.submit(flush(), 150).unwrap();
        for (token, (result, byte)) in drain(&first) {
            assert_eq!(result, Ok(()), "the others have left, and the session lives");
            assert!(token == 150 || byte == Some((token % 3) as u8), "{token}");
        }
        first.close(PATIENCE);
        assert!(target.report().sessions.is_empty());
    }
}

#[test]
fn requests_that_make_no_sense_end_with_an_error() {
    for mode in [Mode::Inline, Mode::Queue] {
        let (_target, volume) = pair(mode);
        volume.submit(read(&volume, 1, 512), 1).unwrap();
        volume.submit(write(&volume, SIZE, 0, 512), 2).unwrap();
        volume.submit(flush(), 3).unwrap();
        let done = drain(&volume);
        assert_eq!(done[&1].0, Err(Errno::INVAL));
        assert_eq!(done[&2].0, Err(Errno::NOSPC));
        assert_eq!(done[&3].0, Ok(()));
    }
}

#[test]
fn more_requests_than_there_may_be_are_given_back() {
    for mode in [Mode::Inline, Mode::Queue] {
        let (_target, volume) = pair(mode);
        for token in 0..REQUESTS_MAX as u64 {
            volume.submit(flush(), token).unwrap();
        }
        // No completion was picked up, so the limit holds, however many requests have ended.
        let refused = volume.submit(read(&volume, 0, 512), 0).unwrap_err();
        assert_eq!(refused.reason, Refusal::Full);
        assert!(refused.request.buffer.is_some(), "the buffer comes back");
        let mut done = Vec::new();
        assert_eq!(volume.wait(&mut done, 10, 10, PATIENCE), Ok(10));
        volume.submit(flush(), u64::MAX).unwrap();
        assert_eq!(drain(&volume).len(), REQUESTS_MAX - 10 + 1);
    }
}

#[test]
fn an_inline_volume_has_one_driver_at_a_time() {
    let (ours, theirs) = memory::pair(9014).unwrap();
    let plan = FaultPlan::new();
    let ours = FaultLink::new(ours, 1, Side::Both, plan.clone()).unwrap();
    let (_target, volume) = (target(Box::new(theirs), disk()), open(Mode::Inline, Box::new(ours)));
    assert!(volume.wait_fd().is_none());
    let mut done = Vec::new();
    assert_eq!(volume.wait(&mut done, 1, 1, PATIENCE), Ok(0), "nothing in flight: no wait");
    plan.set_cut(true);
    volume.submit(flush(), 1).unwrap();
    std::thread::scope(|scope| {
        // Until this thread is the driver, the other may happen to be when it tries.
        let waiter = scope.spawn(|| {
            loop {
                let ended = volume.wait(&mut Vec::new(), 1, 1, PATIENCE);
                if ended != Err(Refusal::Busy) {
                    break ended;
                }
            }
        });
        wait_until("the other thread drives", || volume.poll(&mut done, 1) == Err(Refusal::Busy));
        let refused = volume.submit(read(&volume, 0, 512), 2).unwrap_err();
        assert_eq!((refused.reason, volume.in_flight()), (Refusal::Busy, 1));
        plan.heal();
        assert_eq!(waiter.join().unwrap(), Ok(1));
    });
}

#[test]
fn the_descriptor_speaks_when_something_has_ended() {
    let (_target, volume) = pair(Mode::Queue);
    let mut done = Vec::new();
    for token in 0..200 {
        volume.submit(read(&volume, 0, 4096), token).unwrap();
        while volume.poll(&mut done, 8).unwrap() == 0 {
            let fd = volume.wait_fd().unwrap();
            assert!(wait_readable(fd, PATIENCE), "slept on a completion");
        }
    }
    assert_eq!(done.len(), 200);
}

#[test]
fn a_queue_serves_threads_that_submit_and_threads_that_wait() {
    let (_target, volume) = pair(Mode::Queue);
    let each = 500;
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let volume = &volume;
            scope.spawn(move || {
                for number in 0..each {
                    let mut request = read(volume, (thread * each + number) * 512, 512);
                    while let Err(refused) = volume.submit(request, number) {
                        request = refused.request;
                        std::thread::yield_now();
                    }
                }
            });
        }
        let (taken, all) = (AtomicUsize::new(0), 3 * each as usize);
        let waiter = || {
            let mut done = Vec::new();
            while taken.load(Ordering::Relaxed) < all {
                let count = volume.wait(&mut done, 1, 64, Duration::from_millis(50)).unwrap();
                taken.fetch_add(count, Ordering::Relaxed);
            }
            assert!(done.iter().all(|it| it.result.is_ok()));
            done.len()
        };
        std::thread::scope(|waiters| {
            let other = waiters.spawn(waiter);
            assert_eq!(waiter() + other.join().unwrap(), all);
        });
    });
}

#[test]
fn why_a_volume_does_not_open_is_said() {
    for mode in [Mode::Inline, Mode::Queue] {
        let (ours, theirs) = memory::pair(9014).unwrap();
        let _target = target(Box::new(theirs), disk());
        let wrong = Options { export: "dusk".to_owned(), ..options(mode) };
        let wrong = Options { timeout: Duration::from_secs(2), ..wrong };
        let error =
            wrong.open_on(vec![vec![HostLink { link: Box::new(ours), target: None }]]).err();
        assert!(
            matches!(
                error,
                Some(OpenError::Refused(Reason::UnknownExport, _) | OpenError::TimedOut(_))
            ),
            "{mode:?}: {error:?}"
        );
        let (silent, _other) = memory::pair(9014).unwrap();
        let hasty = Options { timeout: Duration::from_millis(100), ..options(mode) };
        let error =
            hasty.open_on(vec![vec![HostLink { link: Box::new(silent), target: None }]]).err();
        assert!(matches!(error, Some(OpenError::TimedOut(_))), "{mode:?}: {error:?}");
    }
    let nameless = Options::new("").open_on(Vec::new()).err();
    assert!(matches!(nameless, Some(OpenError::Option(_))));
}

#[test]
fn a_link_over_tcp_is_named_by_its_place() {
    let anywhere = ["127.0.0.1:0".parse().unwrap()];
    let server = TcpServer::listen(&anywhere, &TcpOptions::default()).unwrap();
    // Named `tcp:ADDRESS:PORT`, with the port that the kernel chose.
    let place = server.name().to_owned();
    let target = target(Box::new(server), disk());
    let mut options = options(Mode::Inline);
    // One of several links is enough.
    options.links = vec!["nowhere0".to_owned(), place.clone()];
    let volume = options.open().unwrap();
    volume.submit(write(&volume, 4096, 0x5a, 4096), 1).unwrap();
    assert_eq!(drain(&volume)[&1].0, Ok(()));
    volume.close(PATIENCE);
    drop(target);
    options.links.remove(0);
    let error = options.open().err().unwrap();
    assert_eq!(error.errno(), Errno(libc::ECONNREFUSED), "{error}");
    options.links = vec!["tcp:::1:8650".to_owned()];
    let error = options.open().err().unwrap();
    assert!(matches!(error, OpenError::Link(LinkError::Name(_))), "{error}");
    assert!(error.to_string().contains("tcp:HOST:PORT"), "{error}");
}

#[test]
fn closing_with_requests_in_flight_ends() {
    for mode in [Mode::Inline, Mode::Queue] {
        let (_target, volume) = pair(mode);
        for token in 0..64 {
            volume.submit(read(&volume, 0, 65536), token).unwrap();
        }
        volume.close(PATIENCE);
    }
}
