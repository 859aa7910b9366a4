//! Batches of frames in and out of a network.
//!
//! A [`Link`] is one local interface. It moves whole Ethernet frames, in batches both ways, so
//! that one system call carries many. It knows nothing of what the frames mean, except that the
//! first [`HEAD`] bytes (Ethernet and Tyche header) are kept apart from the payload, which starts
//! page-aligned: payload can be received where it belongs and sent from where it lies.
//!
//! | link | what it is |
//! |---|---|
//! | [`packet`] | an AF_PACKET socket on a network interface |
//! | [`tcp`] | the same frames in TCP streams |
//! | [`memory`] | two ends in one process |
//! | [`fault`] | a wrapper that loses, repeats, reorders, corrupts and delays |
//! | [`pcap`] | a wrapper that records to a file that Wireshark reads |
//! | [`handover`] | a wrapper that receives in a thread of its own, for comparison |

mod batch;
pub mod fault;
pub mod handover;
pub mod memory;
pub mod packet;
pub mod pcap;
pub mod tcp;

use std::io;
use std::os::fd::BorrowedFd;

use tyche_numa::Node;

pub use batch::{FRAMES_MAX, Refused, RxBatch, RxFrame, TAIL_MAX, TxBatch, TxFrame, TxVectors};

/// Bytes of Ethernet and Tyche header together; the payload starts after them.
pub const HEAD: usize = 64;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// One local interface that sends and receives frames of one EtherType.
///
/// No call waits. To wait, poll [`wait_fd`](Self::wait_fd) for readability.
pub trait Link: Send {
    /// Name for people and logs, e.g. the interface's.
    fn name(&self) -> &str;

    /// The interface's own address.
    fn mac(&self) -> Mac;

    /// The longest frame that the interface takes now, in bytes from the destination address to
    /// the end of the payload (14 + MTU).
    fn frame_len_max(&self) -> usize;

    /// How many frames of `frame_len` bytes can be on their way here, or wait in a batch that has
    /// not been cleared, before some are dropped.
    fn receive_capacity(&self, frame_len: usize) -> usize;

    /// Receives what is there, up to the batch's room; replaces the batch's content. Returns how
    /// many frames came, 0 when nothing is there. Frames may lie in memory of the link's until the
    /// batch is cleared: they take up its room (see [`receive_capacity`](Self::receive_capacity)),
    /// and it seems readable.
    ///
    /// # Errors
    /// `NetworkDown` when the interface is down and `NotFound` when it is gone; others as the
    /// system call says. The link stays usable: a later call succeeds if the interface came back.
    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize>;

    /// Sends the batch's frames in order from the first on. Returns how many the interface took:
    /// fewer than there are when its queue is full. The caller decides about the rest: try again
    /// or treat them as lost.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive); `InvalidInput` when a frame is longer than the interface
    /// takes, because its MTU was lowered.
    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize>;

    /// The receiving half, for another thread. From then on it alone receives and is waited for;
    /// the link sends, and tells of itself, as before.
    ///
    /// # Errors
    /// `Unsupported` where a link has no halves.
    ///
    /// # Panics
    /// If it has been taken before. So may, from then on, receiving and [`wait_fd`](Self::wait_fd).
    fn take_receiver(&mut self) -> io::Result<Box<dyn Receiver>> {
        let message = format!("link {} cannot receive in a thread of its own", self.name());
        Err(io::Error::new(io::ErrorKind::Unsupported, message))
    }

    /// Readable when frames are waiting. To be asked for before every sleep: a link may have to
    /// learn that somebody sleeps.
    fn wait_fd(&self) -> BorrowedFd<'_>;

    /// Frames that the kernel dropped because there was no room for more, since the link opened:
    /// none where it drops none.
    fn overruns(&mut self) -> u64 {
        0
    }

    /// Receives only frames that have these four bytes at `at`, or zeroes: where several links
    /// share an interface, the kernel spares each of them the frames of the others. It spares work,
    /// it does not check: a link may pay no heed.
    fn narrow(&mut self, at: usize, bytes: [u8; 4]) {
        let _ = (at, bytes);
    }

    /// Finds out how long frames lie in the kernel before they are received
    /// ([`RxBatch::waited`]), or no longer does: it costs a little for each. False if this kind of
    /// link can't.
    fn stamp_arrivals(&mut self, on: bool) -> bool {
        !on
    }

    /// What else went wrong on the link since it opened, by name: what its kind of link can tell.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// The NUMA nodes that the memory is on which it shares with the kernel, as that says; none if
    /// there is no such memory here.
    fn memory_nodes(&self) -> Vec<Node> {
        Vec::new()
    }
}

/// So that a wrapper takes a link of whatever kind.
impl<L: Link + ?Sized> Link for Box<L> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn mac(&self) -> Mac {
        (**self).mac()
    }

    fn frame_len_max(&self) -> usize {
        (**self).frame_len_max()
    }

    fn receive_capacity(&self, frame_len: usize) -> usize {
        (**self).receive_capacity(frame_len)
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        (**self).receive(batch)
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        (**self).send(batch)
    }

    fn take_receiver(&mut self) -> io::Result<Box<dyn Receiver>> {
        (**self).take_receiver()
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        (**self).wait_fd()
    }

    fn overruns(&mut self) -> u64 {
        (**self).overruns()
    }

    fn narrow(&mut self, at: usize, bytes: [u8; 4]) {
        (**self).narrow(at, bytes);
    }

    fn stamp_arrivals(&mut self, on: bool) -> bool {
        (**self).stamp_arrivals(on)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        (**self).counters()
    }
}

/// The half of a [`Link`] that receives.
pub trait Receiver: Send {
    /// As [`Link::receive`].
    ///
    /// # Errors
    /// As there.
    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize>;

    /// As [`Link::wait_fd`].
    fn wait_fd(&self) -> BorrowedFd<'_>;
}
