//! A number of modifications, with their generation, in one atomic.

/// How many volatile modifications a queue has completed, and the ordinal of its generation: 16
/// bits above 48 bits of count. Zero: the queue never had a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written(pub(super) u64);

impl Written {
    const COUNT_BITS: u32 = 48;

    /// A flush has nothing to cover.
    pub(crate) const NOTHING: Self = Self(0);

    pub(super) fn new(ordinal: u16, count: u64) -> Self {
        Self(u64::from(ordinal) << Self::COUNT_BITS | count)
    }

    pub(super) fn ordinal(self) -> u16 {
        (self.0 >> Self::COUNT_BITS) as u16
    }

    pub(super) fn count(self) -> u64 {
        self.0 & ((1 << Self::COUNT_BITS) - 1)
    }
}
