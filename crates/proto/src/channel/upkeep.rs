//! Frames of a channel that carry no entries, and its timers.

use std::time::Duration;

use tyche_wire::{Ack, Content, Control, Flags, Header, Kind, Ring};

use super::{Channel, Dead, EXPIRIES_STALLED, NACK_INTERVAL, STALL_NS_MIN, UNHEARD_INTERVAL};
use crate::channel::outgoing::Outgoing;
use crate::rules::Rules;
use crate::time::Instant;

/// Segments of which one expiry says nothing about the path.
const FEW_SEGMENTS: u64 = 8;

impl<R: Rules> Channel<R> {
    /// Composes the next frame without entries: a nack, an ack, a keepalive or an echo; false if
    /// there is none to send now.
    pub(crate) fn poll_upkeep(&mut self, now: Instant, out: &mut Outgoing) -> bool {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.nack_at) {
            self.nack_at = Some(now + NACK_INTERVAL.max(self.rtt.smoothed()));
            self.stats.nacks_sent += 1;
            let nack =
                Ack { newest: self.newest, bitmaps: [self.rx[0].bitmap(), self.rx[1].bitmap()] };
            let header = self.ack(now);
            self.address(out, header, Content::Control(Control::Ack(nack)));
        } else if is_due(self.ack_at) {
            self.stats.acks_sent += 1;
            let header = self.ack(now);
            self.address(out, header, Content::Empty);
        } else if std::mem::take(&mut self.asking) {
            let header = self.unsequenced(now, Kind::Keepalive, Flags::ACK_REQUEST);
            self.address(out, header, Content::Empty);
        } else if self.sent_at.plus_ns(self.config.keep_alive_ns / 3) <= now {
            let header = self.unsequenced(now, Kind::Keepalive, Flags::NONE);
            self.address(out, header, Content::Empty);
        } else if let Some((flags, content)) = self.echoes.next() {
            let header = self.unsequenced(now, Kind::Echo, flags);
            self.address(out, header, content);
        } else {
            return false;
        }
        true
    }

    /// Runs the timers that have expired.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Result<(), Dead> {
        if self.heard_at.plus_ns(self.config.keep_alive_ns) <= now {
            return Err(Dead::Silence);
        }
        let stall_ns = self.config.keep_alive_ns.max(STALL_NS_MIN);
        if self.is_stalled(now, Duration::from_nanos(stall_ns)) {
            return Err(Dead::Stall);
        }
        self.pacer.handle_timeout(now);
        if self.unheard_at().is_some_and(|at| at <= now) {
            self.ask_for_life(now);
        }
        if self.retransmit_at.into_iter().flatten().any(|at| at <= now) {
            // A probe needs no room for a whole frame.
            self.is_full = false;
            self.stats.timeouts += 1;
            self.send_again();
            Ring::BOTH.into_iter().for_each(|ring| self.arm_retransmit(now, ring));
        }
        Ok(())
    }

    /// Marks frames of both rings as lost after an expiry. Each ring goes by its own number of
    /// expiries: one that makes no progress must not seem to while the other does.
    fn send_again(&mut self) {
        let (mut lost, mut is_stalled) = (0, false);
        for (ring, expiries) in self.tx.iter_mut().zip(&mut self.expiries) {
            if ring.is_empty() {
                continue;
            }
            *expiries += 1;
            if *expiries == 1 {
                // The frames may be late, or their ack may be lost. The newest is sent again: its
                // ack or a nack shows what is missing (RFC 8985, section 7: tail loss probe).
                ring.mark_newest_lost();
            } else {
                // Not only the oldest: lost frames that counted as in flight would fill the window,
                // and none could be sent again.
                lost += ring.mark_all_lost();
                is_stalled |= *expiries == EXPIRIES_STALLED;
            }
        }
        if is_stalled || lost > FEW_SEGMENTS * self.congestion.segment() {
            self.congestion.stalled();
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) or [`poll_upkeep`](Self::poll_upkeep) has
    /// something to do if nothing happens before.
    pub(crate) fn poll_timeout(&self) -> Instant {
        let keep_alive = self.config.keep_alive_ns;
        let last = self.sent_at.plus_ns(keep_alive / 3).min(self.heard_at.plus_ns(keep_alive));
        let paced = self.pacer.poll_timeout();
        let asking = self.asking.then_some(Instant(0));
        let batching = self.batching.poll_timeout();
        let own = [
            self.nack_at,
            self.retransmit_at[0],
            self.retransmit_at[1],
            batching,
            self.ack_at,
            self.unheard_at(),
            asking,
            paced,
        ];
        own.into_iter().flatten().fold(last, Instant::min)
    }

    /// When a peer that was never heard is asked for a sign of life again. The time of the first
    /// question stays: the silence counts from there.
    fn unheard_at(&self) -> Option<Instant> {
        let awaited = self.asked_at.filter(|_| !self.is_heard);
        awaited.map(|_| self.asked_again_at + UNHEARD_INTERVAL)
    }

    /// Makes the header of an ack or nack.
    fn ack(&mut self, now: Instant) -> Header {
        let mut flags = Flags::NONE;
        flags.set(Flags::CONGESTED, self.take_congestion());
        self.unsequenced(now, Kind::Ack, flags)
    }
}
