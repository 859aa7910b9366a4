//! Looks at the daemons of this machine: all are asked for a report at the same time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::shared::error::{Code, Error, Result};
use crate::shared::report::MachineReport;
use crate::shared::sessions::{observed, targets};

/// The least time between two looks that rates are made of.
const RATE_TIME_MIN: Duration = Duration::from_secs(1);

/// All samples of one time.
#[derive(Debug)]
pub(super) struct Look {
    /// When the last answer had come.
    pub(super) at: Instant,
    /// The same by the clock of the machine.
    pub(super) time: SystemTime,
    /// How long it took.
    pub(super) took: Duration,
    /// The reports.
    pub(super) machine: MachineReport,
}

impl Look {
    /// Asks all daemons. One that does not answer takes as long as
    /// [`REPORT_TIMEOUT`](crate::shared::control::REPORT_TIMEOUT).
    ///
    /// # Errors
    /// `Permission` if the run-time directory can't be read.
    pub(super) fn new() -> Result<Self> {
        Self::taken().map_err(|error| match error.code {
            Code::Permission => {
                let hint = "root may look, and members of the group `tyche`";
                Error { message: format!("{}; {hint}", error.message), ..error }
            }
            _ => error,
        })
    }

    fn taken() -> Result<Self> {
        let begun = Instant::now();
        // At the same time: both may wait for daemons that are stopped.
        let (sessions, targets) = std::thread::scope(|scope| {
            let sessions = scope.spawn(observed);
            (sessions.join(), targets())
        });
        let mut sessions = sessions.expect("it does not panic")?;
        // By name: their directories are in no order that means anything.
        sessions.sort_by(|a, b| a.record.export.cmp(&b.record.export));
        let targets = targets?.into_iter().map(|(_, report)| report).collect();
        let machine = MachineReport { sessions, targets, ..MachineReport::default() };
        let at = Instant::now();
        Ok(Self { at, time: SystemTime::now(), took: at - begun, machine })
    }
}

/// The last look, and one before it for rates.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<Pair>);

#[derive(Debug, Default)]
struct Pair {
    last: Option<Arc<Look>>,
    before: Option<Arc<Look>>,
}

impl Looks {
    /// The present state, and an earlier one, if there is one. There is one look at a time. Those
    /// who have come before it began share it: daemons are not asked more often because many look.
    ///
    /// # Errors
    /// As [`Look::new`].
    pub(super) fn look(&self) -> Result<(Arc<Look>, Option<Arc<Look>>)> {
        let come = Instant::now();
        let mut pair = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun_later = pair.last.clone().filter(|last| last.at - last.took >= come);
        let now = match begun_later {
            Some(last) => last,
            None => pair.take(Look::new()?),
        };
        Ok((now, pair.before.clone()))
    }
}

impl Pair {
    fn take(&mut self, look: Look) -> Arc<Look> {
        let look = Arc::new(look);
        let is_apart = |last: &Arc<Look>| look.at.duration_since(last.at) >= RATE_TIME_MIN;
        if let Some(last) = self.last.replace(Arc::clone(&look)).filter(is_apart) {
            self.before = Some(last);
        }
        look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_a_second_or_more() {
        let begin = Instant::now();
        let look = |ms: u64| {
            let at = begin + Duration::from_millis(ms);
            let machine = MachineReport::default();
            Look { at, time: SystemTime::now(), took: Duration::ZERO, machine }
        };
        let mut pair = Pair::default();
        let mut before = |ms| {
            pair.take(look(ms));
            pair.before.as_ref().map(|it| (it.at - begin).as_millis())
        };
        assert_eq!([0, 500, 1400, 2500].map(&mut before), [None, None, None, Some(1400)]);
        assert_eq!([2600, 2700, 9000].map(before), [Some(1400), Some(1400), Some(2700)]);
    }
}
