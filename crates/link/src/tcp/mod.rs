//! The same frames in a TCP stream, for networks that carry nothing else.
//!
//! A frame travels as its length, 4 bytes little-endian, and its bytes (PROTOCOL.md, *Frames over
//! TCP*). A [`TcpServer`] is a target's end and accepts connections, a [`TcpClient`] is a host's
//! end and keeps up one.
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
//! There is no Ethernet underneath, so each connection has a locally administered address that
//! only its own end knows. It takes the place of the source in every frame that comes in: nobody
//! can pass for somebody else. Frames go to the connection whose address is the destination, and
//! broadcasts to all. What goes to an address that is nobody's is lost. No address is given out
//! twice, so a late answer never reaches the wrong peer.
//!
//! # Bounds
//! Each connection has an input buffer of [`INPUT_BYTES`], and an output buffer of
//! [`OUTPUT_BYTES`] from the first time that its peer reads too slowly. What does not fit is lost,
//! as at a switch whose port is too slow; the other connections do not notice.
//! [`receive_capacity`](crate::Link::receive_capacity) speaks of the peer's output buffer: TCP
//! itself loses nothing on the way, so that is where a window of frames must find room.
//!
//! A peer that takes nothing for [`STALL_MAX`] loses its connection, whatever it is that stopped.

mod client;
mod connection;
mod error;
mod input;
mod output;
mod place;
mod readiness;
mod server;
mod socket;

use std::io;
use std::time::Duration;

pub use client::TcpClient;
pub use error::OpenError;
pub use place::{Misspelt, Place};
pub use server::TcpServer;

use crate::{HEAD, Mac, TxBatch};

/// The address of a target's end. A host knows its target by it.
const SERVER: Mac = [0x02, 0, 0, 0, 0, 1];
/// The address of a host's end, seen by nobody but itself.
const CLIENT: Mac = [0x02, 0, 0, 0, 0, 2];
/// What the addresses of a server's connections begin with.
const CONNECTION: u8 = 0x06;

/// The longest frame: an Ethernet header and all that an MTU of 16 bits can say, so that 15 pages
/// travel in one. A stream does not care, and the larger the frames the fewer there are.
pub const FRAME_LEN_MAX: usize = 14 + 65535;

/// Bytes of a frame's length.
const PREFIX: usize = 4;

/// What a connection reads at most in one system call. Less means more calls; more does not stay
/// in the cache until it is copied.
pub const INPUT_BYTES: usize = 4 * (PREFIX + FRAME_LEN_MAX);

/// What a connection buffers for a peer that reads too slowly: 256 of the longest frames, twice
/// the window that an engine makes of it.
pub const OUTPUT_BYTES: usize = 256 * (PREFIX + FRAME_LEN_MAX);

/// How long a peer may leave unacknowledged, or be unable to take, what was sent.
pub const STALL_MAX: Duration = Duration::from_secs(5);

/// A connection that was silent for so long may be displaced when there is no other place for a
/// new one. A session that is alive says something every few seconds.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How a link treats its sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// Socket buffers each way, in bytes. Takes effect with the capability `CAP_NET_ADMIN` only:
    /// without, the kernel's own sizing reaches further than what a process may ask for.
    pub socket_buffer: usize,
    /// The most connections of a server, 1 to 255.
    pub connections_max: usize,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self { socket_buffer: 4 << 20, connections_max: 128 }
    }
}

/// What went wrong on a link's connections since it opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpStats {
    /// Connections ended because a length was impossible.
    pub malformed: u64,
    /// Connections that were turned away since there were too many.
    pub refused: u64,
    /// Connections ended in favour of a new one, since they had been silent for long.
    pub displaced: u64,
    /// Frames that a connection had no room for, or that were for nobody.
    pub lost: u64,
}

impl TcpStats {
    /// By name.
    fn counters(self) -> Vec<(&'static str, u64)> {
        let Self { malformed, refused, displaced, lost } = self;
        vec![
            ("tcp_malformed", malformed),
            ("tcp_refused", refused),
            ("tcp_displaced", displaced),
            ("tcp_lost", lost),
        ]
    }
}

/// How many frames of `frame_len` bytes an output buffer holds.
fn capacity(frame_len: usize) -> usize {
    OUTPUT_BYTES / (PREFIX + frame_len)
}

/// How many of the batch's frames can be sent before the first that is too long.
///
/// # Errors
/// `EMSGSIZE` if that is the very first.
fn sendable(batch: &TxBatch<'_>) -> io::Result<usize> {
    match batch.frames().position(|frame| frame.len() > FRAME_LEN_MAX) {
        Some(0) => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
        Some(count) => Ok(count),
        None => Ok(batch.len()),
    }
}

/// Whether a frame can be so long.
fn is_possible(frame_len: usize) -> bool {
    (HEAD..=FRAME_LEN_MAX).contains(&frame_len)
}
