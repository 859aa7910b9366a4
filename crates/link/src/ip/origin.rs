//! The network of a peer, where shares are bounded: its IPv4 address, or its /64 of IPv6, which is
//! what one machine may have for itself.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};

/// Numbers for peers, by a hash with a key of its own: nobody can choose whom he is taken for.
#[derive(Clone, Default)]
pub(crate) struct Origins(RandomState);

impl Origins {
    /// The number of a peer's network.
    pub(crate) fn of(&self, peer: IpAddr) -> u16 {
        let network = match peer.to_canonical() {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        };
        self.0.hash_one((peer.to_canonical().is_ipv4(), network)) as u16
    }

    /// 24 bits for one address and port of IPv6.
    pub(crate) fn exact(&self, address: Ipv6Addr, port: u16, scope: u32) -> u32 {
        self.0.hash_one((address, port, scope)) as u32 >> 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_64_is_one_peer_and_ports_do_not_count() {
        let origins = Origins::default();
        let of = |text: &str| origins.of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
        assert_eq!(of("192.0.2.7"), of("::ffff:192.0.2.7"));
        let others = ["2001:db8:0:1::1", "192.0.2.7", "192.0.2.8"].map(of);
        // Of 65536 numbers, two of these are seldom the same.
        assert!(others.iter().any(|&other| other != of("2001:db8::1")));
    }
}
