//! The addresses of a target's peers.
//!
//! A protocol knows its peers by Ethernet addresses. That of an IPv4 peer is its address and port.
//! That of an IPv6 peer is a keyed hash of them, so it is the same whenever that peer is heard. Two
//! tables find the peer by it. One has the peers to which frames of channels are sent: nobody else
//! can displace them. The other has those that were heard last, for as long as it takes
//! to answer them: nothing but an answer depends on it, so a flood of addresses takes nothing.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::time::Instant;

use super::{PEERS_MAX, STRANGERS_MIN};
use crate::ip::{Origins, UNSERVED_AFTER};
use crate::{Mac, TxBatch, is_of_channel};

type Table<T> = HashMap<Mac, T, BuildHasherDefault<Ready>>;

/// The address table of a UDP target: from the Ethernet address that stands for a peer to the
/// peer's socket address. Peers of IPv4 need no entry; those of IPv6 are bounded in number.
pub(super) struct Peers {
    origins: Origins,
    /// The peers with channels, and when the last frame of one was sent to them.
    served: Table<(SocketAddrV6, Instant)>,
    /// The others: those heard since the former table was full, and those before.
    heard: [Table<SocketAddrV6>; 2],
    /// When the last datagrams came.
    now: Instant,
}

/// Takes the hash of an address for what it is.
#[derive(Default)]
struct Ready(u64);

impl Hasher for Ready {
    fn write(&mut self, bytes: &[u8]) {
        let number = bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        // The table looks at the upper bits, too.
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Default for Peers {
    fn default() -> Self {
        let (served, heard) = (Table::default(), Default::default());
        Self { origins: Origins::default(), served, heard, now: Instant::now() }
    }
}

impl Peers {
    /// An empty table, by which peers have the same addresses.
    pub(super) fn beside(&self) -> Self {
        Self { origins: self.origins.clone(), ..Self::default() }
    }

    /// Sets the time of what is heard and sent from now on.
    pub(super) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// The Ethernet address that stands for the sender of a datagram; `None` if it is that of
    /// another one.
    pub(super) fn hear(&mut self, sender: SocketAddr) -> Option<Mac> {
        let address = match sender {
            SocketAddr::V4(sender) => return Some(of_ipv4(&sender)),
            SocketAddr::V6(sender) => match sender.ip().to_ipv4_mapped() {
                Some(ip) => return Some(of_ipv4(&SocketAddrV4::new(ip, sender.port()))),
                // Two flows of one peer are one peer.
                None => SocketAddrV6::new(*sender.ip(), sender.port(), 0, sender.scope_id()),
            },
        };
        let mac = self.of_ipv6(&address);
        if let Some((known, _)) = self.served.get(&mac) {
            return (*known == address).then_some(mac);
        }
        if let Some(known) = self.heard[0].get(&mac) {
            return (*known == address).then_some(mac);
        }
        if self.heard[1].get(&mac).is_some_and(|known| *known != address) {
            return None;
        }
        if self.heard[0].len() == STRANGERS_MIN {
            let [newer, older] = &mut self.heard;
            mem::swap(newer, older);
            newer.clear();
        }
        self.heard[0].insert(mac, address);
        Some(mac)
    }

    /// No IPv4 address of a peer begins with 0.
    fn of_ipv6(&self, address: &SocketAddrV6) -> Mac {
        let [a, b] = self.origins.of((*address.ip()).into()).to_be_bytes();
        let exact = self.origins.exact(*address.ip(), address.port(), address.scope_id());
        let [_, c, d, e] = exact.to_be_bytes();
        [0, a, b, c, d, e]
    }

    /// Notes to whom the batch has frames of channels: these peers keep their places.
    pub(super) fn note_served(&mut self, batch: &TxBatch<'_>) {
        if self.served.is_empty() && self.heard.iter().all(HashMap::is_empty) {
            return;
        }
        for frame in batch.frames().filter(is_of_channel) {
            let destination: &Mac = frame.front().first_chunk().expect("a head");
            if destination[0] == 0 {
                self.serve(*destination);
            }
        }
    }

    fn serve(&mut self, mac: Mac) {
        if let Some((_, at)) = self.served.get_mut(&mac) {
            *at = self.now;
            return;
        }
        let Some(&address) = self.heard.iter().find_map(|table| table.get(&mac)) else { return };
        if self.served.len() == PEERS_MAX {
            let (now, oldest) = (self.now, self.served.iter().min_by_key(|(_, peer)| peer.1));
            let is_over = |at: Instant| now.saturating_duration_since(at) >= UNSERVED_AFTER;
            let oldest = oldest.filter(|(_, peer)| is_over(peer.1)).map(|(&mac, _)| mac);
            // Otherwise it is found for as long as it is heard often enough.
            let Some(oldest) = oldest else { return };
            self.served.remove(&oldest);
        }
        self.served.insert(mac, (address, self.now));
    }

    /// The peer that an Ethernet address stands for, if any. `as_ipv6`: the socket has addresses of
    /// IPv6 only, also for IPv4 peers.
    pub(super) fn find(&self, mac: Mac, as_ipv6: bool) -> Option<SocketAddr> {
        if mac[0] == 0 {
            let served = self.served.get(&mac).map(|(address, _)| address);
            let heard = || self.heard.iter().find_map(|table| table.get(&mac));
            return served.or_else(heard).map(|&address| address.into());
        }
        let peer = ipv4_peer(mac)?;
        Some(if as_ipv6 {
            SocketAddrV6::new(peer.ip().to_ipv6_mapped(), peer.port(), 0, 0).into()
        } else {
            peer.into()
        })
    }
}

/// The part of a peer's Ethernet address that its owner cannot choose: all ports of one address of
/// IPv4, and all addresses of one /64 of IPv6, have the same.
pub(super) fn origin(mac: Mac) -> Mac {
    let [a, b, c, d, ..] = mac;
    if a == 0 { [0, b, c, 0, 0, 0] } else { [a, b, c, d, 0, 0] }
}

/// The IPv4 peer of a target that an Ethernet address stands for; `None` if it stands for one of
/// IPv6.
pub(super) fn ipv4_peer(mac: Mac) -> Option<SocketAddrV4> {
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

    fn v6(number: u32) -> SocketAddr {
        let (high, low) = (number >> 16, number & 0xffff);
        format!("[2001:db8::{high:x}:{low:x}]:8650").parse().unwrap()
    }

    #[test]
    fn every_peer_is_found_by_the_address_that_it_got() {
        let mut peers = Peers::default();
        let v4: SocketAddr = "192.0.2.7:40000".parse().unwrap();
        let mac = peers.hear(v4).unwrap();
        assert_eq!(mac, [192, 0, 2, 7, 156, 64]);
        assert_eq!(peers.find(mac, false), Some(v4));
        let mapped: SocketAddr = "[::ffff:192.0.2.7]:40000".parse().unwrap();
        assert_eq!(peers.hear(mapped), Some(mac));
        assert_eq!(peers.find(mac, true), Some(mapped));
        let macs: Vec<_> = (0..9).map(|number| peers.hear(v6(number)).unwrap()).collect();
        for (number, mac) in (0..).zip(&macs) {
            assert_eq!(peers.find(*mac, true), Some(v6(number)));
            assert_eq!(peers.hear(v6(number)), Some(*mac));
        }
        let nobody = [0, macs[0][1], macs[0][2], !macs[0][3], 0, 0];
        assert_eq!(peers.find(nobody, true), None);
    }

    #[test]
    fn a_flood_of_addresses_displaces_nobody_who_is_served_or_was_just_heard() {
        let mut peers = Peers::default();
        let [host, newcomer] = ["[2001:db8:1::1]:9", "[2001:db8::1:1]:9"].map(|it| {
            let address: SocketAddr = it.parse().unwrap();
            (address, peers.hear(address).unwrap())
        });
        peers.serve(host.1);
        for number in 0..20 * STRANGERS_MIN as u32 {
            let _ = peers.hear(v6(number));
            if number % 1000 == 0 {
                let mac = peers.hear(newcomer.0);
                assert_eq!(mac, Some(newcomer.1), "its address, and so its ticket, is the same");
            }
            assert_eq!(peers.find(newcomer.1, true), Some(newcomer.0), "it can be answered");
            assert_eq!(peers.find(host.1, true), Some(host.0));
        }
        assert!(peers.heard.iter().all(|table| table.len() <= STRANGERS_MIN));
        assert_eq!(peers.find(peers.of_ipv6(&of(v6(1))), true), None, "it is forgotten");
    }

    fn of(address: SocketAddr) -> SocketAddrV6 {
        let SocketAddr::V6(address) = address else { panic!("of IPv6") };
        address
    }

    #[test]
    fn places_of_peers_without_channels_are_used_again() {
        let (mut peers, start) = (Peers::default(), Instant::now());
        peers.set_now(start);
        let served: Vec<_> = (0..PEERS_MAX as u32)
            .map(|number| {
                let mac = peers.hear(v6(number)).unwrap();
                peers.serve(mac);
                mac
            })
            .collect();
        let late = peers.hear(v6(1 << 20)).unwrap();
        peers.set_now(start + UNSERVED_AFTER / 2);
        served[1..].iter().for_each(|&mac| peers.serve(mac));
        peers.serve(late);
        assert!(!peers.served.contains_key(&late), "all have channels");
        peers.set_now(start + UNSERVED_AFTER);
        peers.serve(late);
        assert!(peers.served.contains_key(&late) && !peers.served.contains_key(&served[0]));
        assert_eq!(peers.served.len(), PEERS_MAX);
    }

    #[test]
    fn ports_and_addresses_of_one_network_count_as_one() {
        let mut peers = Peers::default();
        let mut hear = |text: &str| peers.hear(text.parse().unwrap()).unwrap();
        let same = [hear("[2001:db8::1]:1"), hear("[2001:db8::2]:2")].map(origin);
        assert_eq!(same[0], same[1]);
        let v4 = ["192.0.2.7:1", "192.0.2.7:2", "192.0.2.8:1"].map(|it| origin(hear(it)));
        assert_eq!(v4[0], v4[1]);
        assert_ne!(v4[0], v4[2]);
    }
}
