//! The thread of a session with a disk, its handle, and the loop's tenant.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tyche_block::{Arena, Errno};
use tyche_engine::{
    Done, EventLoop, HostReport, Intake, Job, Notice, Ports, Protocol, Tenant, Volume, VolumeQueue,
};
use tyche_time::Instant;
use tyche_wake::{MakePoller, Spin};

use super::driver::Driver;
use super::obstacle::Obstacle;
use super::options::FcoeHostOptions;

/// Time limit for the thread to answer.
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
    /// Starts the thread, which looks for the target at once. Calls `notify` with each notice, in
    /// order. `notify` must not wait.
    ///
    /// # Errors
    /// The system's error when a thread or an eventfd cannot be created.
    pub fn start(
        options: FcoeHostOptions,
        notify: impl FnMut(Notice) + Send + 'static,
    ) -> io::Result<Self> {
        let volume = Arc::new(Volume::new([Arena::new(options.arena_pages)])?);
        let (sender, commands) = channel();
        let queue = Arc::clone(&volume.loops()[0]);
        let control = FcoeControl { volume: Arc::clone(&queue), commands: sender };
        let thread = std::thread::Builder::new().name("fcoe-session".into()).spawn(move || {
            // Without the privilege there is no protection, but the disk works.
            if let Err(error) = tyche_block::avoid_reclaim_io() {
                tracing::debug!(%error, "session without protection from memory reclaim");
            }
            let spin = Spin::new(options.spin);
            let (driver, ports) = Driver::new(options);
            let (intake, notify) = (Intake::new(queue), Box::new(notify));
            let tenant = HostLoop { driver, intake, commands, notify };
            EventLoop::new(tenant, ports, spin).run().end();
        })?;
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
}

impl Drop for FcoeHost {
    fn drop(&mut self) {
        self.control.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a session's thread panicked");
        }
    }
}

/// Controls a session from any thread.
#[derive(Clone)]
pub struct FcoeControl {
    volume: Arc<VolumeQueue>,
    commands: Sender<Command>,
}

impl FcoeControl {
    fn send(&self, command: Command) {
        // Once the session is over the channel is closed: there is nothing to control.
        let _ = self.commands.send(command);
        self.volume.doorbell.ring();
    }

    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Option<T> {
        let (sender, receiver) = sync_channel(1);
        self.send(command(sender));
        receiver.recv_timeout(ANSWER).ok()
    }

    /// Ends the session and logs out: all requests in progress fail.
    /// [`Notice::Closed`] follows.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    /// Adds a poller to the thread. It is polled until it ends, even after the end of the session.
    pub fn adopt(&self, make: MakePoller) {
        self.send(Command::Adopt(make));
    }

    /// Reports the state of the session; `None` if it has ended or does not answer within a second.
    pub fn report(&self) -> Option<HostReport> {
        self.ask(Command::Report)
    }

    /// The obstacle on the way to the disk; `None` if it can be used.
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.ask(Command::Obstacle).flatten()
    }
}

/// The tenant of the thread's loop.
struct HostLoop {
    driver: Driver,
    intake: Intake<Job>,
    commands: Receiver<Command>,
    notify: Box<dyn FnMut(Notice) + Send>,
}

impl HostLoop {
    /// Fails the remaining requests: the session has ended.
    fn end(mut self) {
        self.intake.end(|job| job.done(Err(Errno::IO)).answer());
        (self.notify)(Notice::Closed);
    }

    /// Delivers answers, and notices after them; false if there was nothing.
    fn settle(&mut self, now: Instant) -> bool {
        let worked = self.driver.work(now);
        self.driver.done.drain(..).for_each(Done::answer);
        while let Some(notice) = self.driver.notices.pop_front() {
            if let Notice::Connected(_) | Notice::Resized(_) = notice
                && let Some(geometry) = self.driver.geometry()
            {
                self.intake.volume().set_geometry(geometry);
            }
            (self.notify)(notice);
        }
        worked
    }
}

impl Tenant for HostLoop {
    fn protocol(&mut self) -> &mut impl Protocol {
        self.driver.protocol()
    }

    fn obey(&mut self, now: Instant, ports: &mut Ports) -> bool {
        let mut worked = self.driver.obey(now, ports);
        while let Ok(command) = self.commands.try_recv() {
            worked = true;
            match command {
                // The recipient may have timed out.
                Command::Report(to) => {
                    let _ = to.send(self.driver.report(now, ports));
                }
                Command::Obstacle(to) => {
                    let _ = to.send(self.driver.obstacle(ports));
                }
                Command::Adopt(make) => self.intake.adopt(make),
                Command::Stop => self.driver.stop(now),
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
