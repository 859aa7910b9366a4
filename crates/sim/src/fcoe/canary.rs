//! Canaries: worlds with one rule off. The checker must catch each.
//!
//! | canary | what is broken |
//! |---|---|
//! | abort | a command is sent again before BA_ACC |
//! | lengths | lengths of data are added up, instead of noting their ranges |
//! | early | a write is executed though data are missing |
//! | quarantine | XIDs of exchanges that ended abnormally are used again at once |
//! | drain | BA_ACC is sent while the disk is at work |
//! | numbers | a command that comes twice is executed twice, whatever its number (CRN) |
//! | attention | the loss of a cache is forgotten if it was told in a response that was lost |
//! | crc | damaged frames are taken |
//! | flush | a flush does nothing |

use tyche_fc::Rule;

use super::plan::FcoePlan;
use super::world::run_with;
use crate::options::Options;
use crate::report::Caught;

/// Names of all canaries.
pub(crate) const CANARIES: [&str; 9] =
    ["abort", "lengths", "early", "quarantine", "drain", "numbers", "attention", "crc", "flush"];

/// Runs a canary with seeds from `first` on until the checker catches it.
pub(crate) fn hunt(name: &str, first: u64, seeds: u64) -> Option<Caught> {
    let rule = match name {
        "abort" => Some(Rule::AwaitAbort),
        "lengths" => Some(Rule::CountOnce),
        "early" => Some(Rule::ExecuteWhole),
        "quarantine" => Some(Rule::Quarantine),
        "drain" => Some(Rule::DrainAborted),
        "numbers" => Some(Rule::CheckNumbers),
        "attention" => Some(Rule::NoteLosses),
        "crc" | "flush" => None,
        other => panic!("there is no canary {other}; there are {CANARIES:?}"),
    };
    let adjust: fn(&mut FcoePlan) = match name {
        "crc" => |plan| plan.air.is_sealed = true,
        "flush" => |plan| plan.disks.iter_mut().for_each(|(disk, _)| disk.flush_lies = true),
        _ => |_| {},
    };
    (first..first + seeds).find_map(|seed| {
        let violation = *run_with(seed, Options::default(), rule, adjust).err()?;
        Some(Caught { seed, violation })
    })
}
