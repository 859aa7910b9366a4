//! A thread of a link.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use tyche_engine::{
    Clock, EventLoop, Ports, Protocol, Service,
    placed::{self, ThreadAffinity},
};
use tyche_link::Link;
use tyche_numa::NumaAffinity;
use tyche_proto::wire::{Event, Mac, Uuid};
use tyche_proto::{
    Amounts, ExportKey, Instant, LinkPart, Listener, ListenerConfig, Pace, Refusal, TargetKeys,
    Visit,
};
use tyche_wake::Spin;

use super::exporter::{ChannelEvent, Exporter, ExporterEnv};
use super::exports::{Exports, LoopWaker};
use super::report::TargetLinkReport;
use super::uses::Use;
use crate::composer::{is_routed, open_port, rings};
use crate::memory::LinkMemory;
use crate::random::secrets;

enum Command {
    Report(SyncSender<TargetLinkReport>),
    Notify(ExportKey, Event),
    Keys(TargetKeys),
    Stop,
}

/// The least time between two sessions in the log, on average, and those that may come at once.
/// Lower: a host that comes and goes again and again fills the log.
const VISIT_INTERVAL: Duration = Duration::from_secs(1);
const VISIT_BURST: u32 = 64;

/// The only port of a link's thread.
const PORT: usize = 0;

/// The parts and the placement of a link's thread.
pub(super) struct Options {
    /// Index of the thread among those of all links.
    pub(super) index: usize,
    /// The means of other threads to call its loop.
    pub(super) caller: Arc<LoopWaker>,
    pub(super) link: Box<dyn Link>,
    /// The part of the link that is this thread's.
    pub(super) part: LinkPart,
    pub(super) ethertype: u16,
    pub(super) home: NumaAffinity,
    pub(super) exports: Arc<Exports>,
    /// The longest spin before sleeping.
    pub(super) spin: Duration,
    /// The target's keys, if it has any.
    pub(super) keys: Option<TargetKeys>,
    /// Whether those who do not know a key get no answer.
    pub(super) silent: bool,
}

/// The running thread.
pub(super) struct LinkThread {
    /// Name of its link.
    pub(super) link: String,
    /// Its index among those of all links.
    pub(super) index: usize,
    /// The counters of its hosts, once it has ended. Set before it answers nothing more.
    pub(super) last: Arc<OnceLock<Vec<Use>>>,
    commands: Sender<Command>,
    caller: Arc<LoopWaker>,
    thread: JoinHandle<()>,
}

impl LinkThread {
    /// Starts the thread. It calls `ended` with what hosts have had done, when its link is closed
    /// and the registry knows none of its channels any more.
    ///
    /// # Errors
    /// The system's error when the thread cannot be created.
    pub(super) fn start(
        options: Options,
        target: Uuid,
        ended: impl FnOnce(Vec<Use>) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, commands) = channel();
        let (caller, exports) = (Arc::clone(&options.caller), Arc::clone(&options.exports));
        let (link, index) = (options.link.name().to_owned(), options.index);
        let name = format!("tyche-link{index}");
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            // First, so that the loop's own memory is near, too.
            ThreadAffinity::new().move_to(&options.home);
            let _near = placed::near(&options.home);
            let spin = Spin::new(options.spin);
            let (exporter, ports) = open(options, target);
            let visits = Pace::new(VISIT_INTERVAL, VISIT_BURST);
            let service = LinkLoop { exporter, commands, stopping: false, visits, unsaid: 0 };
            // The link is closed when this returns.
            let service = EventLoop::new(service, ports, spin).run();
            ended(service.exporter.uses());
            // Another may have it from now on.
            exports.release_thread(index);
        })?;
        Ok(Self { link, index, last: Arc::default(), commands: sender, caller, thread })
    }

    fn send(&self, command: Command) {
        // A thread that has ended needs no commands.
        let _ = self.commands.send(command);
        self.caller.doorbell.ring();
    }

    /// Asks for the state of the link, which comes in the receiver that is returned.
    pub(super) fn ask(&self) -> Receiver<TargetLinkReport> {
        let (sender, receiver) = sync_channel(1);
        self.send(Command::Report(sender));
        receiver
    }

    /// Notifies the hosts of an event of an export.
    pub(super) fn notify(&self, export: ExportKey, event: Event) {
        self.send(Command::Notify(export, event));
    }

    /// Changes the target's keys.
    pub(super) fn set_keys(&self, keys: TargetKeys) {
        self.send(Command::Keys(keys));
    }

    /// Closes all channels; the thread ends when the disk has finished their requests.
    pub(super) fn stop(&self) {
        self.send(Command::Stop);
    }

    /// Waits for the end.
    pub(super) fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("a link's thread panicked");
        }
    }
}

/// The exporter of a link's thread, and its port.
fn open(options: Options, target: Uuid) -> (Exporter, Ports) {
    let Options { index, link, part, ethertype, home, exports, keys, silent, .. } = options;
    let (frame_len_max, rings, routed) = (link.frame_len_max(), rings(&*link), is_routed(&*link));
    let config = ListenerConfig { link: index, frame_len_max, rings, routed };
    let origin = link.origin();
    let mut listener = Listener::of_part(config, target, part, secrets());
    listener.set_origin(origin);
    if let Some(keys) = keys {
        listener.set_keys(Clock::Monotonic.now(), keys);
    }
    if silent {
        listener.be_silent();
    }
    let (mut ports, port) = (Ports::new(), open_port(link, home));
    let memory = LinkMemory::of(&port);
    ports.insert(PORT, port);
    let site = ExporterEnv {
        index,
        listener,
        memory: Box::new(memory),
        ethertype,
        clock: Clock::Monotonic,
    };
    (Exporter::new(exports, site), ports)
}

/// Logs that a host was refused.
fn log_refusal(link: &dyn Link, refusal: &Refusal) {
    let Refusal { host_name, host, key, export, export_name, reason, detail, left_out, .. } =
        refusal;
    let from = address(link, refusal.from);
    let fingerprint = key.map(|key| key.fingerprint());
    let fingerprint = fingerprint.as_ref().map(tracing::field::display);
    let export = if export_name.is_empty() { export.to_string() } else { export_name.to_string() };
    let host = match key {
        Some(_) if refusal.is_known => host_name.to_string(),
        Some(key) => format!("that says it is {host_name} with the key {}", key.fingerprint()),
        None => format!("that says it is {host_name} ({host}) without a key"),
    };
    let link = link.name();
    let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
    tracing::warn!(
        link, from, left_out, export, host = %host_name, key = fingerprint,
        "refused {export} to host {host}: {reason}{detail}"
    );
}

/// Logs that a session has come, or gone.
fn log_visit(link: &dyn Link, now: Instant, visit: &Visit) {
    let &Visit { export, session, host, host_name, key, writer, left_out, .. } = visit;
    let (from, link) = (address(link, visit.from), link.name());
    let key = key.map(|key| key.fingerprint());
    let who = match key {
        Some(_) => host_name.to_string(),
        None => format!("{host_name} ({host})"),
    };
    let key = key.as_ref().map(tracing::field::display);
    if !visit.is_over {
        let how = if writer { "for writing" } else { "for reading" };
        tracing::info!(
            link, from, left_out, %session, %export, host = %host_name, key,
            "host {who} has connected {export} {how}"
        );
        return;
    }
    let seconds = now.since(visit.since).as_secs();
    let Amounts { reads, read_bytes, writes, written_bytes, failed } = visit.amounts;
    let why = if visit.is_displaced { ": another session of it takes its place" } else { "" };
    tracing::info!(
        link, from, left_out, %session, %export, host = %host_name, key,
        seconds, reads, read_bytes, writes, written_bytes, failed,
        "host {who} has left {export} after {seconds} s{why}"
    );
}

/// The address of a peer, for people.
fn address(link: &dyn Link, peer: Mac) -> String {
    link.peer(peer.0).map_or_else(|| peer.to_string(), |address| address.to_string())
}

/// The service of a link's loop.
struct LinkLoop {
    exporter: Exporter,
    commands: Receiver<Command>,
    stopping: bool,
    /// The lines about sessions in the log.
    visits: Pace,
    /// Those left out.
    unsaid: u64,
}

impl LinkLoop {
    /// Logs which channels were opened and closed, and who was refused.
    fn log(&mut self, now: Instant, ports: &Ports) {
        while let Some(refusal) = self.exporter.poll_refusal() {
            let link = ports.iter().next().map(|(_, port)| port.link());
            link.into_iter().for_each(|link| log_refusal(link, &refusal));
        }
        for mut visit in self.exporter.visits.drain(..) {
            let Some((_, port)) = ports.iter().next().filter(|_| self.visits.takes(now)) else {
                self.unsaid += 1;
                continue;
            };
            visit.left_out += std::mem::take(&mut self.unsaid);
            log_visit(port.link(), now, &visit);
        }
        for event in self.exporter.events.drain(..) {
            let link = ports.iter().next().map(|(_, port)| port.link().name());
            match event {
                ChannelEvent::Opened { channel, export } => {
                    tracing::debug!(link, channel = channel.0, ?export, "channel opened");
                }
                ChannelEvent::Closed { channel } => {
                    tracing::debug!(link, channel = channel.0, "channel closed");
                }
            }
        }
    }
}

impl Service for LinkLoop {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.exporter
    }

    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        self.log(now, ports);
        let mut worked = false;
        while let Ok(command) = self.commands.try_recv() {
            worked = true;
            match command {
                Command::Report(to) => {
                    let _ = to.send(self.exporter.report(ports));
                }
                Command::Notify(export, event) => self.exporter.notify(export, event),
                Command::Keys(keys) => self.exporter.set_keys(now, keys),
                Command::Stop => {
                    self.stopping = true;
                    self.exporter.shut_down(now);
                }
            }
        }
        worked
    }

    fn work(&mut self, now: Instant) -> bool {
        self.exporter.work(now)
    }

    fn is_over(&self) -> bool {
        self.stopping && self.exporter.is_idle()
    }

    fn may_sleep(&mut self) -> bool {
        let caller = self.exporter.caller();
        caller.doorbell.announce();
        !caller.is_called()
    }

    fn awake(&mut self) {
        self.exporter.caller().doorbell.awake();
    }

    fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.exporter.wait_fds().chain([self.exporter.caller().doorbell.wait_fd()])
    }
}
