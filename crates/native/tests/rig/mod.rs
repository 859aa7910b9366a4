//! A host and a target in one process, joined by the link of a test, and requests to test them
//! with.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]
#![allow(dead_code, unused_imports, reason = "every test file uses a part of it")]
#![allow(unreachable_pub, reason = "it is compiled into every test file")]

mod target;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tyche_block::{Completion, Disk, Errno, Operation, Request, Sink};
use tyche_link::Link;
use tyche_link::memory::MemoryLink;
use tyche_native::{HostOptions, HostSession};
use tyche_numa::Placement;
use tyche_proto::wire::{ETHERTYPE, Uuid};
use tyche_proto::{ExportId, ResumeState, SessionConfig};
use tyche_remote::{HostLink, Notice};
use tyche_testkit::random::Random;
pub use tyche_testkit::wait::PATIENCE;

pub use target::{export_of_target, name, options_of_target, target};

pub const SIZE: u64 = 4 << 20;

/// A host on one link.
pub fn options(link: Box<dyn Link>, ctrl_loss_tmo: Option<Duration>) -> HostOptions {
    let export = ExportId::Name(name("disk"));
    let session = SessionConfig {
        queue_size: 32,
        damq_pages: 1024,
        operations_max: 64,
        keep_alive: Duration::from_secs(1),
        reconnect_delay: Duration::from_millis(20),
        ctrl_loss_tmo,
        ..SessionConfig::new(Uuid::from_u128(2), name("host"), Uuid::from_u128(3), export)
    };
    HostOptions {
        session,
        links: vec![HostLink { link, target: None }],
        further_queues: Vec::new(),
        placement: Placement::default(),
        ethertype: ETHERTYPE,
        arena_size: 4096.into(),
        spin: Duration::from_micros(20),
    }
}

pub struct Client {
    pub host: HostSession,
    pub disk: Arc<dyn Disk>,
    notices: Mutex<Receiver<Notice>>,
    sink: Arc<dyn Sink>,
    pub done: Receiver<Completion>,
}

struct Channel(Mutex<Sender<Completion>>);

impl Sink for Channel {
    fn complete(&self, completion: Completion) {
        let _ = self.0.lock().unwrap().send(completion);
    }
}

impl Client {
    pub fn start(link: Box<dyn Link>, ctrl_loss_tmo: Duration) -> Self {
        Self::start_with(link, ctrl_loss_tmo, |_| {})
    }

    pub fn start_with(
        link: Box<dyn Link>,
        ctrl_loss_tmo: Duration,
        adjust: impl FnOnce(&mut HostOptions),
    ) -> Self {
        let (sender, notices) = channel();
        let mut options = options(link, Some(ctrl_loss_tmo));
        adjust(&mut options);
        let host = HostSession::start(options, move |notice| {
            let _ = sender.send(notice);
        })
        .unwrap();
        let (sender, done) = channel();
        let sink: Arc<dyn Sink> = Arc::new(Channel(Mutex::new(sender)));
        let disk: Arc<dyn Disk> = host.volume().clone();
        Self { host, disk, notices: Mutex::new(notices), sink, done }
    }

    /// Puts a wrapper around the disk.
    pub fn with_disk(self, wrap: impl FnOnce(Arc<dyn Disk>) -> Arc<dyn Disk>) -> Self {
        Self { disk: wrap(self.disk), ..self }
    }

    /// Waits for a notice; others before it are skipped.
    pub fn await_notice(&self, mut wanted: impl FnMut(&Notice) -> bool) {
        let notices = self.notices.lock().unwrap();
        while !wanted(&notices.recv_timeout(PATIENCE).expect("the notice comes")) {}
    }

    /// Waits for the state that a successor needs.
    pub fn await_resume_state(&self) -> ResumeState {
        let mut found = None;
        self.await_notice(|notice| match notice {
            Notice::ResumeState(state) => {
                found = Some(*state);
                true
            }
            _ => false,
        });
        found.expect("it was waited for")
    }

    pub fn connected(self) -> Self {
        self.await_notice(|notice| matches!(notice, Notice::Connected(_)));
        self
    }

    pub fn submit(&self, operation: Operation, offset: u64, data: Data<'_>, token: u64) {
        let disk = &self.disk;
        let (len, buffer) = match data {
            Data::None(len) => (len, None),
            Data::In(len) => (len, disk.arena().alloc(len as usize)),
            Data::Out(bytes) => {
                let mut buffer = disk.arena().alloc(bytes.len()).unwrap();
                buffer.copy_from_slice(bytes);
                (bytes.len() as u32, Some(buffer))
            }
        };
        disk.submit(Request { operation, offset, len, buffer }, token, &self.sink);
    }

    pub fn answer(&self) -> Completion {
        self.done.recv_timeout(PATIENCE).expect("every request is answered")
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.submit(Operation::Write { fua: false }, offset, Data::Out(bytes), 0);
        self.answer().result
    }

    pub fn read(&self, offset: u64, len: u32) -> Result<Vec<u8>, Errno> {
        self.read_on(&self.disk, offset, len)
    }

    /// Reads by way of one of the disk's queues.
    pub fn read_on(&self, disk: &Arc<dyn Disk>, offset: u64, len: u32) -> Result<Vec<u8>, Errno> {
        let buffer = disk.arena().alloc(len as usize);
        disk.submit(Request { operation: Operation::Read, offset, len, buffer }, 0, &self.sink);
        let completion = self.answer();
        completion.result.map(|()| completion.buffer.unwrap()[..len as usize].to_vec())
    }

    pub fn flush(&self) -> Result<(), Errno> {
        self.submit(Operation::Flush, 0, Data::None(0), 0);
        self.answer().result
    }
}

#[derive(Clone, Copy)]
pub enum Data<'a> {
    None(u32),
    In(u32),
    Out(&'a [u8]),
}

/// Random requests on disjoint ranges, several at a time, against a copy in memory.
pub fn exercise(client: &Client, seed: u64, rounds: u32) {
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

/// A link that outlives its users, as a cable does.
pub struct Shared {
    link: Arc<Mutex<MemoryLink>>,
    fd: OwnedFd,
}

impl Shared {
    pub fn new(link: &Arc<Mutex<MemoryLink>>) -> Box<Self> {
        let fd = link.lock().unwrap().wait_fd().try_clone_to_owned().unwrap();
        Box::new(Self { link: Arc::clone(link), fd })
    }
}

impl Link for Shared {
    fn interface(&self) -> tyche_link::Interface<'_> {
        tyche_link::Interface { name: "shared", mac: self.link.lock().unwrap().mac() }
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
}
