//! The threads of an interface.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Moment};

use tyche_block::Arena;
use tyche_engine::{EventLoop, Ports, Protocol, Service};
use tyche_fc::neighbour::Functions;
use tyche_fc::wire::Wwn;
use tyche_link::Link;
use tyche_numa::NumaAffinity;
use tyche_time::Instant;
use tyche_wake::{Doorbell, Spin};

use super::further::FurtherThread;
use super::report::{FcoeTargetReport, FirstReport, ThreadReport};
use super::role::TargetRole;
use super::seat::Seat;
use super::units::Units;
use crate::interface::{divide, insert_fcoe, receive_capacity};
use crate::lanes::{share_of_thread, threads_within};
use crate::n_port::{NPort, Notice};
use crate::options::PortOptions;

/// Pages of memory of a thread for the data of commands.
const ARENA_PAGES: usize = (64 << 20) / tyche_block::PAGE;
/// The functions of its port.
const FUNCTIONS: Functions = Functions { initiator: false, target: true };

/// Options to serve an interface with.
pub struct FcoeTargetOptions {
    /// The port.
    pub port: PortOptions,
    /// The links of further threads for FCoE, on the same interface: each has the commands whose
    /// exchanges fall to it, with exchanges and memory of its own. With the first one there are
    /// 1, 2, 4, 8 or 16 threads.
    pub further_threads: Vec<Box<dyn Link>>,
    /// The logical units.
    pub units: Arc<Units>,
    /// The longest spin before sleeping.
    pub spin: Duration,
}

enum Command<T> {
    Report(SyncSender<T>),
    Stop,
}

/// A running thread, which takes commands. Dropping it ends it, and waits for it.
struct Running<T> {
    commands: Sender<Command<T>>,
    doorbell: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Running<T> {
    /// Starts a thread with the service that `make` makes, in it.
    fn start<S: Service>(
        name: String,
        spin: Duration,
        make: impl FnOnce(Receiver<Command<T>>, Arc<Doorbell>) -> (S, Ports) + Send + 'static,
    ) -> io::Result<Self> {
        let (commands, taken) = channel();
        let doorbell = Arc::new(Doorbell::new()?);
        let rung = Arc::clone(&doorbell);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let (service, ports) = make(taken, rung);
            EventLoop::new(service, ports, Spin::new(spin)).run();
        })?;
        Ok(Self { commands, doorbell, thread: Some(thread) })
    }

    fn send(&self, command: Command<T>) {
        // A thread that has ended needs no commands.
        let _ = self.commands.send(command);
        self.doorbell.ring();
    }

    fn ask(&self) -> Receiver<T> {
        let (sender, receiver) = sync_channel(1);
        self.send(Command::Report(sender));
        receiver
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Stop);
        self.doorbell.ring();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread of an interface panicked");
        }
    }
}

/// The running threads. Dropping it logs out, and waits until the disks have finished.
pub struct FcoeTarget {
    /// Dropped before the others: a login ends when all threads have noticed.
    first: Running<FirstReport>,
    further: Vec<Running<ThreadReport>>,
}

impl FcoeTarget {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system's error when a thread or an eventfd cannot be created, or there is no memory, and
    /// `Unsupported` if there are several threads, and the links can't divide frames.
    ///
    /// # Panics
    /// With a number of threads that is no power of two, or more than
    /// [`LANES_MAX`](crate::LANES_MAX).
    pub fn start(mut options: FcoeTargetOptions) -> io::Result<Self> {
        let further_threads = std::mem::take(&mut options.further_threads);
        let threads = 1 + further_threads.len();
        assert_eq!(threads, threads_within(threads), "threads of an interface");
        let FcoeTargetOptions { mut port, units, spin, .. } = options;
        let (name, wwpn) = (format!("fcoe-{}", port.interface.name()), port.wwpn);
        // Ports have numbers in the order in which they are started.
        let mut seats = Seat::take(&units, wwpn, threads).into_iter();
        let first = seats.next().expect("there is a thread");
        let mut further = Vec::new();
        for (thread, (mut link, seat)) in (1..).zip(further_threads.into_iter().zip(seats)) {
            divide(&mut *link, share_of_thread(thread, threads), "threads")?;
            let arena = Arena::try_new(ARENA_PAGES)?;
            let make = move |commands, doorbell| {
                let role = role(seat, arena, &*link, &doorbell);
                let mut ports = Ports::new();
                insert_fcoe(&mut ports, link, &NumaAffinity::default());
                let thread = FurtherThread::new(role);
                (FurtherLoop { thread, commands, doorbell, stopping: false }, ports)
            };
            further.push(Running::start(format!("{name}-{thread}"), spin, make)?);
        }
        if threads > 1 {
            divide(&mut *port.interface.fcoe, share_of_thread(0, threads), "threads")?;
        }
        let arena = Arena::try_new(ARENA_PAGES)?;
        let first = Running::start(name, spin, move |commands, doorbell| {
            let role = role(first, arena, &*port.interface.fcoe, &doorbell);
            let (port, ports) = port.open(FUNCTIONS, role);
            (TargetLoop { port, wwpn, commands, doorbell, stopping: false }, ports)
        })?;
        Ok(Self { first, further })
    }

    /// Asks for the state of the interface, which comes later.
    pub fn ask(&self) -> AskedReport {
        let further = self.further.iter().map(Running::ask).collect();
        AskedReport { first: self.first.ask(), further }
    }

    /// Has it log out. It ends when the disks have finished what initiators have asked for.
    pub fn stop(&self) {
        self.first.send(Command::Stop);
    }
}

/// A report that was asked for.
pub struct AskedReport {
    first: Receiver<FirstReport>,
    further: Vec<Receiver<ThreadReport>>,
}

impl AskedReport {
    /// Waits until all threads have answered.
    ///
    /// # Errors
    /// If one has not within `limit`, or has ended.
    pub fn recv_timeout(&self, limit: Duration) -> Result<FcoeTargetReport, RecvTimeoutError> {
        let until = Moment::now() + limit;
        let left = || until.saturating_duration_since(Moment::now());
        let first = self.first.recv_timeout(limit)?;
        let further = self.further.iter().map(|it| it.recv_timeout(left()));
        Ok(FcoeTargetReport::new(first, further.collect::<Result<_, _>>()?))
    }
}

/// The role of a thread that receives from a link.
fn role(seat: Seat, arena: Arena, link: &dyn Link, doorbell: &Arc<Doorbell>) -> TargetRole {
    // Half of them is left for commands, and what comes beside data.
    let role = TargetRole::new(seat, arena, receive_capacity(link) / 2);
    let bell = Arc::clone(doorbell);
    role.wake_with(Box::new(move || bell.ring()));
    role
}

/// The service of the first thread's loop.
struct TargetLoop {
    port: NPort<TargetRole>,
    wwpn: Wwn,
    commands: Receiver<Command<FirstReport>>,
    doorbell: Arc<Doorbell>,
    stopping: bool,
}

impl TargetLoop {
    fn report(&self, ports: &mut Ports) -> FirstReport {
        FirstReport {
            thread: ThreadReport::new(ports, &self.port.role, self.port.rejects()),
            wwpn: self.wwpn,
            id: self.port.address().map(|(id, _)| id),
            initiators: self.port.role.initiators().collect(),
        }
    }
}

impl Service for TargetLoop {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.port
    }

    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        let mut worked = self.port.attend(now, ports) | self.port.role.listen(now);
        while let Some(sent_on) = self.port.role.poll_sent_on() {
            worked = true;
            self.port.handle_sent_on(now, &sent_on.frame());
        }
        while let Ok(command) = self.commands.try_recv() {
            worked = true;
            match command {
                Command::Report(to) => {
                    // The recipient may have timed out.
                    let _ = to.send(self.report(ports));
                }
                Command::Stop => {
                    self.stopping = true;
                    self.port.log_out(now);
                }
            }
        }
        worked
    }

    fn work(&mut self, now: Instant) -> bool {
        let worked = self.port.role.work(now);
        if worked {
            self.port.settle(now);
        }
        while let Some(notice) = self.port.poll_notice() {
            if let Notice::Neighbour(event) = notice {
                tracing::debug!(?event, "neighbours");
            }
        }
        worked
    }

    fn is_over(&self) -> bool {
        self.stopping && self.port.role.initiators().next().is_none()
    }

    fn may_sleep(&mut self) -> bool {
        self.doorbell.announce();
        true
    }

    fn awake(&mut self) {
        self.doorbell.awake();
    }

    fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.port.role.wait_fds().chain([self.doorbell.wait_fd()])
    }
}

/// The service of a further thread's loop.
struct FurtherLoop {
    thread: FurtherThread,
    commands: Receiver<Command<ThreadReport>>,
    doorbell: Arc<Doorbell>,
    stopping: bool,
}

impl Service for FurtherLoop {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.thread
    }

    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        let mut worked = self.thread.attend(now, ports);
        while let Ok(command) = self.commands.try_recv() {
            worked = true;
            match command {
                Command::Report(to) => {
                    let FurtherThread { role, rejects, .. } = &self.thread;
                    // The recipient may have timed out.
                    let _ = to.send(ThreadReport::new(ports, role, rejects));
                }
                Command::Stop => self.stopping = true,
            }
        }
        worked
    }

    fn work(&mut self, now: Instant) -> bool {
        self.thread.role.work(now)
    }

    fn is_over(&self) -> bool {
        // The first thread has ended before, and with it all logins.
        self.stopping
    }

    fn may_sleep(&mut self) -> bool {
        self.doorbell.announce();
        true
    }

    fn awake(&mut self) {
        self.doorbell.awake();
    }

    fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.thread.role.wait_fds().chain([self.doorbell.wait_fd()])
    }
}
