//! Inline mode: the caller's thread drives the session.
//!
//! One thread at a time drives it; a second thread gets an error at once instead of waiting.
//! Threads that share a volume need queue mode.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::atomic::AtomicCell;
use tyche_block::{Arena, Completion, Geometry, Request};
use tyche_fcoe::FcoeInlineHost;
use tyche_native::{HostOptions, InlineHost};
use tyche_proto::{QueueHandle, SessionShared};
use tyche_remote::{HostReport, Notice};

use crate::REQUESTS_MAX;
use crate::driven::Driven;
use crate::error::{OpenError, Why};
use crate::exclusive::{Exclusive, Taken};
use crate::fcoe::Prepared;
use crate::options::Options;
use crate::wanted::Wanted;

pub(crate) struct Inline {
    state: Exclusive<State>,
    /// Requests taken whose completions have not been returned. Changes only while `state` is
    /// taken, hence by loads and stores, which cost less than one instruction for both.
    in_flight: AtomicUsize,
    /// A copy of the session's geometry, readable while another thread has `state`.
    geometry: AtomicCell<Geometry>,
    arena: Arena,
    /// The state that the queues of the session share; `None` if it has one queue for good.
    shared: Option<Arc<SessionShared>>,
}

struct State {
    host: Driven,
    /// Completions that have not been returned, oldest first.
    ready: VecDeque<Completion>,
    /// Completions that the session has just returned.
    found: Vec<Completion>,
}

impl Inline {
    /// Connects a session with `queues` queues; returns the first.
    pub(crate) fn connect(
        options: HostOptions,
        queues: usize,
        timeout: Duration,
    ) -> Result<Self, OpenError> {
        Self::tyche(InlineHost::with_queues(options, queues), timeout)
    }

    /// Connects a further queue of a session.
    pub(crate) fn join(
        options: HostOptions,
        handle: QueueHandle,
        timeout: Duration,
    ) -> Result<Self, OpenError> {
        Self::tyche(InlineHost::join(options, handle), timeout)
    }

    fn tyche(mut host: InlineHost, timeout: Duration) -> Result<Self, OpenError> {
        let geometry = host.connect(timeout)?;
        let (arena, shared) = (host.arena().clone(), Arc::clone(host.shared()));
        Ok(Self::new(Driven::Tyche(Box::new(host)), geometry, arena, Some(shared)))
    }

    /// Connects a session over FCoE.
    pub(crate) fn connect_fcoe(session: Prepared, options: &Options) -> Result<Self, OpenError> {
        let mut host = FcoeInlineHost::new(session.host);
        let geometry = host.connect(options.timeout).map_err(|it| options.unreached(it))?;
        let arena = host.arena().clone();
        let host = Driven::Fcoe { host: Box::new(host), _name: session.name };
        Ok(Self::new(host, geometry, arena, None))
    }

    fn new(
        host: Driven,
        geometry: Geometry,
        arena: Arena,
        shared: Option<Arc<SessionShared>>,
    ) -> Self {
        let ready = VecDeque::with_capacity(REQUESTS_MAX);
        let found = Vec::with_capacity(REQUESTS_MAX);
        let state = Exclusive::new(State { host, ready, found });
        let geometry = AtomicCell::new(geometry);
        Self { state, in_flight: AtomicUsize::new(0), geometry, arena, shared }
    }

    /// The handle of another queue of the session, if it can have several.
    pub(crate) fn handle(&self, queue: usize) -> Option<QueueHandle> {
        Some(self.shared.as_ref()?.handle(queue))
    }

    fn state(&self) -> Result<Taken<'_, State>, Why> {
        self.state.take().ok_or(Why::Busy)
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry.load()
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn submit(&self, request: Request, token: u64) -> Result<(), (Why, Request)> {
        let mut state = match self.state() {
            Ok(state) => state,
            Err(why) => return Err((why, request)),
        };
        let in_flight = self.in_flight();
        if in_flight == REQUESTS_MAX {
            return Err((Why::Full, request));
        }
        state.host.submit(request, token).map_err(|request| (Why::Full, request))?;
        self.in_flight.store(in_flight + 1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn collect(
        &self,
        wanted: Wanted,
        take: &mut dyn FnMut(Completion),
    ) -> Result<usize, Why> {
        let mut state = self.state()?;
        let State { host, ready, found } = &mut *state;
        let in_flight = self.in_flight();
        let min = wanted.min.min(in_flight);
        // No poll while enough completions are left: a caller that takes them one by one submits in
        // between, and the requests submitted until all are taken share frames.
        if min == 0 || ready.len() < min {
            host.poll(found);
            ready.extend(found.drain(..));
        }
        if ready.len() < min {
            let start = Instant::now();
            while let Some(left) = wanted.timeout.checked_sub(start.elapsed())
                && ready.len() < min
            {
                host.wait(found, left);
                ready.extend(found.drain(..));
            }
        }
        while let Some(notice) = host.poll_notice() {
            match notice {
                Notice::Connected(_) | Notice::Resized(_) => self.geometry.store(host.geometry()),
                Notice::ResumeState(_) => {}
                notice => tracing::info!(?notice, "session"),
            }
        }
        let count = ready.len().min(wanted.max);
        ready.drain(..count).for_each(take);
        self.in_flight.store(in_flight - count, Ordering::Relaxed);
        Ok(count)
    }

    pub(crate) fn report(&self) -> Option<HostReport> {
        self.state().ok().map(|mut state| state.host.report())
    }

    pub(crate) fn close(self, timeout: Duration) {
        self.state.into_inner().host.disconnect(timeout);
    }
}
