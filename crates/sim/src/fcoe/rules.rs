//! Machines with a rule that is broken on purpose, or none, and those that keep no rule that only
//! targets of ours have.

use tyche_fc::{Rule, Rules};

/// Its values stand for all canaries: so there is one copy of the machines for all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Broken {
    pub(super) rule: Option<Rule>,
    /// Another that is not kept, and need not be.
    pub(super) without: Option<Rule>,
    /// Whether unit attentions are confirmed.
    pub(super) confirms: bool,
}

impl Rules for Broken {
    fn keeps(self, rule: Rule) -> bool {
        let is_off = |rule| self.rule == Some(rule) || self.without == Some(rule);
        match rule {
            Rule::AwaitConfirmation if !self.confirms => false,
            // A target that does not renew them is as one that is not ours.
            Rule::RefuseFormerRxIds if is_off(Rule::RenewRxIds) => false,
            rule => !is_off(rule),
        }
    }
}
