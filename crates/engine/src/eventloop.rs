//! The loop of a thread: ports, a protocol, and the other side of its requests.
//!
//! ```text
//! commands -> receive (frames, faults, timers) -> work -> transmit -> again, or spin, or sleep
//! ```
//!
//! The other side is stores at a target, submissions at a host. The loop knows neither which of the
//! two it is, nor the protocol.

use std::os::fd::BorrowedFd;

use tyche_time::Instant;
use tyche_wake::Spin;

use crate::clock::now;
use crate::ports::Ports;
use crate::protocol::Protocol;

/// What a loop serves.
pub trait Service {
    /// Its protocol.
    fn protocol(&mut self) -> &mut impl Protocol;

    /// Processes the commands of other threads; false if there were none.
    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        let _ = (now, ports);
        false
    }

    /// Advances all that is neither frame nor timer: submissions, stores, answers. False if there
    /// was nothing to do.
    fn work(&mut self, now: Instant) -> bool {
        let _ = now;
        false
    }

    /// Whether the loop is to end.
    fn is_over(&self) -> bool;

    /// Announces to the threads that wake it that it is about to sleep, then looks for work that
    /// has come before. False if there is some: then the loop does not sleep.
    fn may_sleep(&mut self) -> bool {
        true
    }

    /// Withdraws the announcement of [`may_sleep`](Self::may_sleep).
    fn awake(&mut self) {}

    /// Descriptors that are readable when there is work, besides those of the ports.
    fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::empty()
    }
}

/// The loop of one thread, with its service and its ports. It runs a round after the other, spins
/// while that pays, and sleeps in one wait for all that may wake it.
pub struct EventLoop<T> {
    service: T,
    ports: Ports,
    spin: Spin,
}

impl<T: Service> EventLoop<T> {
    /// A loop, not yet running.
    pub fn new(service: T, ports: Ports, spin: Spin) -> Self {
        Self { service, ports, spin }
    }

    /// Runs in the calling thread until its service is over, and returns it.
    pub fn run(mut self) -> T {
        self.drive(None, |service, ports, now| (turn(service, ports, now), service.is_over()));
        self.service
    }

    /// Runs rounds in the calling thread, one at least, until `ends` says so after one, or until
    /// `deadline`; when there is nothing to do it spins, then sleeps.
    pub fn run_until(&mut self, deadline: Instant, mut ends: impl FnMut(&mut T, &Ports) -> bool) {
        self.drive(Some(deadline), |service, ports, now| {
            (turn(service, ports, now), ends(service, ports))
        });
    }

    /// As [`run_until`](Self::run_until), with rounds of the caller, if it has other ones: `round`
    /// returns whether there was something to do, and whether to end. The last round is one after
    /// which it ends: what its service has to say then is sent.
    pub fn drive(
        &mut self,
        until: Option<Instant>,
        mut round: impl FnMut(&mut T, &mut Ports, Instant) -> (bool, bool),
    ) {
        loop {
            let now = now();
            let (worked, ends) = round(&mut self.service, &mut self.ports, now);
            if worked {
                self.spin.worked();
            }
            if ends || until.is_some_and(|at| now >= at) {
                return;
            }
            if !worked && !self.spin.again(now.0) {
                self.sleep(until);
            }
        }
    }

    /// The service.
    pub fn service(&self) -> &T {
        &self.service
    }

    /// The service and the ports, for the thread that drives the loop round by round.
    pub fn parts(&mut self) -> (&mut T, &mut Ports) {
        (&mut self.service, &mut self.ports)
    }

    /// Runs one round; false if there was nothing to do.
    pub fn turn(&mut self, now: Instant) -> bool {
        turn(&mut self.service, &mut self.ports, now)
    }

    /// The descriptors that are readable when a frame has arrived, for a thread that drives several
    /// loops. They are others once an interface went down or came back: ask anew after each round.
    pub fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ports.wait_fds()
    }

    /// When the next round is due if no frame arrives before.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        let timer = self.service.protocol().poll_timeout();
        self.ports.due(timer)
    }

    /// Sleeps until there is work, a timer has expired, or `until` has passed.
    fn sleep(&mut self, until: Option<Instant>) {
        self.spin.sleeps();
        if self.service.may_sleep() && !self.service.handle_commands(now(), &mut self.ports) {
            let timer = self.service.protocol().poll_timeout();
            let deadline = timer.into_iter().chain(until).min();
            self.ports.wait(self.service.wait_fds(), deadline);
        }
        self.service.awake();
    }
}

/// One round; false if there was nothing to do.
#[inline]
fn turn(service: &mut impl Service, ports: &mut Ports, now: Instant) -> bool {
    let mut worked = service.handle_commands(now, ports);
    worked |= ports.receive(now, service.protocol());
    worked |= service.work(now);
    worked | ports.transmit(now, service.protocol())
}
