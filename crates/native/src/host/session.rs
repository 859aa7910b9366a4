//! Queue mode: the session's queues have threads of their own, to which any thread submits
//! requests.

use std::io;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};

use tyche_engine::Volume;
use tyche_proto::{NextKey, Session, SessionShared};
use tyche_remote::{
    Control, HostLink, HostReport, LinkChangeError, LinkControl, Notice, Queues, Remote,
};
use tyche_wake::MakePoller;

use super::HostOptions;
use super::notices::Notices;
use super::queue::{Command, Starter, Threads};

/// A running session at the host, with the threads of its queues. Dropping it aborts the session.
pub struct HostSession {
    volume: Arc<Volume>,
    control: HostControl,
    threads: Threads,
}

impl HostSession {
    /// Starts the thread of the session's first queue, which begins to look for the target at once;
    /// those of further queues start when it is connected, or now if the session takes over a
    /// device, which it serves from the beginning. Calls `notify` with each notice, in
    /// order. `notify` must not wait.
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
        let queues = options.queues();
        let shared = <Session>::shared(&options.session, queues);
        let former = options.session.resumes;
        let options = options.split();
        let arenas = options.iter().enumerate().map(|(queue, options)| {
            assert!(!options.links.is_empty(), "a session needs a link");
            options.arena(queue, queues, options.arena_size)
        });
        let volume = Arc::new(Volume::new(arenas)?);
        if let Some(export) = &former {
            volume.loops()[0].set_geometry(export.geometry);
        }
        let notices = Arc::new(Notices::new(queues, Box::new(notify)));
        let (controls, starters) = Queues::new(&volume)?;
        let threads = Threads::default();
        let starters = options.into_iter().zip(starters).enumerate();
        let mut starters = starters.map(|(queue, (options, starter))| Starter {
            options,
            handle: shared.handle(queue),
            starter,
            notices: Arc::clone(&notices),
            queues: Arc::clone(&controls),
            threads: Arc::clone(&threads),
        });
        let first = starters.next().expect("a session has at least one queue");
        let mut others: Vec<_> = starters.collect();
        let now = if former.is_some() { std::mem::take(&mut others) } else { Vec::new() };
        first.start(others)?;
        now.into_iter().try_for_each(|other| other.start(Vec::new()))?;
        let control = HostControl { queues: controls, notices, shared };
        Ok(Self { volume, control, threads })
    }

    /// The disk. Its geometry is known after the first [`Notice::Connected`], or soon after the
    /// start if the session takes over a device.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// A handle for other threads.
    pub fn control(&self) -> HostControl {
        self.control.clone()
    }

    /// The session, for those who do not know its protocol.
    pub fn into_remote(self) -> Remote {
        Remote::new(Arc::<Volume>::clone(&self.volume), self.control(), self)
    }
}

impl Drop for HostSession {
    fn drop(&mut self) {
        self.control.abort();
        // The first queue may still start others, which receive the command to end.
        while let Some(thread) = {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            threads.pop()
        } {
            if thread.join().is_err() {
                tracing::error!("a session's thread panicked");
            }
        }
        // Queues that never began have no thread that closes them.
        self.volume.loops().iter().for_each(|queue| queue.close());
    }
}

/// Controls a session from any thread.
#[derive(Clone)]
pub struct HostControl {
    queues: Arc<Queues<Command>>,
    notices: Arc<Notices>,
    shared: Arc<SessionShared>,
}

impl HostControl {
    /// Sends the same command to all queues. They have the same links, and so the same answer.
    fn order(
        &self,
        command: impl FnMut(SyncSender<Result<(), LinkChangeError>>) -> Command,
    ) -> Result<(), LinkChangeError> {
        let mut answers = self.queues.ask(0..self.queues.count(), command).into_iter();
        answers.try_for_each(|answer| answer.unwrap_or(Err(LinkChangeError::Gone)))
    }
}

impl Control for HostControl {
    fn queues(&self) -> usize {
        self.queues.count()
    }

    fn disconnect(&self) {
        self.queues.send_all(|| Command::Disconnect);
    }

    fn abort(&self) {
        self.queues.send_all(|| Command::Abort);
    }

    fn fail_until_connected(&self) {
        self.queues.send_all(|| Command::FailUntilConnected);
    }

    fn know_by(&self, said: &NextKey) {
        if self.shared.know_by(said) {
            self.queues.send_all(|| Command::Check);
        }
    }

    fn adopt(&self, queue: usize, make: MakePoller) {
        self.queues.adopt(queue, make);
    }

    fn report(&self) -> Option<HostReport> {
        self.queues.report(self.notices.begun())
    }

    fn links(&self) -> Option<&dyn LinkControl> {
        Some(self)
    }
}

impl LinkControl for HostControl {
    fn add(&self, links: Vec<HostLink>) -> Result<(), LinkChangeError> {
        assert_eq!(links.len(), self.queues.count(), "a link for each queue");
        let mut links = links.into_iter();
        self.order(|answer| Command::AddLink(links.next().expect("a link per queue"), answer))
    }

    fn remove(&self, name: &str) -> Result<(), LinkChangeError> {
        self.order(|answer| Command::RemoveLink(name.to_owned(), answer))
    }
}
