//! Options of sockets, and addresses of interfaces: what rustix does not have; and a wait for a
//! descriptor.

use std::ffi::CStr;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketAddrAny;

/// Sets an option. A pointer in `value` must point to what the option asks for.
pub(crate) fn set_option<T>(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &T,
) -> io::Result<()> {
    let (len, value) = (size_of_val(value) as libc::socklen_t, ptr::from_ref(value).cast());
    // SAFETY: the value is `len` bytes long and outlives the call.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, len) }).map(drop)
}

/// Attaches a program, which the kernel runs for what comes, by one of the options for that.
pub(crate) fn attach(
    socket: BorrowedFd<'_>,
    option: i32,
    steps: &mut [libc::sock_filter],
) -> io::Result<()> {
    let len = libc::c_ushort::try_from(steps.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: steps.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, option, &program)
}

/// Reads an option. `T` must be made of integers only: the kernel may write any bytes to it.
pub(crate) fn option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &mut T,
) -> io::Result<()> {
    let (mut len, value) = (size_of_val(value) as libc::socklen_t, ptr::from_mut(value).cast());
    // SAFETY: the kernel writes at most `len` bytes, the size of the value; the callers pass plain
    // integers.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, value, &raw mut len) })
        .map(drop)
}

/// An address of an interface.
pub(crate) struct InterfaceAddress {
    /// Name of the interface.
    pub(crate) interface: String,
    /// Flags of the interface (`IFF_..`).
    pub(crate) flags: u32,
    /// Family of the address (`AF_..`).
    pub(crate) family: i32,
    /// The address, if it is one of IP.
    pub(crate) ip: Option<SocketAddr>,
}

/// The addresses of all interfaces of the calling thread's network namespace.
///
/// # Errors
/// The addresses of all interfaces, by `getifaddrs(3)`.
pub(crate) fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut list = ptr::null_mut();
    // SAFETY: on success `list` points to a list that is ours to free.
    check(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: the list ends with a null pointer and does not change before it is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: the address is null or points to a `sockaddr`, which starts with its family.
        if let Some(address) = unsafe { entry.ifa_addr.as_ref() } {
            // SAFETY: names are zero-terminated strings that live as long as the list.
            let interface = unsafe { CStr::from_ptr(entry.ifa_name) };
            found.push(InterfaceAddress {
                interface: interface.to_string_lossy().into_owned(),
                flags: entry.ifa_flags,
                family: address.sa_family.into(),
                ip: ip(entry),
            });
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs` and no reference into it is left.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// The address of an entry of `getifaddrs(3)`, if it is one of IP.
fn ip(entry: &libc::ifaddrs) -> Option<SocketAddr> {
    // SAFETY: the address is null or points to a `sockaddr`, which starts with its family.
    let family = unsafe { entry.ifa_addr.as_ref() }?.sa_family;
    let len = match i32::from(family) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    // SAFETY: an address of that family has that length.
    let address = unsafe { SocketAddrAny::read(entry.ifa_addr.cast(), len as libc::socklen_t) };
    SocketAddr::try_from(address).ok()
}

/// Waits up to `timeout` for a descriptor to be ready; false if it is not.
pub(crate) fn wait(fd: impl AsFd, events: PollFlags, timeout: Duration) -> io::Result<bool> {
    let (tv_sec, tv_nsec) = (timeout.as_secs() as i64, i64::from(timeout.subsec_nanos()));
    match poll(&mut [PollFd::new(&fd, events)], Some(&Timespec { tv_sec, tv_nsec })) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The result of a system call that returns -1 on failure.
pub(crate) fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
