//! The network interfaces and their properties.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::OpenError;
use super::relations::Route;
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
    let (mut found, route) = (interfaces()?, Route::open()?);
    found.retain(|it| it.running && route.master_of(it.index).is_none());
    Ok(found)
}

/// Checks that an interface has its frames for itself. `socket`, of any kind, and `route` are in
/// its namespace.
///
/// # Errors
/// `Member` if it is part of another interface.
pub(super) fn check_single(
    socket: BorrowedFd<'_>,
    route: &Route,
    name: &str,
    index: i32,
) -> Result<(), OpenError> {
    let Some(master) = route.master_of(index) else { return Ok(()) };
    Err(OpenError::Member { interface: name.to_owned(), master: name_of(socket, master).ok() })
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

/// The name of the interface of that number.
fn name_of(socket: BorrowedFd<'_>, index: i32) -> io::Result<String> {
    // SAFETY: all-zero is a valid `ifreq`: integers and bytes.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = index;
    // SAFETY: the request reads and writes one `ifreq`, which outlives the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFNAME, &raw mut request) })?;
    let name = request.ifr_name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0);
    Ok(String::from_utf8_lossy(&name.collect::<Vec<_>>()).into_owned())
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
    // SAFETY: all these requests read and write one `ifreq`, which outlives the call.
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
