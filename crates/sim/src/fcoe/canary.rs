//! Canaries: worlds with one rule off. The checker must catch each.
//!
//! | canary | what is broken |
//! |---|---|
//! | abort | a command is sent again before BA_ACC |
//! | lengths | lengths of data are added up, instead of noting their ranges |
//! | early | a write is executed though data are missing |
//! | drain | BA_ACC is sent while the disk is at work |
//! | numbers | a command that comes twice is executed twice, whatever its number (CRN) |
//! | rx-ids | an OX_ID gets the same RX_ID again, and SEQ_IDs are not looked at |
//! | sequences | data have any SEQ_ID, and an OX_ID gets the same RX_ID again |
//! | former | an answer with the RX_ID of an earlier exchange is taken |
//! | attention | the loss of a cache is forgotten if it was told in a response that was lost |
//! | generations | a target that was started again counts as one that has lost its cache |
//! | flush-early | a flush succeeds if its disk says so, whatever it has told others |
//! | flush-other | a flush fails because others' writes are lost |
//! | flush-twice | a loss counts each time that it is told |
//! | resets | a reset is answered while a write of another interface is at work |
//! | threads | a login ends while another thread of the port is at work with its commands |
//! | removed | a removed unit is given up while the disk is at work |
//! | confirmation | a loss is told once, though the response may be lost |
//! | addresses | a port is logged in with, though another may have its N_Port_ID |
//! | losses | the loss of a cache counts only if the first lane has heard of it |
//! | crc | damaged frames are taken |
//! | flush | a flush does nothing |
//! | shares | an initiator that sends no data is asked for as much as the ring holds |
//!
//! `Quarantine` has none any more: RX_IDs, each in turn, tell late frames apart already.

use tyche_fc::Rule;

use super::plan::{FcoePlan, Hostility};
use super::world::run_with;
use crate::mistake::{self, Canaries, Mistake};
use crate::options::Options;
use crate::report::Caught;

const CANARIES: &Canaries<Rule, FcoePlan> = &[
    ("abort", Mistake::Rule(Rule::AwaitAbort)),
    ("lengths", Mistake::Rule(Rule::CountOnce)),
    ("early", Mistake::Rule(Rule::ExecuteWhole)),
    ("drain", Mistake::Rule(Rule::DrainAborted)),
    ("numbers", Mistake::Rule(Rule::CheckNumbers)),
    ("rx-ids", Mistake::RuleIn(Rule::RenewRxIds, |plan| plan.repeat_data(Rule::CheckSequences))),
    ("sequences", Mistake::RuleIn(Rule::CheckSequences, |plan| plan.repeat_data(Rule::RenewRxIds))),
    ("former", Mistake::Rule(Rule::RefuseFormerRxIds)),
    ("attention", Mistake::RuleIn(Rule::NoteLosses, |plan| plan.generations = false)),
    ("generations", Mistake::RuleIn(Rule::CompareGenerations, |plan| plan.generations = true)),
    ("flush-early", Mistake::RuleIn(Rule::CompareLosses, FcoePlan::fail_flushes)),
    ("flush-other", Mistake::RuleIn(Rule::SpareOthers, FcoePlan::fail_flushes)),
    ("flush-twice", Mistake::Rule(Rule::TellOnce)),
    ("resets", Mistake::RuleIn(Rule::EndAllTasks, FcoePlan::reset_beside_writes)),
    ("threads", Mistake::RuleIn(Rule::DrainThreads, FcoePlan::log_out_beside_threads)),
    ("removed", Mistake::Rule(Rule::DrainRemoved)),
    ("confirmation", Mistake::RuleIn(Rule::AwaitConfirmation, FcoePlan::lose_responses)),
    ("addresses", Mistake::RuleIn(Rule::AwaitFormer, FcoePlan::collide_after_a_move)),
    ("losses", Mistake::RuleIn(Rule::ShareLosses, FcoePlan::restart_beside_lanes)),
    ("crc", Mistake::World(|plan| plan.air.is_sealed = true)),
    ("flush", Mistake::World(|plan| plan.disks.iter_mut().for_each(|it| it.0.flush_lies = true))),
    ("shares", Mistake::RuleIn(Rule::ShareRing, |plan| plan.be_hostile(Hostility::Silent))),
];

/// Names of all canaries.
pub(crate) fn canaries() -> Vec<&'static str> {
    mistake::names(CANARIES)
}

/// Runs a canary with seeds from `first` on until the checker catches it.
pub(crate) fn hunt(name: &str, first: u64, seeds: u64) -> Option<Caught> {
    mistake::hunt(CANARIES, name, (first, seeds), |seed, rule, adjust| {
        run_with(seed, Options::default(), rule, adjust.unwrap_or(|_| {}))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_number_alone_keeps_repeated_data_out_of_later_writes() {
        for seed in 0..40 {
            let without: [fn(&mut FcoePlan); 2] = [
                |plan| plan.repeat_data(Rule::CheckSequences),
                |plan| plan.repeat_data(Rule::RenewRxIds),
            ];
            for adjust in without {
                let report = run_with(seed, Options::default(), None, adjust);
                report.unwrap_or_else(|found| panic!("{found}"));
            }
        }
    }
}
