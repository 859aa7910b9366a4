//! The thread of an interface.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tyche_block::Arena;
use tyche_counters::CounterGroup;
use tyche_engine::{EventLoop, PortStats, Ports, Protocol, Service};
use tyche_fc::neighbour::Functions;
use tyche_fc::wire::Wwn;
use tyche_time::Instant;
use tyche_wake::{Doorbell, Spin};

use super::report::FcoeTargetReport;
use super::role::TargetRole;
use super::units::Units;
use crate::interface::receive_capacity;
use crate::n_port::{NPort, Notice};
use crate::options::PortOptions;

/// Pages of memory for the data of commands.
const ARENA_PAGES: usize = (64 << 20) / tyche_block::PAGE;
/// The functions of its port.
const FUNCTIONS: Functions = Functions { initiator: false, target: true };

/// Options to serve an interface with.
pub struct FcoeTargetOptions {
    /// The port.
    pub port: PortOptions,
    /// The logical units.
    pub units: Arc<Units>,
    /// The longest spin before sleeping.
    pub spin: Duration,
}

enum Command {
    Report(SyncSender<FcoeTargetReport>),
    Stop,
}

/// The running thread. Dropping it logs out, and waits until the disks have finished.
pub struct FcoeTarget {
    commands: Sender<Command>,
    doorbell: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

impl FcoeTarget {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's error when a thread or an eventfd cannot be created, or there is no memory.
    pub fn start(options: FcoeTargetOptions) -> io::Result<Self> {
        let (sender, commands) = channel();
        let doorbell = Arc::new(Doorbell::new()?);
        let rung = Arc::clone(&doorbell);
        let arena = Arena::try_new(ARENA_PAGES)?;
        let name = format!("fcoe-{}", options.port.interface.name());
        // Ports have numbers in the order in which they are started.
        options.units.port(options.port.wwpn);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let spin = Spin::new(options.spin);
            let (service, ports) = TargetLoop::new((options, arena), commands, rung);
            EventLoop::new(service, ports, spin).run();
        })?;
        Ok(Self { commands: sender, doorbell, thread: Some(thread) })
    }

    fn send(&self, command: Command) {
        // A thread that has ended needs no commands.
        let _ = self.commands.send(command);
        self.doorbell.ring();
    }

    /// Asks for the state of the interface, which comes in the receiver that is returned.
    pub fn ask(&self) -> Receiver<FcoeTargetReport> {
        let (sender, receiver) = sync_channel(1);
        self.send(Command::Report(sender));
        receiver
    }

    /// Has it log out. It ends when the disks have finished what initiators have asked for.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }
}

impl Drop for FcoeTarget {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of an interface panicked");
        }
    }
}

/// The service of the thread's loop.
struct TargetLoop {
    port: NPort<TargetRole>,
    wwpn: Wwn,
    commands: Receiver<Command>,
    doorbell: Arc<Doorbell>,
    stopping: bool,
}

impl TargetLoop {
    fn new(
        (options, arena): (FcoeTargetOptions, Arena),
        commands: Receiver<Command>,
        doorbell: Arc<Doorbell>,
    ) -> (Self, Ports) {
        // Half of them is left for commands, and what comes beside data.
        let frames_max = receive_capacity(&*options.port.interface.fcoe) / 2;
        let wwpn = options.port.wwpn;
        let place = (Arc::clone(&options.units), options.units.port(wwpn));
        let role = TargetRole::new(place, arena, frames_max);
        let bell = Arc::clone(&doorbell);
        role.wake_with(Box::new(move || bell.ring()));
        let (port, ports) = options.port.open(FUNCTIONS, role);
        (Self { port, wwpn, commands, doorbell, stopping: false }, ports)
    }

    fn report(&self, ports: &mut Ports) -> FcoeTargetReport {
        let (mut link, mut problem, mut stats) = (String::new(), None, PortStats::default());
        for (_, port) in ports.iter_mut() {
            port.link().name().clone_into(&mut link);
            problem = problem.or_else(|| port.trouble().map(str::to_owned));
            stats += port.stats();
        }
        FcoeTargetReport {
            link,
            wwpn: self.wwpn,
            id: self.port.address().map(|(id, _)| id),
            problem,
            initiators: self.port.role.initiators().collect(),
            commands: self.port.role.commands(),
            port: stats,
            rejects: *self.port.rejects(),
            ignored: self.port.role.ignored().iter().collect(),
        }
    }
}

impl Service for TargetLoop {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.port
    }

    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        let mut worked = self.port.attend(now, ports);
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
