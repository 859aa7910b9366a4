//! An initiator that sends no data of its writes, or stops altogether, and the time that others may
//! wait for it: none.

use std::time::Duration;

use tyche_fcoe::FCOE;

use super::{Event, R_CTL, World, summary};
use crate::fcoe::initiator::Pending;
use crate::fcoe::plan::{HOSTILE, Hostility};

/// The longest that an operation of another initiator takes, beside its data. It is less than
/// E_D_TOV, for which a target waits for data. Without a fault on the way and at the disks nothing
/// takes that long.
const PROMPT: Duration = Duration::from_millis(1800);
/// The bytes per second that its initiator moves at least: its share may allow one small burst at a
/// time.
const RATE_MIN: u32 = 64 << 10;
/// The value of R_CTL for FCP_DATA.
const R_CTL_DATA: u8 = 0x01;
/// The place of SEQ_CNT in a frame.
const SEQ_CNT_AT: usize = 42;
/// The time until an initiator stops, at most.
const FREEZE_MS_MAX: u64 = 5000;

impl World {
    /// Has the stranger send a frame.
    pub(super) fn forge(&mut self) {
        let Some((port, frame)) = self.stranger.forge() else { return };
        let Some(to) = frame.first_chunk::<6>().copied() else { return };
        let Some(station) = (0..self.epochs.len()).find(|it| self.takes(*it, port, to)) else {
            return;
        };
        self.report.forged += 1;
        self.trace(format!("stranger: {}", summary(&frame)));
        let event = Event::Frame { to: station, port, frame, since: None };
        self.schedule.plan(self.now + self.plan.air.latency, event);
    }

    /// The station that is hostile, if one is.
    fn hostile(&self) -> Option<(usize, Hostility)> {
        let hostility = self.plan.hostility.filter(|_| !self.is_calm)?;
        Some((self.targets.len() + HOSTILE, hostility))
    }

    /// Plans the moment at which the initiator stops, if it is to.
    pub(super) fn plan_freeze(&mut self) {
        if let Some((_, Hostility::Frozen)) = self.hostile() {
            let at = self.now + Duration::from_millis(self.random.between(1, FREEZE_MS_MAX));
            self.schedule.plan(at, Event::Freeze);
        }
    }

    /// The initiator stops, until all faults end.
    pub(super) fn freeze(&mut self) {
        if self.hostile().is_some() {
            self.report.freezes += 1;
            self.stop_initiator(HOSTILE);
            self.trace("the hostile initiator stops".into());
        }
    }

    /// The initiator goes on, for all faults have ended.
    pub(super) fn thaw(&mut self) {
        let is_stopped = self.initiators[HOSTILE].station.is_none();
        if self.plan.hostility == Some(Hostility::Frozen) && is_stopped {
            let station = self.targets.len() + HOSTILE;
            self.schedule.plan(self.now, Event::Start { station });
        }
    }

    /// Whether a station keeps a frame to itself.
    pub(super) fn withholds(&mut self, station: usize, port: usize, frame: &[u8]) -> bool {
        let hostility = self.hostile().filter(|it| it.0 == station && port == FCOE);
        let is_data = frame[R_CTL.0] == R_CTL_DATA;
        let is_first = frame[SEQ_CNT_AT..][..2] == [0, 0];
        let is_kept = match hostility {
            Some((_, Hostility::Silent)) => is_data,
            Some((_, Hostility::Sparse)) => is_data && !is_first,
            Some((_, Hostility::Frozen)) | None => false,
        };
        self.report.broken += u64::from(is_kept);
        is_kept
    }

    /// Checks that an operation of an initiator which delivers has not waited for one that does
    /// not. It may wait for a disk that was removed.
    pub(super) fn check_prompt(&self, initiator: usize, pending: Pending) -> Result<(), String> {
        let took = self.now.since(pending.submitted);
        let is_beside_it = self.hostile().is_some() && initiator != HOSTILE;
        let was_away = self.was_removed(self.initiators[initiator].plan.disk, pending.submitted);
        let moved = Duration::from_secs(1) * pending.behind / RATE_MIN;
        if is_beside_it && took > PROMPT + moved && !was_away {
            return Err(format!("initiator {initiator} waits {took:?} beside one that is hostile"));
        }
        Ok(())
    }

    /// Checks the same of those that have not ended.
    pub(super) fn check_pending(&self) -> Result<(), String> {
        let all = self.initiators.iter().enumerate();
        let mut all = all.flat_map(|(index, it)| it.pending.values().map(move |it| (index, it)));
        all.try_for_each(|(index, it)| self.check_prompt(index, *it))
    }

    /// Ends the process of an initiator, and what it had under way; false if there was none.
    pub(super) fn stop_initiator(&mut self, index: usize) -> bool {
        let initiator = &mut self.initiators[index];
        if !initiator.die() {
            return false;
        }
        self.report.host_crashes += 1;
        self.report.vanished += initiator.pending.len() as u64;
        initiator.pending.clear();
        let unit = &mut self.units[initiator.plan.disk];
        unit.history.vanish(initiator.session);
        unit.ledger.vanish(initiator.session);
        let station = self.targets.len() + index;
        self.epochs[station] += 1;
        true
    }
}
