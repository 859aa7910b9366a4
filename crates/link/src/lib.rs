//! Links: batches of frames in and out of a network.
//!
//! A [`Link`] is one local interface. It moves whole Ethernet frames, in batches both ways, so that
//! one system call carries many. It does not parse frames, but keeps their *head* (the headers of
//! Ethernet and of the protocol, of a length that the receiver says) apart from the payload, which
//! starts page-aligned: payload can be received into its destination and sent in place.
//!
//! | link | what it is |
//! |---|---|
//! | [`packet`] | an AF_PACKET socket on a network interface |
//! | [`udp`] | the same frames in datagrams, which travel in trains |
//! | [`tcp`] | the same frames in TCP streams |
//! | [`rdma`] | the same frames written into the peer's memory |
//! | [`memory`] | two ends in one process |
//! | [`fault`] | a wrapper that loses, repeats, reorders, corrupts and delays |

mod batch;
mod bpf;
pub mod connections;
pub mod fault;
pub mod ip;
pub mod memory;
pub mod packet;
pub mod rdma;
mod sys;
pub mod tcp;
pub mod udp;
mod wrapper;

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use tyche_block::Arena;
use tyche_counters::{CounterGroup, Metric, Reading};
use tyche_numa::Node;

pub use batch::{
    COPIED_MAX, FRAMES_MAX, Malformed, Refused, RxBatch, RxFrame, TxBatch, TxFrame, TxVectors,
};

/// Bytes of Ethernet and Tyche header together: the head of frames, if nothing else is said.
pub const HEAD: usize = 64;

/// Where the kind of a frame is, and the least kind of channels. A link that has to choose whom it
/// remembers goes by these.
const KIND_AT: usize = 15;
const KIND_OF_CHANNELS: u8 = 0x10;

/// Whether a frame to be sent belongs to a channel, so that its receiver is more than a stranger.
fn is_of_channel(frame: &TxFrame<'_>) -> bool {
    frame.front().get(KIND_AT).is_some_and(|&kind| kind >= KIND_OF_CHANNELS)
}

/// The EtherType of frames, if nothing else is said: the first that is for local use.
pub const ETHERTYPE: u16 = 0x88B5;

/// The kinds of links over IP.
pub static TRANSPORTS: &[&ip::Transport] = &[&rdma::TRANSPORT, &tcp::TRANSPORT, &udp::TRANSPORT];

pub use wrapper::Wrapper;

/// The tables of [`Link::counters`], of all kinds of links.
pub fn counter_tables() -> impl Iterator<Item = &'static Metric> {
    let connections = connections::ConnectionStats::METRICS;
    let tables = [Malformed::METRICS, connections, rdma::RdmaCounts::METRICS];
    tables.into_iter().chain(udp::counter_tables()).flatten()
}

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Whether an address is that of a group: broadcast or multicast.
fn is_group(address: &Mac) -> bool {
    address[0] & 1 != 0
}

/// The name and the address of a link.
#[derive(Clone, Copy, Debug)]
pub struct Interface<'a> {
    /// Name for people and logs.
    pub name: &'a str,
    /// Its own address, the source of frames whose sender has no address for itself.
    pub mac: Mac,
}

/// The share of an interface's frames that a link receives, if several links divide them: frames
/// whose byte at `at` is `index`, modulo `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The remainder.
    pub index: u8,
    /// Number of links.
    pub of: u8,
    /// Offset of the byte in a frame.
    pub at: usize,
    /// Frames that are divided otherwise.
    pub except: Option<Except>,
}

/// Frames with another offset of the byte by which links [divide](Share) them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Except {
    /// Offset of the byte that tells them.
    pub at: usize,
    /// The bits of it that count.
    pub mask: u8,
    /// Their value.
    pub value: u8,
    /// The offset; `None`: they are all for the link with the index 0.
    pub by: Option<usize>,
}

impl Share {
    /// Whether a frame is one of the share, as the filter of a socket decides it: none that is too
    /// short for that.
    pub fn has(&self, frame: &[u8]) -> bool {
        let byte = |at: usize| frame.get(at).copied();
        let is_other = |it: &Except| byte(it.at).is_some_and(|byte| byte & it.mask == it.value);
        let key = match self.except.filter(is_other) {
            None => byte(self.at),
            Some(Except { by: None, .. }) => Some(0),
            Some(Except { by: Some(at), .. }) => byte(at),
        };
        key.is_some_and(|key| key % self.of == self.index)
    }
}

/// One local interface that sends and receives frames of one EtherType.
///
/// No call waits. To wait, poll [`wait_fd`](Self::wait_fd) for readability.
///
/// # Example
///
/// A link whose wire is a pair of sockets of this process.
///
/// ```
/// use std::io::{self, ErrorKind};
/// use std::os::fd::{AsFd, BorrowedFd};
/// use std::os::unix::net::UnixDatagram;
///
/// use tyche_link::{Interface, Link, RxBatch, TxBatch, TxVectors};
///
/// const FRAME_LEN_MAX: usize = 1514;
///
/// struct SocketLink {
///     socket: UnixDatagram,
///     mac: [u8; 6],
///     frame: Vec<u8>,
/// }
///
/// impl Link for SocketLink {
///     fn interface(&self) -> Interface<'_> {
///         Interface { name: "socket", mac: self.mac }
///     }
///     fn frame_len_max(&self) -> usize {
///         FRAME_LEN_MAX
///     }
///     fn receive_capacity(&self, _frame_len: usize) -> usize {
///         // What the kernel lets wait between two sockets, by default.
///         11
///     }
///     fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
///         batch.clear();
///         self.frame.resize(FRAME_LEN_MAX, 0);
///         while batch.len() < batch.capacity() {
///             match self.socket.recv(&mut self.frame) {
///                 // A frame that does not fit in the batch is lost, as on a wire.
///                 Ok(len) => drop(batch.push([&self.frame[..len]])),
///                 Err(error) if error.kind() == ErrorKind::WouldBlock => break,
///                 Err(error) => return Err(error),
///             }
///         }
///         Ok(batch.len())
///     }
///     fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
///         for (sent, frame) in batch.frames().enumerate() {
///             self.frame.clear();
///             frame.append_to(&mut self.frame);
///             match self.socket.send(&self.frame) {
///                 Ok(_) => {}
///                 Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(sent),
///                 Err(error) => return Err(error),
///             }
///         }
///         Ok(batch.len())
///     }
///     fn wait_fd(&self) -> BorrowedFd<'_> {
///         self.socket.as_fd()
///     }
/// }
///
/// let (one, other) = UnixDatagram::pair()?;
/// let [mut one, mut other] = [(one, 1), (other, 2)].map(|(socket, number)| {
///     socket.set_nonblocking(true).unwrap();
///     SocketLink { socket, mac: [2, 0, 0, 0, 0, number], frame: Vec::new() }
/// });
/// let (mut vectors, mut batch) = (TxVectors::new(8, 1), RxBatch::with_head(14, 8, 1500));
/// let mut frames = vectors.batch();
/// frames.push(&[0; 14], [&b"hello"[..]], &[]);
/// assert_eq!(one.send(&frames)?, 1);
/// assert_eq!(other.receive(&mut batch)?, 1);
/// assert_eq!(batch.frame(0).len(), 19);
/// # Ok::<(), io::Error>(())
/// ```
pub trait Link: Send {
    /// The name and the own address of the interface.
    fn interface(&self) -> Interface<'_>;

    /// The longest frame that the interface takes now, in bytes from the destination address to
    /// the end of the payload (14 + MTU).
    fn frame_len_max(&self) -> usize;

    /// Does what the link has to do from time to time; its user calls this every second. If the
    /// interface takes longer frames now than when the link was opened, the link makes room for
    /// them and returns their length in bytes; `None` if not, or if it can't do that. Frames that
    /// wait in the kernel meanwhile may be lost. No batch may have frames of the link.
    fn look_after(&mut self) -> Option<usize> {
        None
    }

    /// The number of frames of `frame_len` bytes that can be in flight to this link, or wait in a
    /// batch that has not been cleared, before some are dropped.
    fn receive_capacity(&self, frame_len: usize) -> usize;

    /// Receives waiting frames, up to the batch's room; replaces the batch's content. Returns the
    /// number of frames, 0 if none wait. Frames may lie in memory of the link until the batch is
    /// cleared: until then they use up the link's room (see
    /// [`receive_capacity`](Self::receive_capacity)), and its descriptor may stay readable.
    ///
    /// # Errors
    /// `NetworkDown` if the interface is down and `NotFound` if it is gone; otherwise the error of
    /// the system call. The link stays usable: a later call succeeds if the interface came back.
    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize>;

    /// Sends the batch's frames in order. Returns how many the interface took: not all if its queue
    /// is full. The caller tries the rest again or treats it as lost.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive); `InvalidInput` if a frame is longer than the interface
    /// takes, because its MTU was lowered.
    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize>;

    /// Whether the frames that [`send`](Self::send) does not take should be sent again soon: its
    /// queue is that of an interface, and empties at the speed of the wire.
    fn retries(&self) -> bool {
        false
    }

    /// Takes the receiving half, for another thread. From then on only that half receives and is
    /// waited for; the link sends, and reports its state, as before.
    ///
    /// # Errors
    /// `Unsupported` if the link has no halves.
    ///
    /// # Panics
    /// If it was taken before. Afterwards receiving from the link and its
    /// [`wait_fd`](Self::wait_fd) may panic, too.
    fn take_receiver(&mut self) -> io::Result<Box<dyn Receiver>> {
        Err(wrapper::no_receiver(self.name()))
    }

    /// A descriptor that is readable while frames wait. Call it before every sleep: a link may need
    /// to know that its user sleeps, and may have another descriptor than before.
    fn wait_fd(&self) -> BorrowedFd<'_>;

    /// The name for people and logs, e.g. the interface's.
    fn name(&self) -> &str {
        self.interface().name
    }

    /// The interface's own address.
    fn mac(&self) -> Mac {
        self.interface().mac
    }

    /// The transport that the frames travel in; `None` if they travel as they are.
    fn transport(&self) -> Option<&'static ip::Transport> {
        None
    }

    /// Returns of a peer's address the part that its owner cannot choose.
    fn origin(&self) -> fn(Mac) -> Mac {
        |peer| peer
    }

    /// The address of a peer, for people; `None`: its Ethernet address says most.
    fn peer(&self, address: Mac) -> Option<SocketAddr> {
        let _ = address;
        None
    }

    /// Frames that the kernel dropped for want of room since the link opened; zero where it drops
    /// none.
    fn overruns(&mut self) -> u64 {
        0
    }

    /// Joins an address: frames to it are received as well, besides those to the interface's own
    /// address and to everybody. It is a group, or an address that a protocol has chosen for
    /// itself; frames may be sent from that without joining. Membership lasts until
    /// [`leave`](Self::leave) or the end of the link, also while the interface is down or gone, and
    /// begins again on an interface that takes its place. To join again changes nothing.
    ///
    /// # Errors
    /// `Unsupported` if the link has no memberships, `QuotaExceeded` if there are too many;
    /// otherwise the error of the system call. Nothing has changed then.
    fn join(&mut self, address: Mac) -> io::Result<()> {
        let _ = address;
        Err(wrapper::no_memberships(self.name()))
    }

    /// Ends the membership of an address, if there is one.
    ///
    /// # Errors
    /// As for [`join`](Self::join). If the interface can't be told, it still ends: frames to the
    /// address are no longer received.
    fn leave(&mut self, address: Mac) -> io::Result<()> {
        let _ = address;
        Err(wrapper::no_memberships(self.name()))
    }

    /// Restricts reception to frames with these four bytes, or zeroes, at `at`, so that the kernel
    /// drops frames for other links on the same interface. It is an optimization, not a check: a
    /// link may ignore it.
    fn narrow(&mut self, at: usize, bytes: [u8; 4]) {
        let _ = (at, bytes);
    }

    /// Restricts reception to a share of the interface's frames, or of its peers where those have
    /// sockets of their own. False if this kind of link can't do that: nothing has changed then.
    fn select(&mut self, share: Share) -> bool {
        let _ = share;
        false
    }

    /// Turns the measurement of the frames' time in the kernel ([`RxBatch::waited`]) on or off; it
    /// costs a little per frame. False if this kind of link can't measure it.
    fn stamp_arrivals(&mut self, on: bool) -> bool {
        !on
    }

    /// Further error counters since the link opened, as its kind of link has them.
    fn counters(&self) -> Vec<Reading> {
        Vec::new()
    }

    /// The means to have peers place data in memory of this end; `None` if this kind of link can't.
    fn placement(&self) -> Option<Arc<dyn Placement>> {
        None
    }

    /// The NUMA nodes of the memory shared with the kernel, according to the kernel; empty if there
    /// is no such memory.
    fn memory_nodes(&self) -> Vec<Node> {
        Vec::new()
    }
}

/// Memory of this end in which peers place data, as the protocol that uses a link has it.
///
/// The data of a frame that has [places](TxBatch::place) in a region that its receiver has exposed
/// may travel there instead of in the frame, which comes [without them](RxBatch::placed). They are
/// there before the frame is. The peer has the key to the region: until that is retracted it may
/// write anything there at any time.
pub trait Placement: Send + Sync {
    /// Has a peer place data in a region, whose number the protocol chooses. Returns the memory
    /// that it writes to: `memory`, or other memory of as many pages. A region with that number
    /// ends.
    ///
    /// Whether data are placed is up to the link and the peer.
    ///
    /// # Errors
    /// If there is no such memory.
    fn expose(&self, peer: Mac, region: u16, memory: Arena) -> io::Result<Arena>;

    /// Ends a region, if there is one with that number: when this returns, the peer can't write
    /// there any more.
    fn retract(&self, peer: Mac, region: u16);
}

/// The receiving half of a [`Link`].
pub trait Receiver: Send {
    /// As [`Link::receive`].
    ///
    /// # Errors
    /// As [`Link::receive`].
    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize>;

    /// As [`Link::wait_fd`].
    fn wait_fd(&self) -> BorrowedFd<'_>;
}
