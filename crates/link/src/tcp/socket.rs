//! The system calls on TCP sockets. None of them waits, but [`is_decided`].

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType,
    ipproto, sockopt,
};

use super::{STALL_MAX, TcpOptions};
use crate::sys::wait;

/// The most connections that wait to be accepted. Fewer: a burst of strangers has the kernel drop
/// others' attempts, which are repeated only after a second.
const LISTEN_BACKLOG: i32 = 1024;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn new(address: &SocketAddr, options: &TcpOptions) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, FLAGS, Some(ipproto::TCP))?;
    // Before the handshake, which fixes the largest possible window. Without the privilege: see
    // `TcpOptions::socket_buffer`.
    let size = options.socket_buffer;
    let _ = sockopt::set_socket_recv_buffer_size_force(&socket, size);
    let _ = sockopt::set_socket_send_buffer_size_force(&socket, size);
    Ok(socket)
}

/// Sets the options of all connections: frames leave at once, and a dead peer is noticed.
fn tune(socket: &OwnedFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    // The protocol has a keep-alive of its own, but only TCP knows that a connection will never
    // deliver its output. By default it would try for a quarter of an hour.
    sockopt::set_tcp_user_timeout(socket, STALL_MAX.as_millis() as u32)?;
    Ok(())
}

/// A listening socket and its address; port 0 means any.
pub(super) fn listen(
    address: &SocketAddr,
    options: &TcpOptions,
) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = new(address, options)?;
    // Connections left by a previous run are no obstacle.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, address)?;
    net::listen(&socket, LISTEN_BACKLOG)?;
    let address = SocketAddr::try_from(net::getsockname(&socket)?)?;
    Ok((socket, address))
}

/// The next connection, with its peer's address; `None` when there is none now.
pub(super) fn accept(listener: &OwnedFd) -> io::Result<Option<(OwnedFd, Option<IpAddr>)>> {
    loop {
        match net::acceptfrom_with(listener, FLAGS) {
            // It may be broken already.
            Ok((socket, _)) if tune(&socket).is_err() => {}
            Ok((socket, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                return Ok(Some((socket, peer.map(|peer| peer.ip()))));
            }
            Err(Errno::AGAIN) => return Ok(None),
            // Errors of a connection that broke before it was accepted.
            Err(
                Errno::INTR
                | Errno::CONNABORTED
                | Errno::PERM
                | Errno::PROTO
                | Errno::NETDOWN
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH,
            ) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Begins to connect. The socket is writable once the attempt is decided: see [`connected`].
pub(super) fn connect(address: &SocketAddr, options: &TcpOptions) -> io::Result<OwnedFd> {
    let socket = new(address, options)?;
    tune(&socket)?;
    match net::connect(&socket, address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Whether an attempt to connect succeeds or fails within `timeout`.
pub(super) fn is_decided(socket: &OwnedFd, timeout: Duration) -> io::Result<bool> {
    wait(socket, PollFlags::OUT, timeout)
}

/// The result of a decided [`connect`].
pub(super) fn connected(socket: &OwnedFd) -> io::Result<()> {
    sockopt::socket_error(socket)??;
    // If nobody listens at a port in the range of outgoing connections, a socket may end up
    // connected to itself.
    if net::getpeername(socket)? == Some(net::getsockname(socket)?) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(())
}

/// Sends as many bytes as the socket takes, perhaps none.
pub(super) fn send(socket: impl AsFd, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut control = SendAncillaryBuffer::default();
    loop {
        match net::sendmsg(&socket, bytes, &mut control, SendFlags::NOSIGNAL) {
            Ok(count) => return Ok(count),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives waiting bytes; `None` if there are none.
///
/// # Errors
/// `UnexpectedEof` if the peer has ended the connection.
pub(super) fn receive(socket: impl AsFd, room: &mut [u8]) -> io::Result<Option<usize>> {
    assert!(!room.is_empty(), "no room to receive into");
    loop {
        match net::recv(&socket, &mut *room, RecvFlags::empty()) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((count, _)) => return Ok(Some(count)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
