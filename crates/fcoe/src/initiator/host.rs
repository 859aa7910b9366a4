//! The threads of a session with a disk, their handle, and the service of their loops.

use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as SystemInstant};

use tyche_block::{Arena, Errno, Geometry};
use tyche_engine::{Done, EventLoop, Intake, Job, Ports, Protocol, Service, Volume, VolumeQueue};
use tyche_link::Link;
use tyche_numa::NumaAffinity;
use tyche_remote::{Control, HostReport, LinkControl, Notice, Remote};
use tyche_time::Instant;
use tyche_wake::{MakePoller, Spin};

use super::driver::Driver;
use super::further::LaneDriver;
use super::obstacle::Obstacle;
use super::options::FcoeHostOptions;
use super::shared::SessionShared;
use crate::interface::insert_fcoe;
use crate::lanes::{LANES_MAX, share};

/// Time limit for a thread to answer.
const ANSWER: Duration = Duration::from_secs(1);

enum Command {
    Report(SyncSender<HostReport>),
    Obstacle(SyncSender<Option<Obstacle>>),
    Adopt(MakePoller),
    Stop,
}

/// The running session. Dropping it aborts the session.
pub struct FcoeHost {
    volume: Arc<Volume>,
    control: FcoeControl,
    thread: Option<JoinHandle<()>>,
}

impl FcoeHost {
    /// Starts the threads, the first of which looks for the target at once. Calls `notify` with
    /// each notice, in order. `notify` must not wait.
    ///
    /// # Errors
    /// The system's error when a thread or an eventfd cannot be created, and `Unsupported` if there
    /// are several queues, and the links can't divide frames.
    ///
    /// # Panics
    /// With more than [`LANES_MAX`] queues.
    pub fn start(
        mut options: FcoeHostOptions,
        notify: impl FnMut(Notice) + Send + 'static,
    ) -> io::Result<Self> {
        let further = std::mem::take(&mut options.further_queues);
        let lanes = 1 + further.len();
        assert!(lanes <= LANES_MAX, "{lanes} queues");
        let arenas = (0..lanes).map(|_| Arena::new(options.arena_pages));
        let volume = Arc::new(Volume::new(arenas)?);
        let woken = Arc::clone(&volume);
        let shared = SessionShared::new(lanes, move |lane| woken.loops()[lane].doorbell.ring());
        let (commands, mut receivers): (Vec<_>, Vec<_>) = (0..lanes).map(|_| channel()).unzip();
        let first = receivers.remove(0);
        let mut others = Others { shared: Arc::clone(&shared), threads: Vec::new() };
        let spin = options.spin;
        for (lane, (mut link, commands)) in (1..).zip(further.into_iter().zip(receivers)) {
            divide(&mut *link, lane, lanes)?;
            let driver = LaneDriver::new(options.config(&*link), shared.handle(lane));
            let mut ports = Ports::new();
            insert_fcoe(&mut ports, link, &NumaAffinity::default());
            let notify = Box::new(|_| unreachable!("notices are those of the first lane"));
            let volume = Arc::clone(&volume.loops()[lane]);
            let starter = Starter { driver, ports, volume, commands, notify, spin };
            others.threads.push(starter.start(format!("fcoe-queue{lane}"), drop)?);
        }
        if lanes > 1 {
            divide(&mut *options.port.interface.fcoe, 0, lanes)?;
        }
        let (driver, ports) = Driver::new(options, &shared);
        let (notify, queue) = (Box::new(notify), Arc::clone(&volume.loops()[0]));
        let starter = Starter { driver, ports, volume: queue, commands: first, notify, spin };
        let thread = starter.start("fcoe-session".to_owned(), |mut notify| {
            drop(others);
            notify(Notice::Closed);
        })?;
        let queues = volume.loops().iter().zip(commands);
        let queues =
            queues.map(|(volume, commands)| QueueControl { volume: Arc::clone(volume), commands });
        let control = FcoeControl { queues: queues.collect() };
        Ok(Self { volume, control, thread: Some(thread) })
    }

    /// The disk. Its geometry is known after the first notice that it is connected.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// A handle for other threads.
    pub fn control(&self) -> FcoeControl {
        self.control.clone()
    }

    /// The session, for those who do not know its protocol. `name`: that of its port, which is held
    /// as long.
    pub fn into_remote(self, name: impl Any + Send + Sync) -> Remote {
        Remote::new(Arc::<Volume>::clone(&self.volume), self.control(), (self, name))
    }
}

impl Drop for FcoeHost {
    fn drop(&mut self) {
        self.control.abort();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a session's thread panicked");
        }
    }
}

/// Restricts a link to the share of a lane.
fn divide(link: &mut dyn Link, lane: usize, lanes: usize) -> io::Result<()> {
    if link.select(share(lane, lanes)) {
        return Ok(());
    }
    let message = format!("link {} can't have several queues", link.name());
    Err(io::Error::new(io::ErrorKind::Unsupported, message))
}

/// The threads of further lanes. Dropping it ends them: the session ends as one.
struct Others {
    shared: Arc<SessionShared>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Others {
    fn drop(&mut self) {
        self.shared.end();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("the thread of a queue panicked");
            }
        }
    }
}

/// A lane that has no thread yet.
struct Starter<D> {
    driver: D,
    ports: Ports,
    volume: Arc<VolumeQueue>,
    commands: Receiver<Command>,
    notify: Notify,
    spin: Duration,
}

impl<D: Drives> Starter<D> {
    /// Starts the thread, which runs until the driver is over, and `end` then.
    fn start(
        self,
        name: String,
        end: impl FnOnce(Notify) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let Self { driver, ports, volume, commands, notify, spin } = self;
        std::thread::Builder::new().name(name).spawn(move || {
            // Without the privilege there is no protection, but the disk works.
            if let Err(error) = tyche_block::avoid_reclaim_io() {
                tracing::debug!(%error, "session without protection from memory reclaim");
            }
            let service = HostLoop { driver, intake: Intake::new(volume), commands, notify };
            end(EventLoop::new(service, ports, Spin::new(spin)).run().end());
        })
    }
}

/// Controls a queue from any thread.
#[derive(Clone)]
struct QueueControl {
    volume: Arc<VolumeQueue>,
    commands: Sender<Command>,
}

impl QueueControl {
    fn send(&self, command: Command) {
        // Once the session is over the channel is closed: there is nothing to control.
        let _ = self.commands.send(command);
        self.volume.doorbell.ring();
    }

    /// Sends a command that is answered; returns the receiver of the answer.
    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Receiver<T> {
        let (sender, receiver) = sync_channel(1);
        self.send(command(sender));
        receiver
    }
}

/// Controls a session from any thread.
#[derive(Clone)]
pub struct FcoeControl {
    queues: Arc<[QueueControl]>,
}

impl FcoeControl {
    /// The obstacle on the way to the disk; `None` if it can be used.
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.queues[0].ask(Command::Obstacle).recv_timeout(ANSWER).ok().flatten()
    }

    /// Looks why the disk can't be used yet, for the last time if `is_last`.
    ///
    /// # Errors
    /// The obstacle, if there is no use in waiting longer.
    pub fn check(&self, is_last: bool) -> Result<(), Obstacle> {
        match self.obstacle() {
            Some(obstacle) if is_last || obstacle.is_final() => Err(obstacle),
            None if is_last => Err(Obstacle::Asking),
            _ => Ok(()),
        }
    }
}

impl Control for FcoeControl {
    fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Logs out: all requests in progress fail.
    fn disconnect(&self) {
        self.abort();
    }

    fn abort(&self) {
        self.queues[0].send(Command::Stop);
    }

    fn adopt(&self, queue: usize, make: MakePoller) {
        self.queues[queue].send(Command::Adopt(make));
    }

    fn report(&self) -> Option<HostReport> {
        let reports: Vec<_> = self.queues.iter().map(|queue| queue.ask(Command::Report)).collect();
        let deadline = SystemInstant::now() + ANSWER;
        let reports = reports.iter().filter_map(|report| {
            report.recv_timeout(deadline.saturating_duration_since(SystemInstant::now())).ok()
        });
        HostReport::all(reports)
    }

    fn links(&self) -> Option<&dyn LinkControl> {
        None
    }
}

/// A lane as its thread drives it.
trait Drives: Service + Send + 'static {
    /// Takes a request, or gives it back if there is no room.
    fn submit(&mut self, now: Instant, job: Job) -> Result<(), Job>;

    /// Finished requests, to be taken.
    fn done(&mut self) -> &mut Vec<Done>;

    /// The next notice, if it is the first lane; with the properties of the disk, if they are new.
    fn poll_notice(&mut self) -> Option<(Notice, Option<Geometry>)> {
        None
    }

    /// Processes a command, but for pollers. Those of the session come to the first lane.
    fn command(&mut self, now: Instant, ports: &mut Ports, command: Command);
}

impl Drives for Driver {
    fn submit(&mut self, now: Instant, job: Job) -> Result<(), Job> {
        Self::submit(self, now, job)
    }

    fn done(&mut self) -> &mut Vec<Done> {
        &mut self.done
    }

    fn poll_notice(&mut self) -> Option<(Notice, Option<Geometry>)> {
        let notice = self.notices.pop_front()?;
        let is_new = matches!(notice, Notice::Connected(_) | Notice::Resized(_));
        Some((notice, self.geometry().filter(|_| is_new)))
    }

    fn command(&mut self, now: Instant, ports: &mut Ports, command: Command) {
        match command {
            // The recipient may have timed out.
            Command::Report(to) => drop(to.send(self.report(now, ports))),
            Command::Obstacle(to) => drop(to.send(self.obstacle(ports))),
            Command::Stop => self.stop(now),
            Command::Adopt(_) => unreachable!("the loop has the pollers"),
        }
    }
}

impl Drives for LaneDriver {
    fn submit(&mut self, now: Instant, job: Job) -> Result<(), Job> {
        Self::submit(self, now, job)
    }

    fn done(&mut self) -> &mut Vec<Done> {
        &mut self.done
    }

    fn command(&mut self, now: Instant, ports: &mut Ports, command: Command) {
        if let Command::Report(to) = command {
            let _ = to.send(self.report(now, ports));
        }
    }
}

/// Told of the notices of a session.
type Notify = Box<dyn FnMut(Notice) + Send>;

/// The service of a thread's loop.
struct HostLoop<D> {
    driver: D,
    intake: Intake<Job>,
    commands: Receiver<Command>,
    notify: Notify,
}

impl<D: Drives> HostLoop<D> {
    /// Fails the remaining requests: the session has ended.
    fn end(self) -> Notify {
        self.intake.end(|job| job.done(Err(Errno::IO)).answer());
        self.notify
    }

    /// Delivers answers, and notices after them; false if there was nothing.
    fn settle(&mut self, now: Instant) -> bool {
        let worked = self.driver.work(now);
        self.driver.done().drain(..).for_each(Done::answer);
        while let Some((notice, geometry)) = self.driver.poll_notice() {
            if let Some(geometry) = geometry {
                self.intake.volume().set_geometry(geometry);
            }
            (self.notify)(notice);
        }
        worked
    }
}

impl<D: Drives> Service for HostLoop<D> {
    fn protocol(&mut self) -> &mut impl Protocol {
        self.driver.protocol()
    }

    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        let mut worked = self.driver.handle_commands(now, ports);
        while let Ok(command) = self.commands.try_recv() {
            worked = true;
            match command {
                Command::Adopt(make) => self.intake.adopt(make),
                command => self.driver.command(now, ports, command),
            }
        }
        worked
    }

    fn work(&mut self, now: Instant) -> bool {
        let mut worked = self.settle(now);
        worked |= self.intake.poll();
        let driver = &mut self.driver;
        worked |= self.intake.take(|job| driver.submit(now, job));
        worked | self.settle(now)
    }

    fn is_over(&self) -> bool {
        self.driver.is_over()
    }

    fn may_sleep(&mut self) -> bool {
        self.intake.may_sleep()
    }

    fn awake(&mut self) {
        self.intake.awake();
    }

    fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.intake.wait_fds()
    }
}
