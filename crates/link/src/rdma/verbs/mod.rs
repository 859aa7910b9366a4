//! Network cards with RDMA, as libibverbs knows them.

mod library;
mod manager;
mod memory;
mod pair;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use tyche_block::Arena;

use library::{
    ADDR_ERROR, ADDR_RESOLVED, CONNECT_ERROR, CONNECT_REQUEST, ESTABLISHED, Opaque, REJECTED,
    ROUTE_ERROR, ROUTE_RESOLVED, UNREACHABLE, library,
};
use manager::{Event, Id};
use memory::Registered;
use pair::VerbsPair;

use super::connection::RdmaConnection;
use super::exposures::Exposures;
use super::window::PeerWindow;
use super::{RdmaOptions, TRANSPORT};
use crate::connections::{Carrier, Readiness};
use crate::ip::Transport;
use crate::sys::wait;
use crate::{Mac, Placement};

/// The most connections that wait to be accepted.
const LISTEN_BACKLOG: i32 = 128;

/// The status of a refusal because nobody listens.
const NOBODY_LISTENS: i32 = 8;

/// RDMA as a carrier of frames.
#[derive(Debug)]
pub struct Verbs;

/// A place where connections are accepted.
pub struct Listener(Id);

/// An attempt to connect.
pub struct Attempt {
    step: Step,
    /// Units of its window, and whether data are to be placed.
    window: (u32, bool),
}

/// The step that an attempt waits for.
enum Step {
    /// Its device, or its route.
    Way(Id),
    /// The peer's answer.
    Answer(Box<VerbsPair>),
}

/// A connection that carries no frames yet.
pub enum Opened {
    /// The peer has accepted it.
    Established(Box<VerbsPair>),
    /// The peer wants it, and has such a window.
    Requested(Id, PeerWindow),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.channel.as_fd()
    }
}

impl Attempt {
    fn id(&self) -> &Id {
        match &self.step {
            Step::Way(id) => id,
            Step::Answer(pair) => pair.id(),
        }
    }

    /// The next step after an event.
    fn step(self, event: &Event) -> io::Result<ControlFlow<Opened, Self>> {
        let window = self.window;
        let step = match (event.kind, self.step) {
            (ADDR_RESOLVED, Step::Way(id)) => {
                id.resolve_route()?;
                Step::Way(id)
            }
            (ROUTE_RESOLVED, Step::Way(id)) => {
                let pair = VerbsPair::new(id, window)?;
                pair.id().connect(&pair.told())?;
                Step::Answer(Box::new(pair))
            }
            (ESTABLISHED, Step::Answer(mut pair)) => {
                pair.meet(event.window.ok_or_else(no_tyche)?)?;
                return Ok(ControlFlow::Break(Opened::Established(pair)));
            }
            (ADDR_ERROR | ROUTE_ERROR | CONNECT_ERROR | UNREACHABLE | REJECTED, _) => {
                return Err(failure(event));
            }
            (_, step) => step,
        };
        Ok(ControlFlow::Continue(Self { step, window }))
    }
}

impl Carrier for Verbs {
    type Options = RdmaOptions;
    type Listener = Listener;
    type Attempt = Attempt;
    type Opened = Opened;
    type Connection = RdmaConnection<VerbsPair>;
    type Shared = Arc<Exposures<Registered<Arena>>>;

    const TRANSPORT: &'static Transport = &TRANSPORT;

    fn listen(address: &SocketAddr, _: &RdmaOptions) -> io::Result<(Listener, SocketAddr)> {
        let id = Id::listen(address, LISTEN_BACKLOG)?;
        let address = id.local_address()?;
        Ok((Listener(id), address))
    }

    fn accept(listener: &Listener) -> io::Result<Option<(Opened, Option<IpAddr>)>> {
        loop {
            let Some(event) = listener.0.channel.poll()? else { return Ok(None) };
            if event.kind == CONNECT_REQUEST {
                let id = Id::requested(library()?, &event)?;
                // Whoever tells of no window does not speak Tyche: to drop the ID refuses it.
                let window = event.window.ok_or_else(no_tyche)?;
                let peer = id.peer();
                return Ok(Some((Opened::Requested(id, window), peer)));
            }
        }
    }

    fn connect(address: &SocketAddr, options: &RdmaOptions) -> io::Result<Attempt> {
        let window = (options.units, options.places);
        Ok(Attempt { step: Step::Way(Id::resolve(address)?), window })
    }

    fn advance(
        mut attempt: Attempt,
        timeout: Duration,
    ) -> io::Result<ControlFlow<Opened, Attempt>> {
        wait(&attempt.id().channel, PollFlags::IN, timeout)?;
        while let Some(event) = attempt.id().channel.poll()? {
            match attempt.step(&event)? {
                ControlFlow::Continue(next) => attempt = next,
                opened @ ControlFlow::Break(_) => return Ok(opened),
            }
        }
        Ok(ControlFlow::Continue(attempt))
    }

    fn share() -> Self::Shared {
        Arc::new(Exposures::new(false))
    }

    fn placement(shared: &Self::Shared) -> Option<Arc<dyn Placement>> {
        Some(Arc::clone(shared) as _)
    }

    fn open(
        opened: Opened,
        (options, shared): (&RdmaOptions, &Self::Shared),
        mac: Mac,
        (readiness, key): (&Readiness, u64),
    ) -> io::Result<Self::Connection> {
        let pair = match opened {
            Opened::Established(pair) => *pair,
            Opened::Requested(id, window) => {
                let mut pair = VerbsPair::new(id, (options.units, options.places))?;
                pair.meet(window)?;
                pair.id().accept(&pair.told())?;
                pair
            }
        };
        readiness.add(&pair.id().channel, key)?;
        readiness.add(pair.completions(), key)?;
        let shared = Arc::clone(shared);
        Ok(RdmaConnection::new(pair, (options.units, options.kind), mac, shared))
    }
}

/// The error of an attempt that an event has ended.
fn failure(event: &Event) -> io::Error {
    match (event.kind, event.status) {
        (REJECTED, NOBODY_LISTENS) => io::ErrorKind::ConnectionRefused.into(),
        (REJECTED, _) => io::Error::other("the target refuses the connection"),
        (UNREACHABLE, _) => io::ErrorKind::TimedOut.into(),
        (_, status) if status < 0 => io::Error::from_raw_os_error(-status),
        _ => io::ErrorKind::HostUnreachable.into(),
    }
}

fn no_tyche() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the peer does not speak Tyche")
}

/// The result of a function that returns -1 and sets `errno` on failure.
fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
