//! What the protocol promises, as far as it is built.

/// The simulator tries only what the protocol promises to stand, and checks no more. What is
/// promised one day is checked from then on: [`Promises::KEPT`] is the place to say so.
#[derive(Clone, Copy, Debug)]
pub struct Promises {
    /// Fences say how requests have ended: within a run of the target, no operation of a session
    /// is executed twice.
    pub outcomes: bool,
}

impl Promises {
    /// What is promised today.
    pub const KEPT: Self = Self { outcomes: false };
}
