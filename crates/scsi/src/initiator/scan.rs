//! The search for the logical units of a target: REPORT LUNS, at LUN 0.

use alloc::vec;
use alloc::vec::Vec;

use super::discovery::{Attempts, DiscoveryError, Progress, question};
use super::{CommandAnswer, Request};
use crate::cdb::{Command, LunSelect};
use crate::lun::{Lun, UNITS_MAX};
use crate::operation::Failure;
use crate::report_luns::{LUNS_LEN_MAX, LunList};

/// The most bytes of a list that are asked for.
const ALLOCATION: u32 = LUNS_LEN_MAX as u32;

/// The list of a target's logical units.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    luns: Vec<Lun>,
    left_out: usize,
    attempts: Attempts,
}

impl Scan {
    /// The command to send to [`Lun::ZERO`].
    pub fn request(&self) -> Request {
        let select = LunSelect::Ordinary;
        question(Command::ReportLuns { select, allocation: ALLOCATION }, ALLOCATION)
    }

    /// Takes the answer to it, or a later one: a target may tell that its LUNs have changed.
    pub fn handle(&mut self, answer: CommandAnswer<'_>) -> Progress {
        let data = match self.attempts.take(&answer) {
            Ok(data) => data,
            // A target of the time before lists has LUN 0.
            Err(Progress::Failed(DiscoveryError::Refused(
                Failure::NotSupported | Failure::Invalid,
            ))) => {
                (self.luns, self.left_out) = (vec![Lun::ZERO], 0);
                return Progress::Done;
            }
            Err(progress) => return progress,
        };
        match LunList::parse(data) {
            Ok(list) => {
                self.luns = list.iter().take(UNITS_MAX).collect();
                self.left_out = list.total() - self.luns.len();
                Progress::Done
            }
            Err(fault) => Progress::Failed(DiscoveryError::Malformed(fault)),
        }
    }

    /// The logical units, at most [`UNITS_MAX`], as the target names them.
    pub fn luns(&self) -> &[Lun] {
        &self.luns
    }

    /// The number of the target's logical units that are not in [`Scan::luns`].
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}
