//! Mistakes of canaries, and the search for a seed that shows one.

use crate::report::{Caught, Report, Violation};

/// A mistake in worlds that `P` plans, or in their protocol, which has the rules `R`.
#[derive(Clone, Copy)]
pub(crate) enum Mistake<R, P> {
    /// The protocol lacks a rule.
    Rule(R),
    /// The same, in worlds that are changed so that others do not show it first.
    RuleIn(R, fn(&mut P)),
    /// The machines below it do not keep their word.
    World(fn(&mut P)),
}

/// Canaries by name.
pub(crate) type Canaries<R, P> = [(&'static str, Mistake<R, P>)];

/// The names of canaries.
pub(crate) fn names<R, P>(canaries: &Canaries<R, P>) -> Vec<&'static str> {
    canaries.iter().map(|it| it.0).collect()
}

/// Runs a canary with `seeds` seeds from `first` on until the checker catches it. `run` takes the
/// seed, the rule that is off, and the change of the plan.
///
/// # Panics
/// If there is no canary of that name.
pub(crate) fn hunt<R: Copy, P>(
    canaries: &Canaries<R, P>,
    name: &str,
    (first, seeds): (u64, u64),
    run: impl Fn(u64, Option<R>, Option<fn(&mut P)>) -> Result<Report, Box<Violation>>,
) -> Option<Caught> {
    let found = canaries.iter().find(|it| it.0 == name);
    let (_, mistake) = found
        .unwrap_or_else(|| panic!("there is no canary {name}; there are {:?}", names(canaries)));
    let (rule, adjust) = match *mistake {
        Mistake::Rule(rule) => (Some(rule), None),
        Mistake::RuleIn(rule, adjust) => (Some(rule), Some(adjust)),
        Mistake::World(adjust) => (None, Some(adjust)),
    };
    (first..first + seeds).find_map(|seed| {
        let violation = *run(seed, rule, adjust).err()?;
        Some(Caught { seed, violation })
    })
}
