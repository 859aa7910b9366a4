//! The congestion window: additive increase, multiplicative decrease, in frames.

use tyche_wire::PacketNumber;

use crate::{Rule, Rules};

/// Frames in flight before anything is known about the path.
const WINDOW_INITIAL: u32 = 128;

/// The congestion window of a channel, in frames.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    window: u32,
    /// Below it, the window grows by one per acked frame (slow start); above, by one per window of
    /// acked frames.
    threshold: u32,
    max: u32,
    /// Acked frames that have not yet made the window grow.
    credit: u32,
    /// Losses of frames with lower numbers have already shrunk the window.
    answered: PacketNumber,
}

impl Congestion {
    /// Lower bound of the window: enough frames for later ones to reveal the loss of earlier ones.
    pub(crate) const WINDOW_MIN: u32 = 8;

    /// `max`: positions of both rings together.
    pub(crate) fn new(max: u32) -> Self {
        Self {
            window: WINDOW_INITIAL.min(max),
            threshold: max,
            max,
            credit: 0,
            answered: PacketNumber(0),
        }
    }

    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// `frames` were acked while `in_flight` were in flight. The window grows only if at least half
    /// of it was in use: otherwise the acks say nothing about the path.
    pub(crate) fn acked(&mut self, frames: u32, in_flight: u32) {
        if in_flight * 2 < self.window {
            return;
        }
        self.credit += frames;
        let price = if self.window < self.threshold { 1 } else { self.window };
        let growth = self.credit / price;
        self.credit -= growth * price;
        self.window = (self.window + growth).min(self.max);
    }

    /// The frame `lost` was lost; `next` is the number of the next frame. The window shrinks once
    /// per flight, by 30 % as with CUBIC (RFC 9438, section 4.6).
    pub(crate) fn lost<R: Rules>(&mut self, lost: PacketNumber, next: PacketNumber) {
        if lost < self.answered && R::keeps(Rule::ShrinkOnce) {
            return;
        }
        self.answered = next;
        let least = if R::keeps(Rule::LimitShrinking) { Self::WINDOW_MIN } else { 0 };
        self.window = (self.window * 7 / 10).max(least);
        self.threshold = self.window;
        self.credit = 0;
    }

    /// No ack has come although retransmission timers expired several times in a row.
    pub(crate) fn stalled(&mut self) {
        self.threshold = (self.window / 2).max(Self::WINDOW_MIN);
        self.window = Self::WINDOW_MIN;
        self.credit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sound;

    #[test]
    fn one_flight_of_losses_shrinks_the_window_once() {
        let mut congestion = Congestion::new(1024);
        congestion.lost::<Sound>(PacketNumber(5), PacketNumber(100));
        let once = congestion.window();
        assert_eq!(once, 89);
        congestion.lost::<Sound>(PacketNumber(99), PacketNumber(120));
        assert_eq!(congestion.window(), once);
        congestion.lost::<Sound>(PacketNumber(100), PacketNumber(130));
        assert!(congestion.window() < once);
    }

    #[test]
    fn grows_by_one_a_window_after_a_loss_and_never_past_the_rings() {
        let mut congestion = Congestion::new(96);
        congestion.lost::<Sound>(PacketNumber(5), PacketNumber(6));
        let window = congestion.window();
        congestion.acked(window, window);
        assert_eq!(congestion.window(), window + 1);
        for _ in 0..200 {
            congestion.acked(96, 96);
        }
        assert_eq!(congestion.window(), 96);
    }

    #[test]
    fn an_idle_path_does_not_grow_it() {
        let mut congestion = Congestion::new(1024);
        congestion.acked(500, 3);
        assert_eq!(congestion.window(), WINDOW_INITIAL);
    }
}
