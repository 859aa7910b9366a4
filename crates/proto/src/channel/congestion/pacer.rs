//! When a channel may send what its window allows: at the rate that the window comes to, and a
//! quarter more so that the window stays the limit (RFC 9002, section 7.7), in bursts of what the
//! path carries in a millisecond. On a path whose round trip is shorter than two of these the
//! window alone is the limit, and no timer is set.

use crate::time::Instant;

/// Time that a burst takes on the path, in nanoseconds: about a millisecond. Lower: shorter trains
/// and more timers. Higher: a burst holds up others for longer, and finds shorter queues full.
const BURST_NS: u64 = 1 << BURST_BITS;
const BURST_BITS: u32 = 20;
/// Frames of a burst at least (as TCP sizes its segments: Linux, `tcp_min_tso_segs`).
const BURST_FRAMES: u64 = 2;
/// Round trips below this many bursts are not paced.
const BURSTS_MIN: u64 = 2;

/// Whether frames of such a path are paced.
pub(super) fn is_paced(rtt_ns: u64) -> bool {
    rtt_ns >= BURSTS_MIN * BURST_NS
}

/// The pacer of one channel: a budget of bytes that fills at the paced rate. A frame may leave
/// while the budget is positive, so it may be exceeded by one frame.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    /// Bytes that the path carries in [`BURST_NS`].
    rate: u64,
    /// Bytes of a burst: of the window, if it is not paced.
    burst: u64,
    /// Whether the round trip is long enough.
    is_on: bool,
    /// Bytes that may be sent; negative after a frame that was longer.
    budget: i64,
    /// When the budget was filled last.
    filled_at: Instant,
    /// When a burst may be sent, while the budget is used up.
    waits_until: Option<Instant>,
}

impl Pacer {
    pub(crate) fn new(now: Instant) -> Self {
        Self { rate: 0, burst: 0, is_on: false, budget: 0, filled_at: now, waits_until: None }
    }

    /// Sets the rate: `window` bytes in each round trip. `starting`: the window doubles in each.
    pub(crate) fn set(&mut self, (window, segment): (u64, u64), rtt_ns: u64, starting: bool) {
        self.is_on = is_paced(rtt_ns);
        if !self.is_on {
            (self.burst, self.waits_until) = (window.max(BURST_FRAMES * segment), None);
            return;
        }
        let window = if starting { window * 2 } else { window * 5 / 4 };
        self.rate = (window << BURST_BITS) / rtt_ns;
        self.burst = self.rate.max(BURST_FRAMES * segment);
        self.budget = self.budget.min(self.limit());
    }

    /// Bytes that may leave at once, as one train: a burst.
    pub(crate) fn train(&self) -> u32 {
        u32::try_from(self.burst).unwrap_or(u32::MAX)
    }

    /// The most that the budget holds: the loop may come late by a burst.
    fn limit(&self) -> i64 {
        (2 * self.burst) as i64
    }

    /// Whether a frame may be sent now.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        if !self.is_on {
            return true;
        }
        if let Some(until) = self.waits_until {
            if now < until {
                return false;
            }
            self.waits_until = None;
        }
        self.fill(now);
        if self.budget > 0 {
            return true;
        }
        // Until there is a burst again.
        let lacks = self.burst as i64 - self.budget;
        let wait_ns = (lacks as u64) * BURST_NS / self.rate.max(1);
        self.waits_until = Some(now.plus_ns(wait_ns));
        false
    }

    fn fill(&mut self, now: Instant) {
        if now == self.filled_at {
            return;
        }
        let elapsed_ns = now.ns_since(self.filled_at);
        let filled = elapsed_ns.saturating_mul(self.rate) >> BURST_BITS;
        self.budget = (self.budget + filled as i64).min(self.limit());
        self.filled_at = now;
    }

    /// A frame of so many bytes was sent.
    pub(crate) fn sent(&mut self, bytes: u64) {
        if self.is_on {
            self.budget -= bytes as i64;
        }
    }

    /// When a frame that was not [allowed](Self::allows) may be sent.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.waits_until
    }

    /// The wait may be over: whoever has something to send asks again.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.waits_until = self.waits_until.filter(|until| now < *until);
    }
}
