//! Inline mode: the thread that submits requests drives the session.

use std::time::Duration;

use tyche_block::{Arena, Completion, Geometry, Request};
use tyche_engine::{EventLoop, Job, Service, now};
use tyche_remote::{HostReport, Notice};
use tyche_wake::Spin;

use super::driver::Driver;
use super::obstacle::Obstacle;
use super::options::FcoeHostOptions;
use super::shared::SessionShared;

/// A session with a disk, without a thread: it makes progress only in [`poll`](Self::poll) and
/// [`wait`](Self::wait). Call one of them a few times a second at least: beacons are late
/// otherwise, and the target takes this port for gone.
pub struct FcoeInlineHost {
    inner: EventLoop<Driver>,
    arena: Arena,
}

impl FcoeInlineHost {
    /// A session that is not yet connected: call [`connect`](Self::connect) next.
    pub fn new(options: FcoeHostOptions) -> Self {
        let (arena, spin) = (Arena::new(options.arena_size.all), Spin::new(options.spin));
        let shared = SessionShared::new(1, |_| {});
        let (driver, ports) = Driver::new(options, &shared);
        Self { inner: EventLoop::new(driver, ports, spin), arena }
    }

    /// Waits until the disk can be used.
    ///
    /// # Errors
    /// The obstacle that does not go away by itself, or that is still there when `timeout` has
    /// passed.
    pub fn connect(&mut self, timeout: Duration) -> Result<Geometry, Obstacle> {
        self.inner.run_until(now() + timeout, |driver, ports| {
            driver.has_failed() || driver.obstacle(ports).is_none_or(|it| it.is_final())
        });
        let (driver, ports) = self.inner.parts();
        match driver.obstacle(ports) {
            None => Ok(driver.geometry().expect("known once it can be used")),
            Some(obstacle) => Err(obstacle),
        }
    }

    /// The disk.
    ///
    /// # Panics
    /// Before the session is connected.
    pub fn geometry(&mut self) -> Geometry {
        self.inner.parts().0.geometry().expect("the session is connected")
    }

    /// The memory for the buffers of requests.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Takes a request; it is sent with the next [`poll`](Self::poll).
    ///
    /// # Errors
    /// Gives the request back if the limit of requests in progress is reached.
    pub fn submit(&mut self, request: Request, token: u64) -> Result<(), Request> {
        let job = Job { request, token, sink: None };
        self.inner.parts().0.submit(now(), job).map_err(|job| job.request)
    }

    /// Sends submitted requests, handles received frames, and appends finished requests to `done`.
    /// Never waits. Returns whether there was anything to do.
    pub fn poll(&mut self, done: &mut Vec<Completion>) -> bool {
        let worked = self.inner.turn(now());
        let driver = self.inner.parts().0;
        done.extend(driver.done.drain(..).map(|it| it.completion));
        worked
    }

    /// As [`poll`](Self::poll), until a request has finished or `timeout` has passed; spins, then
    /// sleeps.
    pub fn wait(&mut self, done: &mut Vec<Completion>, timeout: Duration) {
        self.inner.run_until(now() + timeout, |driver, _| !driver.done.is_empty());
        let driver = self.inner.parts().0;
        done.extend(driver.done.drain(..).map(|it| it.completion));
    }

    /// Returns the next notice.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.inner.parts().0.notices.pop_front()
    }

    /// Reports the state of the session.
    pub fn report(&mut self) -> HostReport {
        let (driver, ports) = self.inner.parts();
        driver.report(now(), ports)
    }

    /// Logs out, and waits up to `timeout` for commands in progress to end: requests fail.
    pub fn disconnect(mut self, timeout: Duration) {
        let now = now();
        self.inner.parts().0.stop(now);
        self.inner.run_until(now + timeout, |driver, _| driver.is_over());
    }
}
