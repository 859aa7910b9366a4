//! The effect of acks and nacks on a channel: frames that have arrived or are lost, the round-trip
//! time, and what congestion control lets out.

use tyche_wire::{Control, Header, Pdu, Reject, Ring};

use super::{Channel, REST_NS_MIN};
use crate::channel::congestion::Progress;
use crate::channel::ring::Acked;
use crate::rules::Rules;
use crate::time::Instant;

impl<R: Rules> Channel<R> {
    pub(super) fn receive_acks(&mut self, now: Instant, header: &Header) {
        let before = self.in_flight();
        let acked = Ring::BOTH.map(|ring| {
            let acked = self.tx[ring as usize].acked(header.acks[ring as usize], now);
            if let Some(sample_ns) = acked.sample_ns {
                self.rtt.sample(sample_ns);
            }
            acked
        });
        self.progress(now, acked, before);
    }

    /// Checks that the bitmaps of a nack cover only positions that were sent.
    #[cold]
    pub(super) fn check_nack(&self, header: &Header, pdu: &Pdu<'_>) -> Result<(), Reject> {
        let Control::Ack(nack) = pdu.decode() else { return Err(Reject::Unexpected) };
        for (i, ring) in self.tx.iter().enumerate() {
            ring.check_bitmap(header.acks[i], &nack.bitmaps[i])?;
        }
        Ok(())
    }

    #[cold]
    pub(super) fn receive_nack(&mut self, now: Instant, header: &Header, pdu: &Pdu<'_>) {
        let Control::Ack(nack) = pdu.decode() else { return };
        let before = self.in_flight();
        let next = self.packet;
        let acked = Ring::BOTH.map(|ring| {
            let (at, ring) = (ring as usize, &mut self.tx[ring as usize]);
            ring.nacked(header.acks[at], &nack.bitmaps[at], nack.newest, now, |packet| {
                self.congestion.lost::<R>(packet, next);
                self.stats.nacked += 1;
            })
        });
        self.progress(now, acked, before);
    }

    /// Positions of both rings were acked; `in_flight` bytes were in flight before.
    fn progress(&mut self, now: Instant, rings: [Acked; 2], in_flight: u64) {
        let acked = rings[0].and(rings[1]);
        if acked.bytes == 0 {
            return;
        }
        self.acked = self.acked.max(acked.newest);
        let rtt_ns = self.rtt.smoothed_ns();
        self.congestion.acked(&Progress {
            now,
            bytes: acked.bytes,
            in_flight,
            newest: acked.newest,
            next: self.packet,
            sample_ns: acked.sample_ns,
            rtt_ns,
        });
        let segment = self.congestion.segment();
        let window = (self.congestion.window(), segment);
        self.pacer.set(window, rtt_ns, self.congestion.is_starting());
        self.burst = self.pacer.train();
        for ring in Ring::BOTH {
            // What is lost in one must not wait for a pause of the other.
            if rings[ring as usize].bytes > 0 {
                self.expiries[ring as usize] = 0;
                self.arm_retransmit(now, ring);
            }
        }
    }

    /// Whether congestion control lets another frame out now.
    pub(super) fn may_leave(&mut self, now: Instant) -> bool {
        let in_flight = self.in_flight();
        if in_flight == 0 {
            self.note_rest(now);
        }
        self.is_full = self.congestion.is_full(in_flight, self.is_full);
        !self.is_full && self.pacer.allows(now)
    }

    /// Lets what is known of the path grow old, if nothing was sent for a while.
    fn note_rest(&mut self, now: Instant) {
        let idle_ns = now.ns_since(self.pushed_at);
        if idle_ns > REST_NS_MIN && idle_ns > self.rtt.timeout_ns(0) {
            self.congestion.rested(idle_ns, self.rtt.timeout_ns(0));
            self.pushed_at = now;
        }
    }
}
