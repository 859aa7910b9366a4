//! A session under load, of either protocol.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tyche_block::{Arena, Completion, Geometry, Request};
use tyche_engine::{HostReport, InlineHost, Notice};

/// A session whose requests one thread submits and waits for.
pub trait Driven {
    /// The disk.
    fn geometry(&self) -> Geometry;

    /// The memory for the buffers of requests.
    fn arena(&self) -> &Arena;

    /// Takes a request.
    ///
    /// # Errors
    /// Gives the request back if the limit of requests in progress is reached.
    fn submit(&mut self, request: Request, token: u64) -> Result<(), Request>;

    /// Waits for finished requests, for `timeout` at most, and appends them to `done`.
    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Duration);

    /// Returns the next notice.
    fn poll_notice(&mut self) -> Option<Notice>;

    /// Reports the state of the session; `None` if it does not answer.
    fn report(&mut self) -> Option<HostReport>;

    /// CPU time of the threads that do the work.
    fn cpu(&self) -> Duration;
}

impl Driven for InlineHost {
    fn geometry(&self) -> Geometry {
        Self::geometry(self)
    }

    fn arena(&self) -> &Arena {
        Self::arena(self)
    }

    fn submit(&mut self, request: Request, token: u64) -> Result<(), Request> {
        Self::submit(self, request, token)
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Duration) {
        Self::wait(self, done, timeout);
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        Self::poll_notice(self)
    }

    fn report(&mut self) -> Option<HostReport> {
        Some(Self::report(self))
    }

    /// The calling thread does everything itself.
    fn cpu(&self) -> Duration {
        cpu_time(ClockId::ThreadCPUTime)
    }
}

/// CPU time by a clock.
pub(super) fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
