//! The system calls on an AF_PACKET socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::{mem, ptr};

use super::filter::Filter;
use super::messages::Messages;
use super::ring::{Ring, Shape};
use crate::batch::TxBatch;
use crate::sys::{self, check};
use crate::{Mac, is_group};

/// The EtherType for a socket that only sends.
pub(super) const SENDS_ONLY: u16 = 0;

/// A raw packet socket. Owned by one link; no call on it waits.
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// A socket that receives nothing yet, so that it can be set up before the first frame.
    pub(super) fn new() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Binds to the interface: receives its frames of `ethertype` from now on, and sends there.
    pub(super) fn bind(&self, interface: i32, ethertype: u16) -> io::Result<()> {
        // SAFETY: all-zero is a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ethertype.to_be();
        address.sll_ifindex = interface;
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address is `len` bytes long and outlives the call.
        check(unsafe { libc::bind(self.raw(), ptr::from_ref(&address).cast(), len) })?;
        Ok(())
    }

    pub(super) fn set_option(&self, level: i32, name: i32, value: i32) -> io::Result<()> {
        self.set(level, name, &value)
    }

    /// Sets the filter for received frames.
    pub(super) fn filter(&self, filter: &Filter) -> io::Result<()> {
        sys::attach(self.as_fd(), libc::SO_ATTACH_FILTER, &mut filter.program())
    }

    /// Has the interface receive frames to this address, too.
    pub(super) fn join(&self, interface: i32, address: Mac) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership(interface, address))
    }

    /// Ends what [`join`](Self::join) began.
    pub(super) fn leave(&self, interface: i32, address: Mac) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_DROP_MEMBERSHIP, &membership(interface, address))
    }

    fn set<T>(&self, level: i32, name: i32, value: &T) -> io::Result<()> {
        sys::set_option(self.as_fd(), level, name, value)
    }

    /// Attaches a receive ring of this shape.
    pub(super) fn receive_into_ring(&self, shape: Shape) -> io::Result<Ring> {
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        self.set_option(libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        self.set_option(libc::SOL_PACKET, libc::PACKET_RESERVE, shape.reserve() as i32)?;
        self.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &shape.request())?;
        Ring::map(self.as_fd(), shape)
    }

    /// Frees the receive ring, which must not be mapped any more.
    pub(super) fn release_ring(&self) -> io::Result<()> {
        // SAFETY: all-zero is a valid `tpacket_req`, and means no ring.
        let none: libc::tpacket_req = unsafe { mem::zeroed() };
        self.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &none)
    }

    /// The socket's send buffer, in bytes.
    pub(super) fn send_buffer(&self) -> io::Result<usize> {
        let mut value: i32 = 0;
        sys::option(self.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &mut value)?;
        // The kernel reports twice the value set, to account for its own overhead.
        Ok(usize::try_from(value).unwrap_or(0) / 2)
    }

    /// Frames dropped because the ring was full, since the last call.
    pub(super) fn drops(&self) -> io::Result<u32> {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        sys::option(self.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut statistics)?;
        Ok(statistics.tp_drops)
    }

    /// Takes the socket's pending error, which would fail the next call. Returns whether there was
    /// one.
    pub(super) fn take_error(&self) -> io::Result<bool> {
        let mut pending: i32 = 0;
        sys::option(self.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR, &mut pending)?;
        Ok(pending != 0)
    }

    /// Sends the batch's frames. Returns how many were taken.
    pub(super) fn send(&self, messages: &mut Messages, batch: &TxBatch<'_>) -> io::Result<usize> {
        let messages = messages.of(batch);
        let (start, count) = (messages.as_mut_ptr(), messages.len() as libc::c_uint);
        // SAFETY: every message points to memory of `messages` or of the batch, which the kernel
        // only reads. It writes the messages' lengths.
        check(unsafe { libc::sendmmsg(self.raw(), start, count, libc::MSG_DONTWAIT as _) })
            .map(|sent| sent as usize)
    }

    fn raw(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

fn membership(interface: i32, address: Mac) -> libc::packet_mreq {
    let kind = if is_group(&address) { libc::PACKET_MR_MULTICAST } else { libc::PACKET_MR_UNICAST };
    let mut mr_address = [0; 8];
    mr_address[..address.len()].copy_from_slice(&address);
    libc::packet_mreq {
        mr_ifindex: interface,
        mr_type: kind as libc::c_ushort,
        mr_alen: address.len() as libc::c_ushort,
        mr_address,
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
