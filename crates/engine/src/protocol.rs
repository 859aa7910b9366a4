//! The interface between a loop and the protocol whose frames its ports carry.

use std::time::Duration;

use tyche_link::Mac;
use tyche_time::Instant;

/// A fault of a port, as the protocol has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The interface is down or gone; it is tried again.
    Down,
    /// It takes only shorter frames than before. Holds the length of the longest in bytes, as far
    /// as the interface knows: on the way, the limit may be lower.
    Narrowed(usize),
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The first bytes, from the destination address on: as many as the port's heads have.
    pub head: &'a [u8],
    /// The rest.
    pub payload: &'a [u8],
    /// How long it waited in the kernel; zero if unknown.
    pub waited: Duration,
    /// Whether the network has marked it as congested.
    pub is_congested: bool,
    /// Whether the peer has placed its data where they belong
    /// ([`Placement`](tyche_link::Placement)), so that the payload has none.
    pub is_placed: bool,
}

/// A state machine that receives and sends frames, without a clock or a system call.
///
/// All of `now` are times of the machine's monotonic clock. A *port* is an index of
/// [`Ports`](crate::Ports).
pub trait Protocol {
    /// Takes a frame that has arrived at a port.
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &Received<'_>);

    /// Takes a fault of a port.
    fn handle_fault(&mut self, now: Instant, port: usize, fault: Fault) {
        let _ = (now, port, fault);
    }

    /// Takes the longest frame of a port, in bytes, which has grown.
    fn handle_frame_len_max(&mut self, port: usize, frame_len_max: usize) {
        let _ = (port, frame_len_max);
    }

    /// Runs the timers that have expired.
    fn handle_timeout(&mut self, now: Instant);

    /// When to call [`handle_timeout`](Self::handle_timeout), if there is no other input before.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The frames to send now by a port.
    fn frames(&mut self, port: usize) -> impl Frames<'_>;

    /// Whether it measures times: then each frame is handled and composed at its own time, instead
    /// of that of the round, and the links say how long frames have [waited](Received::waited).
    fn is_timed(&self) -> bool {
        false
    }
}

/// Frames to be sent, one after the other. Their data stay where they are, for `'d`.
pub trait Frames<'d> {
    /// Composes the next frame; `None` if there is none to send now.
    fn compose(&mut self, now: Instant) -> Option<Composed>;

    /// Writes the composed frame. `source` is the address of the interface, for the Ethernet
    /// header; a protocol with [addresses of its own](crate::Port::join) writes one of those.
    fn write(&mut self, source: Mac, sink: impl FrameSink<'d>);
}

/// The place of a frame to be sent.
pub trait FrameSink<'d> {
    /// Takes a frame that lies in pieces: its front, the pieces of its data, and what follows them.
    /// The data are not copied.
    fn gather(self, front: &[u8], data: &[&'d [u8]], tail: &[u8]);

    /// As [`gather`](Self::gather), with the place of each piece of data in a region of the
    /// receiver: a link may write them there ([`TxBatch::place`](tyche_link::TxBatch::place)).
    fn gather_placed(
        self,
        front: &[u8],
        data: &[&'d [u8]],
        tail: &[u8],
        (region, places): (u16, impl Iterator<Item = u32>),
    ) where
        Self: Sized,
    {
        let _ = (region, places);
        self.gather(front, data, tail);
    }

    /// Takes a frame of which only the front lies somewhere: `write` writes the `len` bytes behind
    /// it, e.g. by encrypting them.
    fn fill(self, front: &[u8], len: usize, write: impl FnOnce(&mut [u8]));
}

/// How a composed frame is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Composed {
    /// Whether it probes its length: it is sent in a system call of its own, and only if the
    /// interface takes frames of that length.
    pub probes: bool,
    /// From now on only received frames with these bytes at that offset matter:
    /// [`Link::narrow`](tyche_link::Link::narrow).
    pub narrows: Option<(usize, [u8; 4])>,
    /// The most bytes that may leave at once with it: [`TxBatch::limit_burst`].
    ///
    /// [`TxBatch::limit_burst`]: tyche_link::TxBatch::limit_burst
    pub burst: u32,
}

impl Default for Composed {
    fn default() -> Self {
        Self { probes: false, narrows: None, burst: u32::MAX }
    }
}
