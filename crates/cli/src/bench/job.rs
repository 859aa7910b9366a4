//! Jobs: threads with a session each, that run the same task at the same time.
//!
//! ```text
//! Jobs::run(task) --task--> job 0   InlineHost, Load
//!                 --task--> job 1   ..
//!                 <-- outcome of each --
//! ```
//!
//! An idle job keeps its session alive. The first job that fails ends them all.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tyche_block::Geometry;
use tyche_engine::{ConnectError, HostOptions, InlineHost, Notice};

use super::floor::{self, Measured, Probe};
use super::load::{Load, Shape, Shared, Tally};
use super::progress::{Progress, TICK};
use crate::connect::SessionArgs;
use crate::error::{Code, Error, Result};

/// How long the farewell to the target may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often an idle job polls its session.
const IDLE: Duration = Duration::from_millis(50);

/// A task for all jobs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// Requests: a warm-up, then the measurement.
    Load(Duration, Duration),
    /// Bare frames.
    Floor(Probe, Duration),
}

/// The result of a job's task.
enum Outcome {
    Connected(Geometry),
    Load(Tally),
    Floor(Measured),
}

struct Job {
    /// Dropped to end the job.
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

/// See the module. Dropping it ends the sessions.
pub(super) struct Jobs {
    jobs: Vec<Job>,
    outcomes: Receiver<Result<Outcome>>,
    pub(super) shared: Arc<Shared>,
    pub(super) geometry: Geometry,
}

impl Jobs {
    /// Connects a session for each of `options`.
    ///
    /// # Errors
    /// The error of the first job that fails.
    pub(super) fn start(
        session: &SessionArgs,
        options: Vec<HostOptions>,
        shape: Shape,
    ) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let (sender, outcomes) = channel();
        let count = options.len() as u64;
        let mut jobs = Vec::new();
        for (index, options) in (0..count).zip(options) {
            let (tasks, receiver) = channel();
            let worker = Worker {
                session: session.clone(),
                shape,
                place: (index, count),
                shared: Arc::clone(&shared),
                tasks: receiver,
                outcomes: sender.clone(),
            };
            let name = format!("tyche-job{index}");
            let thread =
                std::thread::Builder::new().name(name).spawn(move || worker.run(options))?;
            jobs.push(Job { tasks: Some(tasks), thread: Some(thread) });
        }
        let geometry = Geometry::UNKNOWN;
        let mut this = Self { jobs, outcomes, shared, geometry };
        for _ in 0..count {
            if let Outcome::Connected(geometry) = this.outcome(None)? {
                this.geometry = geometry;
            }
        }
        Ok(this)
    }

    /// Has all jobs send requests, and shows the progress.
    pub(super) fn load(
        &mut self,
        (warm_up, time): (Duration, Duration),
        progress: &mut Progress,
    ) -> Result<Vec<Tally>> {
        let outcomes = self.run(self.jobs.len(), Task::Load(warm_up, time), Some(progress))?;
        let tally = |outcome| match outcome {
            Outcome::Load(tally) => Some(tally),
            _ => None,
        };
        Ok(outcomes.into_iter().filter_map(tally).collect())
    }

    /// Has all jobs, or only the first, exchange bare frames.
    pub(super) fn floor(&mut self, probe: Probe, time: Duration) -> Result<Vec<Measured>> {
        let count = if probe == Probe::RoundTrip { 1 } else { self.jobs.len() };
        let outcomes = self.run(count, Task::Floor(probe, time), None)?;
        let measured = |outcome| match outcome {
            Outcome::Floor(measured) => Some(measured),
            _ => None,
        };
        Ok(outcomes.into_iter().filter_map(measured).collect())
    }

    fn run(
        &mut self,
        count: usize,
        task: Task,
        mut progress: Option<&mut Progress>,
    ) -> Result<Vec<Outcome>> {
        for job in &self.jobs[..count] {
            // A job that has ended has sent its error, or is missed below.
            let _ = job.tasks.as_ref().map(|tasks| tasks.send(task));
        }
        (0..count).map(|_| self.outcome(progress.as_deref_mut())).collect()
    }

    /// Waits for the next outcome.
    fn outcome(&self, mut progress: Option<&mut Progress>) -> Result<Outcome> {
        loop {
            match self.outcomes.recv_timeout(TICK) {
                Ok(outcome) => return outcome,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(progress) = &mut progress {
                progress.show(self.shared.answered.load(Ordering::Relaxed));
            }
            let is_gone = |job: &Job| job.thread.as_ref().is_some_and(JoinHandle::is_finished);
            if self.jobs.iter().any(is_gone) {
                // Its last outcome, if any, is in the channel by now.
                return self.outcomes.try_recv().unwrap_or_else(|_| Err(panicked()));
            }
        }
        Err(panicked())
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

/// The state of a job's thread.
struct Worker {
    session: SessionArgs,
    shape: Shape,
    /// Index of the job, and number of jobs.
    place: (u64, u64),
    shared: Arc<Shared>,
    tasks: Receiver<Task>,
    outcomes: Sender<Result<Outcome>>,
}

impl Worker {
    fn run(self, options: HostOptions) {
        if let Err(error) = self.work(options) {
            // The receiver is gone once another job has failed.
            let _ = self.outcomes.send(Err(error));
        }
    }

    fn tell(&self, outcome: Outcome) {
        let _ = self.outcomes.send(Ok(outcome));
    }

    fn work(&self, options: HostOptions) -> Result<()> {
        let mut host = InlineHost::new(options);
        let geometry =
            host.connect(self.session.timeout()).map_err(|it| refused(&self.session, it))?;
        self.tell(Outcome::Connected(geometry));
        let mut load = None;
        while let Some(task) = self.next_task(&mut host)? {
            match task {
                Task::Load(warm_up, time) => {
                    let load = match &mut load {
                        Some(load) => load,
                        none => {
                            none.insert(Load::new(&host, self.shape, self.place, &self.shared)?)
                        }
                    };
                    self.tell(Outcome::Load(load.measure(&mut host, warm_up, time)?));
                }
                Task::Floor(probe, time) => {
                    let measured = floor::measure(&mut host, probe, self.shape, time, &self.shared);
                    self.tell(Outcome::Floor(measured?));
                }
            }
        }
        drop(load);
        host.disconnect(FAREWELL);
        Ok(())
    }

    /// Waits for the next task, and keeps the session alive meanwhile. `None`: there is no more.
    fn next_task(&self, host: &mut InlineHost) -> Result<Option<Task>> {
        loop {
            match self.tasks.recv_timeout(IDLE) {
                Ok(task) => return Ok(Some(task)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {
                    host.poll(&mut Vec::new());
                    super::load::check_notices(host)?;
                }
            }
        }
    }
}

fn refused(session: &SessionArgs, error: ConnectError) -> Error {
    match error {
        ConnectError::Refused(notice) => match *notice {
            Notice::Rejected(reason, detail) => session.refused(reason, &detail),
            Notice::Failed(failure) => SessionArgs::failed(failure),
            notice => Error::new(Code::Other, format!("{notice:?}")),
        },
        ConnectError::TimedOut(problem) => match session.unknown_export() {
            Ok(Some(error)) | Err(error) => error,
            Ok(None) => session.unreachable(problem),
        },
    }
}
