//! Rates of counters between two looks, for the page.

use tyche_native::UseCounts;

use super::looks::Look;
use crate::shared::report::{
    ExportReport, RequestCounters, SessionLink, SessionReport, TargetLink, TargetReport,
};

/// Two looks. Rates are of the time between them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates<'a> {
    before: Option<&'a Look>,
    seconds: f64,
}

impl<'a> Rates<'a> {
    /// Without an earlier look there are no rates.
    pub(super) fn new(now: &Look, before: Option<&'a Look>) -> Self {
        let seconds = before.map_or(0.0, |it| now.at.duration_since(it.at).as_secs_f64());
        Self { before, seconds }
    }

    /// Whether there are any.
    pub(super) fn are_known(self) -> bool {
        self.before.is_some()
    }

    /// A counter by second; `None` if it is not known or has begun anew.
    pub(super) fn of(self, now: u64, before: Option<u64>) -> Option<f64> {
        Some(now.checked_sub(before?)? as f64 / self.seconds)
    }

    fn session(self, now: &SessionReport) -> Option<&'a SessionReport> {
        let mut sessions = self.before?.machine.sessions.iter();
        sessions
            .find(|it| it.record.session == now.record.session && it.record.pid == now.record.pid)
    }

    /// The requests of a session at the earlier look.
    pub(super) fn requests(self, now: &SessionReport) -> Option<&'a RequestCounters> {
        Some(&self.session(now)?.figures()?.requests)
    }

    /// The link of a session at the earlier look.
    pub(super) fn session_link(
        self,
        of: &SessionReport,
        now: &SessionLink,
    ) -> Option<&'a SessionLink> {
        self.session(of)?.links().iter().find(|it| it.interface == now.interface)
    }

    fn target(self, now: &TargetReport) -> Option<&'a TargetReport> {
        let mut targets = self.before?.machine.targets.iter();
        targets.find(|it| it.name == now.name && it.pid == now.pid)
    }

    /// The requests of an export at the earlier look.
    pub(super) fn uses(self, of: &TargetReport, now: &ExportReport) -> Option<&'a UseCounts> {
        let mut exports = self.target(of)?.exports.iter();
        Some(&exports.find(|it| it.export == now.export && it.uuid == now.uuid)?.requests.0)
    }

    /// The link of a target at the earlier look.
    pub(super) fn target_link(self, of: &TargetReport, now: &TargetLink) -> Option<&'a TargetLink> {
        self.target(of)?.links.iter().find(|it| it.interface == now.interface)
    }
}
