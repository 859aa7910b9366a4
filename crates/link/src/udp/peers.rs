//! The addresses of a target's peers.
//!
//! A protocol knows its peers by Ethernet addresses. That of an IPv4 peer is its address and port,
//! so nothing is kept for it, and nothing that strangers send can displace it. For IPv6 peers there
//! is a table: see [`PEERS_MAX`].

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::time::Instant;

use super::{PEERS_MAX, SILENCE_MAX};
use crate::Mac;

/// See the module.
#[derive(Default)]
pub(super) struct Peers {
    places: HashMap<SocketAddrV6, usize>,
    table: Vec<Peer>,
    /// Peers so far, from which every entry of the table gets an address of its own.
    serial: u32,
}

/// An entry of the table.
struct Peer {
    address: SocketAddrV6,
    mac: Mac,
    heard: Instant,
}

impl Peers {
    /// The Ethernet address that stands for the sender of a datagram; `None` if there is no room
    /// for another one.
    pub(super) fn hear(&mut self, sender: SocketAddr, now: Instant) -> Option<Mac> {
        let address = match sender {
            SocketAddr::V4(sender) => return Some(of_ipv4(&sender)),
            SocketAddr::V6(sender) => match sender.ip().to_ipv4_mapped() {
                Some(ip) => return Some(of_ipv4(&SocketAddrV4::new(ip, sender.port()))),
                // Two flows of one peer are one peer.
                None => SocketAddrV6::new(*sender.ip(), sender.port(), 0, sender.scope_id()),
            },
        };
        if let Some(&place) = self.places.get(&address) {
            self.table[place].heard = now;
            return Some(self.table[place].mac);
        }
        let place = self.place(now)?;
        self.serial = self.serial.wrapping_add(1);
        let [_, a, b, c] = self.serial.to_be_bytes();
        let [high, low] = (place as u16).to_be_bytes();
        // No IPv4 address of a peer begins with 0.
        let peer = Peer { address, mac: [0, high, low, a, b, c], heard: now };
        let mac = peer.mac;
        if place == self.table.len() {
            self.table.push(peer);
        } else {
            let former = std::mem::replace(&mut self.table[place], peer);
            self.places.remove(&former.address);
        }
        self.places.insert(address, place);
        Some(mac)
    }

    /// A place of the table for another peer: a new one, or that of the peer that is silent for
    /// longest.
    fn place(&self, now: Instant) -> Option<usize> {
        if self.table.len() < PEERS_MAX {
            return Some(self.table.len());
        }
        let (place, quietest) = self.table.iter().enumerate().min_by_key(|(_, it)| it.heard)?;
        (now.duration_since(quietest.heard) >= SILENCE_MAX).then_some(place)
    }

    /// The peer that an Ethernet address stands for, if any. `as_ipv6`: the socket has addresses of
    /// IPv6 only, also for IPv4 peers.
    pub(super) fn find(&self, mac: Mac, as_ipv6: bool) -> Option<SocketAddr> {
        let [a, b, c, ..] = mac;
        if a == 0 {
            let peer = self.table.get(usize::from(u16::from_be_bytes([b, c])))?;
            return (peer.mac == mac).then_some(peer.address.into());
        }
        let peer = ipv4_peer(mac)?;
        Some(if as_ipv6 {
            SocketAddrV6::new(peer.ip().to_ipv6_mapped(), peer.port(), 0, 0).into()
        } else {
            peer.into()
        })
    }
}

/// The IPv4 peer of a target that an Ethernet address stands for; `None` if it stands for one of
/// IPv6.
pub fn ipv4_peer(mac: Mac) -> Option<SocketAddrV4> {
    let [a, b, c, d, high, low] = mac;
    let port = u16::from_be_bytes([high, low]);
    (a != 0).then(|| SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port))
}

fn of_ipv4(peer: &SocketAddrV4) -> Mac {
    let ([a, b, c, d], [high, low]) = (peer.ip().octets(), peer.port().to_be_bytes());
    [a, b, c, d, high, low]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v6(number: u16) -> SocketAddr {
        format!("[2001:db8::{number:x}]:8650").parse().unwrap()
    }

    #[test]
    fn every_peer_is_found_by_the_address_that_it_got() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        let v4: SocketAddr = "192.0.2.7:40000".parse().unwrap();
        let mac = peers.hear(v4, now).unwrap();
        assert_eq!(mac, [192, 0, 2, 7, 156, 64]);
        assert_eq!(peers.find(mac, false), Some(v4));
        let mapped: SocketAddr = "[::ffff:192.0.2.7]:40000".parse().unwrap();
        assert_eq!(peers.hear(mapped, now), Some(mac));
        assert_eq!(peers.find(mac, true), Some(mapped));
        let macs: Vec<_> = (0..9).map(|number| peers.hear(v6(number), now).unwrap()).collect();
        for (number, mac) in (0..).zip(&macs) {
            assert_eq!(peers.find(*mac, true), Some(v6(number)));
            assert_eq!(peers.hear(v6(number), now), Some(*mac));
        }
        assert_eq!(peers.find([0, 0, 9, 0, 0, 10], true), None);
        assert_eq!(peers.find([0, 0, 8, 0, 0, 8], true), None);
    }

    #[test]
    fn a_full_table_drops_strangers_and_displaces_only_the_silent() {
        let (mut peers, start) = (Peers::default(), Instant::now());
        let first = peers.hear(v6(0), start).unwrap();
        for number in 1..PEERS_MAX as u16 {
            peers.hear(v6(number), start + SILENCE_MAX / 2).unwrap();
        }
        let stranger = v6(PEERS_MAX as u16);
        assert_eq!(peers.hear(stranger, start + SILENCE_MAX / 2), None);
        let mac = peers.hear(stranger, start + SILENCE_MAX).unwrap();
        assert_eq!((peers.find(first, true), peers.find(mac, true)), (None, Some(stranger)));
        assert_eq!(peers.hear(v6(0), start + SILENCE_MAX), None, "its place is another's");
        assert_eq!(peers.table.len(), PEERS_MAX);
        assert_eq!(peers.places.len(), PEERS_MAX);
    }
}
