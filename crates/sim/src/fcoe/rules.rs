//! Machines with a rule that is broken on purpose, or none.

use tyche_fc::{Rule, Rules};

/// Its values stand for all canaries: so there is one copy of the machines for all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Broken(pub(super) Option<Rule>);

impl Rules for Broken {
    fn keeps(self, rule: Rule) -> bool {
        self.0 != Some(rule)
    }
}
