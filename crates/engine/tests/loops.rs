//! A host and a target in one process, over links in memory: the loops joined with real stores.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tyche_block::{Completion, Disk, Errno, Operation, Request, Sink};
use tyche_engine::{Host, HostLink, HostOptions, Notice, Target, TargetExport, TargetOptions};
use tyche_link::fault::{FaultLink, FaultPlan, Side};
use tyche_link::{Link, memory};
use tyche_proto::wire::{ETHERTYPE, Name, Uuid};
use tyche_proto::{Problem, SessionConfig, TargetConfig};
use tyche_store::Store;
use tyche_store::fault::{FaultStore, Kind, Rule};
use tyche_store::memory::MemoryStore;

const SIZE: u64 = 4 << 20;
/// Longer than anything takes that is not stuck.
const PATIENCE: Duration = Duration::from_secs(60);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn target(link: Box<dyn Link>, store: Arc<dyn Store>) -> Target {
    let export = TargetExport {
        name: name("disk"),
        uuid: Uuid::from_u128(7),
        store,
        shared: false,
        hosts: Vec::new(),
        last_writer: None,
    };
    Target::start(TargetOptions {
        target: TargetConfig {
            uuid: Uuid::from_u128(1),
            name: name("target"),
            queue_size_max: 64,
            damq_pages_max: 1024,
            channels_max: 4,
        },
        exports: vec![export],
        links: vec![link],
        ethertype: ETHERTYPE,
        spin: Duration::ZERO,
        remember_writer: Box::new(|_, _| ()),
    })
    .unwrap()
}

struct Client {
    host: Host,
    notices: Mutex<Receiver<Notice>>,
    sink: Arc<dyn Sink>,
    done: Receiver<Completion>,
}

struct Channel(Mutex<Sender<Completion>>);

impl Sink for Channel {
    fn complete(&self, completion: Completion) {
        let _ = self.0.lock().unwrap().send(completion);
    }
}

impl Client {
    fn start(link: Box<dyn Link>, ctrl_loss_tmo: Duration) -> Self {
        let (sender, notices) = channel();
        let session = SessionConfig {
            host: Uuid::from_u128(2),
            host_name: name("host"),
            session: Uuid::from_u128(3),
            export: name("disk"),
            target: None,
            queue_size: 32,
            damq_pages: 1024,
            operations_max: 64,
            read_only: false,
            checksum: true,
            keep_alive: Duration::from_secs(1),
            reconnect_delay: Duration::from_millis(20),
            ctrl_loss_tmo: Some(ctrl_loss_tmo),
        };
        let options = HostOptions {
            session,
            links: vec![HostLink { link, target: None }],
            ethertype: ETHERTYPE,
            arena_pages: 4096,
            spin: Duration::from_micros(20),
        };
        let host = Host::start(options, move |notice| {
            let _ = sender.send(notice);
        })
        .unwrap();
        let (sender, done) = channel();
        let sink: Arc<dyn Sink> = Arc::new(Channel(Mutex::new(sender)));
        Self { host, notices: Mutex::new(notices), sink, done }
    }

    /// Waits for a notice; others before it are skipped.
    fn await_notice(&self, wanted: impl Fn(&Notice) -> bool) {
        let notices = self.notices.lock().unwrap();
        while !wanted(&notices.recv_timeout(PATIENCE).expect("the notice comes")) {}
    }

    fn connected(self) -> Self {
        self.await_notice(|notice| matches!(notice, Notice::Connected(_)));
        self
    }

    fn submit(&self, operation: Operation, offset: u64, data: Data<'_>, token: u64) {
        let volume = self.host.volume();
        let (len, buffer) = match data {
            Data::None(len) => (len, None),
            Data::In(len) => (len, volume.arena().alloc(len as usize)),
            Data::Out(bytes) => {
                let mut buffer = volume.arena().alloc(bytes.len()).unwrap();
                buffer.copy_from_slice(bytes);
                (bytes.len() as u32, Some(buffer))
            }
        };
        volume.submit(Request { operation, offset, len, buffer }, token, &self.sink);
    }

    fn answer(&self) -> Completion {
        self.done.recv_timeout(PATIENCE).expect("every request is answered")
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.submit(Operation::Write { fua: false }, offset, Data::Out(bytes), 0);
        self.answer().result
    }

    fn read(&self, offset: u64, len: u32) -> Result<Vec<u8>, Errno> {
        self.submit(Operation::Read, offset, Data::In(len), 0);
        let completion = self.answer();
        completion.result.map(|()| completion.buffer.unwrap()[..len as usize].to_vec())
    }

    fn flush(&self) -> Result<(), Errno> {
        self.submit(Operation::Flush, 0, Data::None(0), 0);
        self.answer().result
    }
}

#[derive(Clone, Copy)]
enum Data<'a> {
    None(u32),
    In(u32),
    Out(&'a [u8]),
}

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// Random requests on disjoint ranges, several at a time, against a copy in memory.
fn exercise(client: &Client, seed: u64, rounds: u32) {
    let mut random = Random(seed);
    let mut copy = client.read(0, SIZE as u32).unwrap();
    let lane_len = SIZE / 8;
    for _ in 0..rounds {
        for lane in 0..8 {
            let sectors = lane_len / 512;
            let first = random.below(sectors);
            let most = 1 << random.below(11);
            let count = 1 + random.below((sectors - first).min(most));
            let (offset, len) = (lane * lane_len + first * 512, count * 512);
            let range = offset as usize..(offset + len) as usize;
            match random.below(8) {
                0..3 => {
                    let bytes = random.bytes(len as usize);
                    copy[range].copy_from_slice(&bytes);
                    let fua = random.below(2) == 0;
                    client.submit(Operation::Write { fua }, offset, Data::Out(&bytes), lane);
                }
                3 => {
                    copy[range].fill(0);
                    let zeroes = Operation::WriteZeroes { fua: false, may_unmap: true };
                    client.submit(zeroes, offset, Data::None(len as u32), lane);
                }
                4 => client.submit(Operation::Flush, 0, Data::None(0), lane),
                _ => client.submit(Operation::Read, offset, Data::In(len as u32), 100 + offset),
            }
        }
        for _ in 0..8 {
            let Completion { token, result, buffer } = client.answer();
            assert_eq!(result, Ok(()));
            if let Some(offset) = token.checked_sub(100) {
                let buffer = buffer.expect("reads have a buffer");
                assert!(buffer[..] == copy[offset as usize..][..buffer.len()], "at {offset}");
            }
        }
    }
    assert!(client.read(0, SIZE as u32).unwrap() == copy);
}

#[test]
fn requests_of_all_kinds_over_a_clean_link() {
    for frame_len_max in [1514, 9014, 65549] {
        let (a, b) = memory::pair(frame_len_max).unwrap();
        let _target = target(Box::new(a), Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
        let client = Client::start(Box::new(b), PATIENCE).connected();
        exercise(&client, 42 + frame_len_max as u64, 60);
        let report = client.host.control().report().unwrap();
        assert_eq!(report.paths[0].frame_len, frame_len_max);
        assert_eq!(report.operations, 0);
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
    assert!(!report.rejects.is_empty(), "damage is counted");
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
    faults.add(Rule::fail(Errno::NOSPC).on(Kind::Write).within(0..4096));
    faults.add(Rule::fail(Errno::IO).on(Kind::Read).within(1 << 20..(1 << 20) + 512));
    assert_eq!(client.write(0, &[1; 8192]), Err(Errno::NOSPC));
    assert_eq!(client.write(4096, &[1; 8192]), Ok(()));
    // Two megabytes are two requests on the wire; one of them fails.
    assert_eq!(client.read(0, 2 << 20), Err(Errno::IO));
    assert_eq!(client.read(0, 1 << 20).map(|data| data.len()), Ok(1 << 20));
    // What makes no sense does not get as far as the network.
    assert_eq!(client.read(1, 512), Err(Errno::INVAL));
    assert_eq!(client.read(SIZE, 512), Err(Errno::INVAL));
    assert_eq!(client.write(SIZE - 512, &[1; 1024]), Err(Errno::NOSPC));
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

/// A link that outlives the target that uses it, as a cable does.
struct Shared {
    link: Arc<Mutex<memory::MemoryLink>>,
    fd: OwnedFd,
}

impl Shared {
    fn new(link: &Arc<Mutex<memory::MemoryLink>>) -> Box<Self> {
        let fd = link.lock().unwrap().wait_fd().try_clone_to_owned().unwrap();
        Box::new(Self { link: Arc::clone(link), fd })
    }
}

impl Link for Shared {
    fn name(&self) -> &str {
        "shared"
    }

    fn mac(&self) -> tyche_link::Mac {
        self.link.lock().unwrap().mac()
    }

    fn frame_len_max(&self) -> usize {
        self.link.lock().unwrap().frame_len_max()
    }

    fn receive_capacity(&self, frame_len: usize) -> usize {
        self.link.lock().unwrap().receive_capacity(frame_len)
    }

    fn receive(&mut self, batch: &mut tyche_link::RxBatch) -> std::io::Result<usize> {
        self.link.lock().unwrap().receive(batch)
    }

    fn send(&mut self, batch: &tyche_link::TxBatch<'_>) -> std::io::Result<usize> {
        self.link.lock().unwrap().send(batch)
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn overruns(&mut self) -> u64 {
        0
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
