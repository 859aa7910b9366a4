//! A target and an initiator, each with a thread, and the cable between them.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tyche_block::{Completion, Disk, Errno, Operation, Request, Sink};
use tyche_fcoe::fc::wire::{ETHERNET_LEN, Mac, Wwn};
use tyche_fcoe::scsi::{Lun, Uuid};
use tyche_fcoe::{
    FcoeHost, FcoeHostOptions, FcoeTarget, FcoeTargetOptions, Interface, MTU_FULL, Obstacle,
    PortOptions, Units,
};
use tyche_link::memory::MemoryLink;
use tyche_link::{Link, memory};
use tyche_remote::{Notice, SessionOptions};
use tyche_store::memory::MemoryStore;
use tyche_testkit::wait::{PATIENCE, wait_until};

use crate::target::{exported, units_of};

/// Bytes of the disk.
pub(crate) const SIZE: u64 = 8 << 20;
/// Longer than any recovery takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Short, so that recovery does not take long.
const E_D_TOV: Duration = Duration::from_millis(100);

/// A target and a host with threads of their own, joined by links in memory. It submits requests to
/// the host, and waits for their answers and for notices.
pub(crate) struct Rig {
    host: FcoeHost,
    _target: FcoeTarget,
    notices: Mutex<Receiver<Notice>>,
}

/// Answers one request.
struct Answer(Sender<Completion>);

impl Sink for Answer {
    fn complete(&self, completion: Completion) {
        let _ = self.0.send(completion);
    }
}

fn ends() -> [MemoryLink; 2] {
    memory::pair(ETHERNET_LEN + MTU_FULL).unwrap().into()
}

impl Rig {
    /// Starts both, with changes of the options.
    pub(crate) fn start(
        host: impl FnOnce(&mut FcoeHostOptions),
        target: impl FnOnce(&mut FcoeTargetOptions),
    ) -> Self {
        let ([fip, far_fip], [fcoe, far_fcoe]) = (ends(), ends());
        let (near, far) = (interface(fip, fcoe), interface(far_fip, far_fcoe));
        let store = MemoryStore::new(SIZE, 512).unwrap();
        let units = units_of(exported(store), None, false);
        let mut options = target_options(far, &units);
        let wwpn = options.port.wwpn;
        target(&mut options);
        let target = FcoeTarget::start(options).unwrap();
        let mut options = host_options(near, wwpn);
        host(&mut options);
        let (notices, heard) = channel();
        let host = FcoeHost::start(options, move |notice| {
            let _ = notices.send(notice);
        });
        let (host, notices) = (host.unwrap(), Mutex::new(heard));
        Self { host, _target: target, notices }
    }

    /// Waits until the disk can be used.
    pub(crate) fn await_connected(&self) {
        self.expect(|notice| matches!(notice, Notice::Connected(_)));
    }

    /// Waits for a notice.
    pub(crate) fn expect(&self, is_it: impl Fn(&Notice) -> bool) {
        let notices = self.notices.lock().unwrap();
        while !is_it(&notices.recv_timeout(PATIENCE).unwrap()) {}
    }

    /// Waits for an obstacle.
    pub(crate) fn await_obstacle(&self, is_it: impl Fn(&Obstacle) -> bool) {
        let control = self.host.control();
        wait_until("the obstacle", || control.obstacle().is_some_and(|it| is_it(&it)));
    }

    /// Submits a request; returns where its answer comes.
    pub(crate) fn submit(
        &self,
        operation: Operation,
        offset: u64,
        len: u32,
        data: Option<&[u8]>,
    ) -> Receiver<Completion> {
        let volume = self.host.volume();
        let buffer = operation.has_data().then(|| {
            let mut buffer = volume.arena().alloc(len.max(1) as usize).unwrap();
            if let Some(data) = data {
                buffer[..data.len()].copy_from_slice(data);
            }
            buffer
        });
        let (sender, receiver) = channel();
        let sink: Arc<dyn Sink> = Arc::new(Answer(sender));
        volume.submit(Request { operation, offset, len, buffer }, 0, &sink);
        receiver
    }

    pub(crate) fn run(&self, operation: Operation, offset: u64, len: u32) -> Result<(), Errno> {
        self.submit(operation, offset, len, None).recv_timeout(LONG).unwrap().result
    }

    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let write = Operation::Write { fua: false };
        let answer = self.submit(write, offset, data.len() as u32, Some(data));
        answer.recv_timeout(LONG).unwrap().result
    }

    pub(crate) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let answer = self.submit(Operation::Read, offset, len as u32, None);
        let Completion { result, buffer, .. } = answer.recv_timeout(LONG).unwrap();
        result.map(|()| buffer.unwrap()[..len].to_vec())
    }
}

fn interface(fip: MemoryLink, fcoe: MemoryLink) -> Interface {
    Interface { fip: Box::new(fip), fcoe: Box::new(fcoe) }
}

fn target_options(interface: Interface, units: &Arc<Units>) -> FcoeTargetOptions {
    let mac = Mac(interface.fip.mac());
    FcoeTargetOptions {
        port: PortOptions::new(interface, (Wwn::of_port(mac), Wwn::of_node(mac)), E_D_TOV),
        further_threads: Vec::new(),
        units: Arc::clone(units),
        spin: Duration::ZERO,
    }
}

fn host_options(interface: Interface, target: Wwn) -> FcoeHostOptions {
    let mac = Mac(interface.fip.mac());
    let names = (Wwn::of_further_port(mac, 0x100), Wwn::of_node(mac));
    FcoeHostOptions {
        port: PortOptions::new(interface, names, E_D_TOV),
        target,
        lun: Lun::ZERO,
        further_queues: Vec::new(),
        session: SessionOptions {
            queue_size: 64,
            ctrl_loss_tmo: None,
            ..SessionOptions::default()
        },
        device: Uuid::nil(),
        resumes: None,
        arena_size: 8192.into(),
        spin: Duration::ZERO,
    }
}
