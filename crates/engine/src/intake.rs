//! The requests that come to a loop: from the queue of a volume, and from pollers that share the
//! loop's thread.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use tyche_wake::{MakePoller, Polled, Poller};

use crate::volume::{Submission, VolumeQueue};

/// The requests of a loop's thread: those of a volume's queue, taken while the loop has room, and
/// the pollers that run in it. `J` is a request as the loop has it.
pub struct Intake<J> {
    volume: Arc<VolumeQueue>,
    /// A request taken from the queue when the loop had no room.
    held: Option<J>,
    /// Pollers that share the thread.
    pollers: Vec<Box<dyn Poller>>,
}

impl<J: From<Submission>> Intake<J> {
    /// The requests of a queue.
    pub fn new(volume: Arc<VolumeQueue>) -> Self {
        Self { volume, held: None, pollers: Vec::new() }
    }

    /// The queue.
    pub fn volume(&self) -> &VolumeQueue {
        &self.volume
    }

    /// Adds the pollers that `make` makes.
    pub fn adopt(&mut self, make: MakePoller) {
        self.pollers.extend(make());
    }

    /// Polls the pollers; false if there was nothing to do.
    pub fn poll(&mut self) -> bool {
        let mut worked = false;
        self.pollers.retain_mut(|poller| match poller.poll() {
            Ok(polled) => {
                worked |= polled != Polled::Idle;
                polled != Polled::Over
            }
            Err(error) => {
                tracing::error!(%error, "a poller of the session failed and is dropped");
                false
            }
        });
        worked
    }

    /// Has `submit` take the requests, until it gives one back: it has no room. False if it took
    /// none.
    pub fn take(&mut self, mut submit: impl FnMut(J) -> Result<(), J>) -> bool {
        let mut worked = false;
        let volume = &self.volume;
        let mut next = || volume.take().map(J::from);
        while let Some(job) = self.held.take().or_else(&mut next) {
            if let Err(job) = submit(job) {
                self.held = Some(job);
                return worked;
            }
            worked = true;
        }
        worked
    }

    /// As [`Service::may_sleep`](crate::Service::may_sleep).
    pub fn may_sleep(&mut self) -> bool {
        self.volume.doorbell.announce();
        self.pollers.iter().for_each(|poller| poller.announce());
        // A held request waits for another to end, so a full queue behind it is no work.
        !self.poll() && (self.held.is_some() || self.volume.is_empty())
    }

    /// As [`Service::awake`](crate::Service::awake).
    pub fn awake(&mut self) {
        self.pollers.iter().for_each(|poller| poller.awake());
        self.volume.doorbell.awake();
    }

    /// As [`Service::wait_fds`](crate::Service::wait_fds).
    pub fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pollers = self.pollers.iter().map(|poller| poller.wait_fd());
        pollers.chain([self.volume.doorbell.wait_fd()])
    }

    /// Ends the intake: requests in the queue, and later ones, fail. The one that is held is given
    /// to `fail`. Then polls the pollers until they end: their requests fail, but are answered.
    pub fn end(mut self, fail: impl FnOnce(J)) {
        self.volume.close();
        if let Some(job) = self.held.take() {
            fail(job);
        }
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
}
