//! The network interfaces and their properties.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::relations::relations;
use crate::Mac;
use crate::sys::{check, interface_addresses};

/// The present properties of an Ethernet interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceInfo {
    /// Its name, e.g. `eth0`.
    pub name: String,
    /// Its number, unique while it exists.
    pub index: i32,
    /// Its address.
    pub mac: Mac,
    /// The longest payload of a frame, in bytes, Ethernet header not counted.
    pub mtu: usize,
    /// Whether it is administratively up (`ip link set eth0 up`).
    pub up: bool,
    /// Whether frames can flow: it is up and there is a carrier.
    pub running: bool,
}

/// The Ethernet interfaces of the calling thread's network namespace, without loopback, in the
/// kernel's order. VLANs, bridges, bonds and veth count as Ethernet.
///
/// # Errors
/// Those of `getifaddrs(3)` and `socket(2)`.
pub fn interfaces() -> io::Result<Vec<InterfaceInfo>> {
    let socket = any_socket()?;
    let mut found = Vec::new();
    for name in link_names()? {
        // On error the interface has vanished since it was listed.
        if let Ok((info, libc::ARPHRD_ETHER)) = inspect(socket.as_fd(), &name) {
            found.push(info);
        }
    }
    Ok(found)
}

/// The default interfaces: those on which frames can flow, without members of a bridge or bond,
/// whose frames are their master's.
///
/// # Errors
/// As [`interfaces`].
pub fn usable_interfaces() -> io::Result<Vec<InterfaceInfo>> {
    let mut found = interfaces()?;
    found.retain(|it| it.running && master_of(it.index).is_none());
    Ok(found)
}

/// The number of the interface's master, if it is a member.
pub(super) fn master_of(index: i32) -> Option<i32> {
    // If unknown, the interface is used: a fault will show.
    relations(index).ok().and_then(|it| it.master)
}

/// The interface's properties, and its hardware type (`ARPHRD_..`). The name is looked up in the
/// namespace of `socket`, which may be of any kind.
///
/// # Errors
/// `ENODEV` if there is no such interface.
pub(super) fn inspect(socket: BorrowedFd<'_>, name: &str) -> io::Result<(InterfaceInfo, u16)> {
    let address = query(socket, name, libc::SIOCGIFHWADDR)?;
    // SAFETY: the kernel filled in this member of the union; it is plain bytes.
    let hardware = unsafe { address.ifr_ifru.ifru_hwaddr };
    let mut mac = Mac::default();
    for (to, from) in mac.iter_mut().zip(hardware.sa_data) {
        *to = from as u8;
    }
    let (up, running) = flags(socket, name)?;
    let info = InterfaceInfo {
        name: name.to_owned(),
        index: index(socket, name)?,
        mac,
        mtu: mtu(socket, name)?,
        up,
        running,
    };
    Ok((info, hardware.sa_family))
}

/// The interface's number.
pub(super) fn index(socket: BorrowedFd<'_>, name: &str) -> io::Result<i32> {
    let answer = query(socket, name, libc::SIOCGIFINDEX)?;
    // SAFETY: the kernel filled in this member of the union; it is an integer.
    Ok(unsafe { answer.ifr_ifru.ifru_ifindex })
}

/// Whether the interface is up, and whether frames can flow.
pub(super) fn flags(socket: BorrowedFd<'_>, name: &str) -> io::Result<(bool, bool)> {
    let answer = query(socket, name, libc::SIOCGIFFLAGS)?;
    // SAFETY: the kernel filled in this member of the union; it is an integer.
    let flags = i32::from(unsafe { answer.ifr_ifru.ifru_flags });
    Ok((flags & libc::IFF_UP != 0, flags & libc::IFF_RUNNING != 0))
}

fn mtu(socket: BorrowedFd<'_>, name: &str) -> io::Result<usize> {
    let answer = query(socket, name, libc::SIOCGIFMTU)?;
    // SAFETY: the kernel filled in this member of the union; it is an integer.
    Ok(usize::try_from(unsafe { answer.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

fn query(socket: BorrowedFd<'_>, name: &str, what: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero is a valid `ifreq`: integers and bytes.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero: it terminates the name.
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: all requests of this file read and write one `ifreq`, which outlives the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut request) })?;
    Ok(request)
}

/// A socket for queries about interfaces; needs neither privileges nor IP.
pub(super) fn any_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed.
    let fd = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The names of all interfaces that have a link-layer address, up or down.
fn link_names() -> io::Result<Vec<String>> {
    let found = interface_addresses()?.into_iter();
    let found = found.filter(|it| it.family == libc::AF_PACKET);
    Ok(found.map(|it| it.interface).collect())
}
