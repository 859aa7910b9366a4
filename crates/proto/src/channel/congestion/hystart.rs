//! The end of slow start before there are losses: HyStart++ (RFC 9406). Round-trip times that grow
//! within a round show a queue that builds up; the window then grows at a quarter of the pace for
//! some rounds, unless the times fall again.

use tyche_wire::PacketNumber;

use super::Progress;

/// Samples of a round before they count.
const SAMPLES: u32 = 8;
/// Bounds of the growth of the round-trip time that counts, in nanoseconds; an eighth between.
const GROWTH_NS_MIN: u64 = 4_000_000;
const GROWTH_NS_MAX: u64 = 16_000_000;
/// The part of its growth that conservative slow start has.
const DIVISOR: u64 = 4;
/// Rounds of conservative slow start.
const ROUNDS: u32 = 5;

/// The slow-start monitor of one channel: compares round-trip times of this round and the last one,
/// and says how much the window may grow and when slow start ends.
#[derive(Clone, Debug)]
pub(super) struct HyStart {
    /// The round ends with the ack of this frame.
    round_end: PacketNumber,
    /// The shortest round trips of the last round and of this one.
    last_ns: u64,
    shortest_ns: u64,
    samples: u32,
    /// In conservative slow start: the round-trip time at its begin, and rounds since then.
    conservative: Option<(u64, u32)>,
}

impl Default for HyStart {
    fn default() -> Self {
        let (last_ns, shortest_ns) = (u64::MAX, u64::MAX);
        let round_end = PacketNumber(0);
        Self { round_end, last_ns, shortest_ns, samples: 0, conservative: None }
    }
}

impl HyStart {
    /// Bytes by which the window may grow when so many are acked.
    pub(super) fn growth(&self, acked: u64) -> u64 {
        if self.conservative.is_some() { acked / DIVISOR } else { acked }
    }

    /// Takes an ack; true if slow start is over.
    pub(super) fn ends(&mut self, progress: &Progress) -> bool {
        if let Some(sample_ns) = progress.sample_ns {
            self.shortest_ns = self.shortest_ns.min(sample_ns);
            self.samples += 1;
        }
        let mut ends = false;
        if self.samples >= SAMPLES {
            match self.conservative {
                Some((baseline_ns, _)) if self.shortest_ns < baseline_ns => {
                    self.conservative = None;
                }
                None if self.last_ns < u64::MAX => {
                    let growth_ns = (self.last_ns / 8).clamp(GROWTH_NS_MIN, GROWTH_NS_MAX);
                    if self.shortest_ns >= self.last_ns.saturating_add(growth_ns) {
                        self.conservative = Some((self.shortest_ns, 0));
                    }
                }
                _ => {}
            }
        }
        if progress.newest >= self.round_end {
            self.round_end = progress.next;
            (self.last_ns, self.shortest_ns, self.samples) = (self.shortest_ns, u64::MAX, 0);
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds += 1;
                ends = *rounds >= ROUNDS;
            }
        }
        ends
    }
}
