//! Targets with two interfaces, and resets at one of them: commands at the other have ended when a
//! reset is answered.

use std::collections::BTreeSet;

use tyche_fcoe::FCOE;
use tyche_fcoe::fc::wire::fcp::{Response, ResponseCode};
use tyche_fcoe::fc::wire::{Frame, HEAD_LEN, Kind};

use super::World;
use crate::fcoe::stranger::RESET_OX_ID;

/// A reset of LUN 0 at a target.
pub(super) struct Reset {
    station: usize,
    /// Writes that were at the disk when it came.
    writes: BTreeSet<u64>,
}

impl Reset {
    pub(super) fn is_at(&self, station: usize) -> bool {
        self.station == station
    }
}

fn parse(frame: &[u8]) -> Option<Frame<'_>> {
    let (head, rest) = frame.split_first_chunk::<HEAD_LEN>()?;
    Frame::parse(head, rest).ok().filter(|frame| frame.header.ox_id == RESET_OX_ID)
}

impl World {
    /// The interface of a target that has its disks.
    pub(super) fn first_of(&self, target: usize) -> usize {
        let is_twin = self.plan.twin && target + 1 == self.targets.len();
        if is_twin { 0 } else { target }
    }

    /// The second interface of a target, by its first, if it has one.
    pub(super) fn twin_of(&self, target: usize) -> Option<usize> {
        (self.plan.twin && target == 0).then(|| self.targets.len() - 1)
    }

    /// Has both interfaces of a target do what there is to do, also for each other.
    pub(super) fn settle_twins(&mut self, first: usize) -> Result<(), String> {
        let Some(second) = self.twin_of(first) else { return Ok(()) };
        for index in [first, second, first, second] {
            for (port, frame) in self.settle_target(index)? {
                self.send(index, port, &frame)?;
            }
        }
        Ok(())
    }

    /// Notes a reset that comes to a target.
    pub(super) fn note_reset(&mut self, station: usize, port: usize, frame: &[u8]) {
        let is_reset = port == FCOE
            && station < self.targets.len()
            && parse(frame).is_some_and(|frame| frame.header.kind == Kind::FcpCmnd);
        if is_reset && !self.resets.iter().any(|it| it.station == station) {
            let first = &self.targets[self.first_of(station)];
            let writes = first.writes_at(first.units.start);
            self.resets.push(Reset { station, writes });
        }
    }

    /// Checks that nothing is at work any more which a reset ends, when a target answers it.
    pub(super) fn check_reset(&mut self, station: usize, frame: &[u8]) -> Result<(), String> {
        let Some(frame) = parse(frame).filter(|it| it.header.kind == Kind::FcpRsp) else {
            return Ok(());
        };
        let response = Response::parse(frame.payload).map_err(|error| format!("{error:?}"))?;
        let found = self.resets.iter().position(|it| it.station == station);
        let Some(reset) = found.map(|index| self.resets.swap_remove(index)) else { return Ok(()) };
        let first = &self.targets[self.first_of(station)];
        let left = first.writes_at(first.units.start);
        if response.code == Some(ResponseCode::Complete as u8) && !left.is_disjoint(&reset.writes) {
            return Err("a reset is answered, and a write that it ends is at the disk".into());
        }
        Ok(())
    }
}
