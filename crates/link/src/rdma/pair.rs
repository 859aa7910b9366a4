//! Queue pairs: the interface between a connection and a network card.

use std::io;

use super::region::Region;
use super::window::PeerWindow;

/// A write into the peer's window, of the bytes that lie at the same place of the staging memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The first byte, in the window and in the staging memory.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// Interrupts the peer with this number, after all writes so far have arrived.
    pub immediate: Option<u32>,
    /// Its number, from 1 on. If it `notifies`, [`QueuePair::notified`] returns it later.
    pub number: u64,
    /// Whether its end is notified.
    pub notifies: bool,
}

/// A queue pair of a network card that writes into the peer's memory, with the two memories that
/// are registered for it.
///
/// No call waits.
pub trait QueuePair: Send {
    /// The memory that the peer writes to.
    fn window(&self) -> &Region;

    /// The memory that writes are made from. What a write has there must not change until its end
    /// is notified.
    fn staging(&self) -> &Region;

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
