//! Inline mode: the threads that submit requests drive the session, each a queue of it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use tyche_block::{Arena, Completion, Geometry, Request};
use tyche_engine::{EventLoop, Job, Ports, Protocol, Service, now};
use tyche_link::Link;
use tyche_numa::NumaAffinity;
use tyche_remote::{HostReport, Notice};
use tyche_time::Instant;
use tyche_wake::{Doorbell, Spin};

use super::driver::Driver;
use super::further::LaneDriver;
use super::lane::InitiatorConfig;
use super::obstacle::Obstacle;
use super::options::{FcoeHostOptions, frames_of};
use super::shared::SessionShared;
use crate::interface::{divide, insert_fcoe};
use crate::lanes::{LANES_MAX, share};

/// A queue of a session with a disk, without a thread: it makes progress only in
/// [`poll`](Self::poll) and [`wait`](Self::wait). Call one of them a few times a second at least,
/// on each queue: beacons are late otherwise, and the target takes this port for gone; and a login
/// that has ended does not begin anew before all queues have noticed.
pub struct FcoeInlineHost {
    inner: Driven,
    session: Arc<InlineSession>,
    lane: usize,
    arena: Arena,
}

/// The first queue, which has the port, or a further one.
enum Driven {
    First(Box<EventLoop<Woken<Driver>>>),
    Further(Box<EventLoop<Woken<LaneDriver>>>),
}

/// The same expression for either kind of queue.
macro_rules! either {
    ($driven:expr, $it:ident => $then:expr) => {
        match $driven {
            Driven::First($it) => $then,
            Driven::Further($it) => $then,
        }
    };
}

/// The common state of the queues of a session in inline mode, so that further ones can
/// [join](FcoeInlineHost::join).
pub struct InlineSession {
    shared: Arc<SessionShared>,
    doorbells: Arc<[Doorbell]>,
    config: InitiatorConfig,
    arena_pages: usize,
    spin: Duration,
}

impl FcoeInlineHost {
    /// A session of one queue that is not yet connected: call [`connect`](Self::connect) next.
    ///
    /// # Errors
    /// As [`with_queues`](Self::with_queues).
    pub fn new(options: FcoeHostOptions) -> io::Result<Self> {
        Self::with_queues(options, 1)
    }

    /// The first of `queues` queues of a session; other threads [join](Self::join) when it is
    /// connected.
    ///
    /// # Errors
    /// The system's error when an eventfd cannot be created, and `Unsupported` if there are several
    /// queues, and the link can't divide frames.
    ///
    /// # Panics
    /// Unless there are 1 to [`LANES_MAX`] queues.
    pub fn with_queues(mut options: FcoeHostOptions, queues: usize) -> io::Result<Self> {
        assert!((1..=LANES_MAX).contains(&queues), "{queues} queues");
        if queues > 1 {
            divide(&mut *options.port.interface.fcoe, share(0, queues), "queues")?;
        }
        let doorbells = (0..queues).map(|_| Doorbell::new()).collect::<io::Result<Arc<[_]>>>()?;
        let rung = Arc::clone(&doorbells);
        let shared = SessionShared::new(queues, move |lane| rung[lane].ring());
        // The others are not there yet.
        (1..queues).for_each(|lane| shared.handle(lane).leave());
        let config = options.config(&*options.port.interface.fcoe);
        let (arena_pages, spin) = (options.arena_size.all, options.spin);
        let (driver, ports) = Driver::new(options, &shared);
        let session = InlineSession { shared, doorbells, config, arena_pages, spin };
        Ok(Self::start(Arc::new(session), 0, driver, ports, Driven::First))
    }

    /// A further queue of a session, to be driven by another thread, with a link for FCoE of its
    /// own on the same interface: not yet connected, as after [`new`](Self::new). Each joins once.
    ///
    /// # Errors
    /// `Unsupported` if the link can't divide frames.
    ///
    /// # Panics
    /// If the session has no such further queue.
    pub fn join(
        session: &Arc<InlineSession>,
        queue: usize,
        mut link: Box<dyn Link>,
    ) -> io::Result<Self> {
        assert!((1..session.doorbells.len()).contains(&queue), "no further queue {queue}");
        let queues = session.doorbells.len();
        divide(&mut *link, share(queue, queues), "queues")?;
        let seed = getrandom::u64().expect("the kernel's random numbers are always there");
        let config = InitiatorConfig { frames: frames_of(&*link), seed, ..session.config };
        let handle = session.shared.handle(queue);
        handle.enter();
        let driver = LaneDriver::new(config, handle);
        let mut ports = Ports::new();
        insert_fcoe(&mut ports, link, &NumaAffinity::default());
        Ok(Self::start(Arc::clone(session), queue, driver, ports, Driven::Further))
    }

    fn start<S: Service>(
        session: Arc<InlineSession>,
        lane: usize,
        service: S,
        ports: Ports,
        driven: impl FnOnce(Box<EventLoop<Woken<S>>>) -> Driven,
    ) -> Self {
        let arena = Arena::new(session.arena_pages);
        let service = Woken { service, lane, doorbells: Arc::clone(&session.doorbells) };
        let inner = EventLoop::new(service, ports, Spin::new(session.spin));
        let inner = driven(Box::new(inner));
        Self { inner, session, lane, arena }
    }

    /// Waits until the disk can be used.
    ///
    /// # Errors
    /// The obstacle that does not go away by itself, or that is still there when `timeout` has
    /// passed.
    pub fn connect(&mut self, timeout: Duration) -> Result<Geometry, Obstacle> {
        let until = now() + timeout;
        let obstacle = match &mut self.inner {
            Driven::First(inner) => {
                inner.run_until(until, |it, ports| {
                    let driver = &it.service;
                    driver.has_failed() || driver.obstacle(ports).is_none_or(|it| it.is_final())
                });
                let (it, ports) = inner.parts();
                it.service.obstacle(ports)
            }
            Driven::Further(inner) => {
                inner.run_until(until, |it, _| it.service.is_ready() || it.service.has_failed());
                let driver = &inner.service().service;
                (driver.has_failed() || !driver.is_ready()).then_some(Obstacle::Asking)
            }
        };
        match obstacle {
            None => Ok(self.geometry()),
            Some(obstacle) => Err(obstacle),
        }
    }

    /// The disk.
    ///
    /// # Panics
    /// Before the session is connected.
    pub fn geometry(&self) -> Geometry {
        let geometry = either!(&self.inner, it => it.service().service.geometry());
        geometry.expect("the session is connected")
    }

    /// The session that further queues [join](Self::join).
    pub fn session(&self) -> &Arc<InlineSession> {
        &self.session
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
        let taken = either!(&mut self.inner, it => it.parts().0.service.submit(now(), job));
        taken.map_err(|job| job.request)
    }

    /// Sends submitted requests, handles received frames, and appends finished requests to `done`.
    /// Never waits. Returns whether there was anything to do.
    pub fn poll(&mut self, done: &mut Vec<Completion>) -> bool {
        let worked = either!(&mut self.inner, it => it.turn(now()));
        self.take_done(done);
        worked
    }

    /// As [`poll`](Self::poll), until a request has finished or `timeout` has passed; spins, then
    /// sleeps.
    pub fn wait(&mut self, done: &mut Vec<Completion>, timeout: Duration) {
        let until = now() + timeout;
        either!(&mut self.inner, it => {
            it.run_until(until, |it, _| !it.service.done.is_empty());
        });
        self.take_done(done);
    }

    fn take_done(&mut self, done: &mut Vec<Completion>) {
        let own = either!(&mut self.inner, it => &mut it.parts().0.service.done);
        done.extend(own.drain(..).map(|it| it.completion));
    }

    /// Returns the next notice. Those of the session come to the first queue; further ones are told
    /// of another size.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        match &mut self.inner {
            Driven::First(it) => it.parts().0.service.notices.pop_front(),
            Driven::Further(it) => it.parts().0.service.poll_resized().map(Notice::Resized),
        }
    }

    /// Reports the state of the session, as this queue has it.
    pub fn report(&mut self) -> HostReport {
        either!(&mut self.inner, it => {
            let (it, ports) = it.parts();
            it.service.report(now(), ports)
        })
    }

    /// Ends this queue. The others of the session go on without a further one, unless requests are
    /// in progress on it: these fail, and the session with them. The first one waits up to
    /// `timeout` until all others have ended and its commands in progress have, and logs out:
    /// requests that are left fail, on all queues.
    pub fn disconnect(mut self, timeout: Duration) {
        let until = now() + timeout;
        let Driven::First(inner) = &mut self.inner else { return };
        let shared = &self.session.shared;
        inner.run_until(until, |_, _| shared.is_first_alone());
        inner.parts().0.service.stop(now());
        inner.run_until(until, |it, _| it.service.is_over());
    }
}

impl Drop for FcoeInlineHost {
    /// As [`disconnect`](Self::disconnect), without a farewell.
    fn drop(&mut self) {
        match &mut self.inner {
            Driven::First(_) => self.session.shared.end(),
            Driven::Further(inner) => {
                let handle = self.session.shared.handle(self.lane);
                if inner.parts().0.service.has_requests() {
                    handle.abort();
                }
                handle.leave();
            }
        }
    }
}

/// A queue that other queues of its session wake.
struct Woken<S> {
    service: S,
    lane: usize,
    doorbells: Arc<[Doorbell]>,
}

impl<S: Service> Service for Woken<S> {
    fn protocol(&mut self) -> &mut impl Protocol {
        self.service.protocol()
    }

    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        self.service.handle_commands(now, ports)
    }

    fn work(&mut self, now: Instant) -> bool {
        self.service.work(now)
    }

    fn is_over(&self) -> bool {
        self.service.is_over()
    }

    fn may_sleep(&mut self) -> bool {
        self.doorbells[self.lane].announce();
        true
    }

    fn awake(&mut self) {
        self.doorbells[self.lane].awake();
    }

    fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.doorbells[self.lane].wait_fd())
    }
}
