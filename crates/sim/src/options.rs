//! Options of runs.

use std::io::Write;

use crate::plan::{Plan, Profile};

/// How to run seeds.
pub struct Options {
    /// The profile to draw plans with.
    pub profile: Profile,
    /// Operations per seed.
    pub operations: u32,
    /// Receives a line for every event.
    pub verbose: Option<Box<dyn Write>>,
    /// Changes the plan that was drawn.
    pub adjust: Option<fn(&mut Plan)>,
}

impl Default for Options {
    fn default() -> Self {
        Self { profile: Profile::default(), operations: 400, verbose: None, adjust: None }
    }
}

impl Options {
    /// The plan of a seed.
    pub(crate) fn plan(&self, seed: u64) -> Plan {
        let mut plan = Plan::draw(seed, self.operations, self.profile);
        if let Some(adjust) = self.adjust {
            adjust(&mut plan);
        }
        plan
    }
}
