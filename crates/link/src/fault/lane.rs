//! One direction of a faulty link: decides the fate of frames and holds them until they are due.
//! Pure: no descriptors, and the time comes from outside.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::HELD_MAX;
use super::plan::{FaultPlan, MILLION};

/// The most frames that overtake a reordered one.
const OVERTAKEN_MAX: u64 = 8;

/// The most frames between the two copies of a duplicate.
const DUPLICATE_AFTER_MAX: u64 = 32;

/// The longest wait of a frame for those that are to overtake it.
pub(super) const FOLLOWERS_WAIT: Duration = Duration::from_millis(1);

/// The Ethernet header, which corruption spares.
const ETHERNET: usize = 14;

pub(super) struct Lane {
    seed: u64,
    /// Frames whose fate is decided.
    frames: u64,
    /// In order of departure.
    held: VecDeque<Held>,
    /// Buffers of released frames, for reuse.
    spare: Vec<Vec<u8>>,
}

struct Held {
    bytes: Vec<u8>,
    /// Leaves after the frame of this number.
    after: u64,
    /// Whether it is displaced, and waits for the frames that are to overtake it.
    displaced: bool,
    due: Instant,
}

/// The faults of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fate {
    drop: bool,
    /// The number of frames between the copies.
    duplicate_after: Option<u64>,
    overtaken_by: Option<u64>,
    /// Selects the bit to flip.
    corrupt: Option<u64>,
}

/// SplitMix64 (Steele, Lea and Flood 2014): passes its tests from any seed, in four lines.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`. The bias of the remainder is below 2^-40 for the bounds used here.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, ppm: u32) -> bool {
        self.below(MILLION.into()) < u64::from(ppm)
    }
}

impl Fate {
    /// Draws the same random numbers for every plan, so that turning one fault on or off does not
    /// move the others to other frames.
    fn draw(seed: u64, frame: u64, plan: &FaultPlan) -> Self {
        // The frame's own generator: the seed's, at a position derived from the frame's number.
        let mut random = Random(Random(seed ^ Random(frame).next()).next());
        let drop = random.chance(plan.drop_ppm());
        let duplicate =
            (random.chance(plan.duplicate_ppm()), random.below(DUPLICATE_AFTER_MAX + 1));
        let reorder = (random.chance(plan.reorder_ppm()), 1 + random.below(OVERTAKEN_MAX));
        let corrupt = (random.chance(plan.corrupt_ppm()), random.next());
        Self {
            drop,
            duplicate_after: duplicate.0.then_some(duplicate.1),
            overtaken_by: reorder.0.then_some(reorder.1),
            corrupt: corrupt.0.then_some(corrupt.1),
        }
    }
}

impl Lane {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, frames: 0, held: VecDeque::new(), spare: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The number of frames that can still be held; a frame may need two.
    pub(super) fn room(&self) -> usize {
        HELD_MAX - self.held.len()
    }

    /// Counts frames that passed without a fate.
    pub(super) fn pass(&mut self, frames: usize) {
        self.frames += frames as u64;
    }

    /// Takes the next frame and applies `plan` to it; without a plan it passes unchanged.
    pub(super) fn take<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a [u8]>,
        plan: Option<&FaultPlan>,
        now: Instant,
    ) {
        assert!(self.room() >= 2, "a lane holds {HELD_MAX} frames");
        let number = self.frames;
        self.frames += 1;
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        parts.for_each(|part| bytes.extend_from_slice(part));
        let Some(plan) = plan else {
            self.hold(Held { bytes, after: number, displaced: false, due: now });
            return;
        };

        let mut counts = plan.counting();
        let fate = Fate::draw(self.seed, number, plan);
        let limit = plan.frame_len_max();
        let lost_to = if plan.is_cut() {
            Some(&mut counts.cut)
        } else if limit != 0 && bytes.len() > limit {
            Some(&mut counts.too_long)
        } else {
            fate.drop.then_some(&mut counts.dropped)
        };
        if let Some(counter) = lost_to {
            *counter += 1;
            self.spare.push(bytes);
            return;
        }
        let due = now + plan.delay();
        if let Some(after) = fate.duplicate_after {
            counts.duplicated += 1;
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.clone_from(&bytes);
            self.hold(Held { bytes: copy, after: number + after, displaced: after > 0, due });
        }
        if let Some(random) = fate.corrupt {
            counts.corrupted += 1;
            let bits = (bytes.len().saturating_sub(ETHERNET) * 8) as u64;
            if let Some(bit) = random.checked_rem(bits) {
                bytes[ETHERNET + (bit / 8) as usize] ^= 1 << (bit % 8);
            }
        }
        if fate.overtaken_by.is_some() {
            counts.reordered += 1;
        }
        let after = number + fate.overtaken_by.unwrap_or(0);
        self.hold(Held { bytes, after, displaced: fate.overtaken_by.is_some(), due });
    }

    /// Inserts a frame behind all that leave before it.
    fn hold(&mut self, frame: Held) {
        let place = self.held.partition_point(|held| held.after <= frame.after);
        self.held.insert(place, frame);
    }

    /// The latest time at which the frame leaves.
    fn leaves_at(&self, frame: &Held) -> Instant {
        // A displaced frame leaves on time if the frames that overtake it have come.
        if frame.displaced && self.frames <= frame.after {
            frame.due + FOLLOWERS_WAIT
        } else {
            frame.due
        }
    }

    /// The frames that may leave now, in order. They stay held until released.
    pub(super) fn due(&self, now: Instant) -> impl Iterator<Item = &[u8]> {
        self.held
            .iter()
            .take_while(move |held| self.leaves_at(held) <= now)
            .map(|held| held.bytes.as_slice())
    }

    /// Removes the first `frames` due frames: they have left.
    pub(super) fn release(&mut self, frames: usize) {
        self.spare.extend(self.held.drain(..frames).map(|held| held.bytes));
    }

    /// The time at which the next held frame is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.held.front().map(|held| self.leaves_at(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A frame of 20 bytes that contains its number.
    fn frame(number: u32) -> [u8; 20] {
        let mut bytes = [0xa5; 20];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    fn number(bytes: &[u8]) -> u32 {
        u32::from_be_bytes(*bytes.first_chunk().unwrap())
    }

    /// The frames that leave by `now`.
    fn leave(lane: &mut Lane, now: Instant) -> Vec<Vec<u8>> {
        let due: Vec<_> = lane.due(now).map(<[u8]>::to_vec).collect();
        lane.release(due.len());
        due
    }

    /// Sends `count` frames through a lane, `batch` at a time, then all held ones.
    fn run(seed: u64, plan: &FaultPlan, count: u32, batch: u32) -> Vec<Vec<u8>> {
        let start = Instant::now();
        let mut lane = Lane::new(seed);
        let mut out = Vec::new();
        for n in 0..count {
            lane.take([&frame(n)[..]].into_iter(), Some(plan), start);
            if n % batch == batch - 1 {
                out.extend(leave(&mut lane, start));
            }
        }
        out.extend(leave(&mut lane, start + plan.delay() + FOLLOWERS_WAIT));
        assert!(lane.is_empty());
        out
    }

    fn numbers(frames: &[Vec<u8>]) -> Vec<u32> {
        frames.iter().map(|bytes| number(bytes)).collect()
    }

    fn wild() -> FaultPlan {
        let plan = FaultPlan::new();
        plan.set_drop_ppm(100_000);
        plan.set_duplicate_ppm(100_000);
        plan.set_reorder_ppm(100_000);
        plan.set_corrupt_ppm(100_000);
        plan
    }

    #[test]
    fn a_seed_gives_the_same_faults_whatever_the_batches() {
        let first = run(7, &wild(), 2000, 1);
        assert_eq!(first, run(7, &wild(), 2000, 1));
        assert_eq!(first, run(7, &wild(), 2000, 64));
        assert_ne!(first, run(8, &wild(), 2000, 64));
    }

    #[test]
    fn faults_come_as_often_as_asked() {
        let plan = wild();
        run(1, &plan, 100_000, 1000);
        let counts = plan.counts();
        // Five standard deviations of a binomial with p = 0.1 around its mean: for the drops
        // n = 100,000, for the others the 90,000 that are left.
        assert!(counts.dropped.abs_diff(10_000) < 475, "{counts:?}");
        for count in [counts.duplicated, counts.reordered, counts.corrupted] {
            assert!(count.abs_diff(9000) < 475, "{counts:?}");
        }
    }

    #[test]
    fn turning_one_fault_on_leaves_the_others_where_they_were() {
        let drops = FaultPlan::new();
        drops.set_drop_ppm(200_000);
        let kept = numbers(&run(3, &drops, 1000, 10));
        drops.set_corrupt_ppm(500_000);
        let corrupted = run(3, &drops, 1000, 10);
        assert_eq!(numbers(&corrupted), kept);
        assert!(corrupted.iter().any(|bytes| bytes[4..] != frame(0)[4..]));
    }

    #[test]
    fn duplicates_come_after_the_first_copy_and_within_bounds() {
        let plan = FaultPlan::new();
        plan.set_duplicate_ppm(MILLION);
        let out = numbers(&run(5, &plan, 500, 100));
        for n in 0..500 {
            let places: Vec<_> = (0..out.len()).filter(|&place| out[place] == n).collect();
            assert_eq!(places.len(), 2, "frame {n}");
            // Between the copies: at most 32 later frames and copies of as many earlier ones.
            assert!(places[1] - places[0] <= 1 + 3 * 32, "frame {n} at {places:?}");
        }
        let firsts: Vec<_> =
            (0..500).map(|n| out.iter().position(|&other| other == n).unwrap()).collect();
        assert!(firsts.is_sorted(), "first copies keep their order");
    }

    #[test]
    fn reordered_frames_are_overtaken_by_at_most_eight_and_none_is_lost() {
        let plan = FaultPlan::new();
        plan.set_reorder_ppm(300_000);
        let out = numbers(&run(5, &plan, 1000, 3));
        assert!(!out.is_sorted());
        for (place, &n) in out.iter().enumerate() {
            let overtook = out[place + 1..].iter().filter(|&&later| later < n).count();
            let overtaken = out[..place].iter().filter(|&&earlier| earlier > n).count();
            assert!(overtaken as u64 <= OVERTAKEN_MAX, "{n} overtaken by {overtaken}");
            assert!(overtook as u64 <= OVERTAKEN_MAX, "{n} overtook {overtook}");
        }
        let mut sorted = out;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
    }

    #[test]
    fn corruption_flips_one_bit_behind_the_ethernet_header() {
        let plan = FaultPlan::new();
        plan.set_corrupt_ppm(MILLION);
        let mut places = std::collections::BTreeSet::new();
        for (n, bytes) in run(9, &plan, 1000, 10).into_iter().enumerate() {
            let wanted = frame(n as u32);
            let flipped: u32 = bytes.iter().zip(wanted).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!(flipped, 1);
            assert_eq!(bytes[..ETHERNET], wanted[..ETHERNET]);
            places.insert(bytes.iter().zip(wanted).position(|(a, b)| *a != b));
        }
        assert_eq!(places.len(), 20 - ETHERNET, "every byte has its turn");
    }

    #[test]
    fn a_delayed_frame_leaves_exactly_when_due() {
        let plan = FaultPlan::new();
        plan.set_delay(5 * MS);
        let start = Instant::now();
        let mut lane = Lane::new(0);
        lane.take([&frame(0)[..]].into_iter(), Some(&plan), start);
        lane.take([&frame(1)[..]].into_iter(), Some(&plan), start + 2 * MS);
        assert_eq!(lane.next_due(), Some(start + 5 * MS));
        assert!(leave(&mut lane, start + 5 * MS - Duration::from_nanos(1)).is_empty());
        assert_eq!(numbers(&leave(&mut lane, start + 5 * MS)), [0]);
        // After healing, frames still do not overtake those in the lane.
        plan.heal();
        lane.take([&frame(2)[..]].into_iter(), Some(&plan), start + 6 * MS);
        assert!(leave(&mut lane, start + 6 * MS).is_empty());
        assert_eq!(numbers(&leave(&mut lane, start + 7 * MS)), [1, 2]);
        assert_eq!(lane.next_due(), None);
    }

    #[test]
    fn a_reordered_frame_that_nothing_follows_leaves_after_a_while() {
        let plan = FaultPlan::new();
        plan.set_reorder_ppm(MILLION);
        let start = Instant::now();
        let mut lane = Lane::new(0);
        lane.take([&frame(0)[..]].into_iter(), Some(&plan), start);
        assert!(leave(&mut lane, start).is_empty());
        assert_eq!(lane.next_due(), Some(start + FOLLOWERS_WAIT));
        assert_eq!(numbers(&leave(&mut lane, start + FOLLOWERS_WAIT)), [0]);
    }

    #[test]
    fn cut_and_length_limit_are_counted_apart() {
        let plan = FaultPlan::new();
        plan.set_frame_len_max(Some(20));
        assert_eq!(run(0, &plan, 10, 1).len(), 10);
        plan.set_frame_len_max(Some(19));
        assert!(run(0, &plan, 10, 1).is_empty());
        plan.set_cut(true);
        assert!(run(0, &plan, 5, 1).is_empty());
        let counts = plan.counts();
        assert_eq!((counts.too_long, counts.cut, counts.dropped), (10, 5, 0));
        assert!(!plan.is_quiet());
        plan.heal();
        assert!(plan.is_quiet());
    }
}
