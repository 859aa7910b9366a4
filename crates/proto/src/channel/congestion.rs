//! Congestion control of a channel: CUBIC (RFC 9438) with HyStart++ (RFC 9406), in bytes.
//!
//! ```text
//!                  losses, marks (30 % less, once a flight)
//!  slow start ────────────────────────────┐        ┌─────┐
//!   │ round trips grow: HyStart++         ▼        ▼     │
//!   └─> conservative slow start ──> congestion avoidance ┘
//!                                   CUBIC, or as Reno where that is faster
//! ```
//!
//! The channels of a session on one path take the share of one flow together: each grows as one of
//! as many [parts](Congestion::share), which is what linked increases (RFC 6356) come to for parts
//! of equal size. What is sent when is the business of [`Pacer`].

mod cubic;
mod hystart;
mod pacer;
#[cfg(test)]
mod tests;

use tyche_wire::PacketNumber;

use crate::time::Instant;
use crate::{Rule, Rules};

use cubic::Cubic;
use hystart::HyStart;
pub(crate) use pacer::Pacer;

/// Segments in flight before anything is known about the path, and bytes, of which the smaller
/// counts, but two segments at least (RFC 6928).
const INITIAL_SEGMENTS: u64 = 10;
const INITIAL_BYTES: u64 = 14_600;
/// Segments that the window never shrinks below (RFC 9002, section 7.2).
const SEGMENTS_MIN: u64 = 2;
/// Segments in flight at most where a round trip is too short for pacing. More would lie in the
/// receiver's buffer, and not in the processors' caches.
const SEGMENTS_UNPACED: u64 = 512;
/// The length from which frames are long, as those over TCP, RDMA and Ethernet with the longest
/// MTU: bytes limit them, not segments. A stream holds whatever is sent, and loses nothing.
const SEGMENT_LONG: u64 = 16 << 10;
/// Bytes of long frames in flight at most, unless the round trip asks for more. Lower: threads that
/// sleep wake up more often for the same bytes. Higher: what is in flight leaves the processors'
/// caches before it is read (docs/measurements/tcp.md).
const LONG_BYTES: u64 = 1 << 20;
/// The fastest path for long frames, in bytes per nanosecond, about 100 Gbit/s: what is in flight
/// then is never less than such a path holds. A faster one is filled by several channels.
const LONG_RATE: u64 = 12;
/// Parts of a flow that are told apart.
const PARTS_MAX: u64 = 64;

/// The window before anything is known about the path.
fn initial(segment: u64) -> u64 {
    (INITIAL_SEGMENTS * segment).min(INITIAL_BYTES.max(2 * segment))
}

/// An ack that made progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) now: Instant,
    /// Bytes of the frames that were acked.
    pub(crate) bytes: u64,
    /// Bytes in flight before.
    pub(crate) in_flight: u64,
    /// The newest packet number among the acked frames, and that of the next frame.
    pub(crate) newest: PacketNumber,
    pub(crate) next: PacketNumber,
    /// The round-trip time that was measured with it, if any, in nanoseconds.
    pub(crate) sample_ns: Option<u64>,
    /// The smoothed round-trip time, in nanoseconds.
    pub(crate) rtt_ns: u64,
}

/// The congestion window of one channel, in bytes. Acks make it grow up to the capacity of the
/// rings, losses and congestion marks shrink it.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    window: u64,
    /// Below it, the window grows by what is acked (slow start).
    threshold: u64,
    /// The capacity of the rings.
    max: u64,
    /// As much of it as is used without pacing.
    max_unpaced: u64,
    /// Bytes of the longest frame.
    segment: u64,
    /// The shortest round trip, in nanoseconds: the path without what waits in queues.
    shortest_ns: u64,
    parts: u64,
    start: HyStart,
    cubic: Cubic,
    /// Acked bytes that have not yet made the window grow.
    credit: u64,
    /// Losses of frames with lower numbers have already shrunk the window.
    answered: PacketNumber,
}

impl Congestion {
    /// `positions`: of both rings together; `segment`: bytes of the longest frame.
    pub(crate) fn new(positions: u32, segment: u64) -> Self {
        let max = u64::from(positions) * segment;
        Self {
            window: initial(segment).min(max),
            threshold: max,
            max,
            max_unpaced: max.min(SEGMENTS_UNPACED * segment),
            segment,
            shortest_ns: u64::MAX,
            parts: 1,
            start: HyStart::default(),
            cubic: Cubic::default(),
            credit: 0,
            answered: PacketNumber(0),
        }
    }

    /// Bytes that may be in flight.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Whether so many bytes in flight keep the next frame back. A window that was full is until
    /// there is room for a whole frame; then a second one leaves with it. So frames leave in pairs,
    /// as those of TCP do, whose receivers acknowledge every other one: single ones would find the
    /// place in a full queue that a pair does not.
    pub(crate) fn is_full(&self, in_flight: u64, was_full: bool) -> bool {
        let room = self.window.saturating_sub(in_flight);
        in_flight > 0 && room < if was_full { self.segment } else { 1 }
    }

    /// Bytes of the longest frame.
    pub(crate) fn segment(&self) -> u64 {
        self.segment
    }

    /// Whether the window still grows by what is acked.
    pub(crate) fn is_starting(&self) -> bool {
        self.window < self.threshold
    }

    /// The channel is one of so many of its session on the same path.
    pub(crate) fn share(&mut self, channels: usize) {
        let parts = (channels as u64).clamp(1, PARTS_MAX);
        if parts != self.parts {
            self.parts = parts;
            self.cubic.share(parts);
        }
    }

    /// The largest window on the path, as far as it is known with that ack.
    #[inline]
    fn limit(&mut self, progress: &Progress) -> u64 {
        if self.segment >= SEGMENT_LONG {
            return self.limit_of_long(progress);
        }
        if pacer::is_paced(progress.rtt_ns) { self.max } else { self.max_unpaced }
    }

    /// The same for long frames. The smoothed round trip is no measure for them: it grows with what
    /// waits in the stream, and a limit that goes by it lets more wait.
    fn limit_of_long(&mut self, progress: &Progress) -> u64 {
        if let Some(sample_ns) = progress.sample_ns {
            self.shortest_ns = self.shortest_ns.min(sample_ns);
        }
        let path_ns = if self.shortest_ns == u64::MAX { 0 } else { self.shortest_ns };
        self.max.min(LONG_BYTES.max(path_ns.saturating_mul(LONG_RATE)))
    }

    fn least(&self) -> u64 {
        SEGMENTS_MIN * self.segment / self.parts.min(SEGMENTS_MIN)
    }

    /// Frames were acked. The window grows only if most of it was in use: otherwise the acks say
    /// nothing about the path.
    pub(crate) fn acked(&mut self, progress: &Progress) {
        let used = progress.in_flight;
        let max = self.limit(progress);
        self.window = self.window.min(max);
        if self.window >= max {
            return;
        }
        if self.is_starting() {
            if used * 2 < self.window {
                return;
            }
            if self.start.ends(progress) {
                self.threshold = self.window;
            } else {
                let growth = self.start.growth(progress.bytes) / self.parts;
                self.window = (self.window + growth.max(1)).min(self.threshold.min(max));
            }
            return;
        }
        // What was sent before the last loss says nothing about the window since (RFC 9002, section
        // 7.3.2).
        if progress.newest < self.answered {
            return;
        }
        if used * 4 < self.window * 3 {
            self.cubic.pause(progress.now);
            return;
        }
        self.credit += progress.bytes;
        // Growth is computed a few times in each round trip only.
        if self.credit * 8 >= self.window {
            let credit = std::mem::take(&mut self.credit);
            let window = (self.window, self.segment);
            let grown = self.cubic.grow(progress.now, progress.rtt_ns, window, credit);
            self.window = grown.min(max);
        }
    }

    /// The frame `lost` was lost, or it was marked; `next` is the number of the next frame. The
    /// window shrinks once per flight.
    pub(crate) fn lost<R: Rules>(&mut self, lost: PacketNumber, next: PacketNumber) {
        if lost < self.answered && R::keeps(Rule::ShrinkOnce) {
            return;
        }
        self.answered = next;
        let least = if R::keeps(Rule::LimitShrinking) { self.least() } else { 0 };
        let before = self.window;
        self.window = cubic::less(before).max(least);
        self.cubic.lost(before, self.window, self.segment);
        (self.threshold, self.credit) = (self.window, 0);
    }

    /// No ack has come although retransmission timers expired several times in a row (RFC 5681,
    /// section 3.1; RFC 9002, section 7.6).
    pub(crate) fn stalled(&mut self) {
        self.threshold = cubic::less(self.window).max(self.least());
        self.cubic.lost(self.window, self.threshold, self.segment);
        (self.window, self.credit) = (self.least(), 0);
        self.start = HyStart::default();
    }

    /// Nothing was sent for `idle_ns`, with a retransmission timer of `timeout_ns`: what is known
    /// of the path grows old. The window halves for each timer, down to the initial one (RFC 2861).
    #[cold]
    pub(crate) fn rested(&mut self, idle_ns: u64, timeout_ns: u64) {
        // The path may be longer now. If it is not, the next frames, which find no queue, show it.
        self.shortest_ns = self.shortest_ns.saturating_mul(2);
        let initial = initial(self.segment);
        let halvings = idle_ns / timeout_ns.max(1);
        if halvings == 0 || self.window <= initial {
            return;
        }
        self.threshold = self.threshold.max(self.window / 4 * 3);
        self.window = (self.window >> halvings.min(32)).max(initial);
        self.start = HyStart::default();
        self.cubic.forget_epoch();
        self.credit = 0;
    }
}
