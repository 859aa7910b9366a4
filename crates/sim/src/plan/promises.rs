//! What the protocol promises, as far as it is built.

/// The simulator tries only what the protocol promises to stand, and checks no more. What is
/// promised one day is checked from then on: [`Promises::KEPT`] is the place to say so.
#[derive(Clone, Copy, Debug)]
pub struct Promises {
    /// Fences say how requests have ended: within a run of the target, no operation of a session
    /// is executed twice.
    pub outcomes: bool,
    /// The generation of what a target serves is that of its machine: a session that lives on when
    /// the target was restored from a snapshot learns of it before it is told again that anything
    /// lasts, also if a flush has covered everything.
    pub generations: bool,
    /// A target that cannot keep who writes lets nobody else in to write.
    pub writers: bool,
}

impl Promises {
    /// What is promised today.
    pub const KEPT: Self = Self { outcomes: true, generations: true, writers: true };
}
