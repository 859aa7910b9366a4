//! The threads of a session with a disk, and their handle.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;

use tyche_block::{Arena, Geometry};
use tyche_engine::{Done, Job, Ports, Volume, placed};
use tyche_numa::NumaAffinity;
use tyche_remote::{Control, HostReport, LinkControl, Notice, QueueDriver, Queues, Remote};
use tyche_time::Instant;
use tyche_wake::MakePoller;

use super::driver::Driver;
use super::further::LaneDriver;
use super::obstacle::Obstacle;
use super::options::FcoeHostOptions;
use super::shared::SessionShared;
use crate::interface::{divide, insert_fcoe};
use crate::lanes::{LANES_MAX, share};

/// A command to the first lane.
pub(super) enum Command {
    Obstacle(SyncSender<Option<Obstacle>>),
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
        let (size, nowhere) = (options.arena_size, NumaAffinity::default());
        let arena = |_| placed::elastic_arena(&nowhere, size);
        let arenas = (0..lanes).map(arena).collect::<io::Result<Vec<_>>>()?;
        let volume = Arc::new(Volume::new(arenas)?);
        let woken = Arc::clone(&volume);
        let shared = SessionShared::new(lanes, move |lane| woken.loops()[lane].doorbell.ring());
        let (queues, mut starters) = Queues::new(&volume)?;
        let first = starters.remove(0);
        let mut others = Others { shared: Arc::clone(&shared), threads: Vec::new() };
        let spin = options.spin;
        for (lane, (mut link, starter)) in (1..).zip(further.into_iter().zip(starters)) {
            divide(&mut *link, share(lane, lanes), "queues")?;
            let driver = LaneDriver::new(options.config(&*link), shared.handle(lane));
            let mut ports = Ports::new();
            insert_fcoe(&mut ports, link, &NumaAffinity::default());
            let notify = Box::new(|_| unreachable!("notices are those of the first lane"));
            let thread = (format!("fcoe-queue{lane}"), spin);
            others.threads.push(starter.start(thread, notify, move || (driver, ports), drop)?);
        }
        if lanes > 1 {
            divide(&mut *options.port.interface.fcoe, share(0, lanes), "queues")?;
        }
        let (driver, ports) = Driver::new(options, &shared);
        let thread = ("fcoe-session".to_owned(), spin);
        let make = move || (driver, ports);
        let thread = first.start(thread, Box::new(notify), make, |mut notify| {
            drop(others);
            notify(Notice::Closed);
        })?;
        Ok(Self { volume, control: FcoeControl { queues }, thread: Some(thread) })
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

/// Controls a session from any thread.
#[derive(Clone)]
pub struct FcoeControl {
    queues: Arc<Queues<Command>>,
}

impl FcoeControl {
    /// The obstacle on the way to the disk; `None` if it can be used.
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.queues.ask([0], Command::Obstacle).pop()??
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
        self.queues.count()
    }

    /// Logs out: all requests in progress fail.
    fn disconnect(&self) {
        self.abort();
    }

    fn abort(&self) {
        self.queues.send(0, Command::Stop);
    }

    fn adopt(&self, queue: usize, make: MakePoller) {
        self.queues.adopt(queue, make);
    }

    fn report(&self) -> Option<HostReport> {
        self.queues.report(0..self.queues.count())
    }

    fn links(&self) -> Option<&dyn LinkControl> {
        None
    }
}

impl QueueDriver for Driver {
    type Command = Command;

    fn submit(&mut self, now: Instant, job: Job) -> Result<(), Job> {
        Self::submit(self, now, job)
    }

    fn done(&mut self) -> &mut Vec<Done> {
        &mut self.done
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn geometry(&self) -> Option<Geometry> {
        Self::geometry(self)
    }

    fn report(&mut self, now: Instant, ports: &mut Ports, _: &Arena) -> HostReport {
        Self::report(self, now, ports)
    }

    fn command(&mut self, now: Instant, ports: &mut Ports, command: Command) {
        match command {
            // The recipient may have timed out.
            Command::Obstacle(to) => drop(to.send(self.obstacle(ports))),
            Command::Stop => self.stop(now),
        }
    }
}

impl QueueDriver for LaneDriver {
    type Command = Command;

    fn submit(&mut self, now: Instant, job: Job) -> Result<(), Job> {
        Self::submit(self, now, job)
    }

    fn done(&mut self) -> &mut Vec<Done> {
        &mut self.done
    }

    fn report(&mut self, now: Instant, ports: &mut Ports, _: &Arena) -> HostReport {
        Self::report(self, now, ports)
    }

    /// None: those of the session come to the first lane.
    fn command(&mut self, _: Instant, _: &mut Ports, _: Command) {}
}
