//! A packet socket, past queueing disciplines or not, with buffers for a burst both ways.

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Neither Tyche's EtherType nor a peer's.
const ETHERTYPE: u16 = 0x88b6;
/// Bytes of either socket buffer.
const BUFFER: libc::c_int = 128 << 20;

pub(super) struct Socket(OwnedFd);

impl Socket {
    /// Needs `CAP_NET_RAW`, and `CAP_NET_ADMIN` for the buffers.
    pub(super) fn open(interface: &str, qdisc: bool) -> io::Result<Self> {
        let name = CString::new(interface)?;
        // SAFETY: the string ends in a zero byte and outlives the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let protocol = ETHERTYPE.to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, protocol.into()) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and has no other owner.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: zeroes are a value of this plain structure.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address is `len` bytes long and outlives the call.
        if unsafe { libc::bind(fd, (&raw const address).cast(), len) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = socket.as_fd();
        set(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, (!qdisc).into())?;
        set(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER)?;
        set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER)?;
        Ok(socket)
    }
}

/// Sets an option of a socket.
pub(super) fn set(
    socket: BorrowedFd<'_>,
    level: i32,
    option: i32,
    value: libc::c_int,
) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the value is `len` bytes long and outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The head of a frame: broadcast, from an arbitrary address, with the number of commands that it
/// completes or asks.
pub(super) fn head(count: u32) -> [u8; super::HEAD] {
    let mut head = [0; super::HEAD];
    head[..6].fill(0xff);
    head[6..12].fill(0x02);
    head[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
    head[16..20].copy_from_slice(&count.to_ne_bytes());
    head
}

/// The number of commands that a frame asks or completes.
pub(super) fn count(head: &[u8; super::HEAD]) -> u32 {
    u32::from_ne_bytes([head[16], head[17], head[18], head[19]])
}
