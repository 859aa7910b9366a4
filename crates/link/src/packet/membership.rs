//! Whether an interface belongs to a bridge, a bond or the like, as rtnetlink tells.
//!
//! What arrives on a member goes to whom it belongs to, before a packet socket that is bound to one
//! EtherType sees it. sysfs tells the same, but of the network namespace that it was mounted in,
//! which need not be ours.

use std::io;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// Bytes of `nlmsghdr`, and of `ifinfomsg`, which follows it in questions and answers.
const HEADER: usize = 16;
const INFO: usize = 16;
/// Bytes of an attribute's length and type, and what attributes are aligned to.
const ATTRIBUTE: usize = 4;
/// What the kernel says of one interface is a fraction of this.
const ANSWER_MAX: usize = 32 << 10;
/// An interface of this kind routes what its members receive, which stays theirs.
const VRF: &[u8] = b"vrf\0";

/// Whether what arrives on the interface of that number goes to another one, which it is part of.
///
/// # Errors
/// As `socket(2)`, `send(2)` and `recv(2)` say; `NotFound` if there is no such interface.
pub fn is_member(index: i32) -> io::Result<bool> {
    // No protocol stands for that of routes and interfaces.
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    send(&socket, &question(index), SendFlags::empty())?;
    let mut answer = vec![0; ANSWER_MAX];
    // The kernel has answered before the call to send returned.
    let (_, len) = recv(&socket, &mut answer, RecvFlags::DONTWAIT)?;
    let answer = answer.get(..len).unwrap_or_default();
    match answer.get(4..6) {
        Some(kind) if kind == libc::RTM_NEWLINK.to_ne_bytes() => Ok(says_member(answer)),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Asks for one interface.
fn question(index: i32) -> [u8; HEADER + INFO] {
    const LEN: usize = HEADER + INFO;
    let mut message = [0; LEN];
    message[..4].copy_from_slice(&(LEN as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message[HEADER + 4..HEADER + 8].copy_from_slice(&index.to_ne_bytes());
    message
}

/// Whether an answer tells of an interface that belongs to another.
fn says_member(answer: &[u8]) -> bool {
    let attributes = || Attributes(answer.get(HEADER + INFO..).unwrap_or_default());
    let has_master = attributes().any(|(kind, _)| kind == libc::IFLA_MASTER);
    let infos = attributes().filter(|(kind, _)| *kind == libc::IFLA_LINKINFO);
    let mut details = infos.flat_map(|(_, nested)| Attributes(nested));
    let in_vrf = details.any(|it| it == (libc::IFLA_INFO_SLAVE_KIND, VRF));
    has_master && !in_vrf
}

/// Attributes of a message, with their types; ends at the first that makes no sense.
struct Attributes<'a>(&'a [u8]);

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
    fn a_master_makes_a_member_unless_it_only_routes() {
        let name = attribute(libc::IFLA_IFNAME, b"eth0\0");
        let master = attribute(libc::IFLA_MASTER, &7_i32.to_ne_bytes());
        let kind = |kind| attribute(libc::IFLA_INFO_SLAVE_KIND, kind);
        let info = |of| attribute(libc::IFLA_LINKINFO, &[kind(b"other\0"), kind(of)].concat());
        assert!(!says_member(&answer(&[name.clone(), info(b"")])));
        assert!(says_member(&answer(&[name.clone(), master.clone()])));
        assert!(says_member(&answer(&[name.clone(), info(b"bridge\0"), master.clone()])));
        assert!(!says_member(&answer(&[name, info(VRF), master])));
    }

    #[test]
    fn an_answer_may_be_cut_anywhere() {
        let master = attribute(libc::IFLA_MASTER, &7_i32.to_ne_bytes());
        let whole = answer(&[attribute(libc::IFLA_IFNAME, b"eth0\0"), master]);
        for len in 0..whole.len() {
            assert!(!says_member(&whole[..len]), "{len} bytes");
        }
        let endless = answer(&[vec![0; 64]]);
        assert!(!says_member(&endless));
    }

    #[test]
    fn the_loopback_interface_is_nobodys_member_and_none_is_no_interface() {
        assert!(!is_member(1).unwrap());
        assert_eq!(is_member(i32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
