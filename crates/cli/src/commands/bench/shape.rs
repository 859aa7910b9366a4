//! The shape of a load: its requests, and how they are drawn.

use clap::ValueEnum;

/// The access pattern: order and kind of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// Read one after the other.
    Read,
    /// Write one after the other.
    Write,
    /// Read and write one after the other.
    Rw,
    /// Read anywhere.
    Randread,
    /// Write anywhere.
    Randwrite,
    /// Read and write anywhere.
    Randrw,
}

impl Pattern {
    /// Whether the pattern overwrites content.
    pub(super) fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::Randread)
    }
}

/// The load of one job.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub(super) pattern: Pattern,
    /// Bytes of a request.
    pub len: u32,
    /// Requests in flight.
    pub depth: u16,
    /// Reads in 100 requests.
    pub reads_of_100: u64,
}

impl Shape {
    pub(super) fn new(pattern: Pattern, len: u32, depth: u16, rwmix: u64) -> Self {
        let reads_of_100 = match pattern {
            Pattern::Read | Pattern::Randread => 100,
            Pattern::Write | Pattern::Randwrite => 0,
            Pattern::Rw | Pattern::Randrw => rwmix,
        };
        Self { pattern, len, depth, reads_of_100 }
    }
}

/// Xorshift: cheap, and random enough to defeat read-ahead.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with its own sequence for each seed.
    pub fn new(seed: u64) -> Self {
        Self(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * seed + 1))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// True in `percent` of 100 calls.
    pub fn percent(&mut self, percent: u64) -> bool {
        (self.next() >> 40) % 100 < percent
    }
}
