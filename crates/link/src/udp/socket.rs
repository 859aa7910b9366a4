//! The system calls on UDP sockets. None of them waits.

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::net::addr::SocketAddrStorage;
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{self, AddressFamily, SocketAddrAny, SocketFlags, SocketType, ipproto, sockopt};

use crate::{Share, bpf, sys};

/// Bytes of UDP's own header, and of IP's.
const UDP: usize = 8;
const IPV4: usize = 20;
const IPV6: usize = 40;

/// Room for the control messages of a received train: two of an `int` at most.
const CONTROL: usize = 64;
/// The bits of ECN in the traffic class of a datagram, and two of their values (RFC 3168).
const ECN: u8 = 0b11;
const ECN_CAPABLE: i32 = 0b10;
const ECN_CONGESTED: u8 = 0b11;
/// The index of the dropped datagrams in `SO_MEMINFO`, and the number of its values.
const MEMINFO_DROPS: usize = 8;
const MEMINFO: usize = 9;

/// A new socket for addresses of that family. It has the buffers asked for with `CAP_NET_ADMIN`,
/// otherwise those that the system grants.
pub(super) fn new(address: &SocketAddr, buffer: usize) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    if sockopt::set_socket_recv_buffer_size_force(&socket, buffer).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, buffer)?;
    }
    if sockopt::set_socket_send_buffer_size_force(&socket, buffer).is_err() {
        sockopt::set_socket_send_buffer_size(&socket, buffer)?;
    }
    // Nothing is fragmented; what the path carries is found by probes of the protocol, and not by
    // messages that anybody may forge.
    if address.is_ipv4() {
        sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
    } else {
        sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?;
        // An IPv6 socket may have IPv4 peers. An error means that it can't.
        let _ = sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE);
    }
    // Before Linux 5.0 datagrams come one by one.
    let _ = sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, &1i32);
    tell_congestion(socket.as_fd(), address.is_ipv4())?;
    Ok(socket)
}

/// Lets routers mark datagrams instead of dropping them, and has the marks received.
fn tell_congestion(socket: BorrowedFd<'_>, is_ipv4: bool) -> io::Result<()> {
    let ipv4 = || {
        sys::set_option(socket, libc::IPPROTO_IP, libc::IP_TOS, &ECN_CAPABLE)?;
        sys::set_option(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, &1i32)
    };
    if is_ipv4 {
        return ipv4();
    }
    // For IPv4 peers of an IPv6 socket. An error means that it can't have any.
    let _ = ipv4();
    sys::set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &ECN_CAPABLE)?;
    sys::set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, &1i32)
}

/// Binds to an address, and returns it; port 0 means any free port.
pub(super) fn bind(socket: &OwnedFd, address: &SocketAddr) -> io::Result<SocketAddr> {
    if let SocketAddr::V6(address) = address {
        // `[::]` means all addresses, also those of IPv4.
        sockopt::set_ipv6_v6only(socket, *address.ip() != Ipv6Addr::UNSPECIFIED)?;
    }
    net::bind(socket, address)?;
    Ok(SocketAddr::try_from(net::getsockname(socket)?)?)
}

/// Lets further sockets be bound to the address of this one, or this one to that of another.
pub(super) fn share(socket: &OwnedFd) -> io::Result<()> {
    Ok(sockopt::set_socket_reuseport(socket, true)?)
}

/// Has the kernel divide what comes among the sockets of one address, which were bound in the order
/// of their shares' indices. The last call counts, at whichever of these sockets.
pub(super) fn divide(socket: &OwnedFd, share: &Share) -> io::Result<()> {
    let mut steps = [&bpf::remainder(share)[..], &[bpf::result()]].concat();
    sys::attach(socket.as_fd(), libc::SO_ATTACH_REUSEPORT_CBPF, &mut steps)
}

/// Restricts a socket to what comes by an interface.
pub(super) fn bind_to_interface(socket: &OwnedFd, interface: &str) -> io::Result<()> {
    let mut name = [0u8; libc::IFNAMSIZ];
    let fits = interface.len() < name.len();
    let bytes = Some(interface.as_bytes()).filter(|_| fits).ok_or(io::ErrorKind::InvalidInput)?;
    name[..bytes.len()].copy_from_slice(bytes);
    sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &name)
}

/// Chooses the peer. Datagrams of others are not received any more.
pub(super) fn connect(socket: &OwnedFd, address: &SocketAddr) -> io::Result<()> {
    Ok(net::connect(socket, address)?)
}

/// The longest datagram on the way to the peer of a connected socket, in bytes of payload.
pub(super) fn datagram_max(socket: &OwnedFd, is_ipv4: bool) -> io::Result<usize> {
    let mtu = if is_ipv4 { sockopt::ip_mtu(socket)? } else { sockopt::ipv6_mtu(socket)? };
    Ok(payload(mtu as usize, is_ipv4))
}

/// The longest payload of a datagram that is not fragmented.
pub(super) fn payload(mtu: usize, is_ipv4: bool) -> usize {
    mtu.saturating_sub(UDP + if is_ipv4 { IPV4 } else { IPV6 })
}

/// Bytes of received datagrams that the socket holds.
pub(super) fn receive_buffer(socket: &OwnedFd) -> io::Result<usize> {
    Ok(sockopt::socket_recv_buffer_size(socket)?)
}

/// The datagrams that were dropped because there was no room for them.
pub(super) fn drops(socket: &OwnedFd) -> io::Result<u32> {
    let mut values = [0u32; MEMINFO];
    sys::option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, &mut values)?;
    Ok(values[MEMINFO_DROPS])
}

/// A received train, or a single datagram.
#[derive(Debug)]
pub(super) struct Received {
    /// Bytes of all datagrams.
    pub(super) bytes: usize,
    /// Bytes of each datagram but the last.
    pub(super) segment: usize,
    /// The sender; `None` if it has no address of IP.
    pub(super) sender: Option<SocketAddr>,
    /// Whether the network has marked it as congested.
    pub(super) is_congested: bool,
}

/// Receives a train; `None` if none waits.
pub(super) fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<Option<Received>> {
    #[repr(C, align(8))]
    struct Control([MaybeUninit<u8>; CONTROL]);

    let mut vector = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut sender = MaybeUninit::<SocketAddrStorage>::uninit();
    let mut control = Control([MaybeUninit::uninit(); CONTROL]);
    // SAFETY: all-zero is a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = sender.as_mut_ptr().cast();
    message.msg_namelen = size_of_val(&sender) as libc::socklen_t;
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL;
    let bytes = loop {
        // SAFETY: the message points to memory of these lengths, which nobody else uses now: the
        // room is borrowed exclusively.
        let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
        if let Ok(bytes) = usize::try_from(result) {
            break bytes;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock => return Ok(None),
            io::ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
    };
    // SAFETY: the kernel has written an address of that length.
    let sender = (message.msg_namelen > 0)
        .then(|| unsafe { SocketAddrAny::read(sender.as_ptr().cast(), message.msg_namelen) });
    let sender = sender.and_then(|sender| SocketAddr::try_from(sender).ok());
    let mut received = Received { bytes, segment: bytes.max(1), sender, is_congested: false };
    received.read_control(&message);
    Ok(Some(received))
}

impl Received {
    /// Takes the length of the datagrams, if it is a train, and the network's mark.
    fn read_control(&mut self, message: &libc::msghdr) {
        // SAFETY: the kernel has written control messages of `msg_controllen` bytes.
        let mut control = unsafe { libc::CMSG_FIRSTHDR(message) };
        while !control.is_null() {
            // SAFETY: not null, so a control message of the kernel. The data of each kind are an
            // `int`, but for IP_TOS, which is a byte.
            unsafe {
                let data = libc::CMSG_DATA(control);
                match ((*control).cmsg_level, (*control).cmsg_type) {
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        let len = data.cast::<i32>().read_unaligned();
                        self.segment = usize::try_from(len).unwrap_or_default().max(1);
                    }
                    (libc::IPPROTO_IP, libc::IP_TOS) => {
                        self.is_congested = *data & ECN == ECN_CONGESTED;
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                        let class = data.cast::<i32>().read_unaligned();
                        self.is_congested = class as u8 & ECN == ECN_CONGESTED;
                    }
                    _ => {}
                }
                control = libc::CMSG_NXTHDR(message, control);
            }
        }
    }
}

/// Sends messages; returns how many the socket took.
///
/// # Safety
/// The messages point to readable memory of the lengths that they name.
pub(super) unsafe fn send(
    socket: BorrowedFd<'_>,
    messages: &mut [libc::mmsghdr],
) -> io::Result<usize> {
    let (start, count) = (messages.as_mut_ptr(), messages.len() as libc::c_uint);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: see above. The kernel writes the messages' lengths.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), start, count, flags as _) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// An address as the kernel takes it.
pub(super) struct Name {
    bytes: SocketAddrStorage,
    len: libc::socklen_t,
}

impl Name {
    pub(super) fn new(address: &SocketAddr) -> Self {
        use rustix::net::addr::SocketAddrArg;
        let mut bytes = MaybeUninit::<SocketAddrStorage>::zeroed();
        // SAFETY: the storage has room for any address, and all-zero bytes are a valid one.
        let (len, bytes) =
            unsafe { (address.write_sockaddr(bytes.as_mut_ptr()), bytes.assume_init()) };
        Self { bytes, len }
    }

    /// Names the receiver of a message, which must not outlive the name.
    pub(super) fn address(&self, message: &mut libc::msghdr) {
        message.msg_name = ptr::from_ref(&self.bytes).cast_mut().cast();
        message.msg_namelen = self.len;
    }
}
