//! The load on a disk that a session serves in a thread of its own. The load runs in that thread,
//! as a block device does: requests change no thread.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tyche_block::{Completion, Disk, Extent, Sink};
use tyche_engine::Histogram;
use tyche_proto::NodeCounts;
use tyche_wake::{Inbox, MakePoller, Polled, Poller};

use super::load::{Tally, parts};
use super::requests::Requests;
use super::shape::Shape;
use super::{Measurement, Period};
use crate::shared::error::{Code, Error, Result};

/// Time beyond that of the measurement after which it is given up.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Interval at which to look whether the target is lost.
const LOOK: Duration = Duration::from_millis(200);

/// Told of each request that is measured: when it began, and when it was answered.
pub type Observe = Box<dyn FnMut(Instant, Instant) + Send>;
/// Counts something that grows.
type Count = Box<dyn Fn() -> u64 + Send>;

/// A session with a disk, whose threads poll others.
pub trait DiskSession {
    /// The disk.
    fn disk(&self) -> Arc<dyn Disk>;

    /// Adds a poller to the thread in which the requests of a queue of the disk are completed.
    fn adopt(&self, queue: usize, make: MakePoller);

    /// Why the disk can't be used any more, if so.
    fn failure(&self) -> Option<Error>;
}

/// Measures a disk, with a load for each of its queues. `frames` counts those of its interface.
/// `observe` is told of requests of the first queue.
///
/// # Errors
/// The disk is lost, a request fails, or none is answered.
pub(super) fn measure(
    session: &dyn DiskSession,
    shape: Shape,
    period: Period,
    frames: impl Fn() -> u64 + Send + 'static,
    observe: Observe,
) -> Result<Measurement> {
    let disk = session.disk();
    let (size, queues) = (disk.geometry().size, tyche_block::queues(&disk));
    let (sender, results) = channel();
    let (mut process, count) = (Some((Box::new(frames) as Count, observe)), queues.len() as u64);
    for (queue, disk) in queues.into_iter().enumerate() {
        let mut requests = Requests::new(shape, size, (queue as u64, count));
        let idle = requests.buffers(disk.arena())?;
        let answers = Arc::new(Answers(Inbox::new(shape.depth.into())?));
        let load = DiskLoad {
            sink: Arc::clone(&answers) as Arc<dyn Sink>,
            answers,
            disk,
            requests,
            in_flight: 0,
            phase: Phase::Begin(idle),
            period,
            process: process.take(),
            tally: None,
            results: sender.clone(),
        };
        session.adopt(queue, Box::new(move || Some(Box::new(load) as Box<dyn Poller>)));
    }
    let end = Instant::now() + period.ramp + period.time + SILENCE_MAX;
    let tallies = (0..count).map(|_| wait(session, &results, end)).collect::<Result<_>>()?;
    Ok(Measurement { shape, tallies })
}

fn wait(
    session: &dyn DiskSession,
    results: &Receiver<Result<Tally>>,
    end: Instant,
) -> Result<Tally> {
    loop {
        match results.recv_timeout(LOOK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
            Err(_) => {
                let message = "the target is there, but does not answer all requests";
                return Err(Error::new(Code::Unreachable, message));
            }
        }
        if let Some(error) = session.failure() {
            return Err(error);
        }
    }
}

/// The sink for the disk's answers.
struct Answers(Inbox<Completion>);

impl Sink for Answers {
    fn complete(&self, completion: Completion) {
        self.0.push(completion).expect("there is room for every token");
        self.0.ring();
    }
}

/// The part of the measurement that is in progress.
enum Phase {
    /// Nothing is in flight: these requests are not.
    Begin(Vec<(u64, Extent)>),
    /// Nothing counts until then.
    WarmUp(Instant),
    Measuring(Begun),
    /// Requests in flight are waited for.
    Drain,
}

/// The beginning of what is measured.
#[derive(Clone, Copy)]
struct Begun {
    at: Instant,
    cpu: Duration,
    frames: u64,
}

struct DiskLoad {
    disk: Arc<dyn Disk>,
    answers: Arc<Answers>,
    /// The same, as a sink for the disk.
    sink: Arc<dyn Sink>,
    requests: Requests,
    in_flight: u16,
    phase: Phase,
    period: Period,
    /// In the load of the first queue: the frames of the interface, which are those of all queues,
    /// as the CPU time is that of the process; and the observer.
    process: Option<(Count, Observe)>,
    tally: Option<Tally>,
    results: Sender<Result<Tally>>,
}

impl DiskLoad {
    fn submit(&mut self, token: u64, buffer: Extent) {
        let request = self.requests.begin(token, buffer);
        self.in_flight += 1;
        self.disk.submit(request, token, &self.sink);
    }

    fn begun(&self, now: Instant) -> Begun {
        let (cpu, frames) = match &self.process {
            Some((frames, _)) => (cpu_time(), frames()),
            None => (Duration::ZERO, 0),
        };
        Begun { at: now, cpu, frames }
    }

    /// Begins the next phase if it is time; returns whether requests go on.
    fn go_on(&mut self, now: Instant) -> bool {
        match self.phase {
            Phase::WarmUp(end) if now >= end => {
                self.requests.latencies_ns = Histogram::new();
                self.phase = Phase::Measuring(self.begun(now));
            }
            Phase::Measuring(begun) if now >= begun.at + self.period.time => {
                let end = self.begun(now);
                self.tally = Some(Tally {
                    latencies_ns: self.requests.latencies_ns.clone(),
                    elapsed: now - begun.at,
                    cpu: end.cpu.saturating_sub(begun.cpu),
                    frames: end.frames - begun.frames,
                    retransmitted: 0,
                    nodes: NodeCounts::default(),
                });
                self.phase = Phase::Drain;
            }
            _ => {}
        }
        !matches!(self.phase, Phase::Drain)
    }

    /// Ends the load with this result. The recipient may have given up.
    fn end(&mut self, result: Result<Tally>) -> Polled {
        let _ = self.results.send(result);
        Polled::Over
    }
}

impl Poller for DiskLoad {
    fn poll(&mut self) -> io::Result<Polled> {
        if let Phase::Begin(idle) = &mut self.phase {
            let idle = std::mem::take(idle);
            self.phase = Phase::WarmUp(Instant::now() + self.period.ramp);
            idle.into_iter().for_each(|(token, buffer)| self.submit(token, buffer));
            return Ok(Polled::Worked);
        }
        let Some(mut next) = self.answers.0.pop() else { return Ok(Polled::Idle) };
        let now = Instant::now();
        let goes_on = self.go_on(now);
        loop {
            self.in_flight -= 1;
            if let Err(errno) = next.result {
                let message = format!("a request failed at the target: {errno}");
                return Ok(self.end(Err(Error::new(Code::Device, message))));
            }
            let (token, buffer) = parts(next);
            let begun = self.requests.answered(token, now);
            if let (Phase::Measuring(_), Some((_, observe))) = (&self.phase, &mut self.process) {
                observe(begun, now);
            }
            if goes_on {
                self.submit(token, buffer);
            }
            match self.answers.0.pop() {
                Some(answer) => next = answer,
                None => break,
            }
        }
        match self.tally.take_if(|_| self.in_flight == 0) {
            Some(tally) => Ok(self.end(Ok(tally))),
            None => Ok(Polled::Worked),
        }
    }

    fn announce(&self) {
        self.answers.0.wait_fd();
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.answers.0.wait_fd()
    }

    fn awake(&self) {
        self.answers.0.awake();
    }
}

/// CPU time that this process has used: a session may have several threads.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
