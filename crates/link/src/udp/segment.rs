//! Questions to all machines of a segment, for hosts that do not know the address of a target.
//!
//! A host sends them by broadcast over IPv4, and to the group of all nodes over IPv6, to a
//! [port](SEARCH_PORT) of their own. A target that listens there answers from the address and the
//! port at which it serves: so the host learns both.
//!
//! ```text
//!  host                                       target
//!  any port ---- Discover to everybody ---->  port 8651
//!           <--- Offer ---------------------  10.8.0.1, port 8650
//! ```
//!
//! The port is another one than that of the links, so that a target's socket there gets in the way
//! of no target that listens at all addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, sockopt};

use super::datagram::{self, ETHERNET};
use super::socket;
use crate::HEAD;
use crate::ip::{LocalAddress, addresses};

/// The port of questions to everybody.
pub const SEARCH_PORT: u16 = 8651;
/// All machines of a segment, over IPv6: every one is a member.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The most addresses that a search finds.
const FOUND_MAX: usize = 64;
/// Times that a question is sent: datagrams get lost.
const ASKS: u32 = 3;
/// Bytes of the socket's buffers at a target: questions are short, and few at a time are answered.
const BUFFER: usize = 256 << 10;

/// A socket for the questions to everybody that concern a target which listens at `address`: those
/// that come by the interface with that address. `None` if it has no segment.
///
/// # Errors
/// Those of the system calls.
pub(super) fn listen(address: &SocketAddr) -> io::Result<Option<OwnedFd>> {
    let is_wildcard = address.ip().is_unspecified();
    let interface = if is_wildcard { None } else { interface_of(address)? };
    if !is_wildcard && interface.is_none() {
        return Ok(None);
    }
    let everywhere: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = socket::new(address, BUFFER)?;
    // Each of several targets on a machine gets the questions.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, !is_wildcard)?;
    }
    if let Some(interface) = interface {
        socket::bind_to_interface(&socket, &interface)?;
    }
    net::bind(&socket, &SocketAddr::new(everywhere, SEARCH_PORT))?;
    Ok(Some(socket))
}

/// The interface with a segment that has the address, if any. A VLAN may have the same address of
/// IPv6 as its parent, with another scope.
fn interface_of(address: &SocketAddr) -> io::Result<Option<String>> {
    let mut own = *address;
    own.set_port(0);
    let mut found = addresses()?.into_iter().filter(LocalAddress::has_segment);
    Ok(found.find(|it| it.address == own).map(|it| it.interface))
}

/// The result of a [`search`].
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The addresses that answered, those of IPv4 first.
    pub found: Vec<SocketAddr>,
    /// The interfaces on which a question was sent.
    pub asked: Vec<String>,
    /// Errors of the questions that were not sent, with their remedies.
    pub faults: Vec<String>,
}

/// Sends the frame to all machines of the segments of this machine, a few times within `time`, and
/// returns who answers. `is_answer`: whether a frame is an answer.
///
/// # Errors
/// The kernel does not list its interfaces.
pub fn search(
    frame: &[u8],
    time: Duration,
    is_answer: impl Fn(&[u8]) -> bool,
) -> io::Result<Search> {
    let mut search = Search::default();
    let mut sockets = Vec::new();
    let usable = |local: &LocalAddress| local.is_up() && local.has_segment();
    for local in addresses()?.into_iter().filter(usable) {
        // An interface that has just lost its address is left out.
        let Some(socket) = SearchSocket::on(&local) else { continue };
        sockets.push(socket);
    }
    let question = [&datagram::header(frame.len())[..], &frame[ETHERNET..]].concat();
    let (begun, mut asked) = (Instant::now(), 0);
    loop {
        let passed = begun.elapsed();
        if passed >= time || sockets.is_empty() {
            search.found.sort_by_key(|address| (address.is_ipv6(), *address));
            return Ok(search);
        }
        if asked < ASKS && passed >= time / ASKS * asked {
            asked += 1;
            sockets.iter().for_each(|socket| socket.ask(&question, &mut search));
        }
        let next = if asked < ASKS { time / ASKS * asked } else { time };
        wait(&sockets, next.saturating_sub(begun.elapsed()));
        sockets.iter().for_each(|socket| socket.listen(&is_answer, &mut search.found));
    }
}

/// Waits until a socket has something, for that time at most.
fn wait(sockets: &[SearchSocket], time: Duration) {
    let mut fds: Vec<_> = sockets
        .iter()
        .map(|it| PollFd::from_borrowed_fd(it.socket.as_fd(), PollFlags::IN))
        .collect();
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    // On an error, as of a signal, the caller looks at the time and at all sockets.
    let _ = poll(&mut fds, Some(&time));
}

/// A socket that asks on one interface, over IPv4 or IPv6.
struct SearchSocket {
    socket: UdpSocket,
    interface: String,
    /// The address of all machines on that segment.
    to: SocketAddr,
}

impl SearchSocket {
    fn on(local: &LocalAddress) -> Option<Self> {
        let to = match local.address {
            // The source address chooses the interface.
            SocketAddr::V4(_) => SocketAddr::new(Ipv4Addr::BROADCAST.into(), SEARCH_PORT),
            SocketAddr::V6(own) if own.ip().is_unicast_link_local() => {
                SocketAddrV6::new(ALL_NODES, SEARCH_PORT, 0, own.scope_id()).into()
            }
            SocketAddr::V6(_) => return None,
        };
        let socket = UdpSocket::bind(local.address).ok()?;
        socket.set_nonblocking(true).ok()?;
        socket.set_broadcast(true).ok()?;
        Some(Self { socket, interface: local.interface.clone(), to })
    }

    fn ask(&self, question: &[u8], search: &mut Search) {
        let Self { interface, to, .. } = self;
        let error = match self.socket.send_to(question, to) {
            Err(error) => error,
            Ok(_) if search.asked.contains(interface) => return,
            Ok(_) => return search.asked.push(interface.clone()),
        };
        let fault = match error.raw_os_error() {
            Some(libc::EPERM) => format!(
                "the firewall of this machine refuses datagrams to {to} on {interface}: allow UDP \
                 port {SEARCH_PORT}"
            ),
            _ => format!("cannot ask {to} on {interface}: {error}"),
        };
        if !search.faults.contains(&fault) {
            search.faults.push(fault);
        }
    }

    fn listen(&self, is_answer: &impl Fn(&[u8]) -> bool, found: &mut Vec<SocketAddr>) {
        let mut datagram = [0; 2048];
        while let Ok((len, sender)) = self.socket.recv_from(&mut datagram) {
            let datagram = &datagram[..len];
            let Some(header) = datagram.first_chunk() else { continue };
            let Some(frame_len) = datagram::frame_len(header, len) else { continue };
            let is_new = !found.contains(&sender) && found.len() < FOUND_MAX;
            if frame_len >= HEAD && is_new && is_answer(&datagram[..frame_len]) {
                found.push(sender);
            }
        }
    }
}
