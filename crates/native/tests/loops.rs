//! A host and a target in one process, over links in memory: the loops joined with real stores.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::rig::{Client, Data, PATIENCE, SIZE, Shared, exercise, options_of_target, target};
use tyche_block::{Errno, Operation, OperationKind};
use tyche_engine::ErrorCounts;
use tyche_link::fault::{FaultLink, FaultPlan, Side};
use tyche_link::memory::MemoryLink;
use tyche_link::{HEAD, Interface, Link, RxBatch, TxBatch, TxFrame, TxVectors, memory};
use tyche_native::Target;
use tyche_proto::wire::Uuid;
use tyche_proto::{Problem, ResumeState};
use tyche_remote::{Control, HostLink, Notice};
use tyche_store::Store;
use tyche_store::fault::{FaultStore, Rule};
use tyche_store::memory::MemoryStore;

#[test]
fn requests_of_all_kinds_over_a_clean_link() {
    for frame_len_max in [1514, 9014, 65549] {
        let (a, b) = memory::pair(frame_len_max).unwrap();
        let _target = target(Box::new(a), Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
        let client = Client::start(Box::new(b), PATIENCE).connected();
        exercise(&client, 42 + frame_len_max as u64, 60);
        let report = client.host.control().report().unwrap();
        assert_eq!(report.links[0].frame_len, frame_len_max);
        assert_eq!(report.waiting.operations, 0);
    }
}

/// A link whose interface has room for a few frames at a time.
struct SmallRing {
    inner: MemoryLink,
    vectors: TxVectors,
}

impl SmallRing {
    fn new(inner: MemoryLink) -> Box<Self> {
        Box::new(Self { inner, vectors: TxVectors::new(3, 1) })
    }
}

impl Link for SmallRing {
    fn interface(&self) -> Interface<'_> {
        self.inner.interface()
    }

    fn frame_len_max(&self) -> usize {
        self.inner.frame_len_max()
    }

    fn receive_capacity(&self, frame_len: usize) -> usize {
        self.inner.receive_capacity(frame_len)
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        self.inner.receive(batch)
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        let whole = |frame: TxFrame<'_>| frame.parts().collect::<Vec<_>>().concat();
        let frames: Vec<_> = batch.frames().map(whole).collect();
        let mut few = self.vectors.batch();
        for frame in frames.iter().take(few.room()) {
            few.push(&frame[..HEAD], [&frame[HEAD..]], &[]);
        }
        self.inner.send(&few)
    }

    fn retries(&self) -> bool {
        true
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.inner.wait_fd()
    }
}

#[test]
fn frames_that_a_full_ring_refuses_are_sent_later() {
    let (a, b) = memory::pair(1514).unwrap();
    let target = target(SmallRing::new(a), Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    let client = Client::start(SmallRing::new(b), PATIENCE).connected();
    exercise(&client, 9, 60);
    let report = client.host.control().report().unwrap();
    for port in [report.links[0].port, target.report().links[0].port] {
        assert!(port.tx_held > 0, "{port:?}");
        assert_eq!(port.tx_refused, 0, "{port:?}");
    }
}

#[test]
fn a_bad_link_costs_time_and_nothing_else() {
    let (a, b) = memory::pair(9014).unwrap();
    let plan = FaultPlan::new();
    plan.set_drop_ppm(10_000);
    plan.set_duplicate_ppm(10_000);
    plan.set_reorder_ppm(20_000);
    plan.set_corrupt_ppm(5_000);
    let b = FaultLink::new(b, 11, Side::Both, plan.clone()).unwrap();
    let _target = target(Box::new(a), Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    let client = Client::start(Box::new(b), PATIENCE).connected();
    exercise(&client, 5, 60);
    let report = client.host.control().report().unwrap();
    assert!(report.channel.retransmitted > 0, "{report:?}");
    assert!(report.rejects.total() > 0, "damage is counted");
}

#[test]
fn a_cut_link_stalls_and_goes_on() {
    let (a, b) = memory::pair(9014).unwrap();
    let plan = FaultPlan::new();
    let b = FaultLink::new(b, 1, Side::Both, plan.clone()).unwrap();
    let _target = target(Box::new(a), Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    let client = Client::start(Box::new(b), PATIENCE).connected();
    client.write(8192, &[7; 4096]).unwrap();
    plan.set_cut(true);
    client.submit(Operation::Write { fua: true }, 0, Data::Out(&[9; 4096]), 1);
    client.await_notice(|notice| matches!(notice, Notice::Lost(_)));
    assert!(client.done.try_recv().is_err(), "a request waits for the target");
    plan.set_cut(false);
    client.await_notice(|notice| matches!(notice, Notice::Connected(_)));
    assert_eq!(client.answer().result, Ok(()));
    assert_eq!(client.read(0, 4096).unwrap(), [9; 4096]);
    assert_eq!(client.read(8192, 4096).unwrap(), [7; 4096]);
}

#[test]
fn a_lost_target_fails_everything_in_the_end() {
    let (a, b) = memory::pair(9014).unwrap();
    let plan = FaultPlan::new();
    let b = FaultLink::new(b, 1, Side::Both, plan.clone()).unwrap();
    let _target = target(Box::new(a), Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    let client = Client::start(Box::new(b), Duration::from_millis(200)).connected();
    plan.set_cut(true);
    assert_eq!(client.write(0, &[1; 512]), Err(Errno::IO));
    client.await_notice(|notice| matches!(notice, Notice::Failed(_)));
    assert_eq!(client.read(0, 512), Err(Errno::IO), "for good");
}

#[test]
fn aborting_answers_what_waits() {
    let (a, b) = memory::pair(9014).unwrap();
    let plan = FaultPlan::new();
    let b = FaultLink::new(b, 1, Side::Both, plan.clone()).unwrap();
    let _target = target(Box::new(a), Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    let client = Client::start(Box::new(b), PATIENCE).connected();
    plan.set_cut(true);
    // More than the session takes at once: some wait in its queue.
    for token in 0..200 {
        client.submit(Operation::Read, 0, Data::In(4096), token);
    }
    client.host.control().abort();
    for _ in 0..200 {
        assert_eq!(client.answer().result, Err(Errno::IO));
    }
    assert_eq!(client.flush(), Err(Errno::IO), "and so does what comes later");
}

#[test]
fn errors_of_the_store_reach_who_asked_and_nobody_else() {
    let (a, b) = memory::pair(9014).unwrap();
    let store = FaultStore::new(MemoryStore::new(SIZE, 512).unwrap());
    let faults = store.faults();
    let _target = target(Box::new(a), Arc::new(store));
    let client = Client::start(Box::new(b), PATIENCE).connected();
    faults.add(Rule::fail(Errno::NOSPC).on(OperationKind::Write).within(0..4096));
    faults.add(Rule::fail(Errno::IO).on(OperationKind::Read).within(1 << 20..(1 << 20) + 512));
    assert_eq!(client.write(0, &[1; 8192]), Err(Errno::NOSPC));
    assert_eq!(client.write(4096, &[1; 8192]), Ok(()));
    // Two megabytes are two requests on the wire; one of them fails.
    assert_eq!(client.read(0, 2 << 20), Err(Errno::IO));
    assert_eq!(client.read(0, 1 << 20).map(|data| data.len()), Ok(1 << 20));
    // Invalid requests do not reach the network.
    assert_eq!(client.read(1, 512), Err(Errno::INVAL));
    assert_eq!(client.read(SIZE, 512), Err(Errno::INVAL));
    assert_eq!(client.write(SIZE - 512, &[1; 1024]), Err(Errno::NOSPC));
}

#[test]
fn errors_of_the_store_are_counted_by_kind_on_both_sides() {
    let (a, b) = memory::pair(9014).unwrap();
    let store = FaultStore::new(MemoryStore::new(SIZE, 512).unwrap());
    let faults = store.faults();
    let target = target(Box::new(a), Arc::new(store));
    let client = Client::start(Box::new(b), PATIENCE).connected();
    // ENODATA: an unreadable sector. To the host it is an I/O error.
    faults.add(Rule::fail(Errno(61)).on(OperationKind::Read).times(2));
    faults.add(Rule::fail(Errno::NOSPC).on(OperationKind::Write).times(1));
    faults.add(Rule::fail(Errno::IO).on(OperationKind::Flush).times(1));
    client.read(0, 4096).unwrap_err();
    client.read(0, 4096).unwrap_err();
    client.write(0, &[1; 4096]).unwrap_err();
    client.write(0, &[1; 4096]).unwrap();
    client.flush().unwrap_err();
    client.read(0, 4096).unwrap();
    // Not the disk's fault.
    client.read(1, 512).unwrap_err();

    let named = |counts: &ErrorCounts| -> Vec<_> {
        counts.iter().map(|(kind, class, count)| (kind.name(), class.name(), count)).collect()
    };
    let export = &target.report().exports[0];
    let disk = [("read", "medium", 2), ("write", "no_space", 1), ("flush", "io", 1)];
    assert_eq!(named(&export.errors), disk);
    assert_eq!(export.problem, None);
    let host = client.host.control().report().unwrap().requests.errors;
    let seen = [("read", "io", 2), ("read", "invalid", 1), ("write", "no_space", 1)];
    assert_eq!(named(&host), [&seen[..], &[("flush", "io", 1)]].concat());
}

#[test]
fn a_target_that_ends_says_so_and_another_takes_over() {
    let (a, b) = memory::pair(9014).unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(SIZE, 512).unwrap());
    let shared = Arc::new(Mutex::new(a));
    let first = target(Shared::new(&shared), Arc::clone(&store));
    let client = Client::start(Box::new(b), PATIENCE).connected();
    client.write(4096, &[3; 4096]).unwrap();
    drop(first);
    client.await_notice(|notice| *notice == Notice::Lost(Problem::Disconnected));
    client.submit(Operation::Read, 4096, Data::In(4096), 1);
    let second = target(Shared::new(&shared), store);
    client.await_notice(|notice| matches!(notice, Notice::Connected(_)));
    let completion = client.answer();
    assert_eq!(completion.result, Ok(()));
    assert_eq!(completion.buffer.unwrap()[..], [3; 4096]);
    assert_eq!(second.report().sessions.len(), 1);
}

#[test]
fn what_requests_take_is_known() {
    let (a, b) = memory::pair(9014).unwrap();
    let store = FaultStore::new(MemoryStore::new(SIZE, 512).unwrap());
    let late = Duration::from_millis(20);
    store.faults().add(Rule::delay(late).on(OperationKind::Read).within(0..512));
    store.faults().add(Rule::fail(Errno::IO).on(OperationKind::Read).within(8192..8704));
    let _target = target(Box::new(a), Arc::new(store));
    let client = Client::start(Box::new(b), PATIENCE).connected();
    client.read(0, 512).unwrap();
    client.read(4096, 512).unwrap();
    client.read(8192, 512).unwrap_err();
    let report = client.host.control().report().unwrap();
    let (all, recent) = (report.requests.reads.all(), report.requests.reads.recent());
    assert_eq!((all.count(), recent.count()), (2, 2), "failures do not count");
    let (p99, mean) = (Duration::from_nanos(all.quantile(0.99)), all.mean() as u128);
    assert!(p99 >= late * 9 / 10 && mean >= late.as_nanos() / 2, "{all:?}");
    assert_eq!(report.requests.writes.all().count(), 0);
}

/// A client in another process for the device of one that has died.
fn successor(link: Box<dyn Link>, left: ResumeState) -> Client {
    Client::start_with(link, PATIENCE, |options| {
        options.session.session = Uuid::from_u128(4);
        options.session.device = left.device;
        options.session.resumes = Some(left.export);
    })
}

#[test]
fn another_program_takes_a_device_over_and_learns_of_a_lost_cache() {
    let (a, b) = memory::pair(9014).unwrap();
    let store = FaultStore::with_volatile_cache(MemoryStore::new(SIZE, 512).unwrap()).unwrap();
    let faults = store.faults();
    let store: Arc<dyn Store> = Arc::new(store);
    let (cable, socket) = (Arc::new(Mutex::new(a)), Arc::new(Mutex::new(b)));
    let first = target(Shared::new(&cable), Arc::clone(&store));
    let client = Client::start(Shared::new(&socket), PATIENCE);
    let left = client.await_resume_state();
    let client = client.connected();
    client.write(0, &[1; 4096]).unwrap();
    client.flush().unwrap();
    client.write(0, &[2; 4096]).unwrap();
    drop(client);

    // The target lives, and so does its cache; the predecessor is not in the way.
    let client = successor(Shared::new(&socket), left);
    assert_eq!(client.read(0, 4096).unwrap(), [2; 4096], "it waits until it is let in");
    client.await_notice(|notice| matches!(notice, Notice::Connected(_)));
    assert_eq!(first.report().sessions.len(), 1);
    drop(client);

    drop(first);
    faults.crash().unwrap();
    let _second = target(Shared::new(&cable), store);
    let client = successor(Shared::new(&socket), left);
    client.await_notice(|notice| *notice == Notice::CacheLost);
    assert_eq!(client.flush(), Err(Errno::IO));
    let told = client.await_resume_state();
    assert_ne!(
        told.export.generation, left.export.generation,
        "it was told, so the new run is the one"
    );
    assert_eq!((told.device, told.export.uuid), (left.device, left.export.uuid));
    assert_eq!(client.flush(), Ok(()));
    assert_eq!(client.read(0, 4096).unwrap(), [1; 4096]);
}

/// The predecessor's requests have failed: those of the next do, on each queue and at once, until
/// the target is back.
#[test]
fn requests_go_on_failing_in_another_program_until_the_target_is_back() {
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..2).map(|_| memory::pair(9014).unwrap()).unzip();
    let theirs: Vec<_> = theirs.into_iter().map(|link| Arc::new(Mutex::new(link))).collect();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(SIZE, 512).unwrap());
    let serve = || {
        let mut options = options_of_target(Shared::new(&theirs[0]), Arc::clone(&store));
        options.links.push(Shared::new(&theirs[1]));
        Target::start(options).unwrap()
    };
    let mut ours = ours.into_iter().map(|link| Arc::new(Mutex::new(link)));
    let [first, second] = [(); 2].map(|()| ours.next().unwrap());
    let start = |left: Option<ResumeState>| {
        let further = HostLink { link: Shared::new(&second), target: None };
        Client::start_with(Shared::new(&first), PATIENCE, |options| {
            options.further_queues.push(vec![further]);
            if let Some(left) = left {
                options.session.session = Uuid::from_u128(4);
                options.session.device = left.device;
                options.session.resumes = Some(left.export);
            }
        })
    };
    let target = serve();
    let client = start(None);
    let left = client.await_resume_state();
    let client = client.connected();
    client.write(0, &[1; 4096]).unwrap();
    drop((client, target));

    let client = start(Some(left));
    client.host.control().fail_until_connected();
    client.await_notice(|notice| *notice == Notice::FailsFast);
    for queue in client.disk.queues() {
        assert_eq!(queue.geometry().size, SIZE, "it is known from the beginning");
        let begun = Instant::now();
        assert_eq!(client.read_on(&queue, 0, 4096), Err(Errno::IO));
        assert!(begun.elapsed() < PATIENCE / 2);
    }
    let _target = serve();
    client.await_notice(|notice| *notice == Notice::Resumed);
    for queue in client.disk.queues() {
        assert_eq!(client.read_on(&queue, 0, 4096).unwrap(), [1; 4096]);
    }
}

#[test]
fn a_target_stops_though_its_host_is_silent() {
    let (a, b) = memory::pair(9014).unwrap();
    let plan = FaultPlan::new();
    let b = FaultLink::new(b, 1, Side::Both, plan.clone()).unwrap();
    let target = target(Box::new(a), Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    let _client = Client::start(Box::new(b), PATIENCE).connected();
    plan.set_cut(true);
    let (sender, stopped) = channel();
    std::thread::spawn(move || {
        drop(target);
        let _ = sender.send(());
    });
    stopped.recv_timeout(PATIENCE).expect("the target stops");
}

#[test]
fn links_whose_threads_are_stuck_are_reported_as_such_within_one_limit() {
    let pairs = [(); 2].map(|()| memory::pair(1514).unwrap());
    let (links, _others): (Vec<_>, Vec<_>) =
        pairs.into_iter().map(|(ours, other)| (Arc::new(Mutex::new(ours)), other)).unzip();
    let [first, second] = [0, 1].map(|index| Shared::new(&links[index]));
    let mut options = options_of_target(first, Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    options.links.push(second);
    let target = Target::start(options).unwrap();
    assert_eq!(target.report().links[0].problem, None);
    // They wait for their links from now on.
    let stuck: Vec<_> = links.iter().map(|link| link.lock().unwrap()).collect();
    let _rung = target.report();
    let began = Instant::now();
    let report = target.report();
    // Who asks a target waits for two seconds.
    assert!(began.elapsed() < Duration::from_millis(1_900), "{:?}", began.elapsed());
    let problem = report.links[0].problem.as_deref();
    assert_eq!((problem, report.links[0].by_thread.len()), (Some("its thread does not answer"), 2));
    drop(stuck);
}
