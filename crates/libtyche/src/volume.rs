//! An open export.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tyche_block::{Arena, Completion, Geometry, Request};
use tyche_fcoe::{FcoeHost, Interface};
use tyche_link::Link;
use tyche_native::{HostSession, InlineHost};
use tyche_proto::SessionConfig;
use tyche_remote::{HostLink, HostReport};

use crate::either::either;
use crate::error::{OpenError, Refusal, Refused};
use crate::inline::Inline;
use crate::options::{Mode, Options};
use crate::queue::Queue;
use crate::wanted::Wanted;

/// An open export: takes requests, each with a token of the caller's choice, and returns their
/// completions in the order in which they end.
///
/// It may be shared between threads in either mode; in inline mode a call fails with
/// [`Refusal::Busy`] during another thread's call. Dropping it ends the session without telling the
/// target, which notices after a while. [`close`](Self::close) is better.
///
/// It is one queue of its session. Further ones are for other threads
/// ([`open_queue`](Self::open_queue)): each has its own requests, completions, memory and, in
/// inline mode, channels, so that the threads share nothing. The disk is one: a flush on any queue
/// covers what was completed on all.
pub struct Volume {
    session: Session,
    opened: Arc<Opened>,
}

enum Session {
    Inline(Box<Inline>),
    Queue(Queue),
}

/// The options of the session, to open its further queues with.
struct Opened {
    options: Options,
    /// `None` over FCoE, where a session has one queue in inline mode.
    session: Option<SessionConfig>,
    waiting: Mutex<Waiting>,
}

/// The queues that are not open yet.
struct Waiting {
    numbers: VecDeque<usize>,
    /// Links for some of them.
    links: VecDeque<Vec<HostLink>>,
}

impl Opened {
    /// Opens the next queue that is not open; if that fails, the same queue is next again.
    fn open_next<T>(
        &self,
        open: impl FnOnce(usize, Option<Vec<HostLink>>) -> Result<T, OpenError>,
    ) -> Result<T, OpenError> {
        let waiting = || self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, links) = {
            let mut waiting = waiting();
            (waiting.numbers.pop_front(), waiting.links.pop_front())
        };
        let Some(number) = number else {
            let queues = self.options.queues;
            let message = format!("all {queues} queues of the session are open: it needs more");
            return Err(OpenError::Option(message));
        };
        open(number, links).inspect_err(|_| waiting().numbers.push_front(number))
    }
}

impl Options {
    /// Opens the interfaces and connects to the export, or to the disk over FCoE. Waits for up to
    /// `timeout`.
    ///
    /// # Errors
    /// See [`OpenError`]; each names a remedy.
    pub fn open(&self) -> Result<Volume, OpenError> {
        if self.fcoe.is_some() {
            self.check_fcoe_queues()?;
            let (interface, further_queues) = self.open_interface()?;
            return self.open_fcoe_on(interface, further_queues);
        }
        // Each queue has links of its own. In inline mode, those of further queues are opened with
        // the queue.
        let queues = if self.mode == Mode::Inline { 1 } else { self.checked_queues()? };
        self.open_on((0..queues).map(|queue| self.open_links(queue)).collect::<Result<_, _>>()?)
    }

    /// As [`open`](Self::open), over links that are open already: those of the first queue, then of
    /// each further one. In inline mode, queues without links here open them as the options say.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Panics
    /// Without a link; in queue mode, unless there are links for each queue.
    pub fn open_on(&self, links: Vec<Vec<HostLink>>) -> Result<Volume, OpenError> {
        self.checked_queues()?;
        Volume::connect(self.clone(), self.config()?, links)
    }

    /// As [`open`](Self::open), over FCoE by an interface that is open already, with the links of
    /// further queues. In inline mode these are not used: each queue opens its link itself.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Panics
    /// Unless there is a link for each further queue, in queue mode.
    pub fn open_fcoe_on(
        &self,
        interface: Interface,
        further_queues: Vec<Box<dyn Link>>,
    ) -> Result<Volume, OpenError> {
        self.check_fcoe_queues()?;
        let is_whole = self.mode == Mode::Inline || 1 + further_queues.len() == self.queues;
        assert!(is_whole, "a link for each queue");
        let fcoe = self.fcoe.clone().unwrap_or_default();
        let prepared = self.prepare(&fcoe, (interface, further_queues))?;
        let session = match self.mode {
            Mode::Inline => Session::Inline(Box::new(Inline::connect_fcoe(prepared, self)?)),
            Mode::Queue => Session::Queue(Queue::connect(self.timeout, |notify| {
                let (host, name) = prepared;
                let host = FcoeHost::start(host, notify)?;
                let control = host.control();
                let check = move |is_last| control.check(is_last).map_err(|it| self.unreached(it));
                Ok((host.into_remote(name), check))
            })?),
        };
        Ok(Volume::new(session, self.clone(), None, Vec::new()))
    }
}

impl Volume {
    fn connect(
        options: Options,
        mut session: SessionConfig,
        mut links: Vec<Vec<HostLink>>,
    ) -> Result<Self, OpenError> {
        let (queues, timeout) = (options.queues, options.timeout);
        let opened = match options.mode {
            Mode::Inline => {
                // Together the queues ask for as much as one.
                session.damq_pages = session.damq_pages.div_ceil(queues as u32);
                let host = options.of_host(&session, vec![links.remove(0)])?;
                let host = InlineHost::with_queues(host, queues);
                Session::Inline(Box::new(Inline::connect(host, timeout)?))
            }
            Mode::Queue => {
                assert_eq!(links.len(), queues, "links for each queue");
                let host = options.of_host(&session, std::mem::take(&mut links))?;
                Session::Queue(Queue::connect(timeout, |notify| {
                    let remote = HostSession::start(host, notify)?.into_remote();
                    let control = Arc::clone(remote.control());
                    let check = move |is_last: bool| {
                        if !is_last {
                            return Ok(());
                        }
                        let problem = control.report().and_then(|it| it.problem);
                        let problem = problem.map(|it| it.to_string());
                        Err(OpenError::TimedOut(problem.unwrap_or_default()))
                    };
                    Ok((remote, check))
                })?)
            }
        };
        Ok(Self::new(opened, options, Some(session), links))
    }

    /// The first queue; `links` for those of its session that are not open yet.
    fn new(
        queue: Session,
        options: Options,
        session: Option<SessionConfig>,
        links: Vec<Vec<HostLink>>,
    ) -> Self {
        let waiting = Waiting { numbers: (1..options.queues).collect(), links: links.into() };
        let waiting = Mutex::new(waiting);
        Self { session: queue, opened: Arc::new(Opened { options, session, waiting }) }
    }

    /// Opens a further queue of the session, for another thread. In inline mode it connects
    /// channels of its own, for up to the [`timeout`](Options::timeout) of the options.
    ///
    /// # Errors
    /// [`OpenError::Option`] if all [`queues`](Options::queues) are open; else as
    /// [`Options::open`].
    pub fn open_queue(&self) -> Result<Self, OpenError> {
        let Opened { options, session, .. } = &*self.opened;
        let session = self.opened.open_next(|number, links| match &self.session {
            Session::Inline(inline) => {
                let handle = match inline.handle(number) {
                    Ok(handle) => handle,
                    Err(session) => {
                        let queue = (number, options.open_fcoe_queue()?);
                        let queue = Inline::join_fcoe(&session, queue, options)?;
                        return Ok(Session::Inline(Box::new(queue)));
                    }
                };
                let session = session.as_ref().expect("its session is of Tyche's own protocol");
                let links = links.map_or_else(|| options.open_links(number), Ok)?;
                let host = options.of_host(session, vec![links])?;
                let host = InlineHost::join(host, handle);
                Ok(Session::Inline(Box::new(Inline::connect(host, options.timeout)?)))
            }
            Session::Queue(queue) => Ok(Session::Queue(queue.join(number)?)),
        })?;
        Ok(Self { session, opened: Arc::clone(&self.opened) })
    }

    /// The current geometry of the disk. The size may grow while it is open.
    pub fn geometry(&self) -> Geometry {
        either!(&self.session, Session::{Inline, Queue}, it => it.geometry())
    }

    /// The volume's memory for the buffers of requests. An extent of any other arena works as well.
    pub fn arena(&self) -> &Arena {
        either!(&self.session, Session::{Inline, Queue}, it => it.arena())
    }

    /// Requests taken whose completions have not been returned.
    pub fn in_flight(&self) -> usize {
        either!(&self.session, Session::{Inline, Queue}, it => it.in_flight())
    }

    /// Takes a request. Its completion comes out of [`poll`](Self::poll) or [`wait`](Self::wait)
    /// with the same `token`, even if the request is invalid. In inline mode the next such call
    /// sends it.
    ///
    /// # Errors
    /// Gives the request back: see [`Refusal`].
    pub fn submit(&self, request: Request, token: u64) -> Result<(), Refused> {
        either!(&self.session, Session::{Inline, Queue}, it => it.submit(request, token))
    }

    /// Appends up to `max` completions to `done`, and returns their number. Never waits. In inline
    /// mode this sends submitted requests and handles received frames, also with a `max` of zero.
    ///
    /// # Errors
    /// [`Refusal::Busy`].
    pub fn poll(&self, done: &mut Vec<Completion>, max: usize) -> Result<usize, Refusal> {
        self.collect(Wanted::at_once(max), &mut |completion| done.push(completion))
    }

    /// As [`poll`](Self::poll), but waits until `min` completions are there, or as many as there
    /// are requests in flight, or `timeout` has passed. If several threads wait, one may take
    /// another's completion, and the other waits for its timeout: let each wait for one.
    ///
    /// # Errors
    /// [`Refusal::Busy`].
    pub fn wait(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        max: usize,
        timeout: Duration,
    ) -> Result<usize, Refusal> {
        let wanted = Wanted::new(min, max, timeout);
        self.collect(wanted, &mut |completion| done.push(completion))
    }

    /// Hands completions to `take`, which must not call the volume.
    pub(crate) fn collect(
        &self,
        wanted: Wanted,
        take: &mut dyn FnMut(Completion),
    ) -> Result<usize, Refusal> {
        either!(&self.session, Session::{Inline, Queue}, it => it.collect(wanted, take))
    }

    /// A descriptor that becomes readable when a completion is there, for `poll(2)` and the like.
    /// Call this before every sleep: the call arms the descriptor, which is silent otherwise, so
    /// that only sleepers pay for it. Spurious wake-ups are possible. `None` in inline mode, where
    /// sleeping would stop the session: use [`wait`](Self::wait).
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.session {
            Session::Inline(_) => None,
            Session::Queue(queue) => Some(queue.wait_fd()),
        }
    }

    /// A report on the session, for people; `None` while it is not available.
    pub fn report(&self) -> Option<HostReport> {
        either!(&self.session, Session::{Inline, Queue}, it => it.report())
    }

    /// Ends this queue, and with the last one the session; waits up to `timeout` for the target's
    /// confirmation. Completions that have not been returned are lost, and the outcome of requests
    /// in flight is unknown. In inline mode requests in flight end the session for all queues: they
    /// could still be executed, after later requests of the other queues. Over FCoE the first queue
    /// has the session's port: in inline mode it waits until all others are closed.
    pub fn close(self, timeout: Duration) {
        either!(self.session, Session::{Inline, Queue}, it => it.close(timeout));
    }
}
