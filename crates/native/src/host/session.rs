//! Queue mode: the session's queues have threads of their own, to which any thread submits
//! requests.

use std::io;
use std::sync::mpsc::{SyncSender, channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tyche_engine::Volume;
use tyche_proto::Session;
use tyche_remote::{Control, HostLink, HostReport, LinkChangeError, LinkControl, Notice, Remote};
use tyche_wake::MakePoller;

use super::HostOptions;
use super::notices::Notices;
use super::queue::{Command, QueueControl, Starter, Threads};

/// Time limit for a queue to answer a command.
const ANSWER: Duration = Duration::from_secs(1);

/// The running session. Dropping it aborts the session.
pub struct Host {
    volume: Arc<Volume>,
    control: HostControl,
    threads: Threads,
}

impl Host {
    /// Starts the thread of the session's first queue, which begins to look for the target at once;
    /// those of further queues start when it is connected. Calls `notify` with each notice, in
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
        let options = options.split();
        let arenas = options.iter().enumerate().map(|(queue, options)| {
            assert!(!options.links.is_empty(), "a session needs a link");
            options.arena(queue, queues)
        });
        let volume = Arc::new(Volume::new(arenas)?);
        let notices = Arc::new(Notices::new(queues, Box::new(notify)));
        let (commands, receivers): (Vec<_>, Vec<_>) = (0..queues).map(|_| channel()).unzip();
        let controls = volume.loops().iter().zip(commands);
        let controls = controls.map(|(volume, commands)| {
            let volume = Arc::clone(volume);
            QueueControl { volume, commands }
        });
        let controls: Arc<[_]> = controls.collect();
        let threads = Threads::default();
        let starters = options.into_iter().zip(receivers).enumerate();
        let mut starters = starters.map(|(queue, (options, commands))| Starter {
            options,
            handle: shared.handle(queue),
            volume: Arc::clone(&volume.loops()[queue]),
            commands,
            notices: Arc::clone(&notices),
            queues: Arc::clone(&controls),
            threads: Arc::clone(&threads),
        });
        let first = starters.next().expect("a session has at least one queue");
        first.start(starters.collect())?;
        let control = HostControl { queues: controls, notices };
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

impl Drop for Host {
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
    queues: Arc<[QueueControl]>,
    notices: Arc<Notices>,
}

impl HostControl {
    /// Sends the same command to all queues. They have the same links, and so the same answer.
    fn order(
        &self,
        mut command: impl FnMut(SyncSender<Result<(), LinkChangeError>>) -> Command,
    ) -> Result<(), LinkChangeError> {
        let answers: Vec<_> = self.queues.iter().map(|queue| queue.ask(&mut command)).collect();
        let deadline = Instant::now() + ANSWER;
        let answers: Vec<_> = answers
            .iter()
            .map(|answer| {
                let left = deadline.saturating_duration_since(Instant::now());
                answer.recv_timeout(left).unwrap_or(Err(LinkChangeError::Gone))
            })
            .collect();
        answers.into_iter().collect()
    }
}

impl Control for HostControl {
    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn disconnect(&self) {
        self.queues.iter().for_each(|queue| queue.send(Command::Disconnect));
    }

    fn abort(&self) {
        self.queues.iter().for_each(|queue| queue.send(Command::Abort));
    }

    fn adopt(&self, queue: usize, make: MakePoller) {
        self.queues[queue].send(Command::Adopt(make));
    }

    fn report(&self) -> Option<HostReport> {
        let queues = self.notices.begun();
        let queues = queues.into_iter().map(|queue| self.queues[queue].ask(Command::Report));
        let queues: Vec<_> = queues.collect();
        let deadline = Instant::now() + ANSWER;
        let reports = queues.iter().filter_map(|report| {
            report.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
        });
        HostReport::all(reports)
    }

    fn links(&self) -> Option<&dyn LinkControl> {
        Some(self)
    }
}

impl LinkControl for HostControl {
    fn add(&self, links: Vec<HostLink>) -> Result<(), LinkChangeError> {
        assert_eq!(links.len(), self.queues.len(), "a link for each queue");
        let mut links = links.into_iter();
        self.order(|answer| Command::AddLink(links.next().expect("a link per queue"), answer))
    }

    fn remove(&self, name: &str) -> Result<(), LinkChangeError> {
        self.order(|answer| Command::RemoveLink(name.to_owned(), answer))
    }
}
