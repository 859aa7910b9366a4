//! Threads with a queue each, that run the same task at the same time. A job is a session, with
//! one queue or several.
//!
//! ```text
//! Jobs::each(work) --task--> job 0, queue 0   InlineHost
//!                  --task--> job 0, queue 1   ..
//!                  --task--> job 1, queue 0   ..
//!                  <-- result of each --
//! ```
//!
//! An idle thread keeps its queue alive. The first that fails ends them all.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tyche_native::{ConnectError, HostOptions, InlineHost};
use tyche_proto::QueueHandle;

use super::load::{Shared, check_notices};
use super::progress::{Progress, TICK};
use crate::daemons::connect::{Search, SessionArgs};
use crate::shared::error::{Code, Error, Result};

/// Time limit for the target to confirm the end of the session.
const FAREWELL: Duration = Duration::from_secs(1);
/// Interval at which to check whether a job has failed.
const LOOK: Duration = Duration::from_millis(50);
/// Time limit for a job that ends to report its error.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often an idle job polls its session.
const IDLE: Duration = Duration::from_millis(50);

/// The next task of a job's session.
type Task = Box<dyn FnOnce(&mut InlineHost) -> Result<()> + Send>;

struct Job {
    /// Dropped to end the job.
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

/// The sessions of a benchmark, each with its threads, connected and ready for tasks. Dropping it
/// ends the sessions.
pub(super) struct Jobs {
    jobs: Vec<Job>,
    /// Why jobs have ended.
    failures: Receiver<Error>,
    shared: Arc<Shared>,
}

impl Jobs {
    /// Connects a session for each of `options`, with a thread for each of its queues.
    ///
    /// # Errors
    /// The error of the first job that fails.
    pub(super) fn start(session: &SessionArgs, options: Vec<HostOptions>) -> Result<Self> {
        let (failed, failures) = channel();
        let mut jobs = Vec::new();
        for (job, options) in options.into_iter().enumerate() {
            let queues = options.queues();
            let (connected, mut handles): (Vec<_>, Vec<_>) = (1..queues).map(|_| channel()).unzip();
            let first = QueueRole::First { queues, connected };
            let places = std::iter::once(first).chain(handles.drain(..).map(QueueRole::Further));
            for (queue, (place, options)) in places.zip(options.split()).enumerate() {
                let (tasks, receiver) = channel();
                let worker =
                    Worker { session: session.clone(), tasks: receiver, failed: failed.clone() };
                let name = format!("tyche-job{job}.{queue}");
                let thread = std::thread::Builder::new().name(name);
                let thread = thread.spawn(move || worker.run(place, options))?;
                jobs.push(Job { tasks: Some(tasks), thread: Some(thread) });
            }
        }
        Ok(Self { jobs, failures, shared: Arc::default() })
    }

    pub(super) fn count(&self) -> usize {
        self.jobs.len()
    }

    /// Runs `work` in the first `count` jobs at the same time, each with its session and its index,
    /// and shows the progress. Returns the results in order of arrival.
    ///
    /// # Errors
    /// The error of the first job that fails.
    pub(super) fn each<T: Send + 'static>(
        &mut self,
        count: usize,
        work: impl Fn(&mut InlineHost, &Shared, u64) -> Result<T> + Clone + Send + 'static,
        mut progress: Option<&mut Progress>,
    ) -> Result<Vec<T>> {
        let (sender, results) = channel();
        for (index, job) in (0..).zip(&self.jobs[..count]) {
            let (work, sender, shared) = (work.clone(), sender.clone(), Arc::clone(&self.shared));
            let task: Task = Box::new(move |host| {
                // The receiver is gone once another job has failed.
                let _ = sender.send(work(host, &shared, index)?);
                Ok(())
            });
            // Fails if the job has ended; `result` below then returns the job's error.
            let _ = job.tasks.as_ref().map(|tasks| tasks.send(task));
        }
        drop(sender);
        (0..count).map(|_| self.result(&results, progress.as_deref_mut())).collect()
    }

    /// Waits for the next result.
    fn result<T>(&self, results: &Receiver<T>, mut progress: Option<&mut Progress>) -> Result<T> {
        let mut next_show = Instant::now() + TICK;
        loop {
            match results.recv_timeout(LOOK) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let (Some(progress), true) = (&mut progress, Instant::now() >= next_show) {
                next_show += TICK;
                progress.show(self.shared.answered.load(Ordering::Relaxed));
            }
            let is_gone = |job: &Job| job.thread.as_ref().is_some_and(JoinHandle::is_finished);
            if self.jobs.iter().any(is_gone) {
                break;
            }
        }
        // A job that has ended has sent its error, unless it panicked.
        Err(self.failures.recv_timeout(LAST_WORDS).unwrap_or_else(|_| panicked()))
    }
}

fn panicked() -> Error {
    Error::new(Code::Other, "a job's thread panicked")
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for job in &mut self.jobs {
            job.tasks = None;
        }
        for thread in self.jobs.iter_mut().filter_map(|job| job.thread.take()) {
            // The panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// The role of a thread in its job.
enum QueueRole {
    /// Drives the first of `queues` queues, and sends the other threads their handles once it is
    /// connected.
    First { queues: usize, connected: Vec<Sender<QueueHandle>> },
    /// Drives a further queue; receives its handle when the first queue is connected.
    Further(Receiver<QueueHandle>),
}

/// The state of a job's thread.
struct Worker {
    session: SessionArgs,
    tasks: Receiver<Task>,
    failed: Sender<Error>,
}

impl Worker {
    fn run(self, place: QueueRole, options: HostOptions) {
        if let Err(error) = self.work(place, options) {
            // The receiver is gone once another job has failed.
            let _ = self.failed.send(error);
        }
    }

    fn work(&self, place: QueueRole, options: HostOptions) -> Result<()> {
        let connect = |host: &mut InlineHost| match host.connect(self.session.timeout()) {
            Ok(_) => Ok(()),
            Err(ConnectError::Refused(notice)) => Err(self.session.ended(*notice)),
            Err(ConnectError::TimedOut(_)) => {
                Search::new(&self.session).check(Some(&host.report()), true)
            }
        };
        let mut host = match place {
            QueueRole::First { queues, connected } => {
                let mut host = InlineHost::with_queues(options, queues);
                connect(&mut host)?;
                for (queue, connected) in (1..).zip(connected) {
                    // Fails if that thread has ended; it has reported its error.
                    let _ = connected.send(host.shared().handle(queue));
                }
                host
            }
            QueueRole::Further(handle) => {
                // The thread of the first queue has failed and reported its error.
                let Ok(handle) = handle.recv() else { return Ok(()) };
                let mut host = InlineHost::join(options, handle);
                connect(&mut host)?;
                host
            }
        };
        while let Some(task) = self.next_task(&mut host)? {
            task(&mut host)?;
        }
        host.disconnect(FAREWELL);
        Ok(())
    }

    /// Waits for the next task, and keeps the session alive meanwhile. `None`: there are no more
    /// tasks.
    fn next_task(&self, host: &mut InlineHost) -> Result<Option<Task>> {
        loop {
            match self.tasks.recv_timeout(IDLE) {
                Ok(task) => return Ok(Some(task)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {
                    host.poll(&mut Vec::new());
                    check_notices(host)?;
                }
            }
        }
    }
}
