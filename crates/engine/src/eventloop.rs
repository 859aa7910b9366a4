//! The loop of a thread: ports, a protocol, and the other side of its requests.
//!
//! ```text
//! obey -> receive (frames, faults, timers) -> work -> transmit -> again, or spin, or sleep
//! ```
//!
//! The other side is stores at a target, submissions at a host. The loop knows neither which of the
//! two it is, nor the protocol.

use std::os::fd::BorrowedFd;

use tyche_proto::Instant;
use tyche_wake::Spin;

use crate::clock::now;
use crate::ports::Ports;
use crate::protocol::Protocol;

/// What a loop serves.
pub trait Tenant {
    /// Its protocol.
    fn protocol(&mut self) -> &mut impl Protocol;

    /// Processes the commands of other threads; false if there were none.
    fn obey(&mut self, now: Instant, ports: &mut Ports) -> bool {
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

/// See the module.
pub struct EventLoop<T> {
    tenant: T,
    ports: Ports,
    spin: Spin,
}

impl<T: Tenant> EventLoop<T> {
    /// A loop, not yet running.
    pub fn new(tenant: T, ports: Ports, spin: Spin) -> Self {
        Self { tenant, ports, spin }
    }

    /// Runs in the calling thread until its tenant is over, and returns it.
    pub fn run(mut self) -> T {
        self.drive(None, |tenant, _| tenant.is_over());
        self.tenant
    }

    /// Runs rounds in the calling thread, one at least, until `ends` says so after one, or until
    /// `deadline`; when there is nothing to do it spins, then sleeps.
    pub fn run_until(&mut self, deadline: Instant, ends: impl FnMut(&mut T, &Ports) -> bool) {
        self.drive(Some(deadline), ends);
    }

    /// The last round is one after which it ends: what its tenant has to say then is sent.
    fn drive(&mut self, until: Option<Instant>, mut ends: impl FnMut(&mut T, &Ports) -> bool) {
        loop {
            let now = now();
            let worked = self.turn(now);
            if worked {
                self.spin.worked();
            }
            if ends(&mut self.tenant, &self.ports) || until.is_some_and(|at| now >= at) {
                return;
            }
            if !worked && !self.spin.again(now.0) {
                self.sleep(until);
            }
        }
    }

    /// The tenant and the ports, for the thread that drives the loop round by round.
    pub fn parts(&mut self) -> (&mut T, &mut Ports) {
        (&mut self.tenant, &mut self.ports)
    }

    /// Runs one round; false if there was nothing to do.
    pub fn turn(&mut self, now: Instant) -> bool {
        let Self { tenant, ports, .. } = self;
        let mut worked = tenant.obey(now, ports);
        worked |= ports.receive(now, tenant.protocol());
        worked |= tenant.work(now);
        worked |= ports.transmit(now, tenant.protocol());
        worked
    }

    /// Sleeps until there is work, a timer has expired, or `until` has passed.
    fn sleep(&mut self, until: Option<Instant>) {
        self.spin.sleeps();
        if self.tenant.may_sleep() && !self.tenant.obey(now(), &mut self.ports) {
            let timer = self.tenant.protocol().poll_timeout();
            let deadline = timer.into_iter().chain(until).min();
            self.ports.wait(self.tenant.wait_fds(), deadline);
        }
        self.tenant.awake();
    }
}
