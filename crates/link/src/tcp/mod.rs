//! The same frames in a TCP stream, for networks that carry only TCP.
//!
//! A frame is sent as its length, 4 bytes little-endian, and its bytes (docs/protocol-annexes.md,
//! "Frames over TCP"). A [`TcpServer`] is a target's end and accepts connections, a [`TcpClient`]
//! is a host's end and maintains one.
//!
//! ```text
//!  stream   [length 4][head 64][payload ...][length 4][head 64][payload ...]
//!
//!  receive  socket --recv--> input buffer --copy--> batch
//!  send     batch --sendmsg--> socket
//!                 `-- what the socket does not take --> output buffer --sendmsg--> socket
//! ```
//!
//! # Addresses
//! There is no Ethernet underneath, so each connection has a locally administered address that only
//! its own end knows. It replaces the source in every received frame: no peer can impersonate
//! another. Frames go to the connection whose address is the destination, and broadcasts to all.
//! Frames to an unknown address are lost. No address is used twice, so a late answer never reaches
//! the wrong peer.
//!
//! # Bounds
//! Each connection has an input buffer of [`INPUT_BYTES`], and an output buffer of [`OUTPUT_BYTES`]
//! from the first time that its peer reads too slowly. Frames that do not fit are lost, as at a
//! switch whose port is too slow; other connections are not affected.
//! [`receive_capacity`](crate::Link::receive_capacity) is that of the peer's output buffer: TCP
//! itself loses nothing, so a window of frames must fit there.
//!
//! A peer that takes nothing for [`STALL_MAX`] loses its connection, whatever the cause.
//!
//! A connection on which a server sends frames of a channel keeps its place. Any other keeps it
//! only until it is needed: one address has [`UNSERVED_PER_ADDRESS_MAX`] of these, and at the
//! limit of all connections the address with most of them loses its oldest. So nobody who connects
//! and says nothing of use keeps others out.

mod client;
mod connection;
mod input;
mod output;
mod readiness;
mod server;
mod socket;

use std::io;
use std::time::Duration;

pub use client::TcpClient;
pub use server::TcpServer;

use tyche_counters::counters;

use crate::ip::{End, Transport};
use crate::{HEAD, Mac, TxBatch};

/// TCP among the transports.
pub(crate) static TRANSPORT: Transport = Transport {
    name: "tcp",
    number: 1,
    is_routed: false,
    has_threads: false,
    no_host: "there is no host",
    open: |_, addresses, end| match (end, TcpOptions::default()) {
        (End::Host, options) => Ok(TcpClient::connect(addresses, &options)?.into()),
        (_, options) => Ok(TcpServer::listen(addresses, &options)?.into()),
    },
};

/// The address of a target's end, as its hosts see it.
const SERVER: Mac = [0x02, 0, 0, 0, 0, 1];
/// The address of a host's end, seen only by itself.
const CLIENT: Mac = [0x02, 0, 0, 0, 0, 2];
/// The lower bits of the first byte of the addresses of a server's connections. The upper ones, and
/// the third byte, are a number for the peer.
const CONNECTION: u8 = 0x06;

/// The longest frame: an Ethernet header and the largest 16-bit MTU, so that one carries 15 pages.
/// A stream has no limit, and larger frames mean fewer of them.
pub const FRAME_LEN_MAX: usize = 14 + 65535;

/// Bytes of a frame's length.
const PREFIX: usize = 4;

/// The most bytes that a connection reads in one system call. Less means more calls; more does not
/// stay in the cache until it is copied.
pub const INPUT_BYTES: usize = 4 * (PREFIX + FRAME_LEN_MAX);

/// The bytes that a connection buffers for a peer that reads too slowly: 256 of the longest frames,
/// twice the window that an engine derives from it.
pub const OUTPUT_BYTES: usize = 256 * (PREFIX + FRAME_LEN_MAX);

/// The longest time that a peer may leave output unacknowledged, or be unable to take it.
pub const STALL_MAX: Duration = Duration::from_secs(5);

/// The connections of one address that carry no channel. A host opens one for each queue and
/// waits for a few frames on each, so more are somebody's who wants to be in the way.
pub const UNSERVED_PER_ADDRESS_MAX: usize = 32;

/// The part of the address of a server's peer that its owner cannot choose: all connections from
/// one address of IPv4, or from one /64 of IPv6, have the same.
fn origin(mac: Mac) -> Mac {
    [mac[0], 0, mac[2], 0, 0, 0]
}

/// Options of a link's sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// Socket buffers each way, in bytes. Takes effect only with the capability `CAP_NET_ADMIN`:
    /// without it, the kernel's own sizing reaches further than a process may ask for.
    pub socket_buffer: usize,
    /// The most connections of a server, 1 to 255.
    pub connections_max: usize,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self { socket_buffer: 4 << 20, connections_max: 128 }
    }
}

counters! {
    /// Error counters of a link's connections since it opened.
    pub struct TcpStats as "tcp_" {
        /// Connections ended because of an invalid frame length.
        malformed: Counter in Connections,
        /// Connections refused at the limit.
        refused: Counter in Connections,
        /// Attempts to accept connections that failed: the process has no descriptor or no memory
        /// left.
        unaccepted: Counter in Events,
        /// Connections without a channel that were displaced by a new one.
        displaced: Counter in Connections,
        /// Frames without room in their connection, or without a destination.
        lost: Counter in Frames,
    }
}

/// The number of frames of `frame_len` bytes that an output buffer holds.
fn capacity(frame_len: usize) -> usize {
    OUTPUT_BYTES / (PREFIX + frame_len)
}

/// The number of the batch's frames before the first that is too long.
///
/// # Errors
/// `EMSGSIZE` if the very first is too long.
fn sendable(batch: &TxBatch<'_>) -> io::Result<usize> {
    match batch.frames().position(|frame| frame.len() > FRAME_LEN_MAX) {
        Some(0) => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
        Some(count) => Ok(count),
        None => Ok(batch.len()),
    }
}

/// Whether a frame can have this length.
fn is_possible(frame_len: usize) -> bool {
    (HEAD..=FRAME_LEN_MAX).contains(&frame_len)
}
