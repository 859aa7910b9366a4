//! The addresses of IP of this machine's interfaces.

use std::ffi::CStr;
use std::io;
use std::net::SocketAddr;
use std::ptr;

use rustix::net::SocketAddrAny;

use crate::sys::check;

/// An address of an interface.
#[derive(Clone, Debug)]
pub(crate) struct LocalAddress {
    /// Name of the interface.
    pub(crate) interface: String,
    /// The address, with port 0. One of IPv6 that is good on one segment only has the number of the
    /// interface as its scope.
    pub(crate) address: SocketAddr,
    /// `IFF_..`: what the interface is like.
    flags: u32,
}

impl LocalAddress {
    /// Whether the interface is up, with or without a carrier: that may be reported late.
    pub(crate) fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// Whether the interface has a segment with other machines, all of which hear what is for all.
    pub(crate) fn has_segment(&self) -> bool {
        let (wanted, unwanted) = match self.address {
            SocketAddr::V4(_) => (libc::IFF_BROADCAST, libc::IFF_LOOPBACK),
            SocketAddr::V6(_) => (libc::IFF_MULTICAST, libc::IFF_LOOPBACK),
        };
        self.flags & wanted as u32 != 0 && self.flags & unwanted as u32 == 0
    }
}

/// The addresses of all interfaces of the calling thread's network namespace.
///
/// # Errors
/// Those of `getifaddrs(3)`.
pub(crate) fn addresses() -> io::Result<Vec<LocalAddress>> {
    let mut list = ptr::null_mut();
    // SAFETY: on success `list` points to a list that is ours to free.
    check(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: the list ends with a null pointer and does not change before it is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        if let Some(address) = address(entry) {
            // SAFETY: names are zero-terminated strings that live as long as the list.
            let interface = unsafe { CStr::from_ptr(entry.ifa_name) };
            let interface = interface.to_string_lossy().into_owned();
            found.push(LocalAddress { interface, address, flags: entry.ifa_flags });
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs` and no reference into it is left.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// The address of an entry of `getifaddrs(3)`, if it is one of IP.
fn address(entry: &libc::ifaddrs) -> Option<SocketAddr> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address_and_no_segment() {
        let found = addresses().unwrap();
        let loopback = found.iter().find(|it| it.address.ip().is_loopback());
        let Some(loopback) = loopback else { return println!("SKIPPED: no loopback") };
        assert_eq!((loopback.interface.as_str(), loopback.address.port()), ("lo", 0));
        assert!(!loopback.has_segment());
    }
}
