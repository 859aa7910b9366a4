//! Logical units that a target's administrator removes while initiators use them, and adds again,
//! with the same disk, which may have lost its cache meanwhile.
//!
//! Rule: once a unit is given up, its disk has no request.

use std::collections::BTreeMap;
use std::time::Duration;

use tyche_fcoe::UnitRemoval;
use tyche_proto::Instant;

use super::{Event, World};
use crate::random::Random;

/// Salt of a seed for the random stream of this module.
const REMOVALS: u64 = 0x7265_6d6f_7661_6c73;
/// Time between two looks whether a unit is given up.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The units that are removed now, if the world has such.
pub(super) struct Removals {
    random: Random,
    /// Mean time between two.
    mean: Option<Duration>,
    current: Vec<Removed>,
    /// By unit, when it was added again.
    added: BTreeMap<usize, Instant>,
}

/// A unit that is removed.
struct Removed {
    unit: usize,
    /// `None` if it is given up, and to be added again.
    removal: Option<UnitRemoval>,
}

impl Removals {
    /// Draws whether units come and go.
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ REMOVALS);
        let mean = Duration::from_millis(random.pick(&[500, 3000, 15_000]));
        let mean = random.chance(0.3).then_some(mean);
        Self { random, mean, current: Vec::new(), added: BTreeMap::new() }
    }
}

impl World {
    /// Plans the next removal, if there is one.
    pub(super) fn plan_removal(&mut self) {
        if let Some(mean) = self.removals.mean {
            let at = self.now + self.removals.random.around(mean);
            self.schedule.plan(at, Event::Removal { unit: None });
        }
    }

    /// Another run of the process with these units serves all of them.
    pub(super) fn forget_removals(&mut self, units: &std::ops::Range<usize>) {
        self.removals.current.retain(|it| !units.contains(&it.unit));
    }

    /// Whether a unit was removed at any time since then.
    pub(super) fn was_removed(&self, unit: usize, since: Instant) -> bool {
        let Removals { current, added, .. } = &self.removals;
        current.iter().any(|it| it.unit == unit) || added.get(&unit).is_some_and(|at| *at > since)
    }

    /// Removes a unit, or goes on with that one, which was removed.
    pub(super) fn removal(&mut self, unit: Option<usize>) -> Result<(), String> {
        match unit {
            Some(unit) => self.go_on_with(unit),
            None if self.is_calm => Ok(()),
            None => {
                self.plan_removal();
                self.remove_unit()
            }
        }
    }

    /// The target that serves a unit: its first interface.
    fn target_of(&self, unit: usize) -> usize {
        let target = self.targets.iter().position(|it| it.units.contains(&unit));
        self.first_of(target.expect("a unit is that of a target"))
    }

    fn remove_unit(&mut self) -> Result<(), String> {
        let unit = self.removals.random.below(self.units.len() as u64) as usize;
        let target = self.target_of(unit);
        let Some(removal) = self.targets[target].remove(unit) else { return Ok(()) };
        self.trace(format!("disk {unit} is removed"));
        self.report.removals += 1;
        self.removals.current.push(Removed { unit, removal: Some(removal) });
        self.settle(target)?;
        self.go_on_with(unit)
    }

    fn go_on_with(&mut self, unit: usize) -> Result<(), String> {
        let target = self.target_of(unit);
        let found = self.removals.current.iter().position(|it| it.unit == unit);
        let Some(index) = found else { return Ok(()) };
        let pause = match &self.removals.current[index].removal {
            Some(removal) if !removal.wait(Duration::ZERO) => LOOK_EVERY,
            Some(_) => {
                if self.targets[target].is_at_work(unit) {
                    return Err(format!("disk {unit} is given up, and has requests"));
                }
                self.trace(format!("nothing of disk {unit} is left"));
                self.removals.current[index].removal = None;
                Duration::from_millis(self.removals.random.pick(&[1, 50, 1000, 10_000]))
            }
            None => {
                self.removals.current.swap_remove(index);
                self.removals.added.insert(unit, self.now);
                self.units[unit].forget_writer();
                if self.plan.confirms && self.removals.random.chance(0.3) {
                    self.trace(format!("disk {unit} has lost its cache"));
                    self.units[unit].lose_cache();
                    self.units[unit].history.lose_target(true);
                }
                self.targets[target].add_again(unit, &mut self.units[unit]);
                self.trace(format!("disk {unit} is added again"));
                return self.settle(target);
            }
        };
        self.schedule.plan(self.now + pause, Event::Removal { unit: Some(unit) });
        Ok(())
    }
}
