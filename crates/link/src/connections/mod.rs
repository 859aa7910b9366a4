//! Links whose frames travel in connections: the ends that all transports with connections share.
//!
//! A [`Server`] is a target's end and accepts connections, a [`Client`] is a host's end and
//! maintains one. How frames get into a connection and out of it is up to its [`Carrier`].
//!
//! # Addresses
//! There is no Ethernet underneath, so each connection has a locally administered address that only
//! its own end knows. It replaces the source in every received frame: no peer can impersonate
//! another. Frames go to the connection whose address is the destination, and broadcasts to all.
//! Frames to an unknown address are lost. No address is used twice, so a late answer never reaches
//! the wrong peer.
//!
//! # Bounds
//! Frames without room in their connection are lost, as at a switch whose port is too slow; other
//! connections are not affected.
//!
//! A target's end may be divided among threads (`division.rs`): then each has these bounds.
//!
//! A connection on which a server sends frames of a channel keeps its place. Any other keeps it
//! only until it is needed: one address has [`UNSERVED_PER_ADDRESS_MAX`] of these, and at the
//! limit of all connections the address with most of them loses its oldest. So nobody who connects
//! and says nothing of use keeps others out.

mod client;
mod division;
mod readiness;
mod server;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use tyche_counters::{CounterGroup, counters};

pub use client::Client;
pub use readiness::Readiness;
pub use server::Server;

use crate::ip::Transport;
use crate::{Mac, Placement, RxBatch, TxBatch, TxFrame};

/// The address of a target's end, as its hosts see it.
const SERVER: Mac = [0x02, 0, 0, 0, 0, 1];
/// The address of a host's end, seen only by itself.
const CLIENT: Mac = [0x02, 0, 0, 0, 0, 2];
/// The lower bits of the first byte of the addresses of a server's connections. The upper ones, and
/// the third byte, are a number for the peer.
const CONNECTION: u8 = 0x06;

/// The connections of one address that carry no channel, for each thread. A host opens one for each
/// queue and waits for a few frames on each, so more are somebody's who wants to be in the way.
pub const UNSERVED_PER_ADDRESS_MAX: usize = 32;

/// The part of the address of a server's peer that its owner cannot choose: all connections from
/// one address of IPv4, or from one /64 of IPv6, have the same.
fn origin(mac: Mac) -> Mac {
    [mac[0], 0, mac[2], 0, 0, 0]
}

counters! {
    /// Error counters of a link's connections since it opened.
    pub struct ConnectionStats as "connections_" {
        /// Connections ended because of bytes that no peer sends who speaks the protocol.
        malformed: Counter in Connections,
        /// Connections refused at the limit.
        refused: Counter in Connections,
        /// Attempts to accept connections that failed: the process has no descriptor or no memory
        /// left, or the peer went away or does not speak the protocol.
        unaccepted: Counter in Events,
        /// Connections without a channel that were displaced by a new one.
        displaced: Counter in Connections,
        /// Frames without room in their connection, or without a destination.
        lost: Counter in Frames,
    }
}

counters! {
    /// The counters of a carrier that has none beside [`ConnectionStats`].
    pub struct NoCounts {}
}

/// Options of links over connections.
pub trait ConnectionOptions: Clone + Send {
    /// The most connections of a server, 1 to 255.
    fn connections_max(&self) -> usize;

    /// The longest frame in bytes.
    fn frame_len_max(&self) -> usize;

    /// The number of frames of `frame_len` bytes that a connection has room for.
    fn capacity(&self, frame_len: usize) -> usize;
}

/// A transport with connections. No call waits, unless it says so.
pub trait Carrier: 'static {
    /// Options of its links.
    type Options: ConnectionOptions;
    /// A place where connections are accepted. Readable while one waits.
    type Listener: AsFd + Send;
    /// An attempt to connect.
    type Attempt: Send;
    /// A connection that carries no frames yet: the result of an attempt, or of `accept`.
    type Opened: Send;
    /// A connection.
    type Connection: Connection;
    /// What the connections of a link share.
    type Shared: Send;

    /// Its row of the table.
    const TRANSPORT: &'static Transport;

    /// Listens at an address; port 0 means any. Returns the address with its port.
    ///
    /// # Errors
    /// The system's error.
    fn listen(
        address: &SocketAddr,
        options: &Self::Options,
    ) -> io::Result<(Self::Listener, SocketAddr)>;

    /// The next connection that somebody wants, with the peer's address; `None` if there is none.
    /// To drop it refuses it.
    ///
    /// # Errors
    /// The system's error: it may succeed later.
    fn accept(listener: &Self::Listener) -> io::Result<Option<(Self::Opened, Option<IpAddr>)>>;

    /// Begins to connect.
    ///
    /// # Errors
    /// The system's error.
    fn connect(address: &SocketAddr, options: &Self::Options) -> io::Result<Self::Attempt>;

    /// Advances an attempt to connect, and waits up to `timeout` for its result; it continues if
    /// there is none yet.
    ///
    /// # Errors
    /// The reason why it failed.
    fn advance(
        attempt: Self::Attempt,
        timeout: Duration,
    ) -> io::Result<ControlFlow<Self::Opened, Self::Attempt>>;

    /// Makes what the connections of a link share.
    fn share() -> Self::Shared;

    /// As [`Link::placement`](crate::Link::placement).
    fn placement(shared: &Self::Shared) -> Option<Arc<dyn Placement>> {
        let _ = shared;
        None
    }

    /// Makes it a connection whose peer has that address, watched by `readiness` under that key.
    ///
    /// # Errors
    /// If there is no memory or no descriptor for it.
    fn open(
        opened: Self::Opened,
        link: (&Self::Options, &Self::Shared),
        mac: Mac,
        readiness: (&Readiness, u64),
    ) -> io::Result<Self::Connection>;
}

/// One connection, of either end.
pub trait Connection: Send {
    /// Counters beside those that all connections have.
    type Counts: CounterGroup + Send;

    /// Its counters since it opened.
    fn counts(&self) -> Self::Counts {
        Self::Counts::default()
    }

    /// The source address given to the peer's frames.
    fn mac(&self) -> Mac;

    /// Serves its descriptor, which may be ready, and sends what waits for that.
    ///
    /// # Errors
    /// If the connection has ended.
    fn ready(&mut self) -> io::Result<()>;

    /// Updates what its descriptor is watched for.
    ///
    /// # Errors
    /// The system's error.
    fn watch(&mut self, readiness: &Readiness, key: u64) -> io::Result<()>;

    /// Whether there are frames that its descriptor does not signal.
    fn has_backlog(&self) -> bool;

    /// Announces that its user is about to sleep. False if there is work that came before: then it
    /// may not.
    fn may_sleep(&self) -> bool {
        true
    }

    /// Adds received frames to the batch, up to its room, but no more than its share of a round:
    /// other connections get their turn.
    ///
    /// # Errors
    /// If the connection has ended; the frames before that are in the batch.
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Broken>;

    /// Sends frames in order, or holds them until the peer has room. Returns how many were taken.
    ///
    /// # Errors
    /// If the connection has ended.
    fn send<'a>(&mut self, frames: impl Iterator<Item = TxFrame<'a>>) -> io::Result<usize>;
}

/// The counters of a carrier's connections.
type Counts<C> = <<C as Carrier>::Connection as Connection>::Counts;

/// Reasons for the end of a connection.
#[derive(Debug)]
pub enum Broken {
    /// The peer sent what no peer sends.
    Malformed,
    /// The network or the peer ended it.
    Gone(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

/// The number of the batch's frames before the first that is longer than `frame_len_max`.
///
/// # Errors
/// `EMSGSIZE` if the very first is too long.
fn sendable(batch: &TxBatch<'_>, frame_len_max: usize) -> io::Result<usize> {
    match batch.frames().position(|frame| frame.len() > frame_len_max) {
        Some(0) => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
        Some(count) => Ok(count),
        None => Ok(batch.len()),
    }
}
