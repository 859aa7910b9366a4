//! Changes of the interfaces and their addresses, by rtnetlink.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// The groups of messages: interfaces, and their addresses of IPv4 and IPv6.
const GROUPS: u32 =
    (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;

/// A socket that hears of changes of the interfaces of the network namespace it was opened in.
pub struct Changes {
    socket: OwnedFd,
}

impl Changes {
    /// Hears of changes from now on.
    ///
    /// # Errors
    /// Those of `socket(2)` and `bind(2)`.
    pub fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        // No protocol means rtnetlink.
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self { socket })
    }

    /// Waits for a change, for that long at most. What has changed is for the caller to look up: a
    /// message may be lost, and several may be about the same.
    ///
    /// # Errors
    /// Those of `poll(2)` and `recv(2)`.
    pub fn wait(&self, limit: Duration) -> io::Result<()> {
        let limit =
            Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut message = [0; 8192];
        loop {
            match recv(&self.socket, &mut message, RecvFlags::DONTWAIT) {
                // Too many changes at once: that there were some is all that counts.
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
