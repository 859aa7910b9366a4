//! The network: what becomes of a frame on its way from one station to another.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tyche_fcoe::FCOE;
use tyche_fcoe::fc::wire::crc;
use tyche_proto::Instant;

use super::plan::{AirPlan, CLEAN};
use crate::random::Random;

/// Times the latency that a frame is overtaken by, at most. With the latency itself it stays below
/// the least time in which an XID is used again: an initiator leaves 16 of them free, of which it
/// uses at most eight in two latencies.
const OVERTAKEN_MAX: u64 = 2;
/// The place of R_CTL, of the first byte that the CRC covers, and of TYPE.
const R_CTL_AT: usize = 28;
const TYPE_AT: usize = 36;
/// The place of OX_ID.
const OX_ID_AT: usize = 44;
/// The time in which frames of an exchange are held back together.
const HELD_TOGETHER: Duration = Duration::from_millis(20);
/// Bytes of the frame of a response without sense data, and its R_CTL.
const RESPONSE: (usize, u8) = (84, 0x07);
/// R_CTL of FCP_DATA; the first byte of F_CTL, and its bit of the responder.
const R_CTL_DATA: u8 = 0x01;
const F_CTL_AT: usize = 37;
const EX_CTX: u8 = 0x80;
/// Bytes behind those that the CRC covers.
const TRAILER_LEN: usize = 8;

/// A copy of a frame that arrives.
pub(super) struct Copy {
    pub(super) at: Instant,
    pub(super) frame: Vec<u8>,
    /// Whether it arrives so late that it may be from an earlier login.
    pub(super) is_stray: bool,
}

/// A partition: frames from one station to another do not arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) until: Instant,
    /// Only frames of FIP: the port hears no beacons.
    pub(super) fip_only: bool,
}

/// Counters.
#[derive(Default)]
pub(super) struct AirCounts {
    pub(super) frames: u64,
    pub(super) lost: u64,
    pub(super) repeated: u64,
    pub(super) corrupted: u64,
    pub(super) strays: u64,
}

/// The simulated network of FCoE: its planned faults, cuts, and what holds frames back. For each
/// frame it returns the copies that arrive, and when.
pub(super) struct Air {
    pub(super) plan: AirPlan,
    /// R_A_TOV: strays arrive before.
    pub(super) r_a_tov: Duration,
    pub(super) cuts: Vec<Cut>,
    /// Exchanges whose frames are held back: until when, and when those arrive.
    held: BTreeMap<(usize, usize, [u8; 2]), (Instant, Instant)>,
    /// Stations that lose the next response with sense data of another.
    pub(super) unlucky: BTreeSet<(usize, usize)>,
    /// When the last frame arrives, by sender and receiver.
    last: BTreeMap<(usize, usize), Instant>,
    random: Random,
    pub(super) counts: AirCounts,
}

impl Air {
    pub(super) fn new(plan: AirPlan, r_a_tov: Duration, random: Random) -> Self {
        let (cuts, held, unlucky, last, counts) = Default::default();
        Self { plan, r_a_tov, cuts, held, unlucky, last, random, counts }
    }

    /// Ends all faults.
    pub(super) fn calm(&mut self) {
        let AirPlan { latency, is_sealed, .. } = self.plan;
        self.plan = AirPlan { latency, is_sealed, ..CLEAN };
        self.cuts.clear();
        self.unlucky.clear();
    }

    fn is_cut(&self, now: Instant, from: usize, to: usize, port: usize) -> bool {
        self.cuts.iter().any(|cut| {
            let here = (cut.from, cut.to) == (from, to) && now < cut.until;
            here && (port != FCOE || !cut.fip_only)
        })
    }

    /// Carries a frame; returns its copies that arrive.
    pub(super) fn carry(
        &mut self,
        now: Instant,
        (from, to): (usize, usize),
        port: usize,
        frame: &[u8],
    ) -> Vec<Copy> {
        self.counts.frames += 1;
        let AirPlan { latency, loss, duplicates, overtaken, corrupt, stray, echoes, .. } =
            self.plan;
        let has_sense = port == FCOE && frame.len() > RESPONSE.0 && frame[R_CTL_AT] == RESPONSE.1;
        let is_unlucky = has_sense && self.unlucky.remove(&(from, to));
        if is_unlucky || self.is_cut(now, from, to, port) || self.random.hits(loss) {
            self.counts.lost += 1;
            return Vec::new();
        }
        let mut frame = frame.to_vec();
        if port == FCOE && self.random.hits(corrupt) {
            self.corrupt(&mut frame);
        }
        let latency = latency.as_nanos() as u64;
        let on_time = now.plus_ns(latency + self.random.below(latency / 5 + 1));
        let far = self.r_a_tov.as_nanos() as u64 / 2;
        let is_exchange = port == FCOE && frame[TYPE_AT] == 0x08;
        let mut copies = Vec::new();
        let is_data = || frame[R_CTL_AT] == R_CTL_DATA && frame[F_CTL_AT] & EX_CTX == 0;
        let is_repeated = is_exchange && (!self.plan.echoes_data || is_data());
        if is_repeated && self.random.hits(echoes) {
            self.counts.strays += 1;
            let at = on_time.plus_ns(self.random.below(far));
            copies.push(Copy { at, frame: frame.clone(), is_stray: true });
        }
        if is_exchange && let Some(at) = self.hold(on_time, (from, to), &frame, stray) {
            copies.push(Copy { at, frame, is_stray: true });
            return copies;
        }
        if self.random.hits(duplicates) {
            self.counts.repeated += 1;
            let at = on_time.plus_ns(self.random.below(OVERTAKEN_MAX * latency));
            copies.push(Copy { at, frame: frame.clone(), is_stray: false });
        }
        let last = self.last.entry((from, to)).or_default();
        let at = if self.random.hits(overtaken) {
            on_time.plus_ns(self.random.below(OVERTAKEN_MAX * latency))
        } else {
            *last = on_time.max(*last);
            *last
        };
        copies.push(Copy { at, frame, is_stray: false });
        copies
    }

    /// When a frame arrives much later, together with those of its exchange that are sent at about
    /// the same time; `None` if it does not.
    fn hold(
        &mut self,
        on_time: Instant,
        (from, to): (usize, usize),
        frame: &[u8],
        stray: f64,
    ) -> Option<Instant> {
        let key = (from, to, [frame[OX_ID_AT], frame[OX_ID_AT + 1]]);
        self.held.retain(|_, (until, _)| *until > on_time);
        if let Some((_, at)) = self.held.get(&key) {
            return Some(*at);
        }
        if !self.random.hits(stray) {
            return None;
        }
        self.counts.strays += 1;
        let at = on_time.plus_ns(self.random.below(self.r_a_tov.as_nanos() as u64 / 2));
        self.held.insert(key, ((on_time + HELD_TOGETHER).min(at), at));
        Some(at)
    }

    /// Flips a bit that the CRC covers.
    fn corrupt(&mut self, frame: &mut [u8]) {
        self.counts.corrupted += 1;
        let end = frame.len() - TRAILER_LEN;
        // Of the payload, if there is one and the CRC is broken on purpose: with a damaged header
        // it would go elsewhere.
        let first = if self.plan.is_sealed && end > 52 { 52 } else { R_CTL_AT };
        let at = first + self.random.below((end - first) as u64) as usize;
        frame[at] ^= 1 << self.random.below(8);
        if self.plan.is_sealed {
            let sum = crc([&frame[R_CTL_AT..end]]).to_le_bytes();
            frame[end..end + 4].copy_from_slice(&sum);
        }
    }
}
