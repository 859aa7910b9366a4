//! The requests of a volume that are in progress, and when each goes on.

use std::collections::{BTreeSet, VecDeque};

use tyche_block::Errno;
use tyche_engine::Job;
use tyche_time::Instant;

use crate::losses::Since;

/// A request in progress. It takes one command after the other, until all of its range is done.
pub(super) struct Operation {
    pub(super) job: Job,
    /// When it was submitted.
    pub(super) begun: Instant,
    /// Bytes of its range that are done.
    pub(super) done: u32,
    /// Bytes that the command in progress is about.
    pub(super) covers: u32,
    /// Commands that were sent in vain, in a row.
    pub(super) retries: u8,
    /// When the first of these had ended.
    pub(super) vain_since: Option<Instant>,
    /// Whether a flush is to follow the last command.
    pub(super) flush: bool,
    /// The losses of caches when its command was sent.
    pub(super) since: Since,
}

impl Operation {
    fn new(now: Instant, job: Job) -> Self {
        let (done, covers, retries, vain_since, since) = Default::default();
        Self { job, begun: now, done, covers, retries, vain_since, flush: false, since }
    }

    /// Bytes that are not done yet.
    pub(super) fn left(&self) -> u32 {
        self.job.request.len - self.done
    }
}

/// A request that has ended.
pub struct Ended {
    /// The request.
    pub job: Job,
    /// When it was submitted.
    pub begun: Instant,
    /// Its end.
    pub result: Result<(), Errno>,
}

/// The requests that one lane has accepted, by number, each until its range is done. A request is
/// ready, or waits for its command or for a pause; their number is fixed.
pub(super) struct Requests {
    operations: Box<[Option<Operation>]>,
    free: Vec<u16>,
    /// Requests that go on as soon as there is room.
    ready: VecDeque<u16>,
    /// Requests that go on later.
    later: BTreeSet<(Instant, u16)>,
    /// Requests that have ended, to be answered.
    pub(super) ended: Vec<Ended>,
}

impl Requests {
    /// Room for so many.
    pub(super) fn new(max: u16) -> Self {
        Self {
            operations: (0..max).map(|_| None).collect(),
            free: (0..max).rev().collect(),
            ready: VecDeque::with_capacity(max.into()),
            later: BTreeSet::new(),
            ended: Vec::with_capacity(max.into()),
        }
    }

    /// Takes a request, or gives it back if there is no room.
    pub(super) fn add(&mut self, now: Instant, job: Job) -> Result<(), Job> {
        let Some(number) = self.free.pop() else { return Err(job) };
        self.operations[usize::from(number)] = Some(Operation::new(now, job));
        self.ready.push_back(number);
        Ok(())
    }

    /// Ends a request at once.
    pub(super) fn refuse(&mut self, now: Instant, job: Job, errno: Errno) {
        self.ended.push(Ended { job, begun: now, result: Err(errno) });
    }

    /// The number of those that have not ended.
    pub(super) fn count(&self) -> usize {
        self.operations.len() - self.free.len()
    }

    /// The start of the oldest of them.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.operations.iter().flatten().map(|it| it.begun).min()
    }

    /// A request that has not ended.
    pub(super) fn get(&self, number: u16) -> &Operation {
        self.operations[usize::from(number)].as_ref().expect("it has not ended")
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, number: u16) -> &mut Operation {
        self.operations[usize::from(number)].as_mut().expect("it has not ended")
    }

    /// Takes the next one that can go on.
    pub(super) fn next_ready(&mut self) -> Option<u16> {
        self.ready.pop_front()
    }

    /// Has one go on before all others.
    pub(super) fn resume_first(&mut self, number: u16) {
        self.ready.push_front(number);
    }

    /// Has one go on.
    pub(super) fn resume(&mut self, number: u16) {
        self.ready.push_back(number);
    }

    /// Has one go on after a pause.
    pub(super) fn resume_at(&mut self, at: Instant, number: u16) {
        self.later.insert((at, number));
    }

    /// Has those go on whose pause is over.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(&(at, number)) = self.later.first().filter(|it| it.0 <= now) {
            self.later.remove(&(at, number));
            self.ready.push_back(number);
        }
    }

    /// When the first pause is over.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.later.first().map(|it| it.0)
    }

    /// Ends one.
    pub(super) fn end(&mut self, number: u16, result: Result<(), Errno>) {
        let operation = self.operations[usize::from(number)].take();
        let Operation { job, begun, .. } = operation.expect("it has not ended");
        self.ended.push(Ended { job, begun, result });
        self.free.push(number);
    }

    /// Ends all that have no command in progress.
    pub(super) fn end_waiting(&mut self, errno: Errno) {
        let later = std::mem::take(&mut self.later);
        self.ready.extend(later.into_iter().map(|it| it.1));
        while let Some(number) = self.ready.pop_front() {
            self.end(number, Err(errno));
        }
    }
}
