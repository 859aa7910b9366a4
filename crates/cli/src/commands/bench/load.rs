//! The requests of one job: keeps a number of them in flight, and measures them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tyche_block::{Completion, Extent};
use tyche_engine::Histogram;
use tyche_native::InlineHost;
use tyche_proto::NodeCounts;
use tyche_remote::Notice;
use tyche_session::keep_next_key;

use super::Period;
use super::requests::Requests;
use super::shape::Shape;
use crate::daemons::connect::SessionArgs;
use crate::shared::error::{Code, Error, Result};
use crate::shared::report::frames;

/// Time without an answer after which the run is aborted.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Longest wait for answers between two checks of the time, the notices and the progress.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// State shared by the jobs and the thread that waits for them.
#[derive(Debug, Default)]
pub struct Shared {
    /// Requests answered so far by all jobs.
    pub(super) answered: AtomicU64,
    /// Set when the result is no longer wanted.
    pub(super) stop: AtomicBool,
}

impl Shared {
    /// Whether the result is no longer wanted.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The measurements of a job.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) latencies_ns: Histogram,
    pub(super) elapsed: Duration,
    /// CPU time of the job's thread, which does everything itself.
    pub(super) cpu: Duration,
    /// Frames of the session in both directions.
    pub(super) frames: u64,
    pub(super) retransmitted: u64,
    /// Requests that stayed on the node of their memory, and requests that crossed to another.
    pub(super) nodes: NodeCounts,
}

/// The load of one job on its session: requests in flight up to the depth, and the memory of the
/// others. The thread of the session drives it.
pub(super) struct Load<'a> {
    shape: Shape,
    requests: Requests,
    /// Requests that are not in flight: their tokens and memory.
    idle: Vec<(u64, Extent)>,
    done: Vec<Completion>,
    shared: &'a Shared,
}

impl<'a> Load<'a> {
    /// Allocates the requests' memory, with random content. Job `job` of `jobs` starts at its share
    /// of the export.
    pub(super) fn new(
        host: &InlineHost,
        shape: Shape,
        (job, jobs): (u64, u64),
        shared: &'a Shared,
    ) -> Result<Self> {
        let mut requests = Requests::new(shape, host.geometry().size, (job, jobs));
        let idle = requests.buffers(host.arena())?;
        let done = Vec::with_capacity(shape.depth.into());
        Ok(Self { shape, requests, idle, done, shared })
    }

    fn submit(&mut self, host: &mut InlineHost, token: u64, buffer: Extent) -> Result<()> {
        let request = self.requests.begin(token, buffer);
        host.submit(request, token)
            .map_err(|_| Error::new(Code::Other, "the session takes fewer requests than asked for"))
    }

    /// Warms up for `warm_up`, measures for `time`, and waits for the requests still in flight.
    /// While it measures, `look` is called after each wait for answers.
    pub(super) fn measure(
        &mut self,
        host: &mut InlineHost,
        period: Period,
        look: impl FnMut(&mut InlineHost),
    ) -> Result<Tally> {
        for (token, buffer) in std::mem::take(&mut self.idle) {
            self.submit(host, token, buffer)?;
        }
        self.keep_going(host, period.ramp, |_| {})?;
        self.requests.latencies_ns = Histogram::new();
        let (before, cpu) = (host.report(), cpu_time());
        let elapsed = self.keep_going(host, period.time, look)?;
        let (after, cpu) = (host.report(), cpu_time() - cpu);
        let tally = Tally {
            latencies_ns: self.requests.latencies_ns.clone(),
            elapsed,
            cpu,
            frames: frames(&after) - frames(&before),
            retransmitted: after.channel.retransmitted - before.channel.retransmitted,
            nodes: NodeCounts {
                stayed: after.node_counts.stayed - before.node_counts.stayed,
                crossed: after.node_counts.crossed - before.node_counts.crossed,
            },
        };
        self.drain(host)?;
        Ok(tally)
    }

    /// Keeps `depth` requests in flight for `time`; returns how long it really was.
    fn keep_going(
        &mut self,
        host: &mut InlineHost,
        time: Duration,
        mut look: impl FnMut(&mut InlineHost),
    ) -> Result<Duration> {
        let start = Instant::now();
        let (mut now, mut heard) = (start, start);
        while now.duration_since(start) < time && !self.shared.is_stopped() {
            now = self.collect(host, &mut heard)?;
            look(host);
            let answered = self.done.len() as u64;
            // The vector is reused: nothing is allocated for requests.
            let mut done = std::mem::take(&mut self.done);
            for completion in done.drain(..) {
                let (token, buffer) = parts(completion);
                self.requests.answered(token, now);
                self.submit(host, token, buffer)?;
            }
            self.done = done;
            self.shared.answered.fetch_add(answered, Ordering::Relaxed);
        }
        Ok(now.duration_since(start))
    }

    /// Waits for all requests in flight.
    fn drain(&mut self, host: &mut InlineHost) -> Result<()> {
        let mut heard = Instant::now();
        while self.idle.len() < usize::from(self.shape.depth) {
            self.collect(host, &mut heard)?;
            self.idle.extend(self.done.drain(..).map(parts));
        }
        Ok(())
    }

    /// Waits up to `LOOK_EVERY` for answers; returns the time then. Failed requests, silence and a
    /// lost target end the measurement.
    fn collect(&mut self, host: &mut InlineHost, heard: &mut Instant) -> Result<Instant> {
        host.wait(&mut self.done, LOOK_EVERY);
        let now = Instant::now();
        check_notices(host)?;
        if let Some(errno) = self.done.iter().find_map(|it| it.result.err()) {
            let message = format!("a request failed at the target: {errno}");
            return Err(Error::new(Code::Device, message));
        }
        if !self.done.is_empty() {
            *heard = now;
        } else if now.duration_since(*heard) > SILENCE_MAX {
            let message = "the target is there, but has not answered any request for half a minute";
            return Err(Error::new(Code::Unreachable, message));
        }
        Ok(now)
    }
}

pub(super) fn parts(completion: Completion) -> (u64, Extent) {
    (completion.token, completion.buffer.expect("reads and writes have a buffer"))
}

/// Ends the measurement if the target is lost: requests after that would measure something else.
pub fn check_notices(host: &mut InlineHost) -> Result<()> {
    let mut notices = std::iter::from_fn(|| host.poll_notice());
    let noted = notices.find_map(|notice| {
        if let Notice::NextKey(said) = &notice {
            keep_next_key(said);
        }
        lost(&notice)
    });
    noted.map_or(Ok(()), Err)
}

/// The error for a measurement whose target is lost.
pub(super) fn lost(notice: &Notice) -> Option<Error> {
    match notice {
        Notice::Lost(problem) => {
            let message = format!("the target was lost while measuring: {problem}");
            Some(Error::new(Code::Unreachable, message))
        }
        Notice::Failed(failure) => Some(SessionArgs::failed(*failure)),
        _ => None,
    }
}

/// CPU time that this thread has used.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
