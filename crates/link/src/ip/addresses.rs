//! The addresses of IP of this machine's interfaces.

use std::io;
use std::net::SocketAddr;

use crate::sys::{InterfaceAddress, interface_addresses};

/// An address of an interface.
#[derive(Clone, Debug)]
pub(crate) struct LocalAddress {
    /// Name of the interface.
    pub(crate) interface: String,
    /// The address, with port 0. One of IPv6 that is good on one segment only has the number of the
    /// interface as its scope.
    pub(crate) address: SocketAddr,
    /// Flags of the interface (`IFF_..`).
    flags: u32,
}

impl LocalAddress {
    /// Whether the interface is up, with or without a carrier: that may be reported late.
    pub(crate) fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// Whether the interface has a segment with other machines, all of which hear what is for all.
    pub(crate) fn has_segment(&self) -> bool {
        let reaches_all = match self.address {
            SocketAddr::V4(_) => libc::IFF_BROADCAST,
            SocketAddr::V6(_) => libc::IFF_MULTICAST,
        };
        self.flags & (reaches_all | libc::IFF_LOOPBACK) as u32 == reaches_all as u32
    }
}

/// The addresses of all interfaces of the calling thread's network namespace.
///
/// # Errors
/// Those of `getifaddrs(3)`.
pub(crate) fn addresses() -> io::Result<Vec<LocalAddress>> {
    let found = interface_addresses()?.into_iter();
    let found = found.filter_map(|InterfaceAddress { interface, flags, ip, .. }| {
        Some(LocalAddress { interface, address: ip?, flags })
    });
    Ok(found.collect())
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
