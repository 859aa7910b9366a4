//! The same frames in a TCP stream, for networks that carry only TCP.
//!
//! A frame is sent as its length, 4 bytes little-endian, and its bytes (docs/protocol-annexes.md,
//! "Frames over TCP"). A [`TcpServer`] is a target's end and accepts connections, a [`TcpClient`]
//! is a host's end and maintains one: see [`connections`](crate::connections).
//!
//! ```text
//!  stream   [length 4][head 64][payload ...][length 4][head 64][payload ...]
//!
//!  receive  socket --recv--> input buffer, of which the batch borrows
//!  send     batch --sendmsg--> socket
//!                 `-- what the socket does not take --> output buffer --sendmsg--> socket
//! ```
//!
//! # Bounds
//! Each connection has an input buffer of [`INPUT_BYTES`], and an output buffer of [`OUTPUT_BYTES`]
//! from the first time that its peer reads too slowly. Frames that do not fit are lost.
//! [`receive_capacity`](crate::Link::receive_capacity) is that of the peer's output buffer: TCP
//! itself loses nothing, so a window of frames must fit there.
//!
//! A peer that takes nothing for [`STALL_MAX`] loses its connection, whatever the cause.

mod connection;
mod input;
mod output;
mod socket;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::time::Duration;

use connection::TcpConnection;

use crate::connections::{Carrier, Client, ConnectionOptions, Readiness, Server};
use crate::ip::{End, OpenedLink, Transport};
use crate::{HEAD, Mac};

/// TCP among the transports.
pub(crate) static TRANSPORT: Transport = Transport {
    name: "tcp",
    number: 1,
    is_routed: false,
    checks_data: false,
    has_threads: true,
    no_host: "there is no host",
    open: |_, addresses, end| match (end, TcpOptions::default()) {
        (End::Host, options) => Ok(TcpClient::connect(addresses, &options)?.into()),
        (End::Target { threads, .. }, options) => {
            Ok(OpenedLink::of_threads(TcpServer::listen_for(addresses, &options, threads)?))
        }
    },
};

/// A link over many TCP connections, for a target.
pub type TcpServer = Server<Tcp>;
/// A link over one TCP connection, for a host.
pub type TcpClient = Client<Tcp>;

/// The longest frame: an Ethernet header and the largest 16-bit MTU, so that one carries 15 pages.
/// A stream has no limit, and larger frames mean fewer of them.
pub const FRAME_LEN_MAX: usize = 14 + 65535;

/// Bytes of a frame's length.
const PREFIX: usize = 4;

/// The most bytes that a connection reads in one system call. Less means more calls; more does not
/// stay in the cache until it is read.
pub const INPUT_BYTES: usize = 4 * (PREFIX + FRAME_LEN_MAX);

/// The bytes that a connection buffers for a peer that reads too slowly: 256 of the longest frames,
/// twice the window that an engine derives from it.
pub const OUTPUT_BYTES: usize = 256 * (PREFIX + FRAME_LEN_MAX);

/// The longest time that a peer may leave output unacknowledged, or be unable to take it.
pub const STALL_MAX: Duration = Duration::from_secs(5);

/// Options of a link's sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// Socket buffers each way, in bytes. Takes effect only with the capability `CAP_NET_ADMIN`:
    /// without it, the kernel's own sizing reaches further than a process may ask for.
    pub socket_buffer: usize,
    /// The most connections of a server, 1 to 255.
    pub connections_max: usize,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self { socket_buffer: 4 << 20, connections_max: 128 }
    }
}

impl ConnectionOptions for TcpOptions {
    fn connections_max(&self) -> usize {
        self.connections_max
    }

    fn frame_len_max(&self) -> usize {
        FRAME_LEN_MAX
    }

    /// The capacity of an output buffer.
    fn capacity(&self, frame_len: usize) -> usize {
        OUTPUT_BYTES / (PREFIX + frame_len)
    }
}

/// TCP as a carrier of frames.
#[derive(Debug)]
pub struct Tcp;

impl Carrier for Tcp {
    type Options = TcpOptions;
    type Listener = OwnedFd;
    type Attempt = OwnedFd;
    type Opened = OwnedFd;
    type Connection = TcpConnection;
    type Shared = ();

    const TRANSPORT: &'static Transport = &TRANSPORT;

    fn listen(address: &SocketAddr, options: &TcpOptions) -> io::Result<(OwnedFd, SocketAddr)> {
        socket::listen(address, options)
    }

    fn accept(listener: &OwnedFd) -> io::Result<Option<(OwnedFd, Option<IpAddr>)>> {
        socket::accept(listener)
    }

    fn connect(address: &SocketAddr, options: &TcpOptions) -> io::Result<OwnedFd> {
        socket::connect(address, options)
    }

    fn advance(attempt: OwnedFd, timeout: Duration) -> io::Result<ControlFlow<OwnedFd, OwnedFd>> {
        if !socket::is_decided(&attempt, timeout)? {
            return Ok(ControlFlow::Continue(attempt));
        }
        socket::connected(&attempt)?;
        Ok(ControlFlow::Break(attempt))
    }

    fn share() {}

    fn open(
        socket: OwnedFd,
        _: (&TcpOptions, &()),
        mac: Mac,
        (readiness, key): (&Readiness, u64),
    ) -> io::Result<TcpConnection> {
        readiness.add(&socket, key)?;
        TcpConnection::new(socket, mac)
    }
}

/// Whether a frame can have this length.
fn is_possible(frame_len: usize) -> bool {
    (HEAD..=FRAME_LEN_MAX).contains(&frame_len)
}
