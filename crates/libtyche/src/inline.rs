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
use tyche_fcoe::{FcoeHostOptions, FcoeInlineHost, InlineSession};
use tyche_link::Link;
use tyche_native::InlineHost;
use tyche_proto::{QueueHandle, SessionShared};
use tyche_remote::{HostReport, Notice};
use tyche_session::fcoe::PortName;
use tyche_session::keep_next_key;

use crate::REQUESTS_MAX;
use crate::either::either;
use crate::error::{OpenError, Refusal, Refused};
use crate::exclusive::{Exclusive, Taken};
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
    shared: Shared,
    /// Over FCoE the name of the port of this end, which no other process may take meanwhile.
    _name: Option<PortName>,
}

struct State {
    host: Driven,
    /// Completions that have not been returned, oldest first.
    ready: VecDeque<Completion>,
    /// Completions that the session has just returned.
    found: Vec<Completion>,
}

/// The state that the queues of the session share.
enum Shared {
    Native(Arc<SessionShared>),
    Fcoe(Arc<InlineSession>),
}

/// A session that the caller's thread drives.
enum Driven {
    /// With a target of Tyche.
    Native(Box<InlineHost>),
    /// With a target of Fibre Channel over Ethernet.
    Fcoe(Box<FcoeInlineHost>),
}

impl Inline {
    /// Connects a queue of a session.
    pub(crate) fn connect(mut host: InlineHost, timeout: Duration) -> Result<Self, OpenError> {
        host.connect(timeout)?;
        let shared = Arc::clone(host.shared());
        Ok(Self::new(Driven::Native(Box::new(host)), Shared::Native(shared), None))
    }

    /// Connects a session over FCoE.
    pub(crate) fn connect_fcoe(
        (host, name): (FcoeHostOptions, PortName),
        options: &Options,
    ) -> Result<Self, OpenError> {
        let host = FcoeInlineHost::with_queues(host, options.queues).map_err(OpenError::System)?;
        Self::connect_fcoe_queue(host, Some(name), options)
    }

    /// Connects a further queue of a session over FCoE.
    pub(crate) fn join_fcoe(
        session: &Arc<InlineSession>,
        (queue, link): (usize, Box<dyn Link>),
        options: &Options,
    ) -> Result<Self, OpenError> {
        let host = FcoeInlineHost::join(session, queue, link).map_err(OpenError::System)?;
        Self::connect_fcoe_queue(host, None, options)
    }

    fn connect_fcoe_queue(
        mut host: FcoeInlineHost,
        name: Option<PortName>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        host.connect(options.timeout).map_err(|it| options.unreached(it))?;
        let shared = Shared::Fcoe(Arc::clone(host.session()));
        Ok(Self::new(Driven::Fcoe(Box::new(host)), shared, name))
    }

    fn new(host: Driven, shared: Shared, name: Option<PortName>) -> Self {
        let geometry = either!(&host, Driven::{Native, Fcoe}, it => it.geometry());
        let arena = either!(&host, Driven::{Native, Fcoe}, it => it.arena().clone());
        let ready = VecDeque::with_capacity(REQUESTS_MAX);
        let found = Vec::with_capacity(REQUESTS_MAX);
        let state = Exclusive::new(State { host, ready, found });
        let (geometry, in_flight) = (AtomicCell::new(geometry), AtomicUsize::new(0));
        Self { state, in_flight, geometry, arena, shared, _name: name }
    }

    /// The handle of another queue of the session; over FCoE, the session.
    pub(crate) fn handle(&self, queue: usize) -> Result<QueueHandle, Arc<InlineSession>> {
        match &self.shared {
            Shared::Native(shared) => Ok(shared.handle(queue)),
            Shared::Fcoe(session) => Err(Arc::clone(session)),
        }
    }

    fn state(&self) -> Result<Taken<'_, State>, Refusal> {
        self.state.take().ok_or(Refusal::Busy)
    }

    pub(crate) fn geometry(&self) -> Geometry {
        let geometry = self.geometry.load();
        match &self.shared {
            // Only one queue of a session has a notice of another size.
            Shared::Native(shared) => Geometry { size: shared.size(), ..geometry },
            Shared::Fcoe(_) => geometry,
        }
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn submit(&self, request: Request, token: u64) -> Result<(), Refused> {
        let mut state = match self.state() {
            Ok(state) => state,
            Err(reason) => return Err(Refused { reason, request }),
        };
        let in_flight = self.in_flight();
        if in_flight == REQUESTS_MAX {
            return Err(Refused { reason: Refusal::Full, request });
        }
        let host = &mut state.host;
        let taken = either!(host, Driven::{Native, Fcoe}, it => it.submit(request, token));
        taken.map_err(|request| Refused { reason: Refusal::Full, request })?;
        self.in_flight.store(in_flight + 1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn collect(
        &self,
        wanted: Wanted,
        take: &mut dyn FnMut(Completion),
    ) -> Result<usize, Refusal> {
        let mut state = self.state()?;
        let State { host, ready, found } = &mut *state;
        let in_flight = self.in_flight();
        let min = wanted.min.min(in_flight);
        // No poll while enough completions are left: a caller that takes them one by one submits in
        // between, and the requests submitted until all are taken share frames.
        if min == 0 || ready.len() < min {
            either!(host, Driven::{Native, Fcoe}, it => it.poll(found));
            ready.extend(found.drain(..));
        }
        if ready.len() < min {
            let start = Instant::now();
            while let Some(left) = wanted.timeout.checked_sub(start.elapsed())
                && ready.len() < min
            {
                either!(host, Driven::{Native, Fcoe}, it => it.wait(found, left));
                ready.extend(found.drain(..));
            }
        }
        while let Some(notice) = either!(host, Driven::{Native, Fcoe}, it => it.poll_notice()) {
            match notice {
                Notice::Connected(_) | Notice::Resized(_) => {
                    self.geometry.store(either!(host, Driven::{Native, Fcoe}, it => it.geometry()));
                }
                Notice::ResumeState(_) => {}
                Notice::NextKey(said) => keep_next_key(&said),
                notice => tracing::info!(?notice, "session"),
            }
        }
        let count = ready.len().min(wanted.max);
        ready.drain(..count).for_each(take);
        self.in_flight.store(in_flight - count, Ordering::Relaxed);
        Ok(count)
    }

    pub(crate) fn report(&self) -> Option<HostReport> {
        let mut state = self.state().ok()?;
        Some(either!(&mut state.host, Driven::{Native, Fcoe}, it => it.report()))
    }

    pub(crate) fn close(self, timeout: Duration) {
        either!(self.state.into_inner().host, Driven::{Native, Fcoe}, it => it.disconnect(timeout));
    }
}
