//! The same frames in UDP datagrams, for networks with routers, and for those who have no
//! privilege.
//!
//! Each frame is a datagram (PROTOCOL.md, *Frames over UDP*). Kernel and network cards cut and join
//! datagrams of one length, so frames travel through the stack as *trains*: one call sends many
//! frames (`UDP_SEGMENT`), and one call receives many (`UDP_GRO`). A [`UdpServer`] is a target's
//! end and has many peers, a [`UdpClient`] is a host's end and has one.
//!
//! ```text
//!  batch  --divide--> trains --sendmmsg--> [ kernel, card ] --recvmsg--> trains --> batch
//!          frames of    data where                           frames where they lie
//!          one length   they lie
//! ```
//!
//! # Addresses
//! Of the Ethernet header only the room is kept, for the frame's length; what follows the frame in
//! its datagram is padding. The receiver fills in the addresses by the datagram's sender, so no
//! peer can pass for another: a host's end has one peer, a target's end a table (`peers.rs`).
//!
//! A host that knows no address asks everybody on its segments (`segment.rs`); a target has
//! another end for such questions, its [beacon](UdpServer::beacon).
//!
//! # Bounds
//! A call receives a quarter of a megabyte at most. A target's end remembers [`PEERS_MAX`] peers
//! with addresses of IPv6 to which it sends frames of channels, and the last ones of others. It
//! remembers nothing for peers of IPv4.
//!
//! # Errors
//! Routers and other machines report that a datagram was not delivered (ICMP). Such a report counts
//! only while nothing else is heard of the peer: anybody may forge one. How long frames may be is
//! found by the protocol's probes. They are never fragmented.

mod client;
pub mod datagram;
mod incoming;
mod outgoing;
mod peers;
pub mod segment;
mod server;
mod socket;
pub mod train;

pub use client::UdpClient;
pub use server::UdpServer;

use std::net::SocketAddr;

use tyche_counters::{CounterGroup, Metric, Reading};

use crate::ip::{End, OpenError, OpenedLink, Transport};
use crate::{HEAD, Link, Mac};

/// UDP among the transports.
pub(crate) static TRANSPORT: Transport = Transport {
    name: "udp",
    number: 2,
    is_routed: true,
    checks_data: false,
    has_threads: true,
    no_host: "there is no host; `tyche discover --link udp:` finds some",
    open: |place, addresses, end| {
        let options = UdpOptions::default();
        match end {
            End::Host => Ok(UdpClient::connect(place, addresses, &options)?.into()),
            End::Target { is_found, .. } => listen(addresses, &options, is_found, end.further()),
        }
    },
};

/// A target's end with so many further threads, and with its beacon if it is to be found.
fn listen(
    addresses: &[SocketAddr],
    options: &UdpOptions,
    is_found: bool,
    further: u8,
) -> Result<OpenedLink, OpenError> {
    let link = UdpServer::listen(addresses, options)?;
    let beside = |_| Ok(Box::new(link.beside(options)?) as Box<dyn Link>);
    let further = (0..further).map(beside).collect::<Result<_, OpenError>>()?;
    let beacon = if is_found { link.beacon() } else { Ok(None) };
    let beacon = beacon.map(|it| it.map(|it| Box::new(it) as Box<dyn Link>)).map_err(|error| {
        format!(
            "{}: UDP port {}: {error}: hosts do not find it without its address",
            link.name(),
            segment::SEARCH_PORT
        )
    });
    Ok(OpenedLink { link: Box::new(link), further, beacon })
}

/// The address of a link's own end, whichever it is.
const OWN: Mac = [0x02, 0, 0, 0, 0, 1];
/// The destination of a question to everybody.
const EVERYBODY: Mac = [0xff; 6];
/// The address of a host's only peer.
const PEER: Mac = [0x02, 0, 0, 0, 0, 2];

/// The longest datagram, in bytes of payload, and so the longest frame: that of IPv4.
pub const FRAME_LEN_MAX: usize = 65507;
/// The longest train, in bytes of payload: with all headers less than 64 KiB, the longest that an
/// interface takes as one (`gso_max_size`). The kernel would cut a longer one itself.
pub const TRAIN_MAX: usize = (64 << 10) - 128;
/// Room for a received train.
const DATAGRAM_MAX: usize = 64 << 10;

/// The most peers with addresses of IPv6 and channels that a target's end remembers.
pub const PEERS_MAX: usize = 1024;

/// The least number of other peers that were heard last and are remembered: more than one call
/// receives frames, so that each can be answered.
pub const STRANGERS_MIN: usize = 2048;

/// Options of a link's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// Socket buffers each way, in bytes. Without the capability `CAP_NET_ADMIN` the system's
    /// limits apply (`net.core.rmem_max`, `net.core.wmem_max`).
    pub socket_buffer: usize,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self { socket_buffer: 16 << 20 }
    }
}

/// The number of frames of `frame_len` bytes that a socket's receive buffer holds. The kernel
/// counts its own overhead, and reports twice the size that was asked for.
fn capacity(receive_buffer: usize, frame_len: usize) -> usize {
    receive_buffer / (2 * frame_len.max(HEAD))
}

/// The tables of the counters that only links over UDP have.
pub(crate) fn counter_tables() -> [&'static [Metric]; 3] {
    [outgoing::Counters::METRICS, incoming::Counters::METRICS, server::Unknown::METRICS]
}

/// The counters of both directions.
fn all_counters(sent: &outgoing::Outgoing, received: &incoming::Incoming) -> Vec<Reading> {
    let sent = sent.counters();
    let counters = sent.iter().chain(received.counters.iter()).chain(received.malformed.iter());
    counters.collect()
}
