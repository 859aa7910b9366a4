//! Queue pairs: the interface between a connection and a network card.

use std::io;
use std::os::fd::OwnedFd;

use tyche_block::Arena;

use super::region::Region;
use super::window::{PeerRegion, PeerWindow};

/// A write into memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The region of the peer that it is for. The bytes come from the memory for data then;
    /// otherwise it is for the window, and from the staging memory.
    pub region: Option<PeerRegion>,
    /// The first byte, in the region or in the window.
    pub at: usize,
    /// The first byte in the memory that it is made from. For the window these are the same.
    pub from: usize,
    /// Bytes.
    pub len: usize,
    /// Interrupts the peer with this number, after all writes so far have arrived.
    pub immediate: Option<u32>,
    /// Its number, from 1 on. If it `notifies`, [`QueuePair::notified`] returns it later.
    pub number: u64,
    /// Whether its end is notified.
    pub notifies: bool,
}

/// A queue pair of a network card that writes into the peer's memory, with the memories that are
/// registered for it.
///
/// No call waits.
pub trait QueuePair: Send {
    /// The permission of the peer to write into memory of ours. It ends with that.
    type Registration: Send;

    /// The memory that the peer writes to.
    fn window(&self) -> &Region;

    /// The memory that writes are made from. What a write has there must not change until its end
    /// is notified.
    fn staging(&self) -> &Region;

    /// Makes the memory that data are written from, [`DATA_LEN`](super::placed::DATA_LEN) bytes,
    /// unless there is one.
    ///
    /// # Errors
    /// If there is no memory, or it can't be registered.
    fn stage_data(&mut self) -> io::Result<()>;

    /// The memory that data are written from. As for the staging memory, what a write has there
    /// must not change until its end is notified.
    ///
    /// # Panics
    /// If there is none.
    fn data(&self) -> &Region;

    /// Has the peer's card write into memory of ours, which is that of a file if it says so, once
    /// the peer is told the key and the address that this returns.
    ///
    /// # Errors
    /// If it can't be registered, or the connection has ended.
    fn register(
        &mut self,
        memory: &Arena,
        file: Option<&OwnedFd>,
    ) -> io::Result<(Self::Registration, u32, u64)>;

    /// The window of the peer; `None` until the connection is complete.
    fn peer(&self) -> Option<PeerWindow>;

    /// Begins a write. They take effect in order.
    ///
    /// # Errors
    /// If the connection has ended.
    fn post(&mut self, write: &Write) -> io::Result<()>;

    /// The number of the last write whose end was notified. That and all before have ended.
    ///
    /// # Errors
    /// If the connection has ended.
    fn notified(&mut self) -> io::Result<u64>;

    /// The next number that the peer has interrupted with, in order. All that it wrote before is in
    /// the window.
    ///
    /// # Errors
    /// If the connection has ended.
    fn arrived(&mut self) -> io::Result<Option<u32>>;

    /// Asks for one interrupt, at the next number to arrive: the descriptor is readable then. True
    /// if one has arrived already, and was not seen: the interrupt may never come.
    fn arm(&self) -> bool;

    /// Interrupts so far.
    fn interrupts(&self) -> u64;

    /// Takes note of what its descriptors signal.
    ///
    /// # Errors
    /// If the connection has ended.
    fn serve(&mut self) -> io::Result<()>;
}
