//! One descriptor for all connections of a link: readable while any of them needs service, or while
//! frames already read wait.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

/// The most sockets found by one poll.
const EVENTS_MAX: usize = 64;

/// The key of the backlog.
pub(super) const BACKLOG: u64 = u64::MAX;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The set of sockets that a link waits for, as one epoll descriptor. Each socket has a key, by
/// which it is found when it is ready.
pub struct Readiness {
    epoll: OwnedFd,
    /// Readable while `raised`: the kernel does not know the frames in our own buffers.
    backlog: OwnedFd,
    raised: Cell<bool>,
    /// The keys that the last poll found.
    found: [u64; EVENTS_MAX],
}

impl Readiness {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let backlog = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &backlog, EventData::new_u64(BACKLOG), EventFlags::IN)?;
        Ok(Self { epoll, backlog, raised: Cell::new(false), found: [BACKLOG; EVENTS_MAX] })
    }

    /// Watches a socket from now on, until it is closed.
    pub(crate) fn add(&self, socket: impl AsFd, key: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(key), EventFlags::IN)?)
    }

    /// Sets whether the socket is watched for input.
    pub(super) fn set_input(&self, socket: impl AsFd, key: u64, wanted: bool) -> io::Result<()> {
        let flags = if wanted { EventFlags::IN } else { EventFlags::empty() };
        Ok(epoll::modify(&self.epoll, socket, EventData::new_u64(key), flags)?)
    }

    /// Sets whether the socket is watched for room for output.
    pub(crate) fn set_output(&self, socket: impl AsFd, key: u64, wanted: bool) -> io::Result<()> {
        let flags = if wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.epoll, socket, EventData::new_u64(key), flags)?)
    }

    /// Sets whether frames already read wait.
    pub(super) fn set_backlog(&self, waiting: bool) -> io::Result<()> {
        if waiting && !self.raised.get() {
            rustix::io::write(&self.backlog, &1u64.to_ne_bytes())?;
        } else if !waiting && self.raised.get() {
            rustix::io::read(&self.backlog, &mut [0; 8])?;
        }
        self.raised.set(waiting);
        Ok(())
    }

    /// Has the descriptor be readable, until [`set_backlog`](Self::set_backlog) says otherwise.
    pub(super) fn raise(&self) {
        // It fails only with a descriptor that is not one.
        let _ = self.set_backlog(true);
    }

    /// Finds sockets that are ready now. Returns their number, up to [`EVENTS_MAX`]; the others are
    /// found next time.
    pub(super) fn poll(&mut self) -> io::Result<usize> {
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
        let events = match epoll::wait(&self.epoll, &mut events[..], Some(&NOW)) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        for (key, event) in self.found.iter_mut().zip(&*events) {
            *key = event.data.u64();
        }
        Ok(events.len())
    }

    /// The key of a socket that the last poll found; also [`BACKLOG`].
    pub(super) fn key(&self, index: usize) -> u64 {
        self.found[index]
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
