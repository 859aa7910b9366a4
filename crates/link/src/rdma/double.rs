//! A stand-in for network cards: the same connections between processes of one machine. It is for
//! tests, and for measurements of what does not depend on a card.
//!
//! The windows are files in memory that both processes map. A write is a copy into the peer's, and
//! its end is notified at once; an interrupt is an eventfd, which the peer arms as it arms a
//! completion queue.
//!
//! ```text
//!  window   [head|ring ............][immediates]
//! ```

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::connection::RdmaConnection;
use super::immediates::{self, WORDS, Words};
use super::pair::{QueuePair, Write};
use super::region::Region;
use super::window::{INVITATION, PeerWindow, WORD, window_len};
use super::{RdmaOptions, TRANSPORT};
use crate::Mac;
use crate::connections::{Carrier, Client, Readiness, Server};
use crate::ip::Transport;
use crate::sys::wait;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// The most connections that wait to be accepted.
const LISTEN_BACKLOG: i32 = 64;

/// Whether links over RDMA are between ends of the double.
static IS_ENABLED: AtomicBool = AtomicBool::new(false);

/// Has the links over RDMA that this process opens from now on be between ends of the double.
pub fn enable() {
    IS_ENABLED.store(true, Ordering::Relaxed);
}

pub(super) fn is_enabled() -> bool {
    IS_ENABLED.load(Ordering::Relaxed)
}

/// The double as a carrier of frames.
#[derive(Debug)]
pub struct Double;

/// A link over many connections of the double, for a target.
pub type DoubleServer = Server<Double>;
/// A link over one connection of the double, for a host.
pub type DoubleClient = Client<Double>;

/// A queue pair between two processes.
pub struct DoublePair {
    /// Carries what the ends tell each other of their windows, and says when the peer is gone.
    socket: OwnedFd,
    window: Region,
    /// Numbers taken out of the own queue of immediates.
    taken: u32,
    interrupt: OwnedFd,
    staging: Region,
    peer: Option<Peer>,
    /// Number of the last write that is notified.
    notified: u64,
}

/// The peer's window, and its interrupt.
struct Peer {
    told: PeerWindow,
    window: Region,
    interrupt: OwnedFd,
}

/// The queue of immediates behind a window.
struct Queue<'a>(&'a Region);

impl Queue<'_> {
    fn word(&self, index: usize) -> &std::sync::atomic::AtomicU32 {
        self.0.word(self.0.len() - (WORDS - index) * WORD)
    }
}

impl Words for Queue<'_> {
    fn load(&self, index: usize, order: Ordering) -> u32 {
        self.word(index).load(order)
    }

    fn store(&self, index: usize, word: u32, order: Ordering) {
        self.word(index).store(word, order);
    }

    fn swap(&self, index: usize, word: u32) -> u32 {
        self.word(index).swap(word, Ordering::AcqRel)
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// Bytes of the file that has a window and its queue.
fn file_len(units: u32) -> usize {
    window_len(units) + WORDS * WORD
}

impl DoublePair {
    /// An end of a connected socket, which tells the peer of its window.
    fn new(socket: OwnedFd, options: &RdmaOptions) -> io::Result<Self> {
        let (units, len) = (options.units, file_len(options.units));
        let file = memfd_create("tyche-window", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, len as u64)?;
        let window = Region::shared(&file, len)?;
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let told = PeerWindow { key: 0, address: 0, units }.encode();
        let descriptors = [file.as_fd(), interrupt.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        net::sendmsg(&socket, &[IoSlice::new(&told)], &mut control, SendFlags::NOSIGNAL)?;
        // As long as the longest ring of a peer.
        let staging = Region::anonymous(window_len(PeerWindow::UNITS_MAX))?;
        let (peer, taken, notified) = (None, 0, 0);
        Ok(Self { socket, window, taken, interrupt, staging, peer, notified })
    }

    /// Reads from the socket what the peer tells of its window; later, whether it is gone.
    fn hear(&mut self) -> io::Result<()> {
        let mut told = [0; INVITATION];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let mut room = [IoSliceMut::new(&mut told)];
        let len = match net::recvmsg(&self.socket, &mut room, &mut control, flags) {
            Ok(message) => message.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let descriptors = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let descriptors: Vec<OwnedFd> = descriptors.collect();
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let told = PeerWindow::decode(&told[..len]).ok_or_else(invalid)?;
        let [file, interrupt] = descriptors.try_into().map_err(|_| invalid())?;
        let window = Region::shared(file, file_len(told.units))?;
        self.peer = Some(Peer { told, window, interrupt });
        Ok(())
    }
}

impl QueuePair for DoublePair {
    fn window(&self) -> &Region {
        &self.window
    }

    fn staging(&self) -> &Region {
        &self.staging
    }

    fn peer(&self) -> Option<PeerWindow> {
        self.peer.as_ref().map(|it| it.told)
    }

    fn post(&mut self, write: &Write) -> io::Result<()> {
        let peer = self.peer.as_ref().expect("a window is known before it is written to");
        peer.window.copy(write.at, &self.staging, write.len);
        if write.notifies {
            self.notified = write.number;
        }
        if let Some(number) = write.immediate
            && immediates::push(&Queue(&peer.window), number)
        {
            rustix::io::write(&peer.interrupt, &1u64.to_ne_bytes())?;
        }
        Ok(())
    }

    fn notified(&mut self) -> io::Result<u64> {
        Ok(self.notified)
    }

    fn arrived(&mut self) -> io::Result<Option<u32>> {
        Ok(immediates::pop(&Queue(&self.window), &mut self.taken))
    }

    fn arm(&self) -> bool {
        immediates::arm(&Queue(&self.window), self.taken)
    }

    fn serve(&mut self) -> io::Result<()> {
        match rustix::io::read(&self.interrupt, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN) => self.hear(),
            Err(error) => Err(error.into()),
        }
    }
}

impl Carrier for Double {
    type Options = RdmaOptions;
    type Listener = OwnedFd;
    type Attempt = OwnedFd;
    type Opened = OwnedFd;
    type Connection = RdmaConnection<DoublePair>;

    const TRANSPORT: &'static Transport = &TRANSPORT;

    fn listen(address: &SocketAddr, _: &RdmaOptions) -> io::Result<(OwnedFd, SocketAddr)> {
        let socket = socket()?;
        let place = place(address);
        // What is left of a listener that was killed.
        let _ = std::fs::remove_file(&place);
        net::bind(&socket, &SocketAddrUnix::new(place)?)?;
        net::listen(&socket, LISTEN_BACKLOG)?;
        Ok((socket, *address))
    }

    fn accept(listener: &OwnedFd) -> io::Result<Option<(OwnedFd, Option<IpAddr>)>> {
        match net::accept_with(listener, FLAGS) {
            Ok(socket) => Ok(Some((socket, None))),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn connect(address: &SocketAddr, _: &RdmaOptions) -> io::Result<OwnedFd> {
        let socket = socket()?;
        match net::connect(&socket, &SocketAddrUnix::new(place(address))?) {
            Ok(()) => Ok(socket),
            Err(Errno::NOENT) => Err(io::ErrorKind::ConnectionRefused.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn advance(attempt: OwnedFd, timeout: Duration) -> io::Result<ControlFlow<OwnedFd, OwnedFd>> {
        // The listener tells of its window when it has accepted.
        Ok(match wait(&attempt, PollFlags::IN, timeout)? {
            true => ControlFlow::Break(attempt),
            false => ControlFlow::Continue(attempt),
        })
    }

    fn open(
        socket: OwnedFd,
        options: &RdmaOptions,
        mac: Mac,
        (readiness, key): (&Readiness, u64),
    ) -> io::Result<Self::Connection> {
        let mut pair = DoublePair::new(socket, options)?;
        readiness.add(&pair.socket, key)?;
        readiness.add(&pair.interrupt, key)?;
        pair.hear()?;
        Ok(RdmaConnection::new(pair, options.units, mac))
    }
}

fn socket() -> io::Result<OwnedFd> {
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?)
}

/// The place of the socket that stands for an address.
fn place(address: &SocketAddr) -> PathBuf {
    std::env::temp_dir().join(format!("tyche-rdma-{}-{}", address.ip(), address.port()))
}
