//! The relations of an interface to others, by rtnetlink: its master (a bridge, bond or the like),
//! and its VLAN.
//!
//! Frames that arrive on a member are its master's (`filter`). sysfs has the same data, but for the
//! network namespace that it was mounted in, which need not be ours.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// Bytes of `nlmsghdr`, and of `ifinfomsg`, which follows it in requests and answers.
const HEADER: usize = 16;
const INFO: usize = 16;
/// Bytes of an attribute's length and type, and the alignment of attributes.
const ATTRIBUTE: usize = 4;
/// Room for an answer; the data on one interface are a fraction of it.
const ANSWER_MAX: usize = 32 << 10;
/// A kind of master that routes the frames of its members, which stay theirs.
const VRF: &[u8] = b"vrf\0";
/// The kind of a VLAN interface, and the attribute of its number.
const VLAN: &[u8] = b"vlan\0";
const IFLA_VLAN_ID: u16 = 1;

/// The relations of an interface to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relations {
    /// The number of the interface that gets this one's incoming frames: a bridge, a bond.
    pub master: Option<i32>,
    /// The number of the VLAN, if this interface is one on another.
    pub vlan: Option<u16>,
}

/// A socket to query relations with, in the network namespace of the thread that has opened it.
pub(super) struct Route(OwnedFd);

impl Route {
    /// Opens the socket.
    ///
    /// # Errors
    /// Those of `socket(2)`.
    pub(super) fn open() -> io::Result<Self> {
        // No protocol means rtnetlink.
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        Ok(Self(socket_with(family, kind, SocketFlags::CLOEXEC, None)?))
    }

    /// Queries the relations of the interface of that number.
    ///
    /// # Errors
    /// Those of `send(2)` and `recv(2)`; `NotFound` if there is no such interface.
    pub(super) fn relations(&self, index: i32) -> io::Result<Relations> {
        send(&self.0, &question(index), SendFlags::empty())?;
        let mut answer = vec![0; ANSWER_MAX];
        // The kernel answers before the call to send returns.
        let (_, len) = recv(&self.0, &mut answer, RecvFlags::DONTWAIT)?;
        let answer = answer.get(..len).unwrap_or_default();
        match answer.get(4..6) {
            Some(kind) if kind == libc::RTM_NEWLINK.to_ne_bytes() => Ok(parse(answer)),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The number of the interface's master, if it is a member.
    pub(super) fn master_of(&self, index: i32) -> Option<i32> {
        // If unknown, the interface is used: a fault will show.
        self.relations(index).ok().and_then(|it| it.master)
    }
}

/// Queries the relations of the interface of that number, in the network namespace of the calling
/// thread.
///
/// # Errors
/// Those of `socket(2)`, `send(2)` and `recv(2)`; `NotFound` if there is no such interface.
pub fn relations(index: i32) -> io::Result<Relations> {
    Route::open()?.relations(index)
}

/// A request for one interface.
fn question(index: i32) -> [u8; HEADER + INFO] {
    const LEN: usize = HEADER + INFO;
    let mut message = [0; LEN];
    message[..4].copy_from_slice(&(LEN as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message[HEADER + 4..HEADER + 8].copy_from_slice(&index.to_ne_bytes());
    message
}

/// Parses the answer for an interface.
fn parse(answer: &[u8]) -> Relations {
    let top = Attributes(answer.get(HEADER + INFO..).unwrap_or_default());
    let details = top.within(libc::IFLA_LINKINFO);
    let in_vrf = details.find(libc::IFLA_INFO_SLAVE_KIND) == Some(VRF);
    let is_vlan = details.find(libc::IFLA_INFO_KIND) == Some(VLAN);
    let master = top.find(libc::IFLA_MASTER).and_then(|it| it.first_chunk());
    let vlan = details.within(libc::IFLA_INFO_DATA).find(IFLA_VLAN_ID);
    Relations {
        master: master.filter(|_| !in_vrf).map(|it| i32::from_ne_bytes(*it)),
        vlan: vlan.filter(|_| is_vlan).and_then(|it| Some(u16::from_ne_bytes(*it.first_chunk()?))),
    }
}

/// Attributes of a message, with their types; ends at the first invalid one.
#[derive(Clone, Copy)]
struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// The first of a type.
    fn find(mut self, wanted: u16) -> Option<&'a [u8]> {
        self.find_map(|(kind, payload)| (kind == wanted).then_some(payload))
    }

    /// The nested attributes of the first of a type.
    fn within(self, wanted: u16) -> Self {
        Self(self.find(wanted).unwrap_or_default())
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [a, b, c, d] = *self.0.first_chunk()?;
        let (len, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let payload = self.0.get(ATTRIBUTE..len)?;
        self.0 = self.0.get(len.next_multiple_of(ATTRIBUTE)..).unwrap_or_default();
        Some((kind, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
        let len = (ATTRIBUTE + payload.len()) as u16;
        let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(ATTRIBUTE), 0xa5);
        bytes
    }

    fn answer(attributes: &[Vec<u8>]) -> Vec<u8> {
        [vec![0xa5; HEADER + INFO], attributes.concat()].concat()
    }

    #[test]
    fn a_master_takes_the_frames_unless_it_only_routes() {
        let name = attribute(libc::IFLA_IFNAME, b"eth0\0");
        let master = attribute(libc::IFLA_MASTER, &7_i32.to_ne_bytes());
        let kind = |kind| attribute(libc::IFLA_INFO_SLAVE_KIND, kind);
        let info =
            |of| attribute(libc::IFLA_LINKINFO, &[attribute(99, b"other"), kind(of)].concat());
        let master_of = |attributes: &[Vec<u8>]| parse(&answer(attributes)).master;
        assert_eq!(master_of(&[name.clone(), info(b"")]), None);
        assert_eq!(master_of(&[name.clone(), master.clone()]), Some(7));
        assert_eq!(master_of(&[name.clone(), info(b"bridge\0"), master.clone()]), Some(7));
        assert_eq!(master_of(&[name, info(VRF), master]), None);
    }

    #[test]
    fn a_vlan_has_a_number() {
        let id = attribute(IFLA_VLAN_ID, &10_u16.to_ne_bytes());
        let data = attribute(libc::IFLA_INFO_DATA, &id);
        let info = |kind| [attribute(libc::IFLA_INFO_KIND, kind), data.clone()].concat();
        let of = |kind| parse(&answer(&[attribute(libc::IFLA_LINKINFO, &info(kind))])).vlan;
        assert_eq!(of(VLAN), Some(10));
        assert_eq!(of(b"vxlan\0"), None, "which has a number of the same type");
    }

    #[test]
    fn an_answer_may_be_cut_anywhere() {
        let master = attribute(libc::IFLA_MASTER, &7_i32.to_ne_bytes());
        let whole = answer(&[attribute(libc::IFLA_IFNAME, b"eth0\0"), master]);
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), Relations::default(), "{len} bytes");
        }
        let endless = answer(&[vec![0; 64]]);
        assert_eq!(parse(&endless), Relations::default());
    }

    #[test]
    fn the_loopback_interface_stands_alone_and_none_is_no_interface() {
        assert_eq!(relations(1).unwrap(), Relations::default());
        assert_eq!(relations(i32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
