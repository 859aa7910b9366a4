//! The growth of CUBIC (RFC 9438), in integers: bytes, and ticks of 2²⁰ ns.

use crate::time::Instant;

/// Bits of a tick, in nanoseconds: about a millisecond.
const TICK_BITS: u32 = 20;
/// The constant C = 0.4 segments/s³, in segments per cubic tick, times 2⁴¹.
const C: u64 = 1014;
const C_BITS: u32 = 41;
/// Longest time from the plateau that counts, in ticks: half a minute.
const TICKS_MAX: u64 = 1 << 15;
/// Bits of the fraction of the pace of a part of a flow.
const PACE_BITS: u32 = 10;

/// A window after a loss: β = 0.7 of that before.
pub(super) fn less(window: u64) -> u64 {
    window * 7 / 10
}

/// The CUBIC state of one channel in congestion avoidance: the plateau, the epoch, and the window
/// that Reno would have as a lower bound.
#[derive(Clone, Debug)]
pub(super) struct Cubic {
    /// The window before the last loss, which is the plateau of the growth.
    plateau: u64,
    /// Ticks from the begin of the epoch to the plateau.
    distance: u64,
    /// The begin of the epoch, and the last time that the window grew in it.
    epoch: Option<(Instant, Instant)>,
    /// The window that Reno would have, from the begin of the epoch on.
    reno: u64,
    /// How much slower Reno grows, and the pace of time, for a part of a flow.
    slowness: u64,
    pace: u64,
}

impl Default for Cubic {
    fn default() -> Self {
        let (plateau, distance, reno) = (0, 0, 0);
        Self {
            plateau,
            distance,
            epoch: None,
            reno,
            slowness: 1 << PACE_BITS,
            pace: 1 << PACE_BITS,
        }
    }
}

impl Cubic {
    /// For one of `parts` of a flow, whose share is 1/n. If losses hit each at its own time, in
    /// proportion to what it sends, that takes a constant C/n⁴ and Reno's growth by 1/n²; if they
    /// hit all at once, C/n and 1/n. Most queues are between: C/n^2.5, so time passes n^(5/6) times
    /// slower, and 1/n^1.5.
    pub(super) fn share(&mut self, parts: u64) {
        self.slowness = (parts.pow(3) << (2 * PACE_BITS)).isqrt();
        let slower = cube_root((parts.pow(5) << (2 * PACE_BITS)).isqrt() << (2 * PACE_BITS));
        self.pace = (1 << (2 * PACE_BITS)) / slower;
        self.epoch = None;
    }

    /// The window has shrunk from `before` to `after`.
    pub(super) fn lost(&mut self, before: u64, after: u64, segment: u64) {
        // Fast convergence: whoever loses below the last plateau leaves room to others.
        self.plateau = if before < self.plateau { before * 17 / 20 } else { before };
        self.begin(after, segment);
        self.epoch = None;
    }

    /// The next growth begins an epoch at the plateau.
    pub(super) fn forget_epoch(&mut self) {
        (self.epoch, self.plateau) = (None, 0);
    }

    fn begin(&mut self, window: u64, segment: u64) {
        self.plateau = self.plateau.max(window);
        let below = (self.plateau - window).min(1 << 36);
        // Of 2⁴¹ as much as fits.
        let cubed = ((below << 24) / (C * segment).max(1)) << (C_BITS - 24);
        self.distance = cube_root(cubed).min(TICKS_MAX);
        self.reno = window;
    }

    /// The sender has nothing to send: that time does not count (RFC 9438, section 5.8).
    pub(super) fn pause(&mut self, now: Instant) {
        if let Some((begun, last)) = &mut self.epoch {
            *begun = *begun + now.since(*last);
            *last = now;
        }
    }

    /// The window after `acked` bytes more were acked.
    pub(super) fn grow(
        &mut self,
        now: Instant,
        rtt_ns: u64,
        (window, segment): (u64, u64),
        acked: u64,
    ) -> u64 {
        if self.epoch.is_none() {
            self.begin(window, segment);
        }
        let (begun, last) = self.epoch.get_or_insert((now, now));
        *last = now;
        let elapsed_ns = now.ns_since(*begun) + rtt_ns;
        let ticks = ((elapsed_ns >> TICK_BITS) * self.pace) >> PACE_BITS;
        let beyond = ticks > self.distance;
        let apart = ticks.abs_diff(self.distance).min(TICKS_MAX);
        let change = ((((apart.pow(3) >> 4) * segment) >> 20) * C) >> (C_BITS - 24);
        let target = match beyond {
            true => self.plateau + change,
            false => self.plateau.saturating_sub(change),
        };
        let target = target.clamp(window, window + window / 2);
        let grown = window + (target - window) * acked / window;
        // Reno's growth with β = 0.7: α = 9/17 segments in a round trip; not one beyond the loss,
        // for Linux's does not do that either.
        let growth = ((segment * acked) << PACE_BITS) / (self.reno.max(1) * self.slowness);
        self.reno += growth * 9 / 17;
        grown.max(self.reno)
    }
}

/// The cube root, rounded down.
fn cube_root(value: u64) -> u64 {
    let (mut rest, mut root) = (value, 0_u64);
    for shift in (0..64).step_by(3).rev() {
        root *= 2;
        let step = 3 * root * (root + 1) + 1;
        if rest >> shift >= step {
            rest -= step << shift;
            root += 1;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots() {
        for (value, root) in [(0, 0), (1, 1), (7, 1), (8, 2), (26, 2), (27, 3), (1 << 60, 1 << 20)]
        {
            assert_eq!(cube_root(value), root, "{value}");
        }
        assert_eq!(cube_root(u64::MAX), 2_642_245);
    }

    #[test]
    fn the_plateau_is_reached_when_the_paper_says() {
        // 100 segments before the loss: K = cbrt(100 × 0.3 / 0.4) = 4.217 s.
        let mut cubic = Cubic::default();
        cubic.lost(150_000, 105_000, 1500);
        let seconds = (cubic.distance << TICK_BITS) as f64 / 1e9;
        assert!((4.20..4.23).contains(&seconds), "{seconds}");
        let mut part = Cubic::default();
        part.share(2);
        // A part's K is 2^(5/6) = 1.78 times as long, for the same window.
        assert_eq!(part.pace, 574);
    }
}
