//! A target's end: one socket for all peers, and perhaps another one for questions to everybody.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use tyche_counters::{CounterGroup, Reading, counters};

use super::incoming::Incoming;
use super::outgoing::{Outgoing, Routes};
use super::peers::Peers;
use super::{EVERYBODY, FRAME_LEN_MAX, OWN, TRANSPORT, UdpOptions};
use super::{all_counters, capacity, segment, socket};
use crate::ip::{OpenError, Transport};
use crate::packet::interfaces;
use crate::{HEAD, Interface, Link, Mac, RxBatch, Share, TxBatch};

/// A link over UDP with many peers, for a target.
pub struct UdpServer {
    name: String,
    address: SocketAddr,
    socket: OwnedFd,
    /// Of a beacon: the socket that it receives on; it sends from the other one.
    questions: Option<OwnedFd>,
    frame_len_max: usize,
    receive_buffer: usize,
    incoming: Incoming,
    outgoing: Outgoing,
    peers: Peers,
    unknown: Unknown,
}

counters! {
    /// Frames of unknown peers.
    pub(super) struct Unknown as "udp_" {
        /// Datagrams of senders over IPv6 who can't be told from others.
        strangers: Counter in Events,
    }
}

const FAILED: fn(&'static Transport, SocketAddr, io::Error) -> OpenError =
    |transport, address, source| OpenError::Listen { transport, address, source };

impl UdpServer {
    /// Listens at the first possible of `addresses`; port 0 means any free one.
    ///
    /// # Errors
    /// The reason why the last of them fails, with a remedy.
    pub fn listen(addresses: &[SocketAddr], options: &UdpOptions) -> Result<Self, OpenError> {
        let (_, (socket, address)) = TRANSPORT.first(addresses, options, open, FAILED)?;
        Self::with(socket, address)
    }

    /// Listens at the same address, for another thread (`SO_REUSEPORT`). The kernel divides frames
    /// among these links as they [select](Link::select) them, in the order in which they were
    /// opened; until then by their senders.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn beside(&self, options: &UdpOptions) -> Result<Self, OpenError> {
        let address = [self.address];
        let (_, (socket, address)) = TRANSPORT.first(&address, options, open_beside, FAILED)?;
        // A peer has one address for all threads: tickets of one are good at another.
        Ok(Self { peers: self.peers.beside(), ..Self::with(socket, address)? })
    }

    fn with(socket: OwnedFd, address: SocketAddr) -> Result<Self, OpenError> {
        let receive_buffer =
            socket::receive_buffer(&socket).map_err(OpenError::system("getsockopt(SO_RCVBUF)"))?;
        let incoming = Incoming::new().map_err(OpenError::system("eventfd"))?;
        Ok(Self {
            name: format!("udp:{address}"),
            address,
            socket,
            questions: None,
            frame_len_max: frame_len_max(&address),
            receive_buffer,
            incoming,
            outgoing: Outgoing::new(),
            peers: Peers::default(),
            unknown: Unknown::default(),
        })
    }

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The end for [questions to everybody](segment) on the segments where this end is: a link of
    /// the same name, for a thread of its own. It receives such questions only, with a group as
    /// their destination, and answers from the address of this end. `None` if this end is on no
    /// segment, as one of the loopback interface.
    ///
    /// # Errors
    /// Those of the system calls; `AddrInUse` if another program has the port for itself.
    pub fn beacon(&self) -> io::Result<Option<Self>> {
        let Some(questions) = segment::listen(&self.address)? else { return Ok(None) };
        let beacon =
            Self::with(self.socket.try_clone()?, self.address).map_err(io::Error::other)?;
        Ok(Some(Self { questions: Some(questions), ..beacon }))
    }

    /// The socket that it receives on.
    fn receiver(&self) -> &OwnedFd {
        self.questions.as_ref().unwrap_or(&self.socket)
    }
}

impl Link for UdpServer {
    fn interface(&self) -> Interface<'_> {
        Interface { name: &self.name, mac: OWN }
    }

    fn transport(&self) -> Option<&'static Transport> {
        Some(&TRANSPORT)
    }

    fn origin(&self) -> fn(Mac) -> Mac {
        super::peers::origin
    }

    fn peer(&self, address: Mac) -> Option<SocketAddr> {
        super::peers::ipv4_peer(address).map(SocketAddr::from)
    }

    fn frame_len_max(&self) -> usize {
        self.frame_len_max
    }

    fn receive_capacity(&self, frame_len: usize) -> usize {
        capacity(self.receive_buffer, frame_len)
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        let Self { socket, questions, incoming, peers, unknown, .. } = self;
        let (receiver, own) = match questions {
            None => (socket, OWN),
            Some(questions) => (questions, EVERYBODY),
        };
        peers.set_now(Instant::now());
        let received = incoming.receive(receiver.as_fd(), batch, own, |train| {
            let mac = train.sender.and_then(|sender| peers.hear(sender));
            unknown.strangers += u64::from(mac.is_none());
            mac
        });
        match received {
            Err(error) if batch.is_empty() => Err(error),
            _ => Ok(batch.len()),
        }
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        self.peers.note_served(batch);
        let routes = Routes::Table { peers: &self.peers, as_ipv6: self.address.is_ipv6() };
        self.outgoing.send(self.socket.as_fd(), batch, routes)
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.incoming.wait_fd(self.receiver())
    }

    fn select(&mut self, share: Share) -> bool {
        socket::divide(&self.socket, &share).is_ok()
    }

    fn overruns(&mut self) -> u64 {
        socket::drops(self.receiver()).map_or(0, u64::from)
    }

    fn counters(&self) -> Vec<Reading> {
        let mut counters = all_counters(&self.outgoing, &self.incoming);
        counters.extend(self.unknown.iter());
        counters
    }
}

impl std::fmt::Debug for UdpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdpServer({})", self.name)
    }
}

/// A socket bound to an address that nobody else has. It is shared only now, so that another
/// target's address is refused.
fn open(address: &SocketAddr, options: &UdpOptions) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = socket::new(address, options.socket_buffer)?;
    let address = socket::bind(&socket, address)?;
    socket::share(&socket)?;
    Ok((socket, address))
}

/// A socket bound to the address of another one.
fn open_beside(address: &SocketAddr, options: &UdpOptions) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = socket::new(address, options.socket_buffer)?;
    socket::share(&socket)?;
    let address = socket::bind(&socket, address)?;
    Ok((socket, address))
}

/// The longest frame that any interface takes on which peers of that address can be.
fn frame_len_max(address: &SocketAddr) -> usize {
    let is_ipv4 = address.is_ipv4();
    let interfaces = interfaces().unwrap_or_default();
    let outside = interfaces.iter().filter(|it| it.up && it.mac != [0; 6]).map(|it| it.mtu).max();
    // The loopback interface has no address of its own, and frames of any length.
    let mtu = outside.filter(|_| !address.ip().is_loopback()).unwrap_or(usize::from(u16::MAX));
    socket::payload(mtu, is_ipv4).clamp(HEAD, FRAME_LEN_MAX)
}
