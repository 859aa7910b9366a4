//! UDP sockets whose datagrams travel in trains: the kernel cuts what one call sends into datagrams
//! of one length (`UDP_SEGMENT`), and one call receives what arrived as one (`UDP_GRO`).

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::{mem, ptr};

use super::socket::set;

/// Bytes of either socket buffer.
const BUFFER: libc::c_int = 64 << 20;
/// Bytes of data in the longest train, with the heads of its datagrams.
pub(super) const TRAIN_MAX: usize = 65_000;
/// Room for a received train.
pub(super) const ROOM: usize = 64 << 10;
/// Room for a control message.
const CONTROL: usize = 64;

/// A control message, aligned as the kernel asks for.
#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; CONTROL]);

/// A socket that never waits.
pub(super) struct TrainSocket(UdpSocket);

impl TrainSocket {
    /// The end that is asked, at an address of its own.
    pub(super) fn listen(address: SocketAddr) -> io::Result<Self> {
        Self::new(UdpSocket::bind(address)?)
    }

    /// Its address.
    #[cfg(test)]
    pub(super) fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("a bound socket has an address")
    }

    /// The end that asks.
    pub(super) fn connect(address: SocketAddr) -> io::Result<Self> {
        let any: SocketAddr =
            if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        Self::new(socket)
    }

    fn new(socket: UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let fd = socket.as_fd();
        set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER)?;
        set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER)?;
        set(fd, libc::SOL_UDP, libc::UDP_GRO, 1)?;
        Ok(Self(socket))
    }

    /// Chooses the sender of the next datagram as the peer; returns whether one has come. The
    /// datagram remains to be received.
    pub(super) fn accept(&self) -> io::Result<bool> {
        match self.0.peek_from(&mut [0; 1]) {
            Ok((_, peer)) => self.0.connect(peer).map(|()| true),
            Err(error) => nothing(error).map(|()| false),
        }
    }

    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Sends the parts as datagrams of `segment` bytes, the last of which may be shorter; waits
    /// for room if there is none.
    pub(super) fn send(&self, parts: &[IoSlice<'_>], segment: usize) -> io::Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let mut control = Control([MaybeUninit::zeroed(); CONTROL]);
        // SAFETY: zeroes are a value of this plain structure: no name, no control data.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        // The kernel only reads the parts; `IoSlice` is an `iovec` by its documentation.
        message.msg_iov = parts.as_ptr().cast_mut().cast();
        message.msg_iovlen = parts.len();
        if bytes > segment {
            let value = segment as u16;
            let len = size_of_val(&value) as u32;
            message.msg_control = control.0.as_mut_ptr().cast();
            // SAFETY: the macros only compute; the room is longer than one message of two bytes,
            // and aligned, so the first message lies in it.
            unsafe {
                message.msg_controllen = libc::CMSG_SPACE(len) as usize;
                let first = libc::CMSG_FIRSTHDR(&raw const message);
                (*first).cmsg_level = libc::SOL_UDP;
                (*first).cmsg_type = libc::UDP_SEGMENT;
                (*first).cmsg_len = libc::CMSG_LEN(len) as usize;
                ptr::write_unaligned(libc::CMSG_DATA(first).cast(), value);
            }
        }
        loop {
            // SAFETY: the message points to the parts and to the control message, which live on.
            if unsafe { libc::sendmsg(self.fd(), &raw const message, 0) } >= 0 {
                return Ok(());
            }
            nothing(io::Error::last_os_error())?;
        }
    }

    /// Receives a train, or a single datagram; returns its bytes and those of each datagram but
    /// the last. `None`: nothing has come.
    pub(super) fn receive(&self, room: &mut [u8]) -> io::Result<Option<(usize, usize)>> {
        let mut part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        let mut control = Control([MaybeUninit::uninit(); CONTROL]);
        // SAFETY: zeroes are a value of this plain structure.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL;
        // SAFETY: the message points to the room and to the control message, both writable.
        let result = unsafe { libc::recvmsg(self.fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let Ok(bytes) = usize::try_from(result) else {
            return nothing(io::Error::last_os_error()).map(|()| None);
        };
        let mut segment = bytes.max(1);
        // SAFETY: the kernel has set the length of the control messages, and they lie in `control`;
        // the value of this one is an int.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&raw const message);
            if !first.is_null()
                && ((*first).cmsg_level, (*first).cmsg_type) == (libc::SOL_UDP, libc::UDP_GRO)
            {
                let value: libc::c_int = ptr::read_unaligned(libc::CMSG_DATA(first).cast());
                segment = usize::try_from(value).unwrap_or(segment).max(1);
            }
        }
        Ok(Some((bytes, segment)))
    }
}

/// No room, nothing there, or an answer that nobody listened to: fine, for the moment.
fn nothing(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR | libc::ECONNREFUSED) => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_is_cut_and_joined() {
        let server = TrainSocket::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = TrainSocket::connect(server.address()).unwrap();
        assert!(!server.accept().unwrap());
        let parts = [[1; 100], [2; 100], [3; 100]];
        let parts = parts.each_ref().map(|part| IoSlice::new(part));
        client.send(&parts, 120).unwrap();
        assert!(server.accept().unwrap());
        let (mut room, mut bytes) = (vec![0; ROOM], 0);
        // One train of 120 + 120 + 60 bytes, or single datagrams.
        while let Some((len, segment)) = server.receive(&mut room).unwrap() {
            assert!(segment <= 120, "{segment}");
            bytes += len;
        }
        assert_eq!(bytes, 300);
        server.send(&parts[..1], 120).unwrap();
        assert_eq!(client.receive(&mut room).unwrap(), Some((100, 100)));
    }
}
