//! The size of an arena whose memory follows its use.

/// The size of an arena, in pages. What it keeps is there from the start; the rest takes memory
/// while it is needed only ([`Reserve`](crate::Reserve)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaSize {
    /// All pages.
    pub all: usize,
    /// The first ones, which always have memory: 1 to all.
    pub kept: usize,
}

impl From<usize> for ArenaSize {
    /// All of so many pages always have memory.
    fn from(all: usize) -> Self {
        Self { all, kept: all }
    }
}

impl ArenaSize {
    /// Whether it keeps fewer pages than it may have.
    pub fn is_elastic(self) -> bool {
        self.kept < self.all
    }
}
