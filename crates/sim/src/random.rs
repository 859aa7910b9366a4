//! Random numbers: everything that a run does follows from its seed.

use std::time::Duration;

/// SplitMix64 (Steele, Lea, Flood 2014): small, fast, and good enough for simulations.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent stream, so that the draws of one part do not change those of another.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next() ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Less than `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// As `chance`, but without a draw if `probability` is zero: later draws stay the same.
    pub(crate) fn hits(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.chance(probability)
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Between 0.5 and 1.5 times `mean`.
    pub(crate) fn around(&mut self, mean: Duration) -> Duration {
        let mean = mean.as_nanos() as u64;
        Duration::from_nanos(self.between(mean / 2, mean + mean / 2))
    }
}

/// Spreads a number over 64 bits.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
