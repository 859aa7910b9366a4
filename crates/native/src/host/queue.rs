//! A queue of a session: its thread, which joins links, protocol and volume.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tyche_block::{Disk, Errno};
use tyche_engine::{Done, EventLoop, Intake, Job, Ports, Protocol, Service, VolumeQueue, now};
use tyche_proto::{Instant, QueueHandle};
use tyche_remote::{HostLink, HostReport, LinkChangeError, Notice};
use tyche_wake::{MakePoller, Spin};

use super::HostOptions;
use super::driver::Driver;
use super::notices::Notices;

/// The threads of a session's queues.
pub(super) type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

/// A command to a queue.
pub(super) enum Command {
    Report(SyncSender<HostReport>),
    AddLink(HostLink, SyncSender<Result<(), LinkChangeError>>),
    RemoveLink(String, SyncSender<Result<(), LinkChangeError>>),
    Adopt(MakePoller),
    /// Another queue has failed.
    Check,
    Disconnect,
    Abort,
}

/// Controls a queue from any thread.
#[derive(Clone)]
pub(super) struct QueueControl {
    pub(super) volume: Arc<VolumeQueue>,
    pub(super) commands: Sender<Command>,
}

impl QueueControl {
    pub(super) fn send(&self, command: Command) {
        // Once the session is over the channel is closed: there is nothing to control.
        let _ = self.commands.send(command);
        self.volume.doorbell.ring();
    }

    /// Sends a command that is answered; returns the receiver of the answer.
    pub(super) fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Receiver<T> {
        let (sender, receiver) = sync_channel(1);
        self.send(command(sender));
        receiver
    }
}

/// A queue that has no thread yet.
pub(super) struct Starter {
    /// The options of this queue.
    pub(super) options: HostOptions,
    pub(super) handle: QueueHandle,
    pub(super) volume: Arc<VolumeQueue>,
    pub(super) commands: Receiver<Command>,
    pub(super) notices: Arc<Notices>,
    /// All queues of the session.
    pub(super) queues: Arc<[QueueControl]>,
    pub(super) threads: Threads,
}

impl Starter {
    /// Starts the thread. It starts those of `others` once it is connected.
    ///
    /// # Errors
    /// The system's error when a thread or an eventfd cannot be created.
    pub(super) fn start(self, others: Vec<Self>) -> io::Result<()> {
        let Self { options, handle, volume, commands, notices, queues, threads } = self;
        let queue = handle.queue();
        let name = match queue {
            0 => "tyche-session".to_owned(),
            _ => format!("tyche-queue{queue}"),
        };
        notices.begin(queue);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            // Without the privilege there is no protection, but the disk works.
            if let Err(error) = tyche_block::avoid_reclaim_io() {
                tracing::debug!(%error, "session without protection from memory reclaim");
            }
            let spin = Spin::new(options.spin);
            let (driver, ports) = Driver::new(options, handle);
            if let Some(geometry) = driver.geometry() {
                volume.set_geometry(geometry);
            }
            let service = Queue {
                driver,
                intake: Intake::new(volume),
                commands,
                queue,
                notices,
                queues,
                others,
                closed: false,
            };
            EventLoop::new(service, ports, spin).run().end();
        })?;
        threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }
}

/// The service of a queue's loop.
struct Queue {
    driver: Driver,
    intake: Intake<Job>,
    commands: Receiver<Command>,
    /// Number of this queue.
    queue: usize,
    notices: Arc<Notices>,
    /// All queues of the session.
    queues: Arc<[QueueControl]>,
    /// Queues that start when this one is connected.
    others: Vec<Starter>,
    closed: bool,
}

impl Queue {
    /// Fails the remaining requests: the session is closed.
    fn end(self) {
        self.intake.end(|job| job.done(Err(Errno::IO)).answer());
    }

    /// Delivers answers and notices.
    fn settle(&mut self) {
        self.driver.done.drain(..).for_each(Done::answer);
        while let Some(notice) = self.driver.notices.pop_front() {
            match notice {
                Notice::Connected(_) => self.start_others(),
                Notice::Failed(_) => {
                    self.queues.iter().for_each(|queue| queue.send(Command::Check));
                }
                _ => {}
            }
            if matches!(notice, Notice::Connected(_) | Notice::Resized(_))
                && let Some(geometry) = self.driver.geometry()
            {
                self.intake.volume().set_geometry(geometry);
            }
            if notice == Notice::Closed {
                self.closed = true;
            }
            self.notices.tell(self.queue, notice);
        }
    }

    /// Starts the queues that wait for this one: the export is known.
    fn start_others(&mut self) {
        for starter in self.others.drain(..) {
            if let Err(error) = starter.start(Vec::new()) {
                tracing::error!(%error, "cannot start a queue: the session ends");
                self.driver.abort(now());
            }
        }
    }
}

impl Service for Queue {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.driver
    }

    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        let mut worked = false;
        while let Ok(command) = self.commands.try_recv() {
            worked = true;
            match command {
                // The recipient may have timed out.
                Command::Report(to) => {
                    drop(to.send(self.driver.report(now, ports, self.intake.volume().arena())));
                }
                Command::AddLink(link, to) => {
                    let _ = to.send(self.driver.add_link(now, ports, link));
                }
                Command::RemoveLink(name, to) => {
                    let _ = to.send(self.driver.remove_link(now, ports, &name));
                }
                Command::Adopt(make) => self.intake.adopt(make),
                Command::Check => self.driver.take_notice(now),
                Command::Disconnect => self.driver.disconnect(now),
                Command::Abort => self.driver.abort(now),
            }
            self.settle();
        }
        worked
    }

    fn work(&mut self, now: Instant) -> bool {
        self.settle();
        let mut worked = self.intake.poll();
        let driver = &mut self.driver;
        worked |= self.intake.take(|job| driver.submit(now, job).map(drop));
        self.settle();
        worked
    }

    fn is_over(&self) -> bool {
        self.closed
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
