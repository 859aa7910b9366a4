//! Queue mode: a thread of the session's own, to which any thread submits requests.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tyche_block::{Disk, Errno};
use tyche_proto::Instant;
use tyche_wake::{MakePoller, Polled, Poller, Spin};

use super::driver::{Done, Driver, Job};
use super::workqueue::WorkQueue;
use super::{HostLink, HostOptions, HostReport, LinkError, Notice};
use crate::clock::now;
use crate::placed;
use crate::volume::Volume;
use crate::wait::wait;

enum Command {
    Report(SyncSender<HostReport>),
    AddLink(HostLink, SyncSender<Result<(), LinkError>>),
    RemoveLink(String, SyncSender<Result<(), LinkError>>),
    Adopt(MakePoller),
    Disconnect,
    Abort,
}

/// The running session. Dropping it aborts the session.
pub struct Host {
    volume: Arc<Volume>,
    commands: Sender<Command>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Starts the session's thread, which begins to look for the target at once, and calls `notify`
    /// with each notice, in order. `notify` must not wait.
    ///
    /// # Errors
    /// The system's error when a thread or an eventfd cannot be created.
    ///
    /// # Panics
    /// Without a link.
    pub fn start(
        options: HostOptions,
        notify: impl FnMut(Notice) + Send + 'static,
    ) -> io::Result<Self> {
        assert!(!options.links.is_empty(), "a session needs a link");
        let home = options.home();
        let arena = placed::request_arena(&options.placement, &home, options.arena_pages);
        let volume = Arc::new(Volume::new(arena)?);
        let (commands, receiver) = channel();
        let notify = Box::new(notify);
        let work_queue = options.hand_over.then(|| WorkQueue::start(options.spin)).transpose()?;
        let shared = Arc::clone(&volume);
        let thread = std::thread::Builder::new().name("tyche-session".into());
        let thread = thread.spawn(move || {
            let spin = Spin::new(options.spin);
            let mut driver = Driver::new(options);
            driver.move_in();
            if let Some(geometry) = driver.geometry() {
                shared.set_geometry(geometry);
            }
            let body = HostLoop {
                driver,
                volume: shared,
                held: None,
                commands: receiver,
                notify,
                work_queue,
                pollers: Vec::new(),
                spin,
                closed: false,
            };
            body.run();
        })?;
        Ok(Self { volume, commands, thread: Some(thread) })
    }

    /// The disk. Its geometry is known after the first [`Notice::Connected`], and soon after the
    /// start if the session has a predecessor.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// A handle for other threads.
    pub fn control(&self) -> HostControl {
        HostControl { volume: Arc::clone(&self.volume), commands: self.commands.clone() }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.control().abort();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the session's thread panicked");
        }
    }
}

/// Controls a session from any thread.
#[derive(Clone)]
pub struct HostControl {
    volume: Arc<Volume>,
    commands: Sender<Command>,
}

impl HostControl {
    fn send(&self, command: Command) {
        // Once the session is over the channel is closed: there is nothing to control.
        let _ = self.commands.send(command);
        self.volume.doorbell.ring();
    }

    /// Ends the session and tells the target. [`Notice::Closed`] follows.
    pub fn disconnect(&self) {
        self.send(Command::Disconnect);
    }

    /// Aborts the session: all requests in progress fail. [`Notice::Closed`] follows.
    pub fn abort(&self) {
        self.send(Command::Abort);
    }

    /// Adds a link to the session.
    ///
    /// # Errors
    /// `InUse` or `Gone`.
    pub fn add_link(&self, link: HostLink) -> Result<(), LinkError> {
        self.order(|answer| Command::AddLink(link, answer))
    }

    /// Removes a link from the session; requests use the others.
    ///
    /// # Errors
    /// `Unknown`, `Last` or `Gone`.
    pub fn remove_link(&self, name: &str) -> Result<(), LinkError> {
        self.order(|answer| Command::RemoveLink(name.to_owned(), answer))
    }

    /// Adds a poller to the session's thread. It is polled until it ends, even after the end of the
    /// session.
    pub fn adopt(&self, make: MakePoller) {
        self.send(Command::Adopt(make));
    }

    fn order(
        &self,
        command: impl FnOnce(SyncSender<Result<(), LinkError>>) -> Command,
    ) -> Result<(), LinkError> {
        let (sender, receiver) = sync_channel(1);
        self.send(command(sender));
        receiver.recv_timeout(Duration::from_secs(1)).unwrap_or(Err(LinkError::Gone))
    }

    /// Reports the state of the session; `None` if it has ended or does not answer within a second.
    pub fn report(&self) -> Option<HostReport> {
        let (sender, receiver) = sync_channel(1);
        self.send(Command::Report(sender));
        receiver.recv_timeout(Duration::from_secs(1)).ok()
    }
}

struct HostLoop {
    driver: Driver,
    volume: Arc<Volume>,
    /// A request taken from the queue when the session was full.
    held: Option<Job>,
    commands: Receiver<Command>,
    notify: Box<dyn FnMut(Notice) + Send>,
    /// The work queue that delivers answers, if there is one.
    work_queue: Option<WorkQueue>,
    /// Pollers that share this thread.
    pollers: Vec<Box<dyn Poller>>,
    spin: Spin,
    closed: bool,
}

impl HostLoop {
    fn run(mut self) {
        // Without the privilege there is no protection, but the disk works.
        if let Err(error) = tyche_block::avoid_reclaim_io() {
            tracing::debug!(%error, "session without protection from memory reclaim");
        }
        while !self.closed {
            let now = now();
            if self.turn(now) {
                self.spin.worked();
            } else if !self.spin.again(now.0) {
                self.sleep();
            }
        }
        self.volume.close();
        if let Some(job) = self.held.take() {
            job.done(Err(Errno::IO)).answer();
        }
        self.linger();
    }

    /// Polls the pollers until they end: their requests fail now, but are answered.
    fn linger(&mut self) {
        while !self.pollers.is_empty() {
            if self.poll() {
                continue;
            }
            self.pollers.iter().for_each(|poller| poller.announce());
            if !self.poll() {
                tyche_wake::sleep(self.pollers.iter().map(|it| it.wait_fd()), None);
            }
            self.pollers.iter().for_each(|poller| poller.awake());
        }
    }

    /// Polls the pollers; false if there was nothing to do.
    fn poll(&mut self) -> bool {
        let mut worked = false;
        self.pollers.retain_mut(|poller| match poller.poll() {
            Ok(polled) => {
                worked |= polled != Polled::Idle;
                polled != Polled::Over
            }
            Err(error) => {
                tracing::error!(%error, "the session's thread drops what it polled");
                false
            }
        });
        worked
    }

    /// Runs one round; false if there was nothing to do.
    fn turn(&mut self, now: Instant) -> bool {
        let mut worked = self.obey();
        worked |= self.driver.receive(now);
        self.settle();
        worked |= self.poll();
        worked |= self.take_submissions(now);
        worked |= self.driver.transmit(now);
        self.settle();
        worked
    }

    fn obey(&mut self) -> bool {
        let mut worked = false;
        while let Ok(command) = self.commands.try_recv() {
            worked = true;
            match command {
                // The recipient may have timed out.
                Command::Report(to) => {
                    drop(to.send(self.driver.report(now(), self.volume.arena())));
                }
                Command::AddLink(link, to) => {
                    let _ = to.send(self.driver.add_link(now(), link));
                }
                Command::RemoveLink(name, to) => {
                    let _ = to.send(self.driver.remove_link(now(), &name));
                }
                Command::Adopt(make) => self.pollers.extend(make()),
                Command::Disconnect => self.driver.disconnect(now()),
                Command::Abort => self.driver.abort(now()),
            }
            self.settle();
        }
        worked
    }

    fn take_submissions(&mut self, now: Instant) -> bool {
        let mut worked = false;
        let volume = &self.volume;
        let mut next = || volume.take().map(Job::from);
        while let Some(job) = self.held.take().or_else(&mut next) {
            if let Err(job) = self.driver.submit(now, job) {
                self.held = Some(job);
                return worked;
            }
            worked = true;
        }
        worked
    }

    /// Delivers answers and notices.
    fn settle(&mut self) {
        let done = self.driver.done.drain(..);
        match &self.work_queue {
            None => done.for_each(Done::answer),
            Some(work_queue) => work_queue.answer(done),
        }
        while let Some(notice) = self.driver.notices.pop_front() {
            if matches!(notice, Notice::Connected(_) | Notice::Resized(_))
                && let Some(geometry) = self.driver.geometry()
            {
                self.volume.set_geometry(geometry);
            }
            if notice == Notice::Closed {
                self.closed = true;
                // Answers come before the notice that none will follow.
                self.work_queue = None;
            }
            (self.notify)(notice);
        }
    }

    fn sleep(&mut self) {
        self.spin.sleeps();
        let volume = Arc::clone(&self.volume);
        volume.doorbell.announce();
        self.pollers.iter().for_each(|poller| poller.announce());
        // Work that came before the announcement has not rung. A held request waits for another to
        // end, so a full queue behind it is no work.
        if !self.obey() && !self.poll() && (self.held.is_some() || volume.is_empty()) {
            let deadline = self.driver.poll_timeout();
            let own = self.driver.wait_fds().chain([volume.doorbell.wait_fd()]);
            wait(own.chain(self.pollers.iter().map(|it| it.wait_fd())), now(), deadline);
        }
        self.pollers.iter().for_each(|poller| poller.awake());
        volume.doorbell.awake();
    }
}
