//! The promises of the protocol, as far as it is built.

/// The promises that a run relies on: the simulator causes only faults that the protocol promises
/// to survive, and checks no more. A promise in [`Promises::KEPT`] is checked in every run.
#[derive(Clone, Copy, Debug)]
pub struct Promises {
    /// Fences report how requests have ended: within a run of the target, no operation of a session
    /// is executed twice.
    pub outcomes: bool,
    /// The generation of an export is that of the target's machine: a session that lives on when
    /// the target was restored from a snapshot learns of it before it is told again that anything
    /// lasts, also if a flush has covered everything.
    pub generations: bool,
    /// A target that cannot store the last writer admits no other one for writing.
    pub writers: bool,
    /// A flush fails only for who had data at stake when a loss was noticed, and once for each.
    pub told_once: bool,
}

impl Promises {
    /// The promises of today.
    pub const KEPT: Self =
        Self { outcomes: true, generations: true, writers: true, told_once: true };
}
