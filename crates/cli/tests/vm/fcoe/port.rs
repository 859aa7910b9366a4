//! A port of ours on this machine, without disks: only its logins are of interest.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::mem::take;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tyche_engine::{Composed, EventLoop, FrameSink, Frames, Ports, Protocol, Service};
use tyche_fcoe::fc::AllRules;
use tyche_fcoe::fc::neighbour::{self, Functions};
use tyche_fcoe::fc::port::{self, Login};
use tyche_fcoe::fc::wire::fcp::{Command, Residual, Response};
use tyche_fcoe::fc::wire::{
    Ethernet, FCtl, FRAME_LEN_MAX, Frame, Header, Kind, Mac, PortId, Wwn, Xid,
};
use tyche_fcoe::{Interface, NPort, Notice, PortConfig, Role};
use tyche_link::Mac as LinkMac;
use tyche_numa::NumaAffinity;
use tyche_proto::Instant;
use tyche_wake::Spin;

use crate::rig::{HOST, PATIENCE, Rig};

/// CHECK CONDITION.
const CHECK_CONDITION: u8 = 2;
/// Sense data: illegal request, logical unit not supported.
const NO_UNIT: [u8; 18] = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x25, 0, 0, 0, 0, 0];

/// A running port.
pub(super) struct OurPort {
    pub(super) wwpn: Wwn,
    notices: Receiver<Notice>,
    /// The loop ends when this is closed.
    running: UnixStream,
    thread: JoinHandle<()>,
}

impl OurPort {
    /// Starts a port, which wants that N_Port_ID if one is given.
    pub(super) fn start(rig: &Rig, functions: Functions, recorded: Option<PortId>) -> Self {
        let interface = rig.inside(|| Interface::open(HOST, false)).unwrap();
        let mac = interface.mac();
        let config = PortConfig {
            recorded,
            ..PortConfig::new(
                (Wwn::of_port(mac), Wwn::of_node(mac)),
                functions,
                Duration::from_secs(2),
            )
        };
        let (notices, heard) = channel();
        let (running, is_running) = UnixStream::pair().unwrap();
        is_running.set_nonblocking(true).unwrap();
        let port = NPort::new(config, NoDisks::default());
        let alone = Alone { port, notices, is_running, is_over: false };
        let ports = interface.into_ports(&NumaAffinity::default());
        let thread = thread::spawn(move || {
            EventLoop::new(alone, ports, Spin::new(Duration::ZERO)).run();
        });
        Self { wwpn: config.wwpn, notices: heard, running, thread }
    }

    /// Waits for a notice.
    fn expect<T>(&self, what: &str, mut wanted: impl FnMut(Notice) -> Option<T>) -> T {
        let mut seen = Vec::new();
        loop {
            let notice = self.notices.recv_timeout(PATIENCE);
            let notice = notice.unwrap_or_else(|_| panic!("no {what}, but {seen:#?}"));
            if let Some(found) = wanted(notice) {
                return found;
            }
            seen.push(notice);
        }
    }

    /// Waits until the port has an N_Port_ID.
    pub(super) fn await_address(&self) -> PortId {
        self.expect("N_Port_ID", |notice| match notice {
            Notice::Neighbour(neighbour::Event::Claimed(address)) => Some(address.id),
            _ => None,
        })
    }

    /// Waits for a login of that port, with those functions.
    pub(super) fn await_login(&self, wwpn: Wwn, functions: Functions) -> Login {
        self.expect("login", |notice| match notice {
            Notice::Login(port::Event::LoggedIn(login)) => {
                (login.wwpn == wwpn && login.functions == functions).then_some(login)
            }
            _ => None,
        })
    }

    /// Waits until that port is logged out; returns why.
    pub(super) fn await_logout(&self, wwpn: Wwn) -> port::Cause {
        self.expect("logout", |notice| match notice {
            Notice::Login(port::Event::LoggedOut(it, cause)) if it == wwpn => Some(cause),
            _ => None,
        })
    }

    /// Asserts that nothing changes for that long.
    pub(super) fn expect_calm(&self, time: Duration) {
        if let Ok(notice) = self.notices.recv_timeout(time) {
            panic!("{notice:?}");
        }
    }

    /// Logs out, and ends.
    pub(super) fn end(self) {
        drop(self.running);
        self.thread.join().unwrap();
    }

    /// Ends without a word, as a process that is killed.
    pub(super) fn kill(self) {
        (&self.running).write_all(b"!").unwrap();
        self.thread.join().unwrap();
    }
}

/// The service of the port's loop.
struct Alone {
    port: NPort<NoDisks>,
    notices: Sender<Notice>,
    /// Closed to end the loop in an orderly way. A byte ends it at once.
    is_running: UnixStream,
    is_over: bool,
}

impl Service for Alone {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.port
    }

    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        self.port.attend(now, ports)
    }

    fn work(&mut self, now: Instant) -> bool {
        while let Some(notice) = self.port.poll_notice() {
            // The test may have ended.
            let _ = self.notices.send(notice);
        }
        if let Ok(count) = self.is_running.read(&mut [0]) {
            self.is_over = true;
            if count == 0 {
                self.port.log_out(now);
            }
        }
        self.is_over
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.is_running.as_fd()].into_iter()
    }
}

/// A target without logical units: every command is refused.
#[derive(Default)]
struct NoDisks {
    drained: VecDeque<Wwn>,
    answers: Vec<Vec<u8>>,
    composed: Vec<u8>,
}

impl Role for NoDisks {
    type Rules = AllRules;

    fn rules(&self) -> AllRules {
        AllRules
    }

    fn handle_address(&mut self, _: (PortId, Mac)) {}

    fn handle_login(&mut self, _: Instant, event: port::Event) {
        if let port::Event::LoggedOut(wwpn, _) = event {
            self.drained.push_back(wwpn);
        }
    }

    fn handle_frame(&mut self, _: Instant, frame: &Frame<'_>) {
        let Ok(command) = Command::parse(frame.payload) else { return };
        if frame.header.kind != Kind::FcpCmnd {
            return;
        }
        let residual = match command.data_len {
            0 => Residual::None,
            len => Residual::Under(len),
        };
        let refused =
            Response { status: CHECK_CONDITION, residual, sense: &NO_UNIT, ..Response::GOOD };
        let mut payload = [0; 64];
        let len = refused.emit(&mut payload);
        let reply = frame.header.reply(Kind::FcpRsp, Xid(1));
        let header = Header { f_ctl: FCtl::RESPONSE, ..reply };
        let Ethernet { destination, source } = frame.ethernet;
        let ethernet = Ethernet { destination: source, source: destination };
        let mut buffer = [0; FRAME_LEN_MAX];
        let len = Frame { ethernet, header, payload: &payload[..len] }.emit(&mut buffer);
        self.answers.push(buffer[..len].to_vec());
    }

    fn poll_drained(&mut self) -> Option<Wwn> {
        self.drained.pop_front()
    }

    fn frames(&mut self) -> impl Frames<'_> {
        Answers(self)
    }
}

struct Answers<'l>(&'l mut NoDisks);

impl<'d> Frames<'d> for Answers<'_> {
    fn compose(&mut self, _: Instant) -> Option<Composed> {
        self.0.composed = self.0.answers.pop()?;
        Some(Composed::default())
    }

    fn write(&mut self, _: LinkMac, sink: impl FrameSink<'d>) {
        sink.gather(&take(&mut self.0.composed), &[], &[]);
    }
}
