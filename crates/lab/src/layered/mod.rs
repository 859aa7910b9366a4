//! `--layered`: an FCoE initiator in layers, as Open-FCoE has them, to measure what they cost. It
//! has no recovery: a frame that is lost ends the measurement.
//!
//! ```text
//!        submit
//!          │    ScsiCommand ──► request queue of all        2 locks  SCSI
//!          │    FcpPacket, with the CDB copied
//!          │    exchange of all, timer of all               2 locks  FCP
//!          │    frame, with IU or data copied
//!          ▼    transmit queue of all                       2 locks  FCoE
//!       interface
//!          │    receive thread: port, CRC
//!          ▼    frame in a buffer of its own                lock, wake
//!          │    FCP thread: exchange, packet, data copied   4 locks
//!          ▼    command that has ended                      lock, wake
//!               completion thread: SCSI status ──► complete, and submit the next
//! ```
//!
//! FastFCoE (2017) does without: each thread has private structures, a request becomes a frame by a
//! patch, and one context completes it. So does the initiator of `tyche`; this one is there to be
//! compared with it. Frames are sent in batches and checked once, as they are without the layers.

mod belt;
mod exchanges;
mod packet;
mod receive;
mod scsi;
mod timers;
mod transmit;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tyche_block::{Arena, Disk, Geometry, Request, Sink};
use tyche_cli::bench::{BenchArgs, DiskSession};
use tyche_console::error::{Code, Error, Result};
use tyche_engine::EventLoop;
use tyche_fcoe::scsi::initiator::{CommandAnswer, Discovery, Disk as ScsiDisk, Progress};
use tyche_fcoe::{FcoeHostOptions, INITIATOR, Interface, NPort};
use tyche_numa::NumaAffinity;
use tyche_wake::{MakePoller, Polled, Poller, Spin};

use belt::Belt;
use exchanges::Exchanges;
use packet::FcpPacket;
use receive::{Forwarding, Nexus, ReceiveLoop, Received};
use scsi::{RequestQueue, ScsiCommand};
use timers::Timers;
use transmit::{SharedLink, Transmit};

/// The pause before a question is asked again, and between looks for the login.
const PAUSE: Duration = Duration::from_millis(100);
/// Pages for the answer to a question, and for the one before, which another thread may still have.
const QUESTION_PAGES: usize = 8;

/// The structures that all threads share.
struct Shared {
    lun: [u8; 8],
    requests: RequestQueue,
    exchanges: Exchanges<Mutex<FcpPacket>>,
    timers: Timers,
    transmit: Transmit,
    /// Frames for the FCP thread.
    received: Belt<Received>,
    /// Commands for the completion thread.
    completed: Belt<Box<ScsiCommand>>,
    nexus: OnceLock<Nexus>,
    is_lost: AtomicBool,
    over: AtomicBool,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// The disk, as the block layer sees it.
struct LayeredDisk {
    shared: Arc<Shared>,
    /// Its properties, once it is connected.
    scsi: OnceLock<ScsiDisk>,
    arena: Arena,
}

/// A session with the layered initiator, which a benchmark uses like any other. It owns the threads
/// of the layers, and dropping it ends them.
pub(crate) struct LayeredSession {
    disk: Arc<LayeredDisk>,
    pollers: Sender<MakePoller>,
    threads: Vec<JoinHandle<()>>,
}

/// Connects a disk for a measurement.
///
/// # Errors
/// It can't be used in time.
pub(crate) fn connect(args: &BenchArgs, options: FcoeHostOptions) -> Result<LayeredSession> {
    if !options.further_queues.is_empty() {
        let message = "the layered initiator has one queue: leave out --queues";
        return Err(Error::new(Code::Usage, message));
    }
    let session = LayeredSession::start(options)?;
    session.disk.connect(args.timeout())?;
    Ok(session)
}

impl DiskSession for LayeredSession {
    fn disk(&self) -> Arc<dyn Disk> {
        self.disk.clone()
    }

    fn adopt(&self, _: usize, make: MakePoller) {
        // The thread ends with the session.
        let _ = self.pollers.send(make);
    }

    fn failure(&self) -> Option<Error> {
        let is_lost = self.disk.shared.is_lost.load(Ordering::SeqCst);
        is_lost.then(|| unreachable("the target has ended the login"))
    }
}

fn unreachable(why: impl fmt::Display) -> Error {
    Error::new(Code::Unreachable, format!("the layered initiator: {why}"))
}

impl LayeredSession {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system refuses a thread or an eventfd, or the link has no halves.
    fn start(options: FcoeHostOptions) -> io::Result<Self> {
        let config = options.port.config(INITIATOR);
        let Interface { fip, fcoe } = options.port.interface;
        let fcoe = SharedLink::new(fcoe)?;
        let shared = Arc::new(Shared {
            lun: options.lun.0,
            requests: RequestQueue::new(options.session.queue_size.into()),
            exchanges: Exchanges::new(),
            timers: Timers::default(),
            transmit: fcoe.transmit(),
            received: Belt::new()?,
            completed: Belt::new()?,
            nexus: OnceLock::new(),
            is_lost: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let interface = Interface { fip, fcoe: Box::new(fcoe) };
        let (pollers, made) = channel();
        let arena = Arena::new(options.arena_size.all);
        let disk = Arc::new(LayeredDisk { shared, scsi: OnceLock::new(), arena });
        let mut this = Self { disk, pollers, threads: Vec::new() };
        let (spin, target) = (options.spin, options.target);
        this.spawn("layered-receive", move |shared| {
            let role = Forwarding::new(Arc::clone(&shared), target);
            let port = NPort::new(config, role);
            let service = ReceiveLoop { port, shared, is_leaving: false };
            EventLoop::new(
                service,
                interface.into_ports(&NumaAffinity::default()),
                Spin::new(spin),
            )
            .run();
        })?;
        this.spawn("layered-fcp", move |shared| run_fcp(&shared, Spin::new(spin)))?;
        this.spawn("layered-complete", move |shared| {
            run_completion(&shared, &made, Spin::new(spin));
        })?;
        Ok(this)
    }

    fn spawn(
        &mut self,
        name: &str,
        body: impl FnOnce(Arc<Shared>) + Send + 'static,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.disk.shared);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || body(shared))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for LayeredSession {
    fn drop(&mut self) {
        self.disk.shared.over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            // The panic message has been printed.
            let _ = thread.join();
        }
    }
}

impl LayeredDisk {
    /// Waits for the login, and asks for the properties of the disk.
    ///
    /// # Errors
    /// It can't be used in time.
    fn connect(&self, timeout: Duration) -> Result<()> {
        let end = Instant::now() + timeout;
        while self.shared.nexus.get().is_none() {
            if Instant::now() > end {
                return Err(unreachable("no login within the time limit"));
            }
            std::thread::sleep(PAUSE);
        }
        let mut discovery = Discovery::default();
        // Not that of requests, which holds their data and no byte more.
        let arena = Arena::new(QUESTION_PAGES);
        while let Some(request) = discovery.request() {
            let buffer = arena.alloc(request.data.len() as usize);
            let (sender, receiver) = sync_channel(1);
            self.submit_command(ScsiCommand::question(request, buffer, sender));
            self.shared.transmit.flush();
            let left = end.saturating_duration_since(Instant::now());
            let answered = receiver.recv_timeout(left);
            let answered = answered.map_err(|_| unreachable("a question is not answered"))?;
            let data = answered.buffer.as_deref().unwrap_or_default();
            let data = &data[..data.len().min(answered.moved as usize)];
            let answer = CommandAnswer { status: answered.status, sense: &answered.sense, data };
            match discovery.handle(answer) {
                Progress::Failed(error) => return Err(unreachable(error)),
                Progress::Later => std::thread::sleep(PAUSE),
                Progress::Next | Progress::Done => {}
            }
        }
        let disk = discovery.disk().copied().ok_or_else(|| unreachable("there is no disk"))?;
        let _ = self.scsi.set(disk);
        Ok(())
    }

    fn submit_command(&self, command: Box<ScsiCommand>) {
        self.shared.requests.push(command);
        packet::run_queue(&self.shared);
    }
}

impl Disk for LayeredDisk {
    fn geometry(&self) -> Geometry {
        self.scsi.get().map_or(Geometry::UNKNOWN, |disk| disk.geometry)
    }

    fn arena(&self) -> &Arena {
        &self.arena
    }

    fn submit(&self, request: Request, token: u64, sink: &Arc<dyn Sink>) {
        let disk = self.scsi.get().expect("requests come after the disk is connected");
        match ScsiCommand::new(disk, request, token, sink) {
            Ok(command) => self.submit_command(command),
            Err(completion) => sink.complete(completion),
        }
    }
}

/// The FCP thread.
fn run_fcp(shared: &Shared, mut spin: Spin) {
    let mut frames = VecDeque::new();
    while !shared.is_over() {
        shared.received.take(&mut frames);
        if frames.is_empty() {
            shared.received.wait(&mut spin);
            continue;
        }
        spin.worked();
        frames.drain(..).for_each(|frame| packet::handle(shared, &frame));
        shared.transmit.flush();
    }
}

/// The completion thread, in which the next requests are submitted as well.
fn run_completion(shared: &Shared, made: &Receiver<MakePoller>, mut spin: Spin) {
    let mut commands = VecDeque::new();
    let mut pollers: Vec<Box<dyn Poller>> = Vec::new();
    let mut looked_at = timers::ticks();
    while !shared.is_over() {
        while let Ok(make) = made.try_recv() {
            pollers.extend(make());
        }
        shared.completed.take(&mut commands);
        let mut worked = !commands.is_empty();
        for command in commands.drain(..) {
            shared.requests.ended();
            command.complete();
        }
        packet::run_queue(shared);
        pollers.retain_mut(|poller| {
            let polled = poller.poll().unwrap_or(Polled::Over);
            worked |= polled == Polled::Worked;
            polled != Polled::Over
        });
        worked |= shared.transmit.flush();
        if worked {
            spin.worked();
        } else {
            look_at_timers(shared, &mut looked_at);
            shared.completed.wait(&mut spin);
        }
    }
}

/// Takes the timers that have ended, once a tick.
fn look_at_timers(shared: &Shared, looked_at: &mut i64) {
    let now = timers::ticks();
    if std::mem::replace(looked_at, now) != now {
        let late = shared.timers.expire();
        if late > 0 {
            tracing::warn!(late, "commands without an answer: the load will give up");
        }
    }
}
