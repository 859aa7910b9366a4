//! The threads of a session: one for each queue of its disk, which joins links, protocol and
//! requests; and how others control them.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant as SystemInstant};

use tyche_block::{Arena, Disk, Errno, Geometry, Reserve};
use tyche_engine::{Done, EventLoop, Intake, Job, Ports, Protocol, Service, Volume, VolumeQueue};
use tyche_time::Instant;
use tyche_wake::{MakePoller, Spin};

use crate::memory::MemoryThread;
use crate::{HostReport, Notice};

/// Time limit for a queue to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// Told of the notices of a session, or of one of its queues. It must not wait.
pub type Notify = Box<dyn FnMut(Notice) + Send>;

/// The protocol of a queue, as its thread drives it.
pub trait QueueDriver: Service {
    /// The commands that only this protocol has.
    type Command: Send + 'static;

    /// Takes a request, or gives it back if there is no room.
    fn submit(&mut self, now: Instant, job: Job) -> Result<(), Job>;

    /// Finished requests, to be taken.
    fn done(&mut self) -> &mut Vec<Done>;

    /// All finished requests that were taken have been handed over to the device they are from.
    fn answered(&mut self) {}

    /// The next notice. It comes after the answers that there were before.
    fn poll_notice(&mut self) -> Option<Notice> {
        None
    }

    /// The properties of the disk, once they are known.
    fn geometry(&self) -> Option<Geometry> {
        None
    }

    /// Reports the state of the queue, which has that memory.
    fn report(&mut self, now: Instant, ports: &mut Ports, arena: &Arena) -> HostReport;

    /// Processes a command.
    fn command(&mut self, now: Instant, ports: &mut Ports, command: Self::Command);
}

/// A command to a queue.
enum Command<C> {
    Report(SyncSender<HostReport>),
    Adopt(MakePoller),
    Own(C),
}

/// Controls the queues of a session from any thread. `C`: the commands of its protocol.
pub struct Queues<C> {
    queues: Vec<(Arc<VolumeQueue>, Sender<Command<C>>)>,
    /// If memory comes and goes.
    _memory: Option<MemoryThread>,
}

impl<C> Queues<C> {
    /// The control of a disk's queues, which have no threads yet. Starts the thread for their
    /// memory, if that is to come and go.
    ///
    /// # Errors
    /// The system's error when that thread cannot be created.
    pub fn new(volume: &Volume) -> io::Result<(Arc<Self>, Vec<Starter<C>>)> {
        let queues = volume.loops().iter().map(|volume| {
            let (sender, commands) = channel();
            ((Arc::clone(volume), sender), Starter { volume: Arc::clone(volume), commands })
        });
        let (queues, starters) = queues.unzip();
        let reserves = volume.loops().iter().filter_map(|queue| Reserve::of(queue.arena()));
        let reserves: Vec<_> = reserves.collect();
        let memory = (!reserves.is_empty()).then(|| MemoryThread::start(reserves)).transpose()?;
        Ok((Arc::new(Self { queues, _memory: memory }), starters))
    }

    /// Number of queues.
    pub fn count(&self) -> usize {
        self.queues.len()
    }

    fn order(&self, queue: usize, command: Command<C>) {
        let (volume, commands) = &self.queues[queue];
        // Once the session is over the channel is closed: there is nothing to control.
        let _ = commands.send(command);
        volume.doorbell.ring();
    }

    /// Sends a command to a queue.
    pub fn send(&self, queue: usize, command: C) {
        self.order(queue, Command::Own(command));
    }

    /// Sends a command to all queues.
    pub fn send_all(&self, command: impl Fn() -> C) {
        (0..self.count()).for_each(|queue| self.send(queue, command()));
    }

    /// Adds a poller to the thread of a queue.
    pub fn adopt(&self, queue: usize, make: MakePoller) {
        self.order(queue, Command::Adopt(make));
    }

    /// Sends a command to each of `queues`; returns the answers of those that answer in time.
    pub fn ask<T>(
        &self,
        queues: impl IntoIterator<Item = usize>,
        mut command: impl FnMut(SyncSender<T>) -> C,
    ) -> Vec<Option<T>> {
        self.answers(queues, |answer| Command::Own(command(answer)))
    }

    /// The report on the session according to `queues`.
    pub fn report(&self, queues: impl IntoIterator<Item = usize>) -> Option<HostReport> {
        HostReport::all(self.answers(queues, Command::Report).into_iter().flatten())
    }

    fn answers<T>(
        &self,
        queues: impl IntoIterator<Item = usize>,
        mut command: impl FnMut(SyncSender<T>) -> Command<C>,
    ) -> Vec<Option<T>> {
        let asked = queues.into_iter().map(|queue| {
            let (sender, answer) = sync_channel(1);
            self.order(queue, command(sender));
            answer
        });
        let asked: Vec<Receiver<T>> = asked.collect();
        let deadline = SystemInstant::now() + ANSWER;
        let left = || deadline.saturating_duration_since(SystemInstant::now());
        asked.iter().map(|answer| answer.recv_timeout(left()).ok()).collect()
    }
}

/// A queue that has no thread yet.
pub struct Starter<C> {
    volume: Arc<VolumeQueue>,
    commands: Receiver<Command<C>>,
}

impl<C: Send + 'static> Starter<C> {
    /// Starts the thread, which makes the driver and its ports, and runs until that is over and all
    /// requests have ended; then it calls `end`. It spins for up to `spin` before it sleeps.
    ///
    /// # Errors
    /// The system's error when the thread cannot be created.
    pub fn start<D: QueueDriver<Command = C>>(
        self,
        (name, spin): (String, Duration),
        notify: Notify,
        make: impl FnOnce() -> (D, Ports) + Send + 'static,
        end: impl FnOnce(Notify) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let Self { volume, commands } = self;
        Builder::new().name(name).spawn(move || {
            // Without the privilege there is no protection, but the disk works.
            if let Err(error) = tyche_block::avoid_reclaim_io() {
                tracing::debug!(%error, "session without protection from memory reclaim");
            }
            let (driver, ports) = make();
            if let Some(geometry) = driver.geometry() {
                volume.set_geometry(geometry);
            }
            let service = QueueLoop { driver, intake: Intake::new(volume), commands, notify };
            let QueueLoop { intake, notify, .. } =
                EventLoop::new(service, ports, Spin::new(spin)).run();
            // The session has ended.
            intake.end(|job| job.done(Err(Errno::IO)).answer());
            end(notify);
        })
    }
}

/// The service of a queue's loop.
struct QueueLoop<D: QueueDriver> {
    driver: D,
    intake: Intake<Job>,
    commands: Receiver<Command<D::Command>>,
    notify: Notify,
}

impl<D: QueueDriver> QueueLoop<D> {
    /// Delivers answers, and notices after them; false if there was nothing to do.
    fn settle(&mut self, now: Instant) -> bool {
        let worked = self.driver.work(now);
        self.driver.done().drain(..).for_each(Done::answer);
        while let Some(notice) = self.driver.poll_notice() {
            if matches!(notice, Notice::Connected(_) | Notice::Resized(_))
                && let Some(geometry) = self.driver.geometry()
            {
                self.intake.volume().set_geometry(geometry);
            }
            (self.notify)(notice);
        }
        worked
    }
}

impl<D: QueueDriver> Service for QueueLoop<D> {
    fn protocol(&mut self) -> &mut impl Protocol {
        self.driver.protocol()
    }

    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        let mut worked = self.driver.handle_commands(now, ports);
        while let Ok(command) = self.commands.try_recv() {
            worked = true;
            match command {
                Command::Report(to) => {
                    // Who reads it knows the reasons for what it says.
                    self.settle(now);
                    let report = self.driver.report(now, ports, self.intake.volume().arena());
                    // The recipient may have timed out.
                    let _ = to.send(report);
                }
                Command::Adopt(make) => self.intake.adopt(make),
                Command::Own(command) => self.driver.command(now, ports, command),
            }
        }
        worked
    }

    fn work(&mut self, now: Instant) -> bool {
        let mut worked = self.settle(now);
        worked |= self.intake.poll();
        // Devices without threads of their own have the answers from there.
        self.driver.answered();
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

#[cfg(test)]
mod tests {
    use tyche_engine::{Composed, FrameSink, Frames, Received};
    use tyche_link::Mac;
    use tyche_proto::Failure;

    use super::*;

    /// A driver whose session fails by a command.
    #[derive(Default)]
    struct Fails(Option<Notice>, Vec<Done>);

    struct NoFrames;

    impl<'d> Frames<'d> for NoFrames {
        fn compose(&mut self, _: Instant) -> Option<Composed> {
            None
        }

        fn write(&mut self, _: Mac, _: impl FrameSink<'d>) {}
    }

    impl Protocol for Fails {
        fn handle_frame(&mut self, _: Instant, _: usize, _: &Received<'_>) {}

        fn handle_timeout(&mut self, _: Instant) {}

        fn poll_timeout(&self) -> Option<Instant> {
            None
        }

        fn frames(&mut self, _: usize) -> impl Frames<'_> {
            NoFrames
        }
    }

    impl Service for Fails {
        fn protocol(&mut self) -> &mut impl Protocol {
            self
        }

        fn is_over(&self) -> bool {
            false
        }
    }

    impl QueueDriver for Fails {
        type Command = ();

        fn submit(&mut self, _: Instant, job: Job) -> Result<(), Job> {
            Err(job)
        }

        fn done(&mut self) -> &mut Vec<Done> {
            &mut self.1
        }

        fn poll_notice(&mut self) -> Option<Notice> {
            self.0.take()
        }

        fn report(&mut self, _: Instant, _: &mut Ports, _: &Arena) -> HostReport {
            HostReport { over: true, ..HostReport::default() }
        }

        fn command(&mut self, _: Instant, _: &mut Ports, (): ()) {
            self.0 = Some(Notice::Failed(Failure::TargetLost));
        }
    }

    #[test]
    fn a_report_comes_after_the_notices_of_what_it_says() {
        let volume = Volume::new([Arena::new(1)]).unwrap();
        let (queues, mut starters) = Queues::new(&volume).unwrap();
        let Starter { volume, commands } = starters.pop().unwrap();
        queues.send(0, ());
        let (answer, report) = sync_channel(1);
        queues.order(0, Command::Report(answer));
        let (told, notices) = channel();
        let notify = move |notice| told.send((notice, report.try_recv().is_ok())).unwrap();
        let (driver, notify) = (Fails::default(), Box::new(notify));
        let mut queue = QueueLoop { driver, intake: Intake::new(volume), commands, notify };
        queue.handle_commands(Instant::default(), &mut Ports::new());
        let (notice, is_reported) = notices.try_recv().unwrap();
        assert_eq!(notice, Notice::Failed(Failure::TargetLost));
        assert!(!is_reported);
    }
}
